"""Measure servers with one number of users after another."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from voicepipe.audio.samples import Samples
from voicepipe.bench.load.concurrent_users import ConcurrentUsers, LoadRun, LoadTarget, turn_ms_of
from voicepipe.bench.load.profiled_server import Profile
from voicepipe.bench.load.providers import Delays
from voicepipe.bench.load.rows import RowFile, row_of
from voicepipe.bench.load.servers import VARIANTS, fake_providers, own_server, session, switch_profile, variant
from voicepipe.client.address import Address
from voicepipe.values import replace

BETWEEN_RUNS_S: Final = 1.0
"""Between two runs of one server: its sessions end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan:
    """The servers and the numbers of users to measure."""

    users: tuple[int, ...]
    turns: int
    rounds: int
    silence_ms: int
    servers: tuple[str, ...] = ("voicepipe",)
    pin: bool = False
    profile: bool = False
    overrides: tuple[str, ...] = ()
    """Further settings of the servers, `KEY=VALUE`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningServer:
    """A server that the bench did not start."""

    name: str
    url: str
    pid: int | None
    key: str
    providers_port: int | None
    """Where to run the providers for it; None: it has its own."""


@dataclass(slots=True)
class MeasuredRuns:
    """The runs, and the profile of the last one."""

    loads: list[LoadRun] = field(default_factory=list)
    profiles: dict[str, Profile] = field(default_factory=dict)


async def measure(
    plan: LoadPlan,
    frames: list[Samples],
    rows: RowFile,
    print_line: Callable[[str], None],
    running: RunningServer | None = None,
) -> MeasuredRuns:
    """Measure each server with each number of users that has no row yet; each round takes all servers in turn.

    Raises:
        ConnectionError: a session was refused.
        RuntimeError: a server did not start.
    """
    measured = MeasuredRuns()
    for n_users in plan.users:
        names = [running.name] if running is not None else list(plan.servers)
        missing = [name for name in names if not rows.has(name, n_users)]
        if not missing:
            continue
        print_line(f"{n_users} users: {', '.join(missing)}")
        with tempfile.TemporaryDirectory(prefix="voicepipe-load-") as folder:
            targets = _own(plan, missing, Path(folder)) if running is None else _running(plan, running)
            async with targets as servers:
                loads = await _rounds(plan, servers, frames, n_users, print_line)
            for name in missing if plan.profile else ():
                measured.profiles[name] = _profile(Path(folder) / f"{name}.json")
        measured.loads += loads
        for name in missing:
            rows.add(row_of([load for load in loads if load.target == name], _minimum_ms(plan, name, running)))
    return measured


def _profile(file: Path) -> Profile:
    """Return a server's profile; an empty one when all its users were never in their turns at once."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=Profile)
    except FileNotFoundError:
        return Profile()


async def _rounds(
    plan: LoadPlan, servers: list[LoadTarget], frames: list[Samples], n_users: int, print_line: Callable[[str], None]
) -> list[LoadRun]:
    turn_ms = [await warm(server, frames) for server in servers]
    loads = []
    for number in range(plan.rounds):
        for server, each_ms in zip(servers, turn_ms, strict=True):
            await asyncio.sleep(BETWEEN_RUNS_S)
            profiles = plan.profile and number == plan.rounds - 1
            on_steady = partial(switch_profile, server) if profiles else None
            load = await ConcurrentUsers(server, frames, n_users, plan.turns, on_steady).run(each_ms)
            print_line(f"  {load.target}: {len(load.turns)} turns")
            loads.append(load)
    return loads


async def warm(server: LoadTarget, frames: list[Samples]) -> int:
    """Run a turn that loads everything; return its duration in ms."""
    return turn_ms_of(await ConcurrentUsers(replace(server, pid=None), frames, 1, 1).run(0), frames)


@contextlib.asynccontextmanager
async def _own(plan: LoadPlan, names: list[str], folder: Path) -> AsyncIterator[list[LoadTarget]]:
    """Start the providers and a server of each name."""
    async with contextlib.AsyncExitStack() as stack:
        providers = await stack.enter_async_context(fake_providers(pin=plan.pin))
        targets = []
        for name in names:
            (folder / name).mkdir()
            server = own_server(
                name,
                providers,
                folder / name,
                silence_ms=plan.silence_ms,
                pin=plan.pin,
                profile=folder / f"{name}.json" if plan.profile else None,
                overrides=plan.overrides,
            )
            targets.append(await stack.enter_async_context(server))
        yield targets


@contextlib.asynccontextmanager
async def _running(plan: LoadPlan, server: RunningServer) -> AsyncIterator[list[LoadTarget]]:
    settings = session(variant("voicepipe").detects(plan.silence_ms))
    url = Address.parse(server.url).websocket
    async with contextlib.AsyncExitStack() as stack:
        if server.providers_port is not None:
            await stack.enter_async_context(fake_providers(pin=plan.pin, port=server.providers_port))
        yield [LoadTarget(name=server.name, url=url, pid=server.pid, key=server.key, session=settings)]


def _minimum_ms(plan: LoadPlan, name: str, running: RunningServer | None) -> int | None:
    known = running.providers_port is not None if running is not None else VARIANTS[name].has_minimum
    return Delays().minimum_ms(plan.silence_ms) if known else None
