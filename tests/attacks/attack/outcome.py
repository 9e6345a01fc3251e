"""What an attack did to a server and to the innocent: counts, bytes and CPU time, all seen from outside."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from attack.bystanders import Bystanders, Experience
from attack.server import ServerProcess, in_thread
from attack.target import HANG_S, Sent

SPARE_DESCRIPTORS = 32
"""Idle connections to providers, which come and go by themselves."""

PROBE_S = 0.2
RSS_EVERY_S = 0.2

HOLDS = "voicepipe_event_loop_stall_cpu_seconds_bucket"


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A server at an instant."""

    metrics: dict[str, float]
    descriptors: int
    memory_mb: float

    def holds(self) -> dict[float, float]:
        """Return, by bound in seconds of CPU time, how many stalls of the loop stayed within it."""
        found = {}
        for name, value in self.metrics.items():
            if match := re.fullmatch(rf'{HOLDS}{{le="(.+)"}}', name):
                found[float(match[1])] = value
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """All of it."""

    sent: Sent
    felt: Experience
    growth_mb: float
    """Of resident memory, at its highest during the attack."""

    peak_mb: float
    hold_ms: float
    """An upper bound of the CPU time of the loop's longest stall; infinite beyond the last bucket."""

    cpu_s: float
    crashed: int
    stuck: float
    sessions_left: float
    """Beyond those who were there before, once those of the attack had time to end."""

    descriptors_left: int


async def state(server: ServerProcess) -> State:
    """Look at the server."""
    metrics = await in_thread(server.metrics)
    return State(metrics=metrics, descriptors=server.descriptors(), memory_mb=server.memory_mb()[0])


async def under_attack(
    server: ServerProcess, users: Bystanders, run: Callable[[], Awaitable[Sent]], *, turns_after: int = 2
) -> Outcome:
    """Attack a server beside innocent users, who are in their calls already, and say what came of it.

    Raises:
        TimeoutError: the innocent got no answer any more.
    """
    before, cpu_s, crashed = await state(server), server.cpu_s(), server.logged("crashed")
    server.reset_peak()
    users.begin_anew()
    sent = await run()
    await users.turns(turns_after)
    felt, peak_mb = users.begin_anew(), server.memory_mb()[1]
    after = await _state_after(server, before)
    return Outcome(
        sent=sent,
        felt=felt,
        growth_mb=max(0.0, peak_mb - before.memory_mb),
        peak_mb=peak_mb,
        hold_ms=longest_hold_ms(before, after),
        cpu_s=server.cpu_s() - cpu_s,
        crashed=server.logged("crashed") - crashed,
        stuck=_delta("voicepipe_sessions_stuck_total", before, after),
        sessions_left=_delta("voicepipe_sessions", before, after),
        descriptors_left=max(0, after.descriptors - before.descriptors - SPARE_DESCRIPTORS),
    )


def longest_hold_ms(before: State, after: State) -> float:
    """The bound of the bucket in which the longest hold between the two is."""
    counts, earlier = after.holds(), before.holds()
    total = counts[float("inf")] - earlier[float("inf")]
    return 1_000 * min(bound for bound, count in counts.items() if count - earlier[bound] == total)


async def _state_after(server: ServerProcess, before: State) -> State:
    """The state once nothing of the attack is left, or when it has had `HANG_S` to go away."""
    loop = asyncio.get_running_loop()
    end_s = loop.time() + HANG_S
    while True:
        now = await state(server)
        left = now.descriptors - before.descriptors - SPARE_DESCRIPTORS
        if (left <= 0 and _delta("voicepipe_sessions", before, now) <= 0) or loop.time() > end_s:
            return now
        await asyncio.sleep(PROBE_S)


def _delta(name: str, before: State, after: State) -> float:
    return after.metrics[name] - before.metrics[name]
