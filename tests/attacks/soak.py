"""Hours of calls, and where the server's memory goes: `python tests/attacks/soak.py --minutes 120 --users 20`.

Starts a server, and providers with known delays, on loopback; ends them. Users speak, write, have tools called,
interrupt, are cut off and hang up. Every minute a line says what the server's memory holds. In the end: how fast it
grew in each quarter with and without SQLite's pages, whether every turn that a user was told of is stored, and what
the log complains of; exit code 1 when a turn is missing, or something crashed or got stuck.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
import numpy as np

# As a script this file has its own folder on the path, and not that of the project.
sys.path.append(str(Path(__file__).parents[2]))

from soak_memory import Memory
from soak_user import Totals, User
from voicepipe import clock
from voicepipe.audio.files import read_sound
from voicepipe.audio.samples import silence
from voicepipe.bench.load.processes import started, write_settings
from voicepipe.bench.load.user import sentence
from voicepipe.bench.load.wire_protocols import RATE_HZ, append_event

HERE: Final = Path(__file__).resolve().parent
SENTENCE: Final = HERE.parent / "data" / "clean" / "vctk_p287_002.flac"
SPOKEN_MS: Final = 2_000
PAUSE_MS: Final = 1_200
REST_S: Final = 60
"""The longest rest after the last call: dropped sessions are held for 15 s."""

HEAD: Final = "   min  turns  PSS MB  heap  anon  malloc  free  SQLite  blocks  files  threads"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a soak came to."""

    totals: Totals
    memory: list[Memory]
    missing: set[str]
    """Turns whose end a user was notified of and that are not stored."""

    metrics: dict[str, float]
    crashed: list[str]
    """Lines of the log that say so."""

    @property
    def faults(self) -> list[str]:
        """What must never be; empty when all is well."""
        stuck = self.metrics.get("voicepipe_sessions_stuck_total", 0)
        left = self.metrics.get("voicepipe_sessions", 0)
        found = (
            (len(self.missing), "turns were told and not stored"),
            (stuck, "sessions got stuck"),
            (left, "sessions are left"),
            (len(self.crashed), f"lines say that something crashed: {''.join(self.crashed[:1])}"),
        )
        return [f"{n:.0f} {what}" for n, what in found if n]


async def soak(folder: Path, *, minutes: float, n_users: int, think_s: float) -> Outcome:
    """Run it; everything is written below `folder`."""
    path = folder / "memory.jsonl"
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(HERE), os.environ.get("PYTHONPATH"))))
    async with started("voicepipe.bench.load.providers", "--llm-ms", "100") as providers:
        settings = write_settings(folder, providers.url, speculate=True)
        log = folder / "server.log"
        async with (
            started("soak_memory", str(path), "serve", "--config", str(settings), log=log) as server,
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http,
        ):
            totals = Totals()
            await _call(server.url, http, totals, path, minutes=minutes, n_users=n_users, think_s=think_s)
            metrics = await _rested(http, server.url)
            stored = await _stored(http, server.url)
    crashed = [line for line in log.read_text(errors="replace").splitlines() if '"crashed"' in line]
    return Outcome(totals, read(path), totals.turns - stored, metrics, crashed)


async def _call(
    url: str, http: aiohttp.ClientSession, totals: Totals, path: Path, *, minutes: float, n_users: int, think_s: float
) -> None:
    frames = messages()
    until_ms = clock.monotonic_ms() + round(minutes * 60_000)
    async with asyncio.TaskGroup() as group:
        printing = group.create_task(_print_progress(path, totals), name="tell")
        async with asyncio.TaskGroup() as calls:
            for n in range(n_users):
                options = {"frames": frames, "chance": random.Random(n), "totals": totals, "think_s": think_s}
                user = User(url=f"{url}/v1/realtime", http=http, **options)  # type: ignore[arg-type]
                calls.create_task(user.run(until_ms), name=f"user-{n}")
        printing.cancel()


def messages() -> list[str]:
    """A sentence and the silence after it, in frames of 100 ms, as messages."""
    recording = read_sound(SENTENCE, RATE_HZ)[: SPOKEN_MS * RATE_HZ // 1_000]
    n_frame = RATE_HZ // 10
    spoken = [sample for frame in sentence(recording) for sample in frame]
    sound = [*spoken, *silence(PAUSE_MS * RATE_HZ // 1_000)]
    samples = np.asarray(sound, dtype=np.int16)
    return [append_event(samples[n : n + n_frame]) for n in range(0, len(samples) - n_frame + 1, n_frame)]


async def _print_progress(path: Path, totals: Totals) -> None:
    print_line(HEAD)
    while True:
        await asyncio.sleep(60)
        if seen := read(path):
            print_line(line_of(seen[-1], len(totals.turns)))


def line_of(memory: Memory, n_turns: int) -> str:
    """One line below `HEAD`."""
    mb = [memory.proportional, memory.heap, memory.anonymous, memory.malloc_used, memory.malloc_free, memory.sqlite]
    sizes = "{:8.1f}{:6.1f}{:6.1f}{:8.1f}{:6.1f}{:8.1f}".format(*(kb / 1_024 for kb in mb))
    counts = f"{memory.blocks:8}{memory.descriptors:7}{memory.threads:9}"
    return f"{memory.at_s / 60:6.1f}{n_turns:7}{sizes}{counts}"


def growth(memory: list[Memory]) -> list[str]:
    """How fast the memory of its own grew in each quarter, in MB an hour: by the least of the first and of the last
    fifth of each, since a collection takes back what a look just before it counts."""
    lines, n = [], len(memory) // 4
    for quarter in range(4) if n >= 10 else ():
        seen = memory[quarter * n : (quarter + 1) * n]
        first, last = (min(part, key=_own) for part in (seen[: n // 5], seen[-(n // 5) :]))
        hours = (last.at_s - first.at_s) / 3_600
        all_mb, sqlite_mb = (
            (new - old) / 1_024 for new, old in ((_own(last), _own(first)), (last.sqlite, first.sqlite))
        )
        lines.append(
            f"{first.at_s / 60:.0f} to {last.at_s / 60:.0f} min: {all_mb / hours:+.1f} MB an hour, "
            f"{sqlite_mb / hours:+.1f} of it SQLite's pages"
        )
    return lines


def _own(memory: Memory) -> int:
    return memory.heap + memory.anonymous


def read(path: Path) -> list[Memory]:
    """All looks so far."""
    if not path.exists():
        return []
    lines = path.read_text().splitlines()
    return [Memory(**json.loads(line)) for line in lines if line.endswith("}")]


async def _rested(http: aiohttp.ClientSession, url: str) -> dict[str, float]:
    """What the server counts once all sessions are over."""
    for _ in range(REST_S):
        metrics = await _metrics(http, url)
        if metrics["voicepipe_sessions"] == 0:
            break
        await asyncio.sleep(1)
    return metrics


async def _metrics(http: aiohttp.ClientSession, url: str) -> dict[str, float]:
    async with http.get(f"{url}/metrics") as answer:
        lines = (line.rpartition(" ") for line in (await answer.text()).splitlines() if line and line[0] != "#")
        return {name: float(value) for name, _, value in lines}


async def _stored(http: aiohttp.ClientSession, url: str) -> set[str]:
    found: set[str] = set()
    before = ""
    while True:
        async with http.get(f"{url}/v1/turns?limit=200{before}") as answer:
            page: dict[str, Any] = await answer.json()
        found |= {turn["id"] for turn in page["data"]}
        if not page["next"]:
            return found
        before = f"&before={page['next']}"


def print_line(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> int:
    """Run the soak, and print the result."""
    parser = argparse.ArgumentParser(prog="python tests/attacks/soak.py", description=__doc__)
    parser.add_argument("--minutes", type=float, default=120.0, help="how long users call (120)")
    parser.add_argument("--users", type=int, default=20, help="how many at once (20)")
    parser.add_argument(
        "--think-s", type=float, default=2.0, help="from one turn of a user to the next, on average (2)"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = soak(Path(folder), minutes=options.minutes, n_users=options.users, think_s=options.think_s)
        outcome = asyncio.run(run)
    for line in (*growth(outcome.memory), str(dict(outcome.totals.counts)), *outcome.faults):
        print_line(line)
    return int(bool(outcome.faults))


if __name__ == "__main__":
    sys.exit(main())
