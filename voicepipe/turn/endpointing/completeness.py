"""Decide whether the user's words sound finished, by lists per language; languages without a list use their
punctuation.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from voicepipe.turn.endpointing.vocabularies import PUNCTUATION_ONLY, VOCABULARIES, Vocabulary

ANSWERED: Final = -1.0
CLOSED: Final = -0.3
UNKNOWN: Final = 0.0
PAUSED: Final = 0.1
SPELLING: Final = 0.5
LIKELY_UNFINISHED: Final = 0.7
OPEN: Final = 1.0
"""How unfinished each class sounds, -1 to 1.

A full stop is weaker evidence than a missing noun: transcribers put one at the end of whatever they get, and people
pause after whole sentences. Hardly any turn ends on "the". A comma is weak evidence: transcribers put one wherever
the user pauses.
"""

_APOSTROPHE: Final = "\u2019"
_TOKEN: Final = re.compile(rf"[^\W_]+(?:['{_APOSTROPHE}][^\W_]+)*")
_QUOTES: Final = " \"')\u2019\u201d\u00bb"
ELLIPSES_AND_DASHES: Final = ("...", "\u2026", "-", "\u2013", "\u2014")
_CLOSES: Final = tuple(".!?\u3002\uff01\uff1f\u061f\u0964")
_GOES_ON: Final = tuple(",;:\uff0c\u3001\uff1b\uff1a\u060c")
"""ASCII's, the ellipsis and the dashes, and those of Chinese, Japanese, Arabic and Hindi."""

_MAX_DIGITS: Final = 10
"""The length of a telephone number without its country code; a user who has said as many digits may be finished."""


_SIGNIFICANT_BETWEEN_DIGITS: Final = frozenset(".,:/-")
_SPOKEN_MARKS: Final = frozenset("%#&@*")
"""Punctuation in Unicode, but read aloud as words."""


def same_words(a: str, b: str) -> bool:
    """Return whether two texts have the same words, except for case, punctuation and spacing. `3.5` is not `35`."""
    return a == b or _bare(a) == _bare(b)


def _bare(text: str) -> str:
    text = unicodedata.normalize("NFKC", text).casefold()
    return "".join(char for i, char in enumerate(text) if _is_spoken(text, i, char))


def _is_spoken(text: str, i: int, char: str) -> bool:
    if char in _SIGNIFICANT_BETWEEN_DIGITS and text[i - 1 : i].isdecimal() and text[i + 1 : i + 2].isdecimal():
        return True
    return char in _SPOKEN_MARKS or unicodedata.category(char)[0] not in "PZC"


def words_of(text: str) -> list[str]:
    """Return the words of a text. Vowel signs, as in Hindi, are parts of words: without this they would divide them."""
    if not text.isascii():
        text = "".join(char for char in unicodedata.normalize("NFC", text) if unicodedata.category(char)[0] != "M")
    return _TOKEN.findall(text)


def unfinished(text: str, language: str | None = None, *, after_question: bool = False) -> float:
    """Return how unfinished `text`, the utterance so far, sounds: from -1, a whole answer, to 1, more must come.

    `language`: BCP-47; None is taken for English, and a language without a list is judged by punctuation.
    `after_question`: the agent's latest sentence is a question.
    """
    lists = VOCABULARIES.get((language or "en").lower().partition("-")[0], PUNCTUATION_ONLY)
    tokens = [token.replace(_APOSTROPHE, "'") for token in words_of(text.lower())]
    if not tokens:
        return UNKNOWN
    if after_question and len(tokens) <= 2 and lists.answers.issuperset(tokens):
        return ANSWERED
    if _dictates(tokens, lists):
        return SPELLING
    if tokens[-1] in lists.opening:
        return OPEN
    if tokens[-1] in lists.likely_unfinished:
        return LIKELY_UNFINISHED
    return _by_punctuation(text.rstrip(_QUOTES))


def _by_punctuation(text: str) -> float:
    if text.endswith(ELLIPSES_AND_DASHES):
        return SPELLING
    if text.endswith(_CLOSES):
        return CLOSED
    return PAUSED if text.endswith(_GOES_ON) else UNKNOWN


def _dictates(tokens: list[str], lists: Vocabulary) -> bool:
    """Return whether the text ends in several digits or letters, but fewer than a whole number has."""
    n_spoken = n_tokens = 0
    for token in reversed(tokens):
        letter = len(token) == 1 and token.isalpha()
        if not (letter or token.isdecimal() or token in lists.digits):
            break
        n_tokens += 1
        n_spoken += len(token) if token.isdecimal() else 1
    return n_tokens >= 2 and n_spoken < _MAX_DIGITS
