"""Compare the latency in records with the latency by a client's own clock.

`python -m tests.measure.latency_clock --recording FILE` starts a server with providers that answer at once, and calls
it from several clients at a time, one turn a session. It prints how much longer the record's latency is than the
client's, for clients that report playback and for clients that do not. A client may count from two instants: when its
device captured the last voiced sample, or when it sent the frame with this sample, which is up to a frame later.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from tests.measure.fault_attribution_provider import DelayedProvider
from voicepipe.audio.files import read_sound
from voicepipe.audio.samples import Samples, silence
from voicepipe.bench.load.processes import started
from voicepipe.client import RATE_HZ, closed_turn, connect, until_ready
from voicepipe.client.microphone import FRAME_MS
from voicepipe.client.session_options import EXTENSIONS, SessionOptions
from voicepipe.errors import VoicepipeError
from voicepipe.values import replace

ANSWER_MS: Final = 400
"""How long an answer plays: a client that reports playback does so every 100 ms."""

RECORD_LATE_MS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Compared:
    """One turn."""

    reports: bool
    """Whether its client reported playback."""

    off_ms: int
    """The record's latency less the client's, which counts from the capture of the last voiced sample."""

    off_by_frame_ms: int
    """The same for a client that counts from the sending of the frame with that sample."""


def compared(*, t0_ms: int, client_ms: int, record_ms: int, reports: bool) -> Compared:
    """Compare one turn. `t0_ms`: the last voiced sample, in the client's audio."""
    until_sent_ms = FRAME_MS - t0_ms % FRAME_MS
    off_ms = record_ms - client_ms
    return Compared(reports, off_ms, off_ms + until_sent_ms)


async def measure_turn(url: str, recording: Samples, *, reports: bool) -> Compared:
    """Call the server for one turn.

    Raises:
        VoicepipeError: no answer came, or the connection failed.
        RuntimeError: there is no record of the turn.
    """
    options = SessionOptions(extensions=replace(EXTENSIONS, playback_reports=reports))
    async with connect(url, session_options=options) as call:
        answer = await call.turn(recording)
        record = await closed_turn(url, answer.turn_id, timeout_ms=RECORD_LATE_MS)
    if record is None or record.total_ms is None or answer.t0_ms is None or answer.latency_ms is None:
        raise RuntimeError(f"expected a record with a latency of turn {answer.turn_id}, got none")
    if (record.latency_source == "reported") is not reports:
        raise RuntimeError(f"expected a latency that was reported: {reports}, got {record.latency_source}")
    known = (answer.latency_ms, record.total_ms)
    return compared(t0_ms=answer.t0_ms, client_ms=known[0], record_ms=known[1], reports=reports)


async def run(recording: Samples, *, turns: int, clients: int, say: Callable[[str], None]) -> list[Compared]:
    """Start the server, and measure `turns` turns of each kind with `clients` clients at a time.

    Raises:
        VoicepipeError, RuntimeError: as `measure_turn`; or the server did not start.
    """
    provider = DelayedProvider(sound_ms=ANSWER_MS)
    with tempfile.TemporaryDirectory() as folder:
        async with provider.serving() as base_url, started(*server_command(Path(folder), base_url)) as server:
            await until_ready(server.url, say)
            await measure_turn(server.url, recording, reports=True)  # the first turn opens every connection
            left = iter(range(2 * turns))
            found: list[Compared] = []

            async def client() -> None:
                for n in left:
                    # The last voiced sample lies elsewhere in its frame each time.
                    begin = silence(n // 2 % FRAME_MS * RATE_HZ // 1_000)
                    sound = np.concatenate((begin, recording))
                    found.append(await measure_turn(server.url, sound, reports=n % 2 == 0))
                    if len(found) % 50 == 0:
                        say(f"{len(found)} of {2 * turns} turns")

            async with asyncio.TaskGroup() as group:
                for n in range(clients):
                    group.create_task(client(), name=f"client-{n}")
            return found


def server_command(folder: Path, base_url: str) -> list[str]:
    """Return the command of a server with that provider, whose files are in `folder`."""
    settings = {
        "server.port": 0,
        "server.workers": 1,
        "server.data_dir": folder / "data",
        "server.drain_ms": 0,
        "providers.bench.base_url": base_url,
        **{f"agents.default.{stage}": f"bench/{stage}" for stage in ("stt", "llm", "tts")},
    }
    return ["voicepipe", "serve", *(word for key, value in settings.items() for word in ("--set", f"{key}={value}"))]


def report(found: Sequence[Compared]) -> Iterator[str]:
    """Yield the table in Markdown, line by line."""
    yield "| client | counts from | turns | median | p5 to p95 | all |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for reports, name in ((True, "reports playback"), (False, "reports nothing")):
        measured = [each for each in found if each.reports is reports]
        for instant, offs_ms in (
            ("capture", [each.off_ms for each in measured]),
            ("sending", [each.off_by_frame_ms for each in measured]),
        ):
            ordered = sorted(offs_ms)
            if not ordered:
                continue
            p5, p50, p95 = (ordered[round(q * (len(ordered) - 1))] for q in (0.05, 0.5, 0.95))
            span = f"{ordered[0]:+d} to {ordered[-1]:+d} ms"
            yield f"| {name} | {instant} | {len(ordered)} | {p50:+d} ms | {p5:+d} to {p95:+d} ms | {span} |"


def say(line: str) -> None:
    """Print a line of progress now."""
    sys.stderr.write(f"{line}\n")


def main(arguments: list[str] | None = None) -> int:
    """Print the table; 2 when the server does not start or a turn has no record."""
    parser = argparse.ArgumentParser(prog="python -m tests.measure.latency_clock", description=__doc__)
    parser.add_argument("--recording", type=Path, required=True, help="what the user says")
    parser.add_argument("--turns", type=int, default=200, help="turns of each kind of client (200)")
    parser.add_argument("--clients", type=int, default=4, help="clients at a time (4)")
    options = parser.parse_args(arguments)
    try:
        recording = read_sound(options.recording, RATE_HZ)
        found = asyncio.run(run(recording, turns=options.turns, clients=options.clients, say=say))
    except (VoicepipeError, RuntimeError, OSError) as why:
        sys.stderr.write(f"latency_clock: {why}\n")
        return 2
    sys.stdout.write("".join(f"{line}\n" for line in report(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
