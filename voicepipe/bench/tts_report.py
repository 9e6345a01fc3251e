"""Report the TTS bench: a table, a chart, and a CSV with a line for each text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from voicepipe.bench import cdf_chart, report_cells
from voicepipe.bench.cdf_chart import Curve, Panel
from voicepipe.bench.report_cells import failures, markdown, money, plain, quantile_cell, quantiles, total
from voicepipe.bench.tts import TtsMeasurement

COLUMNS: Final = (
    "voice",
    "first audible ms p50/p95/p99",
    "silence before it ms p50",
    "real-time factor p50/p95/p99",
    "texts with underruns",
    "waited ms p99",
    "errors",
    "USD",
)

CSV_COLUMNS: Final = (
    "voice",
    "text",
    "characters",
    "audible_ms",
    "leading_ms",
    "total_ms",
    "sound_ms",
    "real_time_factor",
    "underruns",
    "underrun_ms",
    "cost_usd",
    "error",
)


@dataclass(frozen=True, slots=True)
class TtsRun:
    """All results of one TTS."""

    spec: str
    spoken: tuple[TtsMeasurement, ...]

    @property
    def whole(self) -> tuple[TtsMeasurement, ...]:
        """Return the results without an error."""
        return tuple(each for each in self.spoken if not each.error)

    def quantiles(self, figure: Callable[[TtsMeasurement], float | None]) -> list[float]:
        """Return p50, p95 and p99 over the results without an error."""
        return quantiles(map(figure, self.whole))


def tts_runs(spoken: Sequence[TtsMeasurement]) -> list[TtsRun]:
    """Group the results by TTS, in the order of measurement."""
    specs = dict.fromkeys(each.spec for each in spoken)
    return [TtsRun(spec, tuple(each for each in spoken if each.spec == spec)) for spec in specs]


def table(measured: Sequence[TtsRun]) -> Iterator[str]:
    """Yield the report, line by line, in Markdown; then each kind of failure once."""
    yield from markdown(COLUMNS, map(_cells, measured))
    for run in measured:
        yield from failures(run.spec, (each.error for each in run.spoken))


def _cells(run: TtsRun) -> Iterator[str]:
    yield run.spec
    yield quantile_cell(run.quantiles(lambda utterance: utterance.audible_ms))
    yield quantile_cell(run.quantiles(lambda utterance: utterance.leading_ms)[:1])
    yield quantile_cell(run.quantiles(lambda utterance: utterance.real_time_factor), digits=3)
    yield f"{sum(bool(each.n_underruns) for each in run.whole)} of {len(run.whole)}"
    yield quantile_cell(run.quantiles(lambda utterance: utterance.underrun_ms)[2:])
    yield f"{len(run.spoken) - len(run.whole)} of {len(run.spoken)}"
    yield money(total(each.cost_usd for each in run.whole))


def svg(measured: Sequence[TtsRun]) -> str:
    """Draw distributions of the time to the first audible sample and to the end, a curve for each TTS."""

    def panel(title: str, figure: Callable[[TtsMeasurement], float | None]) -> Panel:
        known = [[found for found in map(figure, run.whole) if found is not None] for run in measured]
        return Panel(title, [Curve(figures, len(run.spoken)) for figures, run in zip(known, measured, strict=True)])

    panels = (
        panel("first audible", lambda utterance: utterance.audible_ms),
        panel("complete", lambda utterance: utterance.total_ms),
    )
    return cdf_chart.svg(panels, [run.spec for run in measured])


def write_csv(path: Path, measured: Sequence[TtsRun]) -> None:
    """Write a line for each text."""
    report_cells.write_csv(path, CSV_COLUMNS, (_fields(each) for run in measured for each in run.spoken))


def _fields(each: TtsMeasurement) -> Iterator[object]:
    yield from (each.spec, each.text, each.n_chars, plain(each.audible_ms), plain(each.leading_ms))
    yield from (plain(each.total_ms), plain(each.sound_ms), plain(each.real_time_factor, digits=4))
    yield from (each.n_underruns, plain(each.underrun_ms), plain(each.cost_usd, digits=8), each.error)
