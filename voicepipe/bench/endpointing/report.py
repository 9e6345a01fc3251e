"""Report the endpointing bench: one line for each rule, set and condition, as Markdown and as CSV."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from voicepipe.bench.endpointing.score import EndpointRule, ScoreSummary, TurnScore, score, summary, work_ms
from voicepipe.bench.endpointing.speech_set import CLEAN
from voicepipe.bench.endpointing.traces import LabelledTrace

SETS: Final = ("orders", "calls", "reading", "hesitation")
NOISY: Final = "10"
CONDITIONS: Final = (CLEAN, "10 dB", "babble 10 dB")
READY_MS: Final = (350, 500)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleResult:
    """One rule on one set under one condition: its summary for each of `READY_MS`."""

    rule: str
    set: str
    condition: str
    summaries: tuple[ScoreSummary, ...]


def lines(
    traces: Sequence[LabelledTrace], rules: Mapping[str, Callable[[int], Callable[[], EndpointRule]]]
) -> list[RuleResult]:
    """Score every rule on every trace. `rules`: name -> function of the work's ms that returns the maker of a rule."""
    parts = [(name, noise) for noise in CONDITIONS for name in SETS]
    return [
        RuleResult(rule=rule, set=part[0], condition=part[1], summaries=summaries)
        for part in parts
        for rule, made in rules.items()
        if (summaries := _summaries([each for each in traces if (each.set, condition(each)) == part], made))
    ]


def _summaries(
    traces: Sequence[LabelledTrace], made: Callable[[int], Callable[[], EndpointRule]]
) -> tuple[ScoreSummary, ...]:
    if not traces:
        return ()
    return tuple(summary(_scores(traces, made(work_ms(ready_ms)), ready_ms)) for ready_ms in READY_MS)


def _scores(traces: Sequence[LabelledTrace], make: Callable[[], EndpointRule], ready_ms: int) -> list[TurnScore]:
    return [score(each.trace, make(), each.end_ms, ready_ms) for each in traces if each.end_ms is not None]


def condition(traced: LabelledTrace) -> str:
    """Return under which of `CONDITIONS` the turn was said."""
    if traced.trace.condition == CLEAN:
        return CONDITIONS[0]
    return CONDITIONS[2] if traced.babble else CONDITIONS[1]


def table(results: Sequence[RuleResult]) -> Iterator[str]:
    """Yield the results in Markdown, line by line."""
    for noise in CONDITIONS:
        for name in SETS:
            part = [each for each in results if (each.set, each.condition) == (name, noise)]
            if part:
                yield f"**{name}, {noise}** ({part[0].summaries[0].n_turns} turns)"
                yield ""
                yield from _part(part)
                yield ""


def _part(results: Sequence[RuleResult]) -> Iterator[str]:
    heads = ("rule", "turn latency p50/p90", "overlapped", "broken", "missed", "work begins", "wasted starts")
    yield "| " + " | ".join(heads) + " |"
    yield "| " + " | ".join(["---"] * len(heads)) + " |"
    for each in results:
        cells = (
            _each(each.summaries, lambda summary: _pair(summary.latency_ms)),
            _each(each.summaries, lambda summary: f"{summary.overlapped:.1f}") + " %",
            _each(each.summaries, lambda summary: f"{summary.broken:.1f}") + " %",
            f"{each.summaries[0].missed:.1f} %",
            _pair(each.summaries[0].begun_ms),
            _each(each.summaries, lambda summary: f"{summary.wasted_starts:.2f}"),
        )
        yield f"| {each.rule} | " + " | ".join(cells) + " |"


def _each(summaries: Sequence[ScoreSummary], text: Callable[[ScoreSummary], str]) -> str:
    """Return the texts of all `READY_MS`; one where they are the same."""
    return ", ".join(dict.fromkeys(map(text, summaries)))


def _pair(values: tuple[float, float] | None) -> str:
    return "-" if values is None else f"{values[0]:.0f}/{values[1]:.0f}"


_COLUMNS: Final = (
    *("rule", "set", "condition", "ready_ms", "turns", "latency_p50_ms", "latency_p90_ms"),
    *("overlapped_percent", "broken_percent", "missed_percent", "begun_p50_ms", "begun_p90_ms", "wasted_starts"),
)


def write_csv(path: Path, results: Sequence[RuleResult]) -> None:
    """Write one line for each rule, set, condition and `ready_ms`; a latency without turns is empty."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(_COLUMNS)
        for each in results:
            for ready_ms, summary in zip(READY_MS, each.summaries, strict=True):
                latency, begun = summary.latency_ms or ("", ""), summary.begun_ms or ("", "")
                shares = (summary.overlapped, summary.broken, summary.missed)
                head = (each.rule, each.set, each.condition, ready_ms, summary.n_turns)
                writer.writerow((*head, *latency, *shares, *begun, summary.wasted_starts))
