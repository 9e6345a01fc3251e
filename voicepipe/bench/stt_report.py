"""Report the STT bench: a table, a chart, and a CSV with a line for each utterance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from voicepipe.bench import cdf_chart, report_cells
from voicepipe.bench.cdf_chart import Curve, Panel
from voicepipe.bench.report_cells import failures, markdown, money, quantile_cell, quantiles, total
from voicepipe.bench.stt import SttResult

COLUMNS: Final = ("STT", "final ms p50/p95/p99", "first text ms p50", "WER %", "words", "errors", "USD a minute")

CSV_COLUMNS: Final = (
    "stt",
    "recording",
    "final_ms",
    "partial_ms",
    "duration_s",
    "words",
    "word_errors",
    "cost_usd",
    "text",
    "error",
)


@dataclass(frozen=True, slots=True)
class SttRun:
    """All results of one STT."""

    spec: str
    results: tuple[SttResult, ...]

    @property
    def whole(self) -> tuple[SttResult, ...]:
        """Return the results without an error."""
        return tuple(each for each in self.results if not each.error)

    @property
    def wer(self) -> float | None:
        """Return the word error rate over all utterances; None if the references have no words."""
        n_words = sum(each.n_words for each in self.whole)
        return sum(each.n_errors for each in self.whole) / n_words if n_words else None

    @property
    def usd_a_minute(self) -> float | None:
        """Return the price per minute; None if it is not known."""
        cost_usd = total(each.cost_usd for each in self.whole)
        return None if cost_usd is None else 60 * cost_usd / sum(each.duration_s for each in self.whole)


def stt_runs(results: Sequence[SttResult]) -> list[SttRun]:
    """Group the results by STT, in the order of measurement."""
    specs = dict.fromkeys(each.spec for each in results)
    return [SttRun(spec, tuple(each for each in results if each.spec == spec)) for spec in specs]


def table(measured: Sequence[SttRun]) -> Iterator[str]:
    """Yield the report, line by line, in Markdown; then each kind of failure once."""
    yield from markdown(COLUMNS, map(_cells, measured))
    for run in measured:
        yield from failures(run.spec, (each.error for each in run.results))


def _cells(run: SttRun) -> Iterator[str]:
    yield run.spec
    yield quantile_cell(quantiles(each.final_ms for each in run.whole))
    yield quantile_cell(quantiles(each.partial_ms for each in run.whole)[:1])
    yield "-" if run.wer is None else f"{100 * run.wer:.1f}"
    yield str(sum(each.n_words for each in run.whole))
    yield f"{len(run.results) - len(run.whole)} of {len(run.results)}"
    yield money(run.usd_a_minute)


def svg(measured: Sequence[SttRun]) -> str:
    """Draw the distribution of the time to the text, a curve for each STT."""
    times = [[each.final_ms for each in run.whole if each.final_ms is not None] for run in measured]
    lines = [Curve(times_ms, len(run.results)) for times_ms, run in zip(times, measured, strict=True)]
    return cdf_chart.svg([Panel("end of speech to final transcript", lines)], [run.spec for run in measured])


def write_csv(path: Path, measured: Sequence[SttRun]) -> None:
    """Write a line for each utterance."""
    lines = (_fields(each) for run in measured for each in run.results)
    report_cells.write_csv(path, CSV_COLUMNS, lines)


def _fields(each: SttResult) -> Iterator[object]:
    yield from (each.spec, each.name, report_cells.plain(each.final_ms), report_cells.plain(each.partial_ms))
    yield from (f"{each.duration_s:.3f}", each.n_words, each.n_errors, report_cells.plain(each.cost_usd, digits=8))
    yield from (each.text, each.error)
