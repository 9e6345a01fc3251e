"""Fit the weights of `voicepipe/turn/endpointing/probability.py`, and print what they are worth for new speakers.

`python -m tests.measure.end_probability` reads the feature table, prints the weights as they stand in that module, and
cross-validates them: each speaker's pauses are judged by weights that were fitted without this speaker. The machine
needs neither audio nor models.

`--traces FILE` cross-validates the strategies `soft` and `adaptive` so, on the traces that `voicepipe bench endpointing
--traces FILE` has written: with all their rules, clean and in noise.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import structs

from tests.measure.endpointing_table import Row, read_table
from voicepipe.bench.endpointing.report import condition
from voicepipe.bench.endpointing.rules import StrategyRule
from voicepipe.bench.endpointing.score import ScoreSummary, TurnScore, score, summary, work_ms
from voicepipe.bench.endpointing.traces import LabelledTrace, read_traces
from voicepipe.turn.endpointing.probability import FITTED, Weights, WeightSets, end_probability, log_odds
from voicepipe.turn.endpointing.strategies import Adaptive, Soft
from voicepipe.values import replace

Array = npt.NDArray[np.float64]

MIN_PAUSE_MS: Final = 200
"""Shorter pauses are not fitted: no decision is taken in them."""

RIDGE: Final = 0.003
"""Penalty on the square of each weight, beside the mean log loss. The weights of rare endings need it."""

_DIGITS: Final = 2
"""More digits of a weight are noise."""

READY_MS: Final = (350, 500)

STRATEGIES: Final[tuple[type[Soft | Adaptive], ...]] = (Soft, Adaptive)

SILENCE_MS: Final = 720
"""The `silence_ms` that strategies get from an agent with the default settings."""


@dataclass(frozen=True, slots=True)
class Model:
    """A set of weights: its name in `WeightSets`, and the features that it needs."""

    name: str
    columns: tuple[str, ...]


_WORDS: Final = ("question", "closed", "goes_on", "broken_off", "log_words")
MODELS: Final = (
    Model("words_only", _WORDS),
    Model("with_sentence_end", (*_WORDS, "sentence_end")),
    Model("with_smart_turn", (*_WORDS, "smart_turn")),
    Model("with_both", (*_WORDS, "sentence_end", "smart_turn")),
    Model("smart_turn_only", ("smart_turn",)),
)


def fit(rows: Sequence[Row], columns: Sequence[str]) -> Weights:
    """Return the weights that fit these pauses best.

    The four sets weigh the same, and in each of them ends and inner pauses. Newton's method, until no weight moves.
    """
    used = [row for row in rows if _is_long(row)]
    design = np.array([[_value(row, column) for column in ("bias", *columns)] for row in used])
    ends = np.array([float(row.is_end) for row in used])
    sizes = Counter((row.set, row.is_end) for row in used)
    shares = np.array([1 / sizes[row.set, row.is_end] for row in used]) / len(sizes)
    weights = _newton(design, ends, shares)
    return Weights(**dict(zip(("bias", *columns), (round(float(w), _DIGITS) for w in weights), strict=True)))


def _newton(design: Array, ends: Array, shares: Array) -> Array:
    penalty = RIDGE * np.eye(design.shape[1])
    penalty[0, 0] = 0.0
    weights = np.zeros(design.shape[1])
    while True:
        odds = 1 / (1 + np.exp(-design @ weights))
        slope = design.T @ (shares * (odds - ends)) + penalty @ weights
        curve = (design * (shares * odds * (1 - odds))[:, None]).T @ design + penalty
        step = np.linalg.solve(curve, slope)
        weights = weights - step
        if np.abs(step).max() < 1e-9:
            return weights


def _value(row: Row, column: str) -> float:
    """Return the factor of a weight: the log odds of weights of which only that one is 1."""
    return 1.0 if column == "bias" else log_odds(row.features, replace(Weights(), **{column: 1.0}))


def _is_long(row: Row) -> bool:
    return row.resumed_ms is None or row.resumed_ms >= MIN_PAUSE_MS


def cross_validated(rows: Sequence[Row], columns: Sequence[str]) -> list[float]:
    """Return the probability of each pause, by weights fitted without its speaker."""
    speakers = {(row.set, row.speaker) for row in rows}
    weights = {each: fit([row for row in rows if (row.set, row.speaker) != each], columns) for each in speakers}
    return [1 / (1 + float(np.exp(-log_odds(row.features, weights[row.set, row.speaker])))) for row in rows]


def auc(rows: Sequence[Row], probabilities: Sequence[float]) -> float:
    """Return how often an end has a higher probability than an inner pause, of those that are fitted."""
    judged = [(row, p) for row, p in zip(rows, probabilities, strict=True) if _is_long(row)]
    ends = np.array([p for row, p in judged if row.is_end])
    inner = np.array([p for row, p in judged if not row.is_end])
    return float((ends[:, None] > inner).mean() + (ends[:, None] == inner).mean() / 2)


def fitted_without(rows: Sequence[Row], speaker: tuple[str, str]) -> WeightSets:
    """Return the weights without the pauses of a speaker of a set."""
    others = [row for row in rows if (row.set, row.speaker) != speaker]
    return WeightSets(**{model.name: fit(others, model.columns) for model in MODELS})


def strategy_scores(
    traces: Iterable[LabelledTrace],
    rows: Sequence[Row],
    strategy: type[Soft | Adaptive],
    ready_ms: int,
    *,
    smart_turn: bool = False,
) -> dict[tuple[str, str], list[TurnScore]]:
    """Return the score of each turn, by condition and set, each judged by weights fitted without its speaker."""
    scores: dict[tuple[str, str], list[TurnScore]] = {}
    known: dict[tuple[str, str], WeightSets] = {}
    for traced in traces:
        if traced.end_ms is None:
            continue
        speaker = (traced.set, traced.speaker)
        if speaker not in known:
            known[speaker] = fitted_without(rows, speaker)
        judge = partial(end_probability, fitted=known[speaker])
        rule = StrategyRule(strategy(SILENCE_MS, judge), work_ms(ready_ms), smart_turn=smart_turn)
        scores.setdefault((condition(traced), traced.set), []).append(
            score(traced.trace, rule, traced.end_ms, ready_ms)
        )
    return scores


def main(arguments: Sequence[str] | None = None) -> int:
    """Fit, cross-validate and print; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.measure.end_probability", description=__doc__)
    parser.add_argument("--traces", type=Path, help="cross-validate the strategies on these traces instead")
    parser.add_argument("--without-sentence-end", action="store_true", help="leave out that score of the traces")
    parser.add_argument("--smart-turn", action="store_true", help="use that score too, as with `smart_turn`")
    options = parser.parse_args(arguments)
    rows = read_table()
    if options.traces is not None:
        traces = list(read_traces(options.traces))
        if options.without_sentence_end:
            traces = [_without_sentence_end(each) for each in traces]
        _report_strategies(traces, rows, smart_turn=options.smart_turn)
        return 0
    for model in MODELS:
        weights = fit(rows, model.columns)
        agrees = weights == getattr(FITTED, model.name)
        sys.stdout.write(f"{model.name}=Weights({_arguments(weights)})\n")
        sys.stdout.write("" if agrees else "    differs from probability.py\n")
    for model in MODELS:
        _report(model, rows)
    return 0


def _arguments(weights: Weights) -> str:
    return ", ".join(f"{name}={value}" for name, value in structs.asdict(weights).items() if value)


def _report(model: Model, rows: Sequence[Row]) -> None:
    found = list(zip(rows, cross_validated(rows, model.columns), strict=True))
    for name in dict.fromkeys(row.set for row in rows):
        of_set = [(row, p) for row, p in found if row.set == name]
        area = auc([row for row, _ in of_set], [p for _, p in of_set])
        sys.stdout.write(f"{model.name}, cross-validated by speaker, {name}: AUC {area:.2f}\n")


def _shares(shares: ScoreSummary) -> str:
    assert shares.latency_ms is not None
    return (
        f"turn latency {shares.latency_ms[0]:.0f}/{shares.latency_ms[1]:.0f}  "
        f"overlapped {shares.overlapped:.1f} %  broken {shares.broken:.1f} %  missed {shares.missed:.1f} %  "
        f"wasted starts {shares.wasted_starts:.2f}  ({shares.n_turns} turns)"
    )


def _without_sentence_end(traced: LabelledTrace) -> LabelledTrace:
    pauses = tuple(replace(pause, sentence_end=None) for pause in traced.trace.pauses)
    return replace(traced, trace=replace(traced.trace, pauses=pauses))


def _report_strategies(traces: Sequence[LabelledTrace], rows: Sequence[Row], *, smart_turn: bool) -> None:
    for strategy, ready_ms in product(STRATEGIES, READY_MS):
        sys.stdout.write(f"\n{strategy.__name__.lower()}, ready {ready_ms}, cross-validated by speaker\n")
        scores = strategy_scores(traces, rows, strategy, ready_ms, smart_turn=smart_turn)
        for (noise, name), outcomes in scores.items():
            cut = 100 * sum(each.overlapped or each.broken for each in outcomes) / len(outcomes)
            sys.stdout.write(f"  {noise:12} {name:10} {_shares(summary(outcomes))}  cut {cut:.1f} %\n")


if __name__ == "__main__":
    sys.exit(main())
