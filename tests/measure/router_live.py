"""Compare the router's simulation with live turns: `python -m tests.measure.router_live [--turns 3000]`.

Fake vendors on sockets of this machine answer with the times that one world has drawn, in real time: many sessions at
once make it quick, and no time is shortened. The simulation then routes the same turns at the rate of the live ones.
Printed for each policy: the share of late turns, live with its 95 % interval (Wilson) and simulated, and the cost as a
multiple of one model's.

The sockets, the vendors and the router share this machine, which adds its own time to each answer: by how much, shows
the median of the turns that one model answers, above the drawn one. A held hedge is released 10 ms before the deadline,
so that little more than that makes a tenth of all turns late. `--slower` makes all times of the world longer, the
deadline and the published medians with them, so that the machine's share is small. A turn is late, live and simulated
alike, from `LATE` deadlines on. The shares over the bare deadline are printed too.

`--jump` runs the same router, tasks and timers, on an event loop that jumps to its next timer instead of waiting for
it, with models in the process: no socket, and no time of the machine is in the answers.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import math
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final
from unittest.mock import patch

import numpy as np
import uvloop

from tests.router.measure import (
    CACHED_TOKENS,
    CAP_SHARE,
    DEADLINE_MS,
    INPUT_TOKENS,
    MEDIANS_MS,
    PRICES,
    TURNS_PER_SESSION,
    WORDS,
    Came,
    live,
    n_models,
    request_all,
)
from tests.session.test_read_limit import VirtualLoop
from voicepipe import clock
from voicepipe.bench.simulate_world import HANG, World, WorldOptions, draw_world
from voicepipe.cli.simulate import drawn_turns
from voicepipe.errors import StageBroken
from voicepipe.ports.model import Content, Finished, Model, ModelEvent, ModelRequest, Text, TextDelta, Usage
from voicepipe.router.build import build_pool
from voicepipe.router.candidate import Candidate
from voicepipe.router.options import RouterOptions
from voicepipe.router.pool import SharedStats
from voicepipe.router.simulation import SimulatedResult, simulate_turns
from voicepipe.turn.cost import Price
from voicepipe.values import replace

POLICIES: dict[str, dict[str, object]] = {
    "one model": {"policy": "single"},
    "hedge": {"policy": "hedge"},
    "hedge, first to speak": {"policy": "hedge", "prefer_first": False},
    "hedge, learned": {"policy": "hedge", "order": "learned"},
}


TOKENS_PER_S: Final = Candidate(spec="").tokens_per_s
"""As the candidates of both are assumed to write."""

LATE: Final = 1.05
"""Of the deadline, from where a turn counts as late: beyond the answers that are held for it."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One policy, live and simulated."""

    live: Came
    simulated: list[SimulatedResult]

    def late(self, limit_ms: float) -> tuple[float, float]:
        """Return the share of late turns, live and simulated."""
        simulated_ms = [turn.ttft_ms for turn in self.simulated]
        live, simulated = (float(np.mean(np.array(each) > limit_ms)) for each in (self.live.ttfts_ms, simulated_ms))
        return live, simulated


def wilson(share: float, n: int) -> tuple[float, float]:
    """Return the 95 % interval of a share of `n` (Wilson, JASA 22 (1927))."""
    z = 1.96
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return middle - half, middle + half


def simulated(world: World, policy: dict[str, object], took_s: float, slower: float) -> list[SimulatedResult]:
    """Route the same turns in virtual time, at the rate of the live ones."""
    prices: Sequence[Price] = PRICES[: n_models(policy)]
    candidates = tuple(
        Candidate(spec=f"v{i}/m", price=price, ttft_p50_ms=slower * MEDIANS_MS[i]) for i, price in enumerate(prices)
    )
    alone_usd = candidates[0].answer_usd(INPUT_TOKENS, len(WORDS), warm=True)
    deadline_ms = round(slower * DEADLINE_MS)
    options = RouterOptions(hedge_budget_usd=CAP_SHARE * alone_usd, deadline_ms=deadline_ms, **policy)  # type: ignore[arg-type]
    stats = SharedStats()
    pool = build_pool("p", candidates, options, stats)
    paced = replace(world, at_s=np.linspace(0.0, took_s, len(world.at_s)))
    turns = (
        replace(turn, input_tokens=INPUT_TOKENS, output_tokens=len(WORDS))
        for turn in drawn_turns(paced, len(candidates))
    )
    return list(simulate_turns(pool, stats, turns))


class DrawnModel:
    """A model in the process that does what a world has drawn for it."""

    def __init__(self, name: str, world: World, number: int) -> None:
        self.name = name
        self._world, self._number = world, number
        self._known: set[int] = set()
        """Sessions that it has read."""

    @asynccontextmanager
    async def open(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[ModelEvent]]:
        yield self._events(request)

    async def _events(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        question = request.messages[-1]
        assert isinstance(question, Content)
        assert isinstance(question.parts[0], Text)
        turn = int(question.parts[0].text)
        session = turn // TURNS_PER_SESSION
        cached = CACHED_TOKENS if session in self._known else 0
        self._known.add(session)
        after_ms = float(self._world.after_ms[turn, self._number])
        if math.isinf(after_ms):
            await asyncio.Event().wait()
        await asyncio.sleep(after_ms / 1_000)
        if self._world.fails[turn, self._number]:
            raise StageBroken("llm", provider=self.name, why="drawn", retryable=True)
        for word in WORDS:
            yield TextDelta(word)
            await asyncio.sleep(1 / TOKENS_PER_S)
        yield Usage(input_tokens=INPUT_TOKENS, output_tokens=len(WORDS), cached_tokens=cached)
        yield Finished("stop")

    async def warm(self, request: ModelRequest) -> None:
        """Nothing to open."""


async def jumped(world: World, policy: dict[str, object], at_once: int, *, slower: float) -> Came:
    """Ask the turns of a world of models in the process."""
    models: dict[str, Model] = {f"v{i}/m": DrawnModel(f"v{i}/m", world, i) for i in range(n_models(policy))}
    return await request_all(models, len(world.at_s), policy, at_once, slower=slower)


async def main(options: argparse.Namespace) -> None:
    """Print the table."""
    route_turns = jumped if options.jump else live
    now_s = asyncio.get_running_loop().time
    # No bad minutes: the whole run lasts less than one of them.
    chances = WorldOptions(n_turns=options.turns, seed=options.seed, incidents_per_h=1e-6)
    world = draw_world([options.slower * each for each in MEDIANS_MS], chances)
    ordered = side_by_side(world, options.at_once)
    deadline_ms = options.slower * DEADLINE_MS
    sys.stdout.write(
        f"{options.turns} turns, {options.at_once} sessions at a time, deadline {deadline_ms:.0f} ms, "
        f"late from {LATE * deadline_ms:.0f} ms on\n"
    )
    live_usd = simulated_usd = 0.0
    for name, policy in POLICIES.items():
        began_s = now_s()
        came = await route_turns(world, policy, options.at_once, slower=options.slower)
        both = Compared(came, simulated(ordered, policy, now_s() - began_s, options.slower))
        usd = sum(turn.usd for turn in both.simulated)
        live_usd, simulated_usd = live_usd or came.usd, simulated_usd or usd
        if policy["policy"] == "single":
            sys.stdout.write(f"the machine adds {added_ms(came, world):.1f} ms to the median answer of one model\n")
        at_live, at_simulated = both.late(LATE * deadline_ms)
        bare_live, bare_simulated = both.late(deadline_ms)
        low, high = wilson(at_live, options.turns)
        sys.stdout.write(
            f"{name:<24}live {at_live:.2%} ({low:.2%} to {high:.2%}), simulated {at_simulated:.2%}: "
            f"{'inside' if low <= at_simulated <= high else 'OUTSIDE'}; cost {came.usd / live_usd:.2f} and "
            f"{usd / simulated_usd:.2f}; over the bare deadline {bare_live:.2%} and {bare_simulated:.2%}\n"
        )
        sys.stdout.flush()


def side_by_side(world: World, at_once: int) -> World:
    """Return the world's turns in the order in which `live` runs them: sessions of consecutive turns, so many at a
    time."""
    sessions = np.arange(len(world.at_s)) // TURNS_PER_SESSION
    place = np.arange(len(world.at_s)) % TURNS_PER_SESSION
    order = np.lexsort((sessions, place, sessions // at_once))
    return replace(world, session=sessions[order], after_ms=world.after_ms[order], fails=world.fails[order])


def added_ms(came: Came, world: World) -> float:
    """Return what the machine added to the time of a model alone, at the median."""
    drawn_ms = np.where(world.fails[:, 0], HANG, world.after_ms[:, 0])
    return float(np.median(came.ttfts_ms) - np.median(drawn_ms))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=3_000)
    parser.add_argument("--at-once", type=int, default=12)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--slower", type=float, default=2.5, help="factor of all times (2.5)")
    logging.disable(logging.CRITICAL)  # of vendors that fail on cue
    parser.add_argument("--jump", action="store_true", help="jump over the time, with models in the process")
    chosen = parser.parse_args()
    if chosen.jump:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            loop = runner.get_loop()
            assert isinstance(loop, VirtualLoop)
            jumping: VirtualLoop = loop
            with patch.object(clock, "monotonic_ms", lambda: jumping.now_us // 1_000):
                runner.run(main(chosen))
    else:
        uvloop.run(main(chosen))  # as the server does
