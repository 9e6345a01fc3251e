"""Track how far the clauses of a turn were spoken, and the rest when a synthesizer breaks. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from voicepipe.audio.samples import first_audible
from voicepipe.ports.synthesizer import RATE_HZ, Spoken, WordTime

CHAR_MS: Final = 80.0
"""Milliseconds of speech for a written character, until a voice has shown its own rate: that of a slow voice, 125
words a minute with 6 characters a word. With a faster voice a word is repeated; with a slower one a word would be
lost."""

WORD_MS: Final = 250
"""A word of which less than this was played is repeated: a whole word takes 400 ms at 150 words a minute."""


class Rest(Struct, frozen=True):
    """The position at which another synthesizer continues."""

    clause: int
    text: str
    """The rest of the clause."""

    played_ms: int
    """Duration of the clause's audio so far."""


class SpeechProgress:
    """The progress of one turn. A word that may have been cut is repeated: better twice than missing."""

    def __init__(self, speed: float) -> None:
        self.clause = -1
        """The clause that had audio last; -1: none yet."""

        self._n_samples = self._n_silent = 0
        self._words: list[WordTime] = []
        self._n_before = self._before_ms = 0
        """Words of the clause that another synthesizer has spoken, and their duration."""

        self._is_audible = self._was_audible = False
        """Whether anything was audible: of the clause so far, and of the turn."""

        self._char_ms = CHAR_MS / speed
        self._whole_chars = self._whole_ms = 0

    def record(self, spoken: Spoken, clauses: Sequence[str]) -> None:
        """Record audio that was passed on."""
        if spoken.clause != self.clause:
            if 0 <= self.clause < len(clauses):
                self._learn(clauses[self.clause])
            self.clause, self._n_samples = spoken.clause, 0
            self._by_another(0)
        self._n_samples += len(spoken.samples)
        self._words += spoken.words
        if not self._is_audible:
            audible = first_audible(spoken.samples)
            self._is_audible = audible is not None
            self._was_audible = self._was_audible or self._is_audible
            self._n_silent += len(spoken.samples) if audible is None else audible

    def go_on(self, clauses: Sequence[str]) -> Rest | None:
        """Return the rest of these clauses for another synthesizer; None: nothing is left. If only silence has come,
        the rest of the latest clause has those before it too, since the number of a clause never decreases."""
        for clause in range(max(0, self.clause), len(clauses)):
            words = clauses[clause].split()
            is_begun = clause == self.clause
            n_spoken = min(self._n_spoken(words), len(words)) if is_begun else 0
            if is_begun:
                self._by_another(n_spoken)
            if n_spoken < len(words):
                before = () if self._was_audible else clauses[:clause]
                return Rest(clause, " ".join((*before, *words[n_spoken:])), self._played_ms if is_begun else 0)
        return None

    @property
    def _played_ms(self) -> int:
        return self._n_samples * 1_000 // RATE_HZ

    def _by_another(self, n_words: int) -> None:
        """Record that this many words of the clause were spoken; the next audio comes from another synthesizer, or
        belongs to another clause."""
        self._n_before, self._before_ms = n_words, self._played_ms
        self._words, self._n_silent, self._is_audible = [], 0, False

    def _learn(self, text: str) -> None:
        """Learn the rate from a complete clause, at the start of the next."""
        self._whole_chars += len(text)
        self._whole_ms += self._played_ms
        self._char_ms = self._whole_ms / max(1, self._whole_chars)

    def _n_spoken(self, words: list[str]) -> int:
        """Return how many of the latest clause's words were played: by their times, or else by how long its audio
        is. Silence has none."""
        if not self._is_audible:
            return self._n_before
        if self._words:
            return self._n_before + sum(word.start_ms + WORD_MS <= self._played_ms for word in self._words)
        sounded_ms = self._played_ms - self._before_ms - self._n_silent * 1_000 // RATE_HZ
        n_spoken, at_ms = self._n_before, 0.0
        for word in words[self._n_before :]:
            at_ms += len(word) * self._char_ms
            if at_ms > sounded_ms:
                break
            at_ms += self._char_ms
            n_spoken += 1
        return n_spoken
