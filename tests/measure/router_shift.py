"""Measure how soon the router has learned that a model became slower: `python -m tests.measure.router_shift`.

From one turn on the first model of the pool `mid` takes `--factor` times as long. Its misses from 100 turns after that
moment on are compared with those of a router in the same turns that never knew it otherwise: the difference is what the
router still has to learn. What is left is the world's: with the order `given` a slow first model is still asked first.
"""

from __future__ import annotations

import argparse
import sys
from typing import Final

import numpy as np

from voicepipe.bench.simulate_pools import published_pools
from voicepipe.bench.simulate_world import WorldOptions, draw_world
from voicepipe.cli.simulate import drawn_turns, published_candidates
from voicepipe.router.build import build_pool
from voicepipe.router.options import RouterOptions
from voicepipe.router.policies import CandidateOrder
from voicepipe.router.pool import USUAL_TOKENS, SharedStats
from voicepipe.router.simulation import simulate_turns
from voicepipe.values import replace

FIRST_TURNS: Final = 300
"""Not counted: a new router learns."""

BEFORE, RECOVERY, AFTER = 900, 100, 500
"""Turns before the shift, turns to learn of it, turns that are compared then."""


def late(
    seed: int, since: int, *, turns_per_s: float, factor: float, share: float, order: CandidateOrder
) -> tuple[bool, ...]:
    """Return for each turn whether it missed the deadline; the first model is slower from the turn `since` on."""
    published = published_pools()["mid"]
    candidates = published_candidates(published)
    n_turns = BEFORE + RECOVERY + AFTER
    world = draw_world(published.medians_ms, WorldOptions(n_turns=n_turns, seed=seed, turns_per_s=turns_per_s))
    world.after_ms[since:, 0] *= factor
    stats = SharedStats()
    cap_usd = share * candidates[0].answer_usd(*USUAL_TOKENS, warm=True)
    options = replace(RouterOptions(), hedge_budget_usd=cap_usd, order=order)
    pool = build_pool("mid", candidates, options, stats)
    turns = simulate_turns(pool, stats, drawn_turns(world, len(candidates)))
    return tuple(turn.ttft_ms > options.deadline_ms for turn in turns)


def main() -> None:
    """Print a line for each order and cap."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns-per-s", type=float, default=0.1)
    parser.add_argument("--factor", type=float, default=3.0)
    parser.add_argument("--seeds", type=int, default=8)
    options = parser.parse_args()
    cases: tuple[tuple[CandidateOrder, float], ...] = (("given", 0.1), ("given", 0.3), ("learned", 0.1))
    for order, share in cases:
        rows = []
        for seed in range(100, 100 + options.seeds):
            shifted, always = (
                np.array(
                    late(
                        seed,
                        since,
                        turns_per_s=options.turns_per_s,
                        factor=options.factor,
                        share=share,
                        order=order,
                    )
                )
                for since in (BEFORE, 0)
            )
            after = slice(BEFORE + RECOVERY, None)
            rows.append((shifted[FIRST_TURNS:BEFORE].mean(), shifted[after].mean(), always[after].mean()))
        before, then, known = np.mean(rows, axis=0)
        error = np.std([row[1] - row[2] for row in rows]) / np.sqrt(len(rows))
        sys.stdout.write(
            f"{order}, cap {share:.0%}: before {before:.2%}, {RECOVERY} turns later {then:.2%}; always so {known:.2%}, "
            f"difference {then - known:+.2%} (standard error {error:.2%})\n"
        )
        sys.stdout.flush()


if __name__ == "__main__":
    main()
