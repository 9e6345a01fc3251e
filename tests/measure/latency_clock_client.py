"""Compare the latency in records with that of a client that shares no code with this project.

`python -m tests.measure.latency_clock_client --recording FILE` starts a server with providers that answer at once, and
calls it over a plain WebSocket with frames of 10 to 100 ms. The client takes its times from its own clock: when its
device captured the last voiced sample, and when the first audible sample of the answer plays. `--late-ms` sends every
frame that much later than it was captured, `--apart-ms` lets that time pass between the two positions of a playback
report, which must be of one instant. It prints the record's latency less the client's.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp
import numpy as np
import pybase64

from tests.measure.fault_attribution_provider import DelayedProvider
from tests.measure.latency_clock import ANSWER_MS, say, server_command
from voicepipe.audio.files import read_sound
from voicepipe.audio.samples import Samples, silence
from voicepipe.bench.load.processes import started
from voicepipe.client import until_ready
from voicepipe.errors import VoicepipeError

RATE_HZ: Final = 24_000
FRAMES_MS: Final = (10, 20, 30, 40, 60, 100)
LOUD: Final = 300
"""Anything quieter is no sound: the provider's answer is a tone."""

REPORT_EVERY_MS: Final = 100
TURN_TIMEOUT_MS: Final = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """What the client does wrong."""

    late_ms: int = 0
    apart_ms: int = 0
    first_report_ms: int = 50
    """From the first audible sample to the first report."""


@dataclass(slots=True)
class PlainClient:
    """One turn over a plain WebSocket. Times are ms on this process's monotonic clock."""

    ws: aiohttp.ClientWebSocketResponse
    sound: Samples
    frame_ms: int
    reports: bool
    planted: Planted
    began_ms: float = 0.0
    t0_ms: int = 0
    plays_from_ms: float | None = None
    audible_ms: float | None = None
    received_ms: float = 0.0
    item_id: str = ""
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    async def off_ms(self) -> float:
        """Hold the turn; return the record's latency less this client's, in ms."""
        try:
            async for message in self.ws:
                now_ms = _now_ms()
                event = json.loads(message.data)
                if event["type"] == "voicepipe.turn.record" and event["record"]["outcome"]:
                    assert self.audible_ms is not None
                    return float(event["record"]["total_ms"] - (self.audible_ms - self.began_ms - self.t0_ms))
                self._take(event, now_ms)
            raise RuntimeError("expected the turn's record, got the end of the connection")
        finally:
            for task in self.tasks:
                task.cancel()

    def _take(self, event: dict[str, Any], now_ms: float) -> None:
        match event["type"]:
            case "session.updated":
                self.tasks.append(asyncio.create_task(self._send_microphone(), name="microphone"))
            case "input_audio_buffer.speech_stopped":
                self.t0_ms = event["audio_end_ms"]
            case "response.output_audio.delta":
                self._play(event["item_id"], np.frombuffer(pybase64.b64decode(event["delta"]), "<i2"), now_ms)

    def _play(self, item_id: str, samples: Samples, now_ms: float) -> None:
        if self.plays_from_ms is None:
            self.plays_from_ms = now_ms
        loud = np.flatnonzero(np.abs(samples.astype(np.int32)) > LOUD)
        if self.audible_ms is None and len(loud):
            begins_ms = max(now_ms, self.plays_from_ms + self.received_ms)
            self.audible_ms, self.item_id = begins_ms + float(loud[0]) * 1_000 / RATE_HZ, item_id
            if self.reports:
                self.tasks.append(asyncio.create_task(self._report(), name="reports"))
        self.received_ms += len(samples) * 1_000 / RATE_HZ

    async def _send_microphone(self) -> None:
        self.began_ms, n_samples, n = _now_ms(), RATE_HZ * self.frame_ms // 1_000, 0
        while True:
            due_ms = self.began_ms + (n + 1) * self.frame_ms + self.planted.late_ms
            await asyncio.sleep(max(0.0, due_ms - _now_ms()) / 1_000)
            frame = self.sound[n * n_samples : (n + 1) * n_samples]
            frame = np.concatenate((frame, silence(n_samples - len(frame))))
            audio = pybase64.b64encode(frame.astype("<i2").tobytes()).decode()
            await self.ws.send_json({"type": "input_audio_buffer.append", "audio": audio})
            n += 1

    async def _report(self) -> None:
        assert self.audible_ms is not None
        assert self.plays_from_ms is not None
        await asyncio.sleep(max(0.0, self.audible_ms + self.planted.first_report_ms - _now_ms()) / 1_000)
        while True:
            now_ms = _now_ms()  # one instant for both positions
            played_ms = int(min(self.received_ms, now_ms - self.plays_from_ms))
            await asyncio.sleep(self.planted.apart_ms / 1_000)
            input_ms = round((_now_ms() if self.planted.apart_ms else now_ms) - self.began_ms)
            left_ms = int(self.received_ms) - played_ms
            positions = {"played_ms": played_ms, "buffered_ms": left_ms, "input_ms": input_ms}
            await self.ws.send_json({"type": "voicepipe.playback", "item_id": self.item_id, **positions})
            await asyncio.sleep(REPORT_EVERY_MS / 1_000)


def _now_ms() -> float:
    return time.monotonic() * 1_000


async def one_turn(
    http: aiohttp.ClientSession, url: str, sound: Samples, frame_ms: int, planted: Planted, *, reports: bool
) -> float:
    """Return the record's latency less the client's, in ms.

    Raises:
        RuntimeError: the connection ended before the record came.
        TimeoutError: no record came in time.
    """
    async with asyncio.timeout(TURN_TIMEOUT_MS / 1_000), http.ws_connect(f"{url}/v1/realtime", max_msg_size=0) as ws:
        granted = {"voicepipe": {"playback_reports": reports, "turn_events": True}}
        await ws.send_json({"type": "session.update", "session": {"type": "realtime", "providerData": granted}})
        return await PlainClient(ws, sound, frame_ms, reports, planted).off_ms()


async def run(recording: Samples, planted: Planted, *, turns: int, clients: int) -> dict[bool, list[float]]:
    """Return the differences of `turns` turns by whether the client reported playback.

    Raises:
        VoicepipeError, RuntimeError: the server did not start, or the connection to it was lost.
    """
    provider, found = DelayedProvider(sound_ms=ANSWER_MS), dict[bool, list[float]]()
    with tempfile.TemporaryDirectory() as folder:
        async with (
            provider.serving() as base_url,
            started(*server_command(Path(folder), base_url)) as server,
            aiohttp.ClientSession() as http,
        ):
            await until_ready(server.url, say)
            await one_turn(http, server.url, recording, 20, Planted(), reports=True)  # opens every connection
            left = iter(range(turns))

            async def client() -> None:
                for n in left:
                    reports, frame_ms = n % 2 == 0, FRAMES_MS[n // 2 % len(FRAMES_MS)]
                    with suppress(TimeoutError):
                        off_ms = await one_turn(http, server.url, recording, frame_ms, planted, reports=reports)
                        found.setdefault(reports, []).append(off_ms)

            async with asyncio.TaskGroup() as group:
                for n in range(clients):
                    group.create_task(client(), name=f"client-{n}")
    return found


def report(found: dict[bool, list[float]]) -> Iterator[str]:
    """Yield the table in Markdown, line by line."""
    yield "| client | turns | median | p5 to p95 | all |"
    yield "| --- | --- | --- | --- | --- |"
    for reports, name in ((True, "reports playback"), (False, "reports nothing")):
        if offs_ms := sorted(found.get(reports, ())):
            p5, p50, p95 = (_quantile(offs_ms, q) for q in (0.05, 0.5, 0.95))
            span = f"{offs_ms[0]:+.1f} to {offs_ms[-1]:+.1f} ms"
            yield f"| {name} | {len(offs_ms)} | {p50:+.1f} ms | {p5:+.1f} to {p95:+.1f} ms | {span} |"


def _quantile(ordered: Sequence[float], q: float) -> float:
    return ordered[round(q * (len(ordered) - 1))]


def main(arguments: list[str] | None = None) -> int:
    """Print the table; 2 when the server does not start."""
    parser = argparse.ArgumentParser(prog="python -m tests.measure.latency_clock_client", description=__doc__)
    parser.add_argument("--recording", type=Path, required=True, help="what the user says")
    parser.add_argument("--turns", type=int, default=240, help="turns in all (240)")
    parser.add_argument("--clients", type=int, default=4, help="clients at a time (4)")
    parser.add_argument("--late-ms", type=int, default=0, help="how late each frame is sent (0)")
    parser.add_argument("--apart-ms", type=int, default=0, help="time between a report's two positions (0)")
    parser.add_argument("--first-report-ms", type=int, default=50, help="from the first sound to the first report (50)")
    options = parser.parse_args(arguments)
    planted = Planted(late_ms=options.late_ms, apart_ms=options.apart_ms, first_report_ms=options.first_report_ms)
    try:
        recording = read_sound(options.recording, RATE_HZ)
        found = asyncio.run(run(recording, planted, turns=options.turns, clients=options.clients))
    except (VoicepipeError, RuntimeError, OSError) as why:
        sys.stderr.write(f"latency_clock_client: {why}\n")
        return 2
    sys.stdout.write("".join(f"{line}\n" for line in report(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
