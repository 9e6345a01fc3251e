"""Measure what hedges cost in many worlds, against their cap: `python -m tests.measure.router_cap`.

The worlds are those in which the router was designed: the four pools with their published medians; `mid` with medians
that are wrong by 2.0, 0.6 and 1.2; and `same-price` with other spreads of the times to the first token and other shares
of stragglers. A model that has read the session is a fifth faster, as there. Each world is simulated with the shipped
limits, and with a cap of a tenth and of 2 % of what a turn of the first model costs, without `late_turn_usd`. `most` is
the most that hedges cost in any 500 turns, and `first` what they cost in the first 2,000 turns, both as a share of the
cap; failovers are in neither. The exit status is 1 if `most` is over 1.05 anywhere.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from voicepipe.bench.report_cells import markdown
from voicepipe.bench.simulate_pools import published_pools
from voicepipe.bench.simulate_world import WorldOptions, draw_world
from voicepipe.cli.simulate import NO_LIMIT_USD, Scene, most_spent, published_candidates, simulated
from voicepipe.router.options import RouterOptions
from voicepipe.router.pool import USUAL_TOKENS
from voicepipe.values import replace

LIMIT: Final = 1.05
FIRST_TURNS: Final = 2_000
CACHED_FACTOR: Final = 0.8

SPREADS: Final = (0.3, 0.5, 0.7)
STRAGGLER_SHARES: Final = (0.01, 0.05)


@dataclass(frozen=True, slots=True)
class Place:
    """A world: a pool, and how its models' times are drawn."""

    name: str
    pool: str
    world: WorldOptions


@dataclass(frozen=True, slots=True)
class Limits:
    """How much hedges may cost."""

    name: str
    share: float | None
    """Of what a turn of the first model costs; None: the shipped limits."""


LIMITS: Final = (Limits("as shipped", None), Limits("10 %", 0.1), Limits("2 %", 0.02))


def places(n_turns: int, seed: int) -> Iterator[Place]:
    """Yield the worlds."""
    plain = WorldOptions(n_turns=n_turns, seed=seed)
    for pool in published_pools():
        yield Place(pool, pool, plain)
    for sigma in SPREADS:
        for share in STRAGGLER_SHARES:
            name = f"same-price, spread {sigma:g}, stragglers {share:.0%}"
            yield Place(name, "same-price", replace(plain, sigma=sigma, straggler_share=share))


def scene_of(place: Place, limits: Limits) -> Scene:
    """Return the pool in its world, with these limits."""
    pool = published_pools()[place.pool]
    candidates, options = published_candidates(pool), RouterOptions()
    if limits.share is not None:
        cap_usd = limits.share * candidates[0].answer_usd(*USUAL_TOKENS, warm=True)
        options = replace(options, hedge_budget_usd=cap_usd, late_turn_usd=NO_LIMIT_USD)
    return Scene(place.name, candidates, draw_world(pool.medians_ms, place.world), options, CACHED_FACTOR)


def row_of(place: Place, limits: Limits) -> tuple[float, list[str]]:
    """Return the most that hedges cost as a share of the cap, and the row of the table."""
    scene = scene_of(place, limits)
    turns, cap_usd = simulated(scene, "hedge"), scene.options.hedge_budget_usd
    first_usd = sum(turn.extra_usd - turn.failover_usd for turn in turns[:FIRST_TURNS])
    most = most_spent(turns, cap_usd)
    late = np.mean([turn.ttft_ms > scene.options.deadline_ms for turn in turns])
    first = first_usd / (cap_usd * min(FIRST_TURNS, len(turns)))
    hedged = np.mean([turn.n_calls > 1 for turn in turns])
    return most, [place.name, limits.name, f"{late:.2%}", f"{hedged:.1%}", f"{first:.2f}", f"{most:.3f}"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=4_000, help="of each world (4000)")
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args(arguments)
    rows, highest = [], 0.0
    for place in places(options.turns, options.seed):
        for limits in LIMITS:
            most, row = row_of(place, limits)
            rows.append(row)
            highest = max(highest, most)
            sys.stderr.write(f"{', '.join(row)}\n")
    sys.stdout.writelines(
        f"{line}\n" for line in markdown(("world", "cap", "over 600 ms", "hedged", "first", "most"), rows)
    )
    sys.stdout.write(f"The most of all is {highest:.3f} times the cap, of at most {LIMIT:g}.\n")
    return int(highest > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
