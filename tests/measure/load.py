"""Measure how long users wait, and what each costs, under load.

`python -m tests.measure.load --sound FILE`: each user says FILE again and again in real time, without its pauses,
so that it ends only at its end, and measures from its last voiced sample to the first audible one of the answer.
Without `--url` it starts two processes: providers with known delays (50 ms to the final text, 200 ms to the first
token, 80 ms to the first audio), and a server that uses them. `--paired` starts a second server without speculation,
and alternates between the two, round by round. With `--url` it measures any server that speaks the Realtime events;
`--providers-port` starts the providers for it.
Needs psutil, which comes with the tests.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from tests.measure.load_loop import run_fast
from tests.measure.load_providers import Delays
from tests.measure.load_report import compared, problems, table, write_csv
from tests.measure.load_run import Crowd, Load, Target, turn_ms_of
from tests.measure.load_server import started, write_settings
from tests.measure.load_user import RATE_HZ, sentence
from voicepipe.audio.files import read_sound
from voicepipe.audio.samples import Samples
from voicepipe.client.address import Address
from voicepipe.errors import VoicepipeError

SPECULATES: Final = "voicepipe"
WAITS: Final = "voicepipe, speculate = false"
PROVIDERS: Final = "tests.measure.load_providers"

SERVER_CORE: Final = 0
OTHERS_CORE: Final = 1


def session(silence_ms: int) -> dict[str, Any]:
    """Return the users' settings: speech both ways, and an end of turn by silence alone."""
    pcm = {"type": "audio/pcm", "rate": RATE_HZ}
    detection = {"type": "server_vad", "silence_duration_ms": silence_ms}
    audio = {"input": {"format": pcm, "turn_detection": detection}, "output": {"format": pcm}}
    return {"type": "realtime", "output_modalities": ["audio"], "audio": audio}


@contextlib.asynccontextmanager
async def targets(options: argparse.Namespace) -> AsyncIterator[list[Target]]:
    """Yield the servers to measure, started here unless one was named."""
    session_settings = session(options.silence_ms)
    others = OTHERS_CORE if options.pin else None
    async with contextlib.AsyncExitStack() as running:
        if options.url:
            if options.providers_port is not None:
                port = str(options.providers_port)
                await running.enter_async_context(started(PROVIDERS, "--port", port, core=others))
            url = Address.parse(options.url).websocket
            yield [Target(name=options.name, url=url, pid=options.pid, key=options.key, session=session_settings)]
            return
        providers = await running.enter_async_context(started(PROVIDERS, core=others))
        folder = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="voicepipe-load-")))
        found = []
        for name, speculate in ((SPECULATES, True), (WAITS, False))[: 1 + options.paired]:
            own = folder / str(speculate)
            own.mkdir()
            settings = write_settings(own, providers.url, speculate=speculate)
            command = ("voicepipe", "serve", "--config", str(settings))
            server = await running.enter_async_context(started(*command, core=SERVER_CORE if options.pin else None))
            url = Address.parse(server.url).websocket
            found.append(Target(name=name, url=url, pid=server.pid, session=session_settings))
        yield found


async def run(options: argparse.Namespace) -> list[Load]:
    """Measure each server with each number of users, alternately; the first round of each is not counted."""
    frames = sentence(await asyncio.to_thread(read_sound, options.sound, RATE_HZ))
    async with targets(options) as servers:
        turn_ms = [await _warm(server, frames) for server in servers]
        loads = []
        for n_users in options.users:
            for _ in range(options.rounds):
                for server, each_ms in zip(servers, turn_ms, strict=True):
                    load = await Crowd(server, frames, n_users, options.turns).run(each_ms)
                    say(f"{load.target}, {n_users} users: {len(load.turns)} turns")
                    loads.append(load)
    return loads


async def _warm(server: Target, frames: list[Samples]) -> int:
    """Run a turn that loads everything; return its duration in ms."""
    load = await Crowd(replace(server, pid=None), frames, 1, 1).run(0)
    say(f"{server.name}: the first turn of all took {load.turns[0].latency_ms} ms")
    return turn_ms_of(load, frames)


def say(line: str) -> None:
    """Print the progress on standard error."""
    sys.stderr.write(f"{line}\n")


def report(loads: Sequence[Load], options: argparse.Namespace) -> str:
    """Return the report."""
    minimum_ms = None if options.url and options.providers_port is None else Delays().minimum_ms(options.silence_ms)
    lines = list(table(loads, minimum_ms))
    if minimum_ms is not None:
        lines += ["", f"minimum: {minimum_ms} ms with these providers and {options.silence_ms} ms of silence"]
    if options.paired:
        lines += compared(loads, SPECULATES, WAITS)
    return "\n".join([*lines, *problems(loads)]) + "\n"


def main(arguments: list[str] | None = None) -> int:
    """Print the table; 1 when a turn failed, 2 when nothing could be measured."""
    parser = argparse.ArgumentParser(prog="python -m tests.measure.load", description=__doc__)
    parser.add_argument("--sound", type=Path, required=True, help="what users say: a few seconds of one voice")
    parser.add_argument("--users", type=int, nargs="+", default=[1], metavar="N", help="how many at once (1)")
    parser.add_argument("--turns", type=int, default=5, help="turns of each user in a round (5)")
    parser.add_argument("--rounds", type=int, default=1, help="how often each server is measured (1)")
    parser.add_argument("--silence-ms", type=int, default=200, help="the silence that ends a turn (200)")
    parser.add_argument("--paired", action="store_true", help="measure speculation against none, in turns")
    parser.add_argument("--url", help="measure this server instead of one of its own")
    parser.add_argument("--pid", type=int, help="its process, for CPU and memory")
    parser.add_argument("--key", default=os.environ.get("VOICEPIPE_KEY", "bench"), help="or in $VOICEPIPE_KEY")
    parser.add_argument("--name", default="server", help="what the table calls it")
    parser.add_argument("--providers-port", type=int, help="start the providers on this port for it")
    parser.add_argument("--pin", action="store_true", help="servers on the first core, all else on the second (Linux)")
    parser.add_argument("--csv", type=Path, help="write a line for each turn to this file")
    options = parser.parse_args(arguments)
    if options.paired and options.url:
        parser.error("--paired starts servers of its own; it goes without --url")
    if options.pin:
        os.sched_setaffinity(0, {OTHERS_CORE})
    try:
        loads = run_fast(run(options))
    except (VoicepipeError, OSError, RuntimeError, ValueError) as why:
        sys.stderr.write(f"load: {why}\n")
        return 2
    sys.stdout.write(report(loads, options))
    if options.csv:
        write_csv(options.csv, loads)
    return 1 if any(load.errors or any(turn.error for turn in load.turns) for load in loads) else 0


if __name__ == "__main__":
    sys.exit(main())
