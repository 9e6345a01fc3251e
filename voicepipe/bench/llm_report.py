"""The report of the bench of language models: a table for people, a CSV with a line for each answer."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from voicepipe.bench.llm import Answer

QUANTILES: Final = (50, 95, 99)

COLUMNS: Final = (
    "model",
    "cache",
    "TTFT ms p50/p95/p99",
    "ITL ms p50/p95/p99",
    "tokens/s p50",
    "whole ms p50/p95/p99",
    "tokens in/cached/out",
    "errors",
    "USD",
)

CSV_COLUMNS: Final = (
    "model",
    "cache",
    "prompt",
    "ttft_ms",
    "itl_ms",
    "tokens_per_s",
    "total_ms",
    "input_tokens",
    "cached_tokens",
    "output_tokens",
    "cost_usd",
    "route",
    "error",
)


@dataclass(frozen=True, slots=True)
class Run:
    """All answers of one model with its cache in one state."""

    spec: str
    cache: str
    answers: tuple[Answer, ...]

    @property
    def whole(self) -> tuple[Answer, ...]:
        """Those that did not fail."""
        return tuple(answer for answer in self.answers if not answer.error)

    def quantiles(self, value: Callable[[Answer], float | None]) -> list[float]:
        """p50, p95 and p99 of a figure over the whole answers; empty when none has it."""
        known = [found for found in map(value, self.whole) if found is not None]
        return [float(each) for each in np.percentile(known, QUANTILES)] if known else []

    @property
    def cost_usd(self) -> float | None:
        """What all answers cost whose price and usage are known; None: of none they are."""
        known = [answer.cost_usd for answer in self.answers if answer.cost_usd is not None]
        return sum(known) if known else None


def runs(answers: Sequence[Answer]) -> list[Run]:
    """The answers by model and state of the cache, in the order in which they were measured."""
    keys = dict.fromkeys((answer.spec, answer.cache) for answer in answers)
    return [Run(*key, tuple(a for a in answers if (a.spec, a.cache) == key)) for key in keys]


def table(measured: Sequence[Run]) -> Iterator[str]:
    """The report, line by line, in Markdown; then each kind of failure once."""
    yield f"| {' | '.join(COLUMNS)} |"
    yield "|" + " --- |" * len(COLUMNS)
    for run in measured:
        yield f"| {' | '.join(_cells(run))} |"
    for run in measured:
        for why in dict.fromkeys(answer.error for answer in run.answers if answer.error):
            count = sum(answer.error == why for answer in run.answers)
            yield f"{run.spec}, {run.cache} cache: {count} failed: {why}"


def _cells(run: Run) -> Iterator[str]:
    yield run.spec
    yield run.cache
    yield _shown(run.quantiles(lambda answer: answer.ttft_ms))
    yield _shown(run.quantiles(lambda answer: answer.itl_ms), digits=1)
    yield _shown(run.quantiles(lambda answer: answer.tokens_per_s)[:1])
    yield _shown(run.quantiles(lambda answer: answer.total_ms))
    usages = [answer.usage for answer in run.whole if answer.usage is not None]
    sums = [sum(getattr(u, f"{name}_tokens") for u in usages) for name in ("input", "cached", "output")]
    yield "/".join(map(str, sums)) if usages else "-"
    yield f"{len(run.answers) - len(run.whole)} of {len(run.answers)}"
    yield "-" if run.cost_usd is None else f"{run.cost_usd:.6f}"


def _shown(figures: Sequence[float], *, digits: int = 0) -> str:
    return "/".join(f"{figure:.{digits}f}" for figure in figures) or "-"


def write_csv(path: Path, measured: Sequence[Run]) -> None:
    """Write a line for each answer."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(CSV_COLUMNS)
        for answer in (answer for run in measured for answer in run.answers):
            writer.writerow(_fields(answer))


def _fields(answer: Answer) -> Iterator[object]:
    usage = answer.usage
    yield from (answer.spec, answer.cache, answer.prompt)
    for figure in (answer.ttft_ms, answer.itl_ms, answer.tokens_per_s, answer.total_ms):
        yield "" if figure is None else f"{figure:.2f}"
    yield from (usage.input_tokens, usage.cached_tokens, usage.output_tokens) if usage is not None else ("", "", "")
    yield "" if answer.cost_usd is None else f"{answer.cost_usd:.8f}"
    yield from (answer.route, answer.error)
