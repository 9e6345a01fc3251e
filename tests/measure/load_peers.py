"""Measure other servers as `voicepipe bench load` measures this one: `python -m tests.measure.load_peers --environments
FOLDER --users 1 10 --sound FILE --out load`.

FOLDER has a virtual environment for each of them, `FOLDER/pipecat` and `FOLDER/livekit`, with the packages of
`tests/measure/peers/*.txt`. One that is absent is skipped, and said to be. The rows join those of `voicepipe bench load
--out load`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from voicepipe.audio.files import read_sound
from voicepipe.audio.samples import Samples
from voicepipe.bench.load.concurrent_users import ConcurrentUsers, LoadRun, LoadTarget
from voicepipe.bench.load.fast_loop import run_fast
from voicepipe.bench.load.measure import BETWEEN_RUNS_S, warm
from voicepipe.bench.load.report import carried, problems, table
from voicepipe.bench.load.rows import RowFile, row_of
from voicepipe.bench.load.servers import OTHERS_CORE, SERVER_CORE, fake_providers
from voicepipe.bench.load.user import sentence
from voicepipe.bench.load.wire_protocols import PIPECAT, RATE_HZ, RAW, WireProtocol
from voicepipe.testing.free_port import free_port

SCRIPTS: Final = Path(__file__).with_name("peers")
START_S: Final = 60.0
END_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Peer:
    """A server beside this one."""

    project: str
    """Its virtual environment, its script and its list of packages."""

    wire: WireProtocol
    mode: str


PEERS: Final = {
    "pipecat tuned": Peer("pipecat", PIPECAT, "tuned"),
    "pipecat defaults": Peer("pipecat", PIPECAT, "defaults"),
    "livekit tuned": Peer("livekit", RAW, "tuned"),
    "livekit defaults": Peer("livekit", RAW, "defaults"),
}


@contextlib.asynccontextmanager
async def running(name: str, python: Path, providers: str, *, silence_ms: int, pin: bool) -> AsyncIterator[LoadTarget]:
    """Run that server until the block is left.

    Raises:
        RuntimeError: it ended, or does not listen in time.
    """
    peer, port = PEERS[name], free_port()
    options = ["--port", str(port), "--providers", providers.removeprefix("http://"), "--mode", peer.mode]
    process = await asyncio.create_subprocess_exec(
        python, SCRIPTS / f"{peer.project}_server.py", *options, "--silence-ms", str(silence_ms)
    )
    try:
        if pin:
            os.sched_setaffinity(process.pid, {SERVER_CORE})
        async with asyncio.timeout(START_S):
            while not await _listens(port):
                if process.returncode is not None:
                    raise RuntimeError(f"{name} ended with status {process.returncode}")
                await asyncio.sleep(0.2)
        yield LoadTarget(name=name, url=f"ws://127.0.0.1:{port}/ws", pid=process.pid, session={}, wire=peer.wire)
    finally:
        if process.returncode is None:
            process.terminate()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(END_S):
                    await process.wait()
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


def python_of(project: str, environments: Path) -> Path | None:
    """Return the interpreter of a peer's environment; None: it is absent, and the user is told how to make it."""
    python = environments / project / "bin" / "python"
    if python.exists():
        return python
    make = f"python3 -m venv {environments / project} && {python} -m pip install -r {SCRIPTS / project}.txt"
    sys.stderr.write(f"SKIPPED: {project}: there is no {python}. Make it with: {make}\n")
    return None


async def measure(options: argparse.Namespace, frames: list[Samples], rows: RowFile) -> list[LoadRun]:
    """Measure each server that has an environment, with each number of users that has no row yet."""
    loads = []
    for name in options.server:
        python = python_of(PEERS[name].project, options.environments)
        for n_users in options.users if python is not None else ():
            if rows.has(name, n_users):
                continue
            sys.stderr.write(f"{n_users} users: {name}\n")
            assert python is not None
            async with (
                fake_providers(pin=options.pin) as providers,
                running(name, python, providers, silence_ms=options.silence_ms, pin=options.pin) as target,
            ):
                turn_ms = await warm(target, frames)
                await asyncio.sleep(BETWEEN_RUNS_S)
                loads.append(await ConcurrentUsers(target, frames, n_users, options.turns).run(turn_ms))
            rows.add(row_of(loads[-1:], None))
    return loads


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the rows of these servers, and those that `--out` has of this one."""
    parser = argparse.ArgumentParser(prog="python -m tests.measure.load_peers", description=__doc__)
    parser.add_argument("--environments", type=Path, required=True, metavar="FOLDER", help="their environments")
    parser.add_argument("--sound", type=Path, required=True, metavar="FILE", help="what users say")
    parser.add_argument("--server", nargs="+", choices=PEERS, default=list(PEERS), help="those to measure (all)")
    parser.add_argument("--users", type=int, nargs="+", default=[1], metavar="N", help="numbers of sessions (1)")
    parser.add_argument("--turns", type=int, default=5, metavar="N", help="turns of each user (5)")
    parser.add_argument("--silence-ms", type=int, default=200, metavar="MS", help="the silence that ends a turn (200)")
    parser.add_argument("--pin", action="store_true", help="servers on the first core, all else on the second (Linux)")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="store the rows there, beside this server's")
    options = parser.parse_args(arguments)
    if options.pin:
        os.sched_setaffinity(0, {OTHERS_CORE})
    rows = RowFile(options.out)
    loads = run_fast(measure(options, sentence(read_sound(options.sound, RATE_HZ)), rows))
    lines = [*table(rows.rows), "", *carried(rows.rows), *problems(loads)]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0 if loads or rows.rows else 2


if __name__ == "__main__":
    sys.exit(main())
