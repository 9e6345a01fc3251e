"""Measure the benefit of acting on the budget: the same turns with no action, with each, and with all.

`python -m tests.measure.budget_actions`. Virtual time around the product's own core, so that thousands of turns take a
minute. Times of the first model, and of a second one for hedge and fallback, are drawn as in `simulate_world`. The
router's own decisions are measured by `voicepipe simulate router`; here a hedge is a second request after 400 ms.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from tests.measure.budget_actions_world import Draw, Setup, Stage
from voicepipe.bench.simulate_world import WorldOptions, draw_world
from voicepipe.turn.record import attribution
from voicepipe.turn.record.values import TurnRecord
from voicepipe.turn.settings import BudgetActionSettings, CoreSettings
from voicepipe.values import replace

LIMIT_MS: Final = 1_000
LATE_MS: Final = 1_500
TURNS_PER_SESSION: Final = 8

TTFT_MEDIANS_MS: Final = (350.0, 400.0)
VOICE_MEDIAN_MS: Final = 90.0
GAP_MEDIAN_MS: Final = 17.0
SLOW_SHARE: Final = 0.1
SLOW_GAP_MS: Final = 130.0
"""Assumed: usually 60 tokens a second, and 8 in one turn of ten, as from an overloaded provider."""

OPENINGS: Final = (
    "It is noon.",
    "Yes, it is just past noon there.",
    "The train from the central station leaves at ten past nine tomorrow morning.",
    "Most of the people who have asked me that were glad to hear that the answer is yes.",
    "I looked at the three offers that you mentioned and the second one is by far the cheapest of them.",
)
"""First sentences, from very short ones to one of twenty words without a comma."""

SHARES: Final = (0.35, 0.35, 0.15, 0.1, 0.05)
"""Relative frequency of each opening. Assumed: agents are instructed to be brief."""

HEDGE_MS: Final = 400.0
"""By this time about two thirds of the first model's answers have begun."""

ANSWER: Final = " Shall I go on?"

NOTHING: Final = CoreSettings(speculate=True, budget_actions=BudgetActionSettings(shorten_after_ms=None))
SHORTEN: Final = BudgetActionSettings()
FILLER: Final = BudgetActionSettings(shorten_after_ms=None, filler="One moment.")
APOLOGY: Final = BudgetActionSettings(shorten_after_ms=None, apology="Sorry, please ask me again.")
EVERYTHING: Final = BudgetActionSettings(filler=FILLER.filler, apology=APOLOGY.apology)

SETUPS: Final = (
    Setup(name="no action", core=NOTHING),
    Setup(name="hedge", core=NOTHING, hedge_after_ms=HEDGE_MS),
    Setup(name="short clause", core=replace(NOTHING, budget_actions=SHORTEN)),
    Setup(name="filler", core=replace(NOTHING, budget_actions=FILLER)),
    Setup(name="fallback", core=NOTHING, falls_back=True),
    Setup(name="apology", core=replace(NOTHING, budget_actions=APOLOGY)),
    Setup(name="all", core=replace(NOTHING, budget_actions=EVERYTHING), hedge_after_ms=HEDGE_MS, falls_back=True),
)


@dataclass(frozen=True, slots=True)
class Figures:
    """The results of one setup."""

    name: str
    n: int
    over: float
    """The share of turns whose answer was played after more than a second, or never."""

    p95_ms: float
    """Of the answers that were played."""

    late: float
    """The share of turns with no audio at all for 1.5 s: no answer, no filler, no apology."""

    mute: float
    """The share of turns that never had audio."""

    acted: float
    """The share of turns with the action; with any action, for all."""

    calls_a_turn: float


def draws(n: int, seed: int) -> list[Draw]:
    """Return the random values of each turn; the same for every setup."""
    world = draw_world(TTFT_MEDIANS_MS, WorldOptions(n_turns=n, seed=seed))
    chance = np.random.default_rng(seed)
    gaps_ms = np.where(chance.random(n) < SLOW_SHARE, SLOW_GAP_MS, GAP_MEDIAN_MS) * np.exp(
        0.3 * chance.standard_normal(n)
    )
    voices_ms = VOICE_MEDIAN_MS * np.exp(0.4 * chance.standard_normal(n))
    openings = chance.choice(len(OPENINGS), n, p=SHARES)
    return [
        Draw(
            tokens_of(OPENINGS[openings[i]] + ANSWER),
            tuple(float(ms) for ms in world.after_ms[i]),
            tuple(bool(fails) for fails in world.fails[i]),
            float(gaps_ms[i]),
            float(voices_ms[i]),
        )
        for i in range(n)
    ]


def tokens_of(text: str) -> tuple[str, ...]:
    """Split a text into words with the space before them, as models send it."""
    first, *rest = text.split(" ")
    return (first, *(f" {word}" for word in rest))


def measured(setup: Setup, world: Sequence[Draw]) -> Figures:
    """Play all turns, in sessions of eight."""
    answered_ms: list[float] = []
    first_ms: list[float] = []
    acted = n_calls = 0
    for begin in range(0, len(world), TURNS_PER_SESSION):
        stage = Stage(setup)
        stage.play(world[begin : begin + TURNS_PER_SESSION])
        n_calls += stage.n_calls
        for record, apology in _turns(stage.records.values()):
            answered_ms.append(_waited_ms(record, record, attribution.FIRST_AUDIBLE))
            sounds_ms = (
                _waited_ms(record, record, attribution.FILLER_AUDIBLE),
                _waited_ms(record, apology, attribution.FIRST_AUDIBLE),
            )
            first_ms.append(min(answered_ms[-1], *sounds_ms))
            acted += bool(record.actions)
    answered, first = np.array(answered_ms), np.array(first_ms)
    n = len(answered)
    played = answered[np.isfinite(answered)]
    return Figures(
        setup.name,
        n,
        float((answered > LIMIT_MS).mean()),
        float(np.quantile(played, 0.95)) if len(played) else float("inf"),
        float((first > LATE_MS).mean()),
        float(np.isinf(first).mean()),
        acted / n,
        n_calls / n,
    )


def _turns(records: Iterable[TurnRecord]) -> Iterator[tuple[TurnRecord, TurnRecord | None]]:
    """Yield each of the user's turns, with its apology if there was one."""
    held = sorted(records, key=lambda record: record.turn)
    for i, record in enumerate(held):
        if record.cause == "vad":
            after = held[i + 1] if i + 1 < len(held) else None
            yield record, after if after is not None and after.cause == "apology" else None


def _waited_ms(record: TurnRecord, played: TurnRecord | None, mark: str) -> float:
    """Return the time from the user's last word in `record` to that mark of `played`; infinite if it never came."""
    at_ms = None if played is None else dict(played.marks).get(mark)
    return float("inf") if at_ms is None else at_ms - dict(record.marks)[attribution.VOICED_LAST]


def table(rows: Sequence[Figures]) -> str:
    """Return the figures as a Markdown table."""
    lines = [
        "| actions | answer after 1 s | answers p95 | silence of 1.5 s | never a sound | taken in | calls a turn |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| {row.name} | {row.over:.1%} | {row.p95_ms:.0f} ms | {row.late:.1%} | {row.mute:.2%} | {row.acted:.1%} "
        f"| {row.calls_a_turn:.2f} |"
        for row in rows
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Play the turns with every setup, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.measure.budget_actions", description=__doc__)
    parser.add_argument("--turns", type=int, default=1_000, help="how many turns (1000)")
    parser.add_argument("--seed", type=int, default=7, help="of the drawn times (7)")
    options = parser.parse_args()
    world = draws(options.turns, options.seed)
    sys.stdout.write(table([measured(setup, world) for setup in SETUPS]))


if __name__ == "__main__":
    main()
