"""The report of the bench of ears: a table, a picture, and a CSV with a line for each utterance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from voicepipe.bench import curves, figures
from voicepipe.bench.curves import Curve, Panel
from voicepipe.bench.figures import failures, markdown, money, quantiles, shown, total
from voicepipe.bench.stt import Listened

COLUMNS: Final = ("ear", "final ms p50/p95/p99", "first words ms p50", "WER %", "words", "errors", "USD a minute")

CSV_COLUMNS: Final = (
    "ear",
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
class EarRun:
    """All that one ear heard."""

    spec: str
    heard: tuple[Listened, ...]

    @property
    def whole(self) -> tuple[Listened, ...]:
        """What did not fail."""
        return tuple(each for each in self.heard if not each.error)

    @property
    def wer(self) -> float | None:
        """Wrong words for each word that was said, over all utterances; None: none was."""
        n_words = sum(each.n_words for each in self.whole)
        return sum(each.n_errors for each in self.whole) / n_words if n_words else None

    @property
    def usd_a_minute(self) -> float | None:
        """None: the price is not known."""
        cost_usd = total(each.cost_usd for each in self.whole)
        return None if cost_usd is None else 60 * cost_usd / sum(each.duration_s for each in self.whole)


def ear_runs(heard: Sequence[Listened]) -> list[EarRun]:
    """By ear, in the order in which they were measured."""
    specs = dict.fromkeys(each.spec for each in heard)
    return [EarRun(spec, tuple(each for each in heard if each.spec == spec)) for spec in specs]


def table(measured: Sequence[EarRun]) -> Iterator[str]:
    """The report, line by line, in Markdown; then each kind of failure once."""
    yield from markdown(COLUMNS, map(_cells, measured))
    for run in measured:
        yield from failures(run.spec, (each.error for each in run.heard))


def _cells(run: EarRun) -> Iterator[str]:
    yield run.spec
    yield shown(quantiles(each.final_ms for each in run.whole))
    yield shown(quantiles(each.partial_ms for each in run.whole)[:1])
    yield "-" if run.wer is None else f"{100 * run.wer:.1f}"
    yield str(sum(each.n_words for each in run.whole))
    yield f"{len(run.heard) - len(run.whole)} of {len(run.heard)}"
    yield money(run.usd_a_minute)


def svg(measured: Sequence[EarRun]) -> str:
    """The distribution of the time to the text, a curve for each ear."""
    times = [[each.final_ms for each in run.whole if each.final_ms is not None] for run in measured]
    lines = [Curve(its, len(run.heard)) for its, run in zip(times, measured, strict=True)]
    return curves.svg([Panel("text, once speech is over", lines)], [run.spec for run in measured])


def write_csv(path: Path, measured: Sequence[EarRun]) -> None:
    """Write a line for each utterance."""
    lines = (_fields(each) for run in measured for each in run.heard)
    figures.write_csv(path, CSV_COLUMNS, lines)


def _fields(each: Listened) -> Iterator[object]:
    yield from (each.spec, each.name, figures.plain(each.final_ms), figures.plain(each.partial_ms))
    yield from (f"{each.duration_s:.3f}", each.n_words, each.n_errors, figures.plain(each.cost_usd, digits=8))
    yield from (each.text, each.error)
