"""Measure admission: how many of too many users get in, how long they wait, and how fast the others are refused.

A second part measures the users inside while other clients flood the server: with connections, half-open connections
and requests for client secrets. It alternates with the same users alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import aiohttp
import msgspec
import numpy as np

from voicepipe import clock
from voicepipe.audio.samples import Samples, silence
from voicepipe.bench.load.concurrent_users import ConcurrentUsers, LoadRun, LoadTarget, unlimited_session, until_updated
from voicepipe.bench.load.flood import FloodCounts
from voicepipe.bench.load.measure import warm
from voicepipe.bench.load.report import latencies_ms
from voicepipe.bench.load.servers import fake_providers, own_server
from voicepipe.bench.load.user import FRAME_SAMPLES, LoadUser, MeasuredSentence
from voicepipe.bench.load.wire_protocols import REALTIME

FLOOD: Final = "voicepipe.bench.load.flood"

BASELINE_USERS: Final = 10
"""The users of the baseline, which are always admitted."""

MAX_GROWTH_MS: Final = 50
"""How much p95 may grow for those inside."""

MAX_REFUSAL_MS: Final = 100
"""How long a refusal may take."""


SPREAD: Final = 0.618034
"""The golden ratio: the multiples of it, each without its whole part, are spread evenly from 0 to 1, however many there
are."""

ADMIT_TIMEOUT_S: Final = 60
"""How long the server may take to admit users again after the crowd has left."""


@dataclass(frozen=True, slots=True)
class AdmissionPlan:
    """The users that connect, their turns, and the users under the flood."""

    n_users: int
    turns: int
    silence_ms: int
    interval_ms: int = 80
    """Time between two users. Each begins to talk at a time of its own within a turn's length from then, as users do.
    If the turns began with the connections, those of the users beyond a turn's length (7.2 s, 90 users) would fall
    together with the first ones' ever after."""

    n_flooded: int = 20
    rounds: int = 2
    pin: bool = False
    overrides: tuple[str, ...] = ()


@dataclass(slots=True)
class Arrivals:
    """The users' turns, and the refusals."""

    turns: list[MeasuredSentence] = field(default_factory=list)
    refused_ms: list[int] = field(default_factory=list)
    """How long each refusal took."""

    reasons: Counter[str] = field(default_factory=Counter)
    n_admitted: int = 0


@dataclass(frozen=True, slots=True)
class Admission:
    """The figures of a run."""

    baseline: LoadRun
    arrivals: Arrivals
    unflooded: tuple[LoadRun, ...]
    flooded: tuple[LoadRun, ...]
    floods: tuple[FloodCounts, ...]


async def measure_admission(plan: AdmissionPlan, frames: list[Samples], print_line: Callable[[str], None]) -> Admission:
    """Run a server with its own admission, and measure both parts.

    Raises:
        ConnectionError: the server refused the users of the baseline, or of the second part.
        RuntimeError: the server did not start.
    """
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="voicepipe-admission-")))
        providers = await stack.enter_async_context(fake_providers(pin=plan.pin))
        server = own_server(
            "voicepipe",
            providers,
            folder,
            silence_ms=plan.silence_ms,
            pin=plan.pin,
            head_room=True,
            overrides=plan.overrides,
        )
        target = await stack.enter_async_context(server)
        turn_ms = await warm(target, frames)
        n_baseline = min(BASELINE_USERS, plan.n_users)
        print_line(f"{n_baseline} users: the baseline")
        baseline = await ConcurrentUsers(target, frames, n_baseline, plan.turns).run(turn_ms)
        print_line(f"{plan.n_users} users, one every {plan.interval_ms} ms")
        arrivals = await _arrivals(plan, target, frames, turn_ms)
        unflooded, flooded, floods = [], [], []
        await until_admitted(target)
        for _ in range(plan.rounds):
            print_line(f"{plan.n_flooded} users without a flood, then under one")
            unflooded.append(await ConcurrentUsers(target, frames, plan.n_flooded, plan.turns).run(turn_ms))
            load, counts = await _flooded(plan, target, frames, turn_ms)
            flooded.append(load)
            floods.append(counts)
    return Admission(baseline, arrivals, tuple(unflooded), tuple(flooded), tuple(floods))


async def until_admitted(target: LoadTarget) -> None:
    """Wait until the server admits a user again: the sessions of those before are ending.

    Raises:
        ConnectionError: it does not within `ADMIT_TIMEOUT_S`.
    """
    deadline_ms = clock.monotonic_ms() + 1_000 * ADMIT_TIMEOUT_S
    async with unlimited_session() as web:
        while True:
            try:
                async with web.ws_connect(target.url, max_msg_size=0, compress=0):
                    return
            except aiohttp.WSServerHandshakeError as refusal:
                wait_s = 1 if refusal.headers is None else int(refusal.headers.get("Retry-After", 1))
                if refusal.status != 503 or clock.monotonic_ms() + 1_000 * wait_s > deadline_ms:
                    why = f"HTTP {refusal.status}"
                    raise ConnectionError(
                        f"The server {target.name} at {target.url} still refuses users: {why}"
                    ) from refusal
            await asyncio.sleep(wait_s)


async def _arrivals(plan: AdmissionPlan, target: LoadTarget, frames: list[Samples], turn_ms: int) -> Arrivals:
    arrivals, done = Arrivals(), asyncio.Event()
    messages, (silent_frame,) = REALTIME.messages(frames), REALTIME.messages([silence(FRAME_SAMPLES)])
    users: list[LoadUser] = []
    n_left = plan.n_users

    def record(turn: MeasuredSentence | None) -> None:
        nonlocal n_left
        if turn is not None:
            arrivals.turns.append(turn)
        if n_left == 0 and all(user.finished for user in users):
            done.set()

    async def come(web: aiohttp.ClientSession, number: int) -> None:
        nonlocal n_left
        await asyncio.sleep(number * plan.interval_ms / 1_000)
        began_ms = clock.monotonic_ms()
        async with contextlib.AsyncExitStack() as call:
            try:
                websocket = await call.enter_async_context(web.ws_connect(target.url, max_msg_size=0, compress=0))
            except aiohttp.WSServerHandshakeError as refusal:
                arrivals.refused_ms.append(clock.monotonic_ms() - began_ms)
                arrivals.reasons[f"HTTP {refusal.status}"] += 1
                n_left -= 1
                record(None)
                return
            arrivals.n_admitted += 1
            await websocket.send_str(json.dumps({"type": "session.update", "session": target.session}))
            await until_updated(websocket)
            user = LoadUser(messages, silent_frame, plan.turns, record, REALTIME)
            users.append(user)
            n_left -= 1
            begin_ms = clock.monotonic_ms() + round(turn_ms * (number * SPREAD % 1))
            await user.run(websocket, begin_ms, done)

    async with unlimited_session() as web, asyncio.TaskGroup() as group:
        for number in range(plan.n_users):
            group.create_task(come(web, number), name=f"user-{number}")
    return arrivals


async def _flooded(
    plan: AdmissionPlan, target: LoadTarget, frames: list[Samples], turn_ms: int
) -> tuple[LoadRun, FloodCounts]:
    """Return the users' turns while a process of its own floods the server, and what it sent."""
    flood = await asyncio.create_subprocess_exec(
        sys.executable, "-m", FLOOD, target.url, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    try:
        load = await ConcurrentUsers(target, frames, plan.n_flooded, plan.turns).run(turn_ms)
        counts, _ = await flood.communicate(b"")  # closes its input, which ends it
    finally:
        if flood.returncode is None:
            flood.kill()
            await flood.wait()
    return load, msgspec.json.decode(counts, type=FloodCounts)


def admission_lines(admission: Admission) -> Iterator[str]:
    """Yield the report."""
    arrivals, baseline = admission.arrivals, latencies_ms([admission.baseline])
    n_users = arrivals.n_admitted + len(arrivals.refused_ms)
    waited = [ms for turn in arrivals.turns if (ms := turn.latency_ms) is not None]
    n_failed = sum(bool(turn.error) for turn in arrivals.turns)
    yield f"{arrivals.n_admitted} of {n_users} users were admitted; {n_failed} of {len(arrivals.turns)} turns failed"
    yield from _growth(f"{admission.baseline.n_users} users alone", baseline, "all admitted", waited)
    if arrivals.refused_ms:
        reasons = ", ".join(f"{number} x {reason}" for reason, number in arrivals.reasons.most_common())
        p50, p95, most = np.percentile(arrivals.refused_ms, (50, 95, 100))
        yield (
            f"refused within p50/p95/max {p50:.0f}/{p95:.0f}/{most:.0f} ms, at most {MAX_REFUSAL_MS} allowed: {reasons}"
        )
    for counts in admission.floods:
        yield f"flood: {counts.line()}"
    n_flooded = sum(bool(turn.error) for load in admission.flooded for turn in load.turns)
    yield from _growth(
        "without the flood", latencies_ms(admission.unflooded), "with it", latencies_ms(admission.flooded)
    )
    yield f"{n_flooded} of {sum(len(load.turns) for load in admission.flooded)} turns failed under the flood"


def _growth(before: str, before_ms: list[int], after: str, after_ms: list[int]) -> Iterator[str]:
    if not before_ms or not after_ms:
        yield f"{before}, {after}: no turn was answered"
        return
    (a50, a95), (b50, b95) = (np.percentile(ms, (50, 95)) for ms in (before_ms, after_ms))
    yield (
        f"turn latency p50/p95: {before} {a50:.0f}/{a95:.0f} ms, {after} {b50:.0f}/{b95:.0f} ms: "
        f"p95 grows by {b95 - a95:.0f} ms, at most {MAX_GROWTH_MS} allowed"
    )
