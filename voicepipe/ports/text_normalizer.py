"""Map between a reply's written clauses and the spoken form that the synthesizer gets.

The turn passes the written text and gets audio, clause numbers and word times of the written text. The synthesizer
gets the output of `speech_text`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from difflib import SequenceMatcher

from voicepipe.ports.speech_text import ClauseNormalizer
from voicepipe.ports.synthesizer import Speech, SpeechEvent, Spoken, Synthesizer, Voice, WordTime


@asynccontextmanager
async def open_normalized(synthesizer: Synthesizer, voice: Voice) -> AsyncIterator[NormalizedSpeech]:
    """Open `synthesizer.open(voice)` for written text; `voice.language` selects the reading rules, and
    `voice.pronunciations` come before them.

    A clause without anything speakable has a number and no audio. Raises what the synthesizer raises.
    """
    async with synthesizer.open(voice) as speech:
        yield NormalizedSpeech(speech, voice.language, voice.pronunciations)


class NormalizedSpeech:
    """The speech of one turn; implements `Speech`."""

    def __init__(self, speech: Speech, language: str | None, pronunciations: tuple[tuple[str, str], ...] = ()) -> None:
        self._speech = speech
        self._normalizer = ClauseNormalizer(language, pronunciations)
        self.n_chars = 0
        """Characters that the synthesizer was given, in spoken form."""

        self._n_written = 0
        self._spoken_clauses: list[_SpokenClause] = []  # by the synthesizer's own clause numbers; a turn has tens
        self._sound: AsyncIterator[SpeechEvent] | None = None

    def push(self, clause: str) -> None:
        if spoken := self._normalizer.read(clause):
            self._spoken_clauses.append(_SpokenClause(self._n_written, clause.split(), spoken.split()))
            self._speech.push(spoken)
            self.n_chars += len(spoken)
        self._n_written += 1

    def finish(self) -> None:
        self._speech.finish()

    def __aiter__(self) -> NormalizedSpeech:
        self._sound = aiter(self._speech)
        return self

    async def __anext__(self) -> SpeechEvent:
        assert self._sound is not None
        spoken = await anext(self._sound)
        if not isinstance(spoken, Spoken) or spoken.clause >= len(self._spoken_clauses):
            return spoken  # the synthesizer's numbers differ from ours: its audio is still played
        clause = self._spoken_clauses[spoken.clause]
        return Spoken(clause.clause, spoken.samples, tuple(clause.word_times(spoken.words)))


class _SpokenClause:
    """A clause being spoken, and the written word that the synthesizer has reached."""

    def __init__(self, clause: int, written: list[str], spoken: list[str]) -> None:
        self.clause = clause
        self._written, self._spoken = written, spoken
        self._places: list[int] | None = None
        self._n_spoken = self._n_timed = 0

    def word_times(self, words: Iterable[WordTime]) -> list[WordTime]:
        """Return the next spoken words as written words: a word without spoken form begins with the next spoken one."""
        word_times = []
        for word in words:
            if self._places is None:
                self._places = places(self._written, self._spoken)
            place = self._places[min(self._n_spoken, len(self._places) - 1)]
            self._n_spoken += 1
            word_times += [WordTime(written, word.start_ms) for written in self._written[self._n_timed : place + 1]]
            self._n_timed = max(self._n_timed, place + 1)
        return word_times


def places(written: list[str], spoken: list[str]) -> list[int]:
    """Return for each spoken word the index of its written word; never decreasing.

    Equal words on both sides are matched. The words between two matches, `$5.50` and `five dollars fifty`, are
    assigned in proportion.
    """
    if written == spoken:
        return list(range(len(spoken)))
    found = []
    matcher = SequenceMatcher(None, [_bare(word) for word in written], [_bare(word) for word in spoken], autojunk=False)
    for _, begin, end, from_, to in matcher.get_opcodes():
        n_written = end - begin
        found += [min(begin + i * n_written // (to - from_), len(written) - 1) for i in range(to - from_)]
    return found


def _bare(word: str) -> str:
    return "".join(char for char in word.casefold() if char.isalnum()) or word
