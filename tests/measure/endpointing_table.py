"""The feature table of the pauses of labelled speech, from which `end_probability` is fitted.

`tests/data/endpointing_pauses.csv` has one line a pause: measurements alone, no audio and no words. `python -m
tests.measure.endpointing_table TRACES...` writes it anew from the traces that `voicepipe bench endpointing --traces`
has written of the clean clips.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from voicepipe.bench.endpointing.traces import LabelledTrace, Pause, read_traces
from voicepipe.turn.endpointing.probability import SENTENCE_END, SMART_TURN, Features, TextEnding, features
from voicepipe.turn.endpointing.strategy import Evidence

TABLE: Final = Path(__file__).parents[1] / "data" / "endpointing_pauses.csv"

AUDIO_SCORE_AT_MS: Final = 100
"""The silence after which the audio model is asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One pause."""

    clip: str
    set: str
    speaker: str
    voiced_ms: int
    """Position of the last voiced sample in the clip."""

    noticed_ms: int
    """The silence at which the VAD reported the pause."""

    resumed_ms: int | None
    """The silence until the user went on; None: the end of the turn."""

    label_ms: int
    """From the last voiced sample to the labelled end of the turn."""

    features: Features

    @property
    def is_end(self) -> bool:
        """Whether the turn was over."""
        return self.resumed_ms is None


_COLUMNS: Final = (
    *("clip", "set", "speaker", "voiced_ms", "noticed_ms", "resumed_ms", "label_ms"),
    *("ending", "n_words", "sentence_end", "smart_turn"),
)


def rows_of(traces: Iterable[LabelledTrace]) -> Iterator[Row]:
    """Yield the rows of these traces. What the VAD finds after the labelled end is no row."""
    for traced in traces:
        for pause in traced.trace.pauses:
            if traced.end_ms is None or (pause.onset_ms is not None and pause.onset_ms >= traced.end_ms):
                break
            yield Row(
                clip=traced.trace.clip,
                set=traced.set,
                speaker=traced.speaker,
                voiced_ms=pause.voiced_ms,
                noticed_ms=pause.steps[0].silence_ms,
                resumed_ms=None if pause.onset_ms is None else pause.onset_ms - pause.voiced_ms,
                label_ms=traced.end_ms - pause.voiced_ms,
                features=features(_evidence(pause)),
            )


def _evidence(pause: Pause) -> Evidence:
    scores = []
    if pause.sentence_end is not None:
        scores.append((SENTENCE_END, round(pause.sentence_end, 4)))
    if AUDIO_SCORE_AT_MS in pause.audio_scores:
        scores.append((SMART_TURN, round(pause.audio_scores[AUDIO_SCORE_AT_MS], 4)))
    return Evidence(text=pause.text, scores=tuple(scores))


def read_table(path: Path = TABLE) -> list[Row]:
    """Return the rows of the table."""
    with path.open(newline="") as file:
        return [_row(line) for line in csv.DictReader(file)]


def write_table(rows: Iterable[Row], path: Path = TABLE) -> None:
    """Write the table."""
    with path.open("w", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(_COLUMNS)
        for row in rows:
            known = row.features
            lines.writerow(
                (
                    *(row.clip, row.set, row.speaker, row.voiced_ms, row.noticed_ms, row.resumed_ms, row.label_ms),
                    *(known.ending.name.lower(), known.n_words, known.sentence_end, known.smart_turn),
                )
            )


def _row(line: dict[str, str]) -> Row:
    return Row(
        clip=line["clip"],
        set=line["set"],
        speaker=line["speaker"],
        voiced_ms=int(line["voiced_ms"]),
        noticed_ms=int(line["noticed_ms"]),
        resumed_ms=int(line["resumed_ms"]) if line["resumed_ms"] else None,
        label_ms=int(line["label_ms"]),
        features=Features(
            ending=TextEnding[line["ending"].upper()],
            n_words=int(line["n_words"]),
            sentence_end=float(line["sentence_end"]) if line["sentence_end"] else None,
            smart_turn=float(line["smart_turn"]) if line["smart_turn"] else None,
        ),
    )


if __name__ == "__main__":
    write_table(row for path in sys.argv[1:] for row in rows_of(read_traces(Path(path))))
