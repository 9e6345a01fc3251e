"""Store the runs of scheduled benches: a file with a line of JSON for each, and what they have cost.

A run is written before its first request, with the most that it can cost, and again at its end, with its cost. So what
a process has spent counts even if it was killed.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

import msgspec

from voicepipe.bench.scheduled.schedule import DAY_MS
from voicepipe.errors import VoicepipeError

FILE_NAME: Final = "benches.jsonl"

Result = Literal["began", "measured", "failed", "over_cap"]

_json: Final = msgspec.json.Encoder()


class BenchLogInUse(VoicepipeError):
    """Another process measures the benches of the same folder."""


class BenchRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run of a bench for one model."""

    id: str
    at_ms: int
    """When it began, in ms since 1970 UTC."""

    bench: str
    stage: str
    model: str
    result: Result
    """`began`: it runs, or its process has died. `over_cap`: it was left out, since it could cost too much."""

    usd: float = 0.0
    """The cost; of a run that only began the most that it can cost."""

    failed: int = 0
    """Number of requests that failed."""

    latencies_ms: tuple[float, ...] = ()
    """To the first token (LLM), the first audible audio (TTS) or the text (STT), of each answer."""

    why: str = ""
    """Why it failed, or its first request that did."""

    @property
    def subject(self) -> tuple[str, str, str]:
        """Return what was measured: bench, stage and model."""
        return self.bench, self.stage, self.model


@dataclass(frozen=True, slots=True)
class Spent:
    """Cost of the runs of the current day and month, UTC."""

    day_usd: float
    month_usd: float


def read_runs(path: Path) -> list[BenchRun]:
    """Return the runs of the file in the order in which they began; a line that can't be read is skipped.

    Raises:
        OSError: the file can't be read. A missing file has no runs.
    """
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return []
    by_id = {run.id: run for run in _decoded(lines)}  # the last line of a run counts
    return sorted(by_id.values(), key=lambda run: run.at_ms)


def _decoded(lines: Iterable[bytes]) -> Iterator[BenchRun]:
    for line in lines:
        try:
            yield msgspec.json.decode(line, type=BenchRun)
        except msgspec.DecodeError:  # torn by a crash, or of another version
            continue


def spent(runs: Iterable[BenchRun], now_ms: int) -> Spent:
    """Return what the runs have cost, or can cost at most while they run."""
    day_ms = now_ms - now_ms % DAY_MS
    month = datetime.fromtimestamp(now_ms / 1_000, UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    month_ms = round(month.timestamp() * 1_000)
    paid = [(run.at_ms, run.usd) for run in runs]
    return Spent(
        day_usd=sum(usd for at_ms, usd in paid if at_ms >= day_ms),
        month_usd=sum(usd for at_ms, usd in paid if at_ms >= month_ms),
    )


class BenchLog:
    """The file, for the one process that measures."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._runs = {run.id: run for run in read_runs(path)}

    @property
    def runs(self) -> list[BenchRun]:
        """Return all runs in the order in which they began."""
        return list(self._runs.values())

    def write(self, run: BenchRun) -> None:
        """Write a run, in place of the same run's earlier state. It is on the disk when this returns.

        Raises:
            OSError: the disk is full, or fails.
        """
        with self._path.open("ab") as file:
            # A line of its own, also behind one that a crash has torn.
            file.write(b"\n" + _json.encode(run) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self._runs[run.id] = run

    def delete_before(self, at_ms: int) -> None:
        """Delete the runs that began before, and write the file anew.

        Raises:
            OSError: the disk is full, or fails.
        """
        keep = {id_: run for id_, run in self._runs.items() if run.at_ms >= at_ms}
        new = self._path.with_suffix(".new")
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.writelines(_json.encode(run) + b"\n" for run in keep.values())
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._path)
        self._runs = keep


@contextmanager
def open_log(folder: Path) -> Iterator[BenchLog]:
    """Open the file for the duration of the block; no other process can meanwhile.

    Raises:
        BenchLogInUse: another process has it open.
        OSError: it can't be read or written.
    """
    lock = os.open(folder / "benches.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BenchLogInUse(f"another process measures the benches of {folder}") from None
        path = folder / FILE_NAME
        path.touch(mode=0o600)
        yield BenchLog(path)
    finally:
        os.close(lock)
