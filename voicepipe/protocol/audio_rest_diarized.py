"""Divide a transcript among its speakers, as `diarized_json` has it.

Source: OpenAI API reference, "The transcription object (diarized)" and `transcript.text.segment`. No I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from msgspec import Struct

from voicepipe.audio.timed_words import TimedWord


class SpeakerSegment(Struct, frozen=True):
    """A stretch in which one speaker talks."""

    id: str
    start_s: float
    end_s: float
    text: str
    speaker: str
    """`A`, `B` and so on, in the order of their first words."""


class Speakers:
    """The speakers of one recording."""

    def __init__(self) -> None:
        """Begin with none."""
        self._labels: dict[str | None, str] = {}
        self._n_segments = 0

    def segments(self, words: Sequence[TimedWord]) -> Iterator[SpeakerSegment]:
        """Yield the segments of the next words."""
        for speaker, group in groupby(_attributed(words), key=lambda word: word.speaker):
            segment = list(group)
            self._n_segments += 1
            text = " ".join(word.text for word in segment)
            id_ = f"seg_{self._n_segments:03}"
            yield SpeakerSegment(id_, segment[0].start_s, segment[-1].end_s, text, self._label(speaker))

    def _label(self, speaker: str | None) -> str:
        return self._labels.setdefault(speaker, label(len(self._labels)))


def label(n: int) -> str:
    """Return the published label of the `n`th speaker, from 0: `A` to `Z`, then `AA`."""
    rest, letter = divmod(n, 26)
    return (label(rest - 1) if rest else "") + chr(ord("A") + letter)


def _attributed(words: Sequence[TimedWord]) -> Iterator[TimedWord]:
    """Yield the words; one without a speaker is said by the speaker of the word before it, or else of the next one."""
    speaker = next(_known(words), None)
    for word in words:
        speaker = word.speaker or speaker
        yield TimedWord(word.start_s, word.end_s, word.text, speaker)


def _known(words: Iterable[TimedWord]) -> Iterator[str]:
    return (word.speaker for word in words if word.speaker)
