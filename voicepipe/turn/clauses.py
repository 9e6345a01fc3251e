"""Split a stream of text so that the TTS can begin early and still sound natural."""

from __future__ import annotations

import re
from dataclasses import dataclass

_WIDE_END = "\u3002\uff01\uff1f"
_SENTENCE_END = ".!?\u2026" + _WIDE_END
_WIDE_COMMA = "\u3001\uff0c\uff1b\uff1a"
_CLAUSE_END = ",;:\u2014" + _WIDE_COMMA
_CLOSERS = "\"')]}\u201d\u2019\u00bb"
_NOT_AN_END = re.compile(r"(?:\b(?:mr|mrs|ms|dr|prof|st|vs|etc|e\.g|i\.e|jr|sr|u\.s|a\.m|p\.m)|\b[A-Z]|\d)\.$", re.I)
"""A dot after an abbreviation, an initial or a digit may belong to what follows; only more text decides."""

_LIST_NUMBER = re.compile(r"\s*\d+\.")
"""The whole line before the dot, when it is the number of a list's item: what follows belongs to it, capital or not."""

_LOOK_BACK_CHARS = 16
"""Number of characters before a dot that decide what the dot means: longer than any abbreviation or item number.

Looking at all the text before each dot would take seconds for an LLM that sends a page at once.
"""

_NEXT_WORD = re.compile(r"\S")

MIN_FIRST_CHARS = 12
"""The first clause may end at a comma after this many characters: shorter clauses sound clipped and save nothing."""

MAX_CHARS = 240
"""A clause without any punctuation is cut at a word boundary here, so that the TTS does not wait forever."""

MAX_WORD_CHARS = 1_000
"""Text without any place for a cut, such as Thai or a very long word, is cut after this many characters."""


@dataclass(slots=True)
class ClauseSplitter:
    """Splits a stream of text deltas into clauses. The joined clauses are the text, except for spaces at the cuts.

    The first clause closes as early as it can be spoken (a comma is enough). Later clauses are whole sentences, which
    sound better and cost nothing while the first one plays. The end of a sentence closes a clause at once, without
    waiting for the next delta, unless it may be an abbreviation or a number. Every clause has a letter or a digit:
    punctuation that nothing follows is not sent to the TTS.
    """

    cut_short: bool = False
    """The first clause was closed at a word, as `close_early` requested."""

    _text: str = ""
    _first: bool = True
    _closes_early: bool = False
    _n_marks: int = 0
    """Number of characters at the start of the text known to have nothing to say; they are not checked again."""

    def push(self, delta: str) -> list[str]:
        """Add text; return the clauses that it closed."""
        self._text += delta
        closed: list[str] = []
        while (end := self._cut()) is not None:
            clause, self._text, self._n_marks = self._text[:end].strip(), self._text[end:], 0
            closed.append(clause)
            # After a short clause the next one is needed soon, too.
            self._first, self._closes_early = self._closes_early, False
        return closed

    def close_early(self) -> list[str]:
        """Close the first clause at its last whole word; while there is none, as soon as one has come."""
        self._closes_early = self._first
        return self.push("")

    def flush(self) -> list[str]:
        """End the text; return what is left, if it can be spoken."""
        rest, self._text, self._n_marks = self._text.strip(), "", 0
        return [rest] if _first_spoken(rest) < len(rest) else []

    def _cut(self) -> int | None:
        text = self._text
        first = self._n_marks = _first_spoken(text, self._n_marks)
        for i in range(first + 1, len(text)):
            char = text[i]
            if char in _SENTENCE_END or char == "\n":
                end = _past_closers(text, i + 1)
                if _ends_sentence(text, i, end):
                    return end
            elif char in _CLAUSE_END and self._first and _ends_clause(text, i):
                return i + 1
        if self._closes_early and first < (space := text.rfind(" ") + 1):
            self.cut_short = True
            return space
        if len(text) > MAX_CHARS and first < (space := text.rfind(" ", 0, MAX_CHARS)):
            return space
        return first + MAX_WORD_CHARS if len(text) - first > MAX_WORD_CHARS else None


def _first_spoken(text: str, start: int = 0) -> int:
    """Return the position of the first letter or digit from `start` on, or the text's length if there is none.

    What ends before that position has nothing to say.
    """
    return next((i for i in range(start, len(text)) if text[i].isalnum()), len(text))


def _ends_sentence(text: str, i: int, end: int) -> bool:
    if text[i] in _WIDE_END or text[i] == "\n":
        return True
    if end < len(text) and not text[end].isspace():
        return False  # 3.5, example.com, "Wait..." not finished yet
    before = text[max(0, i - _LOOK_BACK_CHARS) : i + 1]
    if text[i] == "." and _NOT_AN_END.search(before):
        # "Dr." or "p. 3" goes on; "at 5. Then" does not: a capital after the space distinguishes them.
        following = _NEXT_WORD.search(text, end)
        goes_on = following is None or not following[0].isupper()
        return not goes_on and text[i - 1].isdigit() and not _numbers_item(before, whole=i <= _LOOK_BACK_CHARS)
    return True


def _numbers_item(before: str, *, whole: bool) -> bool:
    _, newline, line = before.rpartition("\n")
    return (whole or bool(newline)) and _LIST_NUMBER.fullmatch(line) is not None


def _ends_clause(text: str, i: int) -> bool:
    goes_on = text[i] not in _WIDE_COMMA and not (i + 1 < len(text) and text[i + 1].isspace())
    return i + 1 >= MIN_FIRST_CHARS and not goes_on


def _past_closers(text: str, at: int) -> int:
    while at < len(text) and text[at] in _CLOSERS:
        at += 1
    return at
