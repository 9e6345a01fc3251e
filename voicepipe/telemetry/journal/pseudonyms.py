"""Pseudonymise transcripts; word lengths, sentence-final cues and repetitions remain, so that replay decides the
same."""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import blake2b
from itertools import count
from string import ascii_lowercase
from typing import Final

from voicepipe.turn.backchannels import LISTENERS, SOUNDS
from voicepipe.turn.endpointing.unspaced import is_unspaced
from voicepipe.turn.endpointing.vocabularies import VOCABULARIES

_APOSTROPHE: Final = "\u2019"
_TOKEN: Final = re.compile(rf"[^\W_]+(?:['{_APOSTROPHE}][^\W_]+)*")


def _words_of(phrases: Iterable[str]) -> set[str]:
    return {word for phrase in phrases for word in phrase.split()}


_FIRST_HAN: Final = 0x4E00
"""Letters of scripts without spaces become the first 256 Han letters: the core counts their words by letters."""

_DIGITS: Final = frozenset(digit for lists in VOCABULARIES.values() for digit in lists.digits)
"""Dictated numbers use these words: the core distinguishes them from other words, but not from one another."""

_KNOWN: Final = frozenset(
    _words_of(
        phrase
        for lists in VOCABULARIES.values()
        for part in (lists.opening, lists.likely_unfinished, lists.answers)
        for phrase in part
    )
    | _words_of(
        phrase
        for lists in LISTENERS.values()
        for part in (lists.acknowledges, lists.stops, lists.discourse_markers)
        for phrase in part
    )
    | _words_of(SOUNDS)
).difference(_DIGITS)
"""The core uses these words to detect that a user has finished, agrees or interrupts. They reveal little else."""

_MEANINGFUL: Final = _KNOWN | _DIGITS


class Pseudonymizer:
    """Replaces each word by another of the same length: within one session always by the same one.

    Articles, prepositions, "yes", "stop" and the like stay as they are, and so do punctuation and capitals. A number
    becomes another number; a number word that is the only one of its length stays as it is. Two different short words
    may become the same one.
    """

    def __init__(self, key: bytes) -> None:
        """`key`: up to 64 random bytes, to be deleted with the session."""
        self._key = key

    def __call__(self, text: str) -> str:
        """Return the pseudonymised text; as long as it was."""
        return _TOKEN.sub(self._pseudonym, text)

    def _pseudonym(self, found: re.Match[str]) -> str:
        written = found[0]
        word = written.lower().replace(_APOSTROPHE, "'")
        if word in _KNOWN:
            return written
        if word in _DIGITS:
            return self._pick(word)
        # Drawn again where chance gave the same word, or a word with a meaning to the core.
        drawn = (_like(written, self._draw(word, attempt)) for attempt in count())
        same = written if any(char.isdecimal() or char.isalpha() for char in written) else None
        return next(new for new in drawn if new != same and new.lower() not in _MEANINGFUL)

    def _pick(self, digit: str) -> str:
        """Return another digit as long as that one, in each language that has that one."""
        languages = [lists.digits for lists in VOCABULARIES.values() if digit in lists.digits]
        as_long = {other for other in frozenset.intersection(*languages) if len(other) == len(digit)}
        others = sorted(as_long - {digit}) or [digit]
        return others[self._draw(digit, 0)[0] % len(others)]

    def _draw(self, word: str, attempt: int) -> bytes:
        return blake2b(word.casefold().encode("utf-8", "surrogatepass"), key=self._key, salt=bytes([attempt])).digest()


def _like(written: str, drawn: bytes) -> str:
    """Return letters for letters and digits for digits, drawn from these bytes."""
    return "".join(_char(char, drawn[place % len(drawn)]) for place, char in enumerate(written))


def _char(char: str, drawn: int) -> str:
    if char.isdecimal():
        return str(drawn % 10)
    if not char.isalpha():
        return char
    if is_unspaced(char):
        return chr(_FIRST_HAN + drawn)
    letter = ascii_lowercase[drawn % len(ascii_lowercase)]
    return letter.upper() if char.isupper() else letter


def length(text: str) -> str:
    """Return the placeholder for a text of which only the length may be stored."""
    return f"{len(text)} characters" if text else ""
