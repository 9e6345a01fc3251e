"""Read the turns of a run from journals, exported records, answers of the API, or the load bench."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from voicepipe.errors import VoicepipeError
from voicepipe.telemetry.journal.format import is_journal, read_journal

_SUFFIXES: Final = (".jsonl", ".json", ".csv")


class RunError(VoicepipeError):
    """The named file or folder has no turns."""


@dataclass(frozen=True, slots=True)
class MeasuredTurn:
    """One turn of a run."""

    latency_ms: int | None
    """None: the turn failed before its first audio."""

    missed: bool
    """Over its limit, or failed."""


def read_run(path: Path, *, limit_ms: int) -> list[MeasuredTurn]:
    """Return all turns of a file, or of a folder's files. Turns that the user did not wait for do not count.

    `limit_ms`: limit of the turn latency, for files that do not record whether it was met.

    Raises:
        RunError: there are no turns.
    """
    files = [path] if path.is_file() else sorted(p for p in path.glob("*") if p.suffix in _SUFFIXES)
    turns = [turn for file in files for turn in _turns(file, limit_ms)]
    if not turns:
        raise RunError(
            f"{path}: expected journals, exported turns or a bench's CSV with turns that have a latency, found none"
        )
    return turns


def _turns(path: Path, limit_ms: int) -> Iterator[MeasuredTurn]:
    data = path.read_bytes()
    try:
        for row in _rows(path, data):
            if (turn := _measured(row, limit_ms)) is not None:
                yield turn
    except (KeyError, ValueError, TypeError, msgspec.MsgspecError) as why:
        raise RunError(f"{path}: expected turns with total_ms and outcome, got {type(why).__name__}: {why}") from None


def _rows(path: Path, data: bytes) -> Iterator[Mapping[str, Any]]:
    if is_journal(data):
        # As recorded, not as this version would judge them.
        yield from _recorded(data)
    elif path.suffix == ".csv":
        yield from csv.DictReader(io.StringIO(data.decode("utf-8-sig")))
    elif path.suffix == ".jsonl":
        yield from (msgspec.json.decode(line, type=dict[str, Any]) for line in data.splitlines() if line.strip())
    else:
        found = msgspec.json.decode(data)
        yield from found["data"] if isinstance(found, dict) else found


def _recorded(data: bytes) -> Iterator[Mapping[str, Any]]:
    latest: dict[str, Mapping[str, Any]] = {}
    for line in read_journal(data).lines:
        for command in line.commands:
            if command.get("is") == "StoreRecord":
                latest[command["record"]["id"]] = command["record"]
    yield from latest.values()


def _measured(row: Mapping[str, Any], limit_ms: int) -> MeasuredTurn | None:
    if "latency_ms" in row:  # the load bench's CSV
        latency_ms = _number(row["latency_ms"])
        return MeasuredTurn(latency_ms, latency_ms is None or latency_ms > limit_ms)
    latency_ms, outcome = _number(row["total_ms"]), row["outcome"]
    if outcome == "failed":
        return MeasuredTurn(latency_ms, True)
    return None if latency_ms is None else MeasuredTurn(latency_ms, row["total_verdict"] == "over")


def _number(cell: object) -> int | None:
    return None if cell in (None, "") else round(float(str(cell)))
