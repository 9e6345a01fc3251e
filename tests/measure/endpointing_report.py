"""Report the endpointing bench as the table of goals, as CSV and as a picture."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import Final

from tests.measure.endpointing_score import Summary, Verdict, summary
from voicepipe.bench.endpointing.speech_set import CLEAN, Clip, Mix

NATURAL: Final = ("clean", "conversation")
"""Kinds of clips with short turns and natural pauses."""

STRESS: Final = ("read_pauses", "hesitation", "pause_built", "concat")
"""Kinds with long pauses inside the turn."""

NOISY: Final = "10"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One clip under one condition."""

    clip: Clip
    condition: str
    mix: Mix | None
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A detector's results over a whole set."""

    name: str
    results: tuple[Result, ...]
    false_turns_per_min: float
    cpu_ms_per_s: float
    words_cpu_ms_per_s: float

    def over(self, kinds: Iterable[str], condition: str, *, babble: bool = False) -> Summary:
        """Return the summary of a part of the set, with or without babble noise."""
        chosen = set(kinds)
        return summary(
            [
                result.verdict
                for result in self.results
                if result.clip.kind in chosen
                and result.condition == condition
                and (result.mix is not None and result.mix.babble) == babble
            ]
        )


def _pair(values: tuple[float, float]) -> str:
    return "/".join(_whole(value) for value in values)


def _whole(value: float) -> str:
    return "-" if isnan(value) else f"{value:.0f}"


def _percent(*values: float) -> str:
    return " / ".join("-" if isnan(value) else f"{value:.1f} %" for value in values)


@dataclass(frozen=True, slots=True)
class _Row:
    measure: str
    must: str
    aim: str
    value: Callable[[Run], str]


_BOTH: Final = NATURAL + STRESS

_ROWS: Final = (
    _Row(
        "tentative end p50/p90, natural clean, ms",
        "165/255",
        "150/225",
        lambda r: _pair(r.over(NATURAL, CLEAN).tentative_ms),
    ),
    _Row("work begins p50/p90, natural clean, ms", "-", "-", lambda r: _pair(r.over(NATURAL, CLEAN).begun_ms)),
    _Row(
        "effective delay p50/p90, natural clean, ms",
        "260/460",
        "150/300",
        lambda r: _pair(r.over(NATURAL, CLEAN).effective_ms),
    ),
    _Row("end of turn p50/p90, natural clean, ms", "-", "-", lambda r: _pair(r.over(NATURAL, CLEAN).commit_ms)),
    _Row("turns cut, natural clean", "13 %", "9 %", lambda r: _percent(r.over(NATURAL, CLEAN).cut)),
    _Row("turns cut, natural 10 dB without babble", "15 %", "13 %", lambda r: _percent(r.over(NATURAL, NOISY).cut)),
    _Row(
        "effective delay p50, natural 10 dB without babble, ms",
        "350",
        "300",
        lambda r: _whole(r.over(NATURAL, NOISY).effective_ms[0]),
    ),
    _Row("turns cut, stress clean", "65 %", "55 %", lambda r: _percent(r.over(STRESS, CLEAN).cut)),
    _Row(
        "no end within 2 s: clean / 10 dB / babble 10 dB",
        "0 / 2 / 50 %",
        "0 / 1 / 20 %",
        lambda r: _percent(
            r.over(_BOTH, CLEAN).missed, r.over(_BOTH, NOISY).missed, r.over(_BOTH, NOISY, babble=True).missed
        ),
    ),
    _Row("hesitation clips cut", "28 %", "20 %", lambda r: _percent(r.over(("hesitation",), CLEAN).cut)),
    _Row(
        "wasted speculative starts a turn, natural / stress",
        "1.0 / 1.8",
        "0.6 / 1.2",
        lambda r: f"{r.over(NATURAL, CLEAN).withdrawn_per_turn:.2f} / {r.over(STRESS, CLEAN).withdrawn_per_turn:.2f}",
    ),
    _Row("false turns a minute on noise alone", "0", "0", lambda r: f"{r.false_turns_per_min:.1f}"),
    _Row("CPU per stream, ms a second of audio", "5", "2", lambda r: f"{r.cpu_ms_per_s:.1f}"),
    _Row("CPU of the words, ms a second of audio", "-", "-", lambda r: f"{r.words_cpu_ms_per_s:.1f}"),
)


def table(runs: Sequence[Run]) -> Iterator[str]:
    """Yield the table of goals in Markdown, line by line."""
    yield "| " + " | ".join(("measure", "must", "aim", *(run.name for run in runs))) + " |"
    yield "| " + " | ".join(["---"] * (3 + len(runs))) + " |"
    for row in _ROWS:
        yield "| " + " | ".join((row.measure, row.must, row.aim, *(row.value(run) for run in runs))) + " |"
    for name, kinds in (("natural", NATURAL), ("stress", STRESS)):
        parts = [runs[0].over(kinds, CLEAN), runs[0].over(kinds, NOISY), runs[0].over(kinds, NOISY, babble=True)]
        yield f"\n{name}: {parts[0].turns} turns clean, {parts[1].turns} at 10 dB, {parts[2].turns} in babble at 10 dB"


_COLUMNS: Final = (
    *("detector", "clip", "kind", "speaker", "condition", "noise"),
    *("cut", "missed", "withdrawn", "tentative_ms", "begun_ms", "effective_ms", "delay_ms"),
)


def write_csv(path: Path, runs: Sequence[Run]) -> None:
    """Write one line a clip, condition and detector; delays are empty where there was no end in time."""
    with path.open("w", newline="") as file:
        lines = csv.DictWriter(file, _COLUMNS)
        lines.writeheader()
        lines.writerows(_line(run.name, result) for run in runs for result in run.results)


def _line(detector: str, result: Result) -> dict[str, object]:
    clip, verdict = result.clip, result.verdict
    return {
        "detector": detector,
        "clip": clip.id,
        "kind": clip.kind,
        "speaker": clip.speaker,
        "condition": result.condition,
        "noise": result.mix.noise if result.mix else "",
        "cut": int(verdict.cut),
        "missed": int(verdict.missed),
        "withdrawn": verdict.withdrawn,
        "tentative_ms": verdict.tentative_ms,
        "begun_ms": verdict.begun_ms,
        "effective_ms": verdict.effective_ms,
        "delay_ms": verdict.delay_ms,
    }
