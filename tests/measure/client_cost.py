"""What a user costs the process of the load bench: with the bench's own connection, and with `voicepipe.client`.

    .venv/bin/python -m tests.measure.client_cost --users 20 --turns 3

Prints the CPU of this process for each user. The users are the same, and so are the server and the fake providers: only
the connection differs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

import aiohttp
import numpy as np
from aiohttp import WSMessage, WSMsgType

from voicepipe.audio.files import read_sound
from voicepipe.audio.samples import Samples
from voicepipe.bench.load.concurrent_users import ConcurrentUsers, LoadRun, LoadTarget
from voicepipe.bench.load.fast_loop import run_fast
from voicepipe.bench.load.measure import warm
from voicepipe.bench.load.servers import fake_providers, own_server
from voicepipe.bench.load.user import sentence
from voicepipe.bench.load.wire_protocols import RATE_HZ, RAW
from voicepipe.cli.bench_load import SOUND
from voicepipe.client import Call, SessionOptions, connect
from voicepipe.client import events as e
from voicepipe.client.errors import CallEnded
from voicepipe.values import replace

EVENTS: Final = replace(RAW, has_events=True)
"""The users' wire over a `Call`: audio in binary messages, and the end of an answer as an event."""

ROW: Final = "| --- | --- | --- | --- | --- |"


class CallLine:
    """A `Call` in the place of the bench's WebSocket."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self.closed = False
        self.close_code = 0

    async def send_bytes(self, pcm: bytes) -> None:
        """Send a frame of the microphone."""
        try:
            await self._call.send(np.frombuffer(pcm, np.int16))
        except CallEnded as ended:
            self.closed, self.close_code = True, ended.close_code

    async def __aiter__(self) -> AsyncIterator[WSMessage]:
        """Yield the audio, and the ends of answers."""
        async for event in self._call:
            match event:
                case e.ReplyAudio(_, pcm):
                    yield WSMessage(WSMsgType.BINARY, pcm, None)
                case e.ReplyEnded(_, status):
                    done = {"type": "response.done", "response": {"status": status}}
                    yield WSMessage(WSMsgType.TEXT, json.dumps(done), None)


@contextlib.asynccontextmanager
async def called(_web: aiohttp.ClientSession, target: LoadTarget) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    """Yield a connection by `voicepipe.client`, without extensions, as the bench's own users have none."""
    async with connect(target.url, key=target.key, session_options=SessionOptions(extensions=None)) as call:
        yield cast("aiohttp.ClientWebSocketResponse", CallLine(call))


@dataclass(frozen=True, slots=True)
class Cost:
    """This process's CPU for each user."""

    connection: str
    cpu_pct: float
    load: LoadRun

    def line(self) -> str:
        """Return a row of the table."""
        latencies = [turn.latency_ms for turn in self.load.turns if turn.latency_ms is not None and not turn.error]
        n_turns, late_ms = len(self.load.turns), self.load.late_p95_ms
        return (
            f"| {self.connection} | {self.cpu_pct:.2f} % | {len(latencies)} of {n_turns} "
            f"| {np.median(latencies):.0f} ms | {late_ms:.0f} ms |"
        )


async def cost(name: str, users: ConcurrentUsers, n_users: int, turn_ms: int) -> Cost:
    """Run the users, and return their cost."""
    begin_s, begin_cpu_s = time.perf_counter(), time.process_time()
    load = await users.run(turn_ms)
    cpu_s, passed_s = time.process_time() - begin_cpu_s, time.perf_counter() - begin_s
    return Cost(name, 100 * cpu_s / passed_s / n_users, load)


async def measure(n_users: int, n_turns: int, n_rounds: int, frames: list[Samples]) -> list[Cost]:
    """Measure both connections against one server, in turn."""
    costs = []
    with tempfile.TemporaryDirectory(prefix="voicepipe-client-") as folder:
        async with (
            fake_providers(pin=False) as providers,
            own_server("defaults", providers, Path(folder), silence_ms=500) as target,
        ):
            turn_ms = await warm(target, frames)
            own, by_client = replace(target, pid=None), replace(target, pid=None, wire=EVENTS)
            for _ in range(n_rounds):
                for name, to, how in (("the bench's own", own, None), ("`voicepipe.client`", by_client, called)):
                    users = ConcurrentUsers(to, frames, n_users, n_turns, connect=how)
                    costs.append(await cost(name, users, n_users, turn_ms))
    return costs


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print a row for each run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--users", type=int, default=20)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args(arguments)
    costs = run_fast(measure(options.users, options.turns, options.rounds, sentence(read_sound(SOUND, RATE_HZ))))
    head = ("| connection | CPU of a core for each user | answered | latency p50 | own frames late, p95 |", ROW)
    sys.stdout.write("\n".join((*head, *(each.line() for each in costs))) + "\n")


if __name__ == "__main__":
    main()
