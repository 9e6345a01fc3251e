"""Report the LLM bench: a table in Markdown, and a CSV with a line for each answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from voicepipe.bench import report_cells
from voicepipe.bench.llm import LlmMeasurement
from voicepipe.bench.report_cells import failures, markdown, money, quantile_cell, quantiles, total

COLUMNS: Final = (
    "model",
    "cache",
    "TTFT ms p50/p95/p99",
    "ITL ms p50/p95/p99",
    "tokens/s p50",
    "complete ms p50/p95/p99",
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
    answers: tuple[LlmMeasurement, ...]

    @property
    def whole(self) -> tuple[LlmMeasurement, ...]:
        """Return the answers without an error."""
        return tuple(answer for answer in self.answers if not answer.error)

    def quantiles(self, value: Callable[[LlmMeasurement], float | None]) -> list[float]:
        """Return p50, p95 and p99 of a figure over the complete answers; empty if none has it."""
        return quantiles(map(value, self.whole))

    @property
    def cost_usd(self) -> float | None:
        """Return the cost of all answers with a known price and usage; None if there are none."""
        return total(answer.cost_usd for answer in self.answers)


def runs(answers: Sequence[LlmMeasurement]) -> list[Run]:
    """Group the answers by model and state of the cache, in the order of measurement."""
    keys = dict.fromkeys((answer.spec, answer.cache) for answer in answers)
    return [Run(*key, tuple(a for a in answers if (a.spec, a.cache) == key)) for key in keys]


def table(measured: Sequence[Run]) -> Iterator[str]:
    """Yield the report, line by line, in Markdown; then each kind of failure once."""
    yield from markdown(COLUMNS, map(_cells, measured))
    for run in measured:
        yield from failures(f"{run.spec}, {run.cache} cache", (answer.error for answer in run.answers))


def _cells(run: Run) -> Iterator[str]:
    yield run.spec
    yield run.cache
    yield quantile_cell(run.quantiles(lambda answer: answer.ttft_ms))
    yield quantile_cell(run.quantiles(lambda answer: answer.itl_ms), digits=1)
    yield quantile_cell(run.quantiles(lambda answer: answer.tokens_per_s)[:1])
    yield quantile_cell(run.quantiles(lambda answer: answer.total_ms))
    usages = [answer.usage for answer in run.whole if answer.usage is not None]
    sums = [sum(getattr(u, f"{name}_tokens") for u in usages) for name in ("input", "cached", "output")]
    yield "/".join(map(str, sums)) if usages else "-"
    yield f"{len(run.answers) - len(run.whole)} of {len(run.answers)}"
    yield money(run.cost_usd)


def write_csv(path: Path, measured: Sequence[Run]) -> None:
    """Write a line for each answer."""
    report_cells.write_csv(path, CSV_COLUMNS, (_fields(answer) for run in measured for answer in run.answers))


def _fields(answer: LlmMeasurement) -> Iterator[object]:
    usage = answer.usage
    yield from (answer.spec, answer.cache, answer.prompt)
    for figure in (answer.ttft_ms, answer.itl_ms, answer.tokens_per_s, answer.total_ms):
        yield "" if figure is None else f"{figure:.2f}"
    yield from (usage.input_tokens, usage.cached_tokens, usage.output_tokens) if usage is not None else ("", "", "")
    yield "" if answer.cost_usd is None else f"{answer.cost_usd:.8f}"
    yield from (answer.route, answer.error)
