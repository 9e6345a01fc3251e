"""Compare the router's simulation with live turns: `python -m tests.measure.router_live [--turns 3000]`.

Fake vendors on sockets of this machine answer with the times that one world has drawn, in real time: many sessions at
once make it quick, and no time is shortened. The simulation then routes the same turns at the rate of the live ones.
Printed for each policy: the share of turns over the deadline, live with its 95 % interval (Wilson) and simulated, and
the cost as a multiple of one model's.

The sockets, the vendors and the router share this machine, which adds its own time to each answer: by how much, shows
the median of the turns that one model answers, above the drawn one. Live turns count as late from the deadline and that
time on, for each policy. The share over the bare deadline is printed too.
"""

from __future__ import annotations

import argparse
import logging
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import uvloop

from tests.router.measure import (
    CAP_SHARE,
    DEADLINE_MS,
    INPUT_TOKENS,
    MEDIANS_MS,
    PRICES,
    TURNS_PER_SESSION,
    WORDS,
    Came,
    live,
)
from voicepipe.bench.simulate_world import HANG, World, WorldOptions, draw_world
from voicepipe.cli.simulate import drawn_turns
from voicepipe.router.build import build_pool
from voicepipe.router.candidate import Candidate
from voicepipe.router.options import RouterOptions
from voicepipe.router.pool import SharedStats
from voicepipe.router.simulation import SimulatedResult, simulate_turns
from voicepipe.turn.cost import Price

POLICIES: dict[str, dict[str, object]] = {
    "one model": {"policy": "single"},
    "hedge": {"policy": "hedge"},
    "hedge, first to speak": {"policy": "hedge", "prefer_first": False},
    "hedge, learned": {"policy": "hedge", "order": "learned"},
}


@dataclass(frozen=True, slots=True)
class Compared:
    """One policy, live and simulated."""

    live: Came
    simulated: list[SimulatedResult]

    def live_missed(self, limit_ms: float) -> float:
        return float(np.mean(np.array(self.live.ttfts_ms) > limit_ms))

    @property
    def simulated_missed(self) -> float:
        return float(np.mean([turn.ttft_ms > DEADLINE_MS for turn in self.simulated]))


def wilson(share: float, n: int) -> tuple[float, float]:
    """Return the 95 % interval of a share of `n` (Wilson, JASA 22 (1927))."""
    z = 1.96
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return middle - half, middle + half


def simulated(world: World, policy: dict[str, object], took_s: float) -> list[SimulatedResult]:
    """Route the same turns in virtual time, at the rate of the live ones."""
    n = 1 if policy["policy"] == "single" else len(MEDIANS_MS)
    prices: Sequence[Price] = PRICES[:n]
    candidates = tuple(
        Candidate(spec=f"v{i}/m", price=price, ttft_p50_ms=MEDIANS_MS[i]) for i, price in enumerate(prices)
    )
    alone_usd = candidates[0].answer_usd(INPUT_TOKENS, len(WORDS), warm=True)
    options = RouterOptions(hedge_budget_usd=CAP_SHARE * alone_usd, deadline_ms=DEADLINE_MS, **policy)  # type: ignore[arg-type]
    stats = SharedStats()
    pool = build_pool("p", candidates, options, stats)
    paced = replace(world, at_s=np.linspace(0.0, took_s, len(world.at_s)))
    turns = (
        replace(turn, input_tokens=INPUT_TOKENS, output_tokens=len(WORDS))
        for turn in drawn_turns(paced, len(candidates))
    )
    return list(simulate_turns(pool, stats, turns))


async def main(options: argparse.Namespace) -> None:
    """Print the table."""
    # No bad minutes: the whole run lasts less than one of them.
    world = draw_world(MEDIANS_MS, WorldOptions(n_turns=options.turns, seed=options.seed, incidents_per_h=1e-6))
    ordered = side_by_side(world, options.at_once)
    sys.stdout.write(f"{options.turns} turns, {options.at_once} sessions at a time, over {DEADLINE_MS} ms\n")
    live_usd = simulated_usd = 0.0
    limit_ms = float(DEADLINE_MS)
    for name, policy in POLICIES.items():
        began_s = time.perf_counter()
        came = await live(world, policy, options.at_once)
        both = Compared(came, simulated(ordered, policy, time.perf_counter() - began_s))
        usd = sum(turn.usd for turn in both.simulated)
        live_usd, simulated_usd = live_usd or came.usd, simulated_usd or usd
        if policy["policy"] == "single":
            limit_ms += added_ms(came, world)
            sys.stdout.write(f"the machine adds {limit_ms - DEADLINE_MS:.1f} ms: late from {limit_ms:.0f} ms on\n")
        missed = both.live_missed(limit_ms)
        low, high = wilson(missed, options.turns)
        sys.stdout.write(
            f"{name:<24}live {missed:.2%} ({low:.2%} to {high:.2%}), simulated {both.simulated_missed:.2%}: "
            f"{'inside' if low <= both.simulated_missed <= high else 'OUTSIDE'}; cost {came.usd / live_usd:.2f} and "
            f"{usd / simulated_usd:.2f}; live over {DEADLINE_MS} ms {both.live_missed(DEADLINE_MS):.2%}\n"
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
    logging.disable(logging.CRITICAL)  # of vendors that fail on cue
    uvloop.run(main(parser.parse_args()))  # as the server does
