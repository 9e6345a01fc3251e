"""Where a stream of text can be cut so that a voice can begin early and still sound natural."""

from __future__ import annotations

import re
from dataclasses import dataclass

_SENTENCE_END = ".!?\u2026\u3002\uff01\uff1f"
_CLAUSE_END = ",;:\u2014\u3001\uff0c\uff1b\uff1a"
_CLOSERS = "\"')]}\u201d\u2019\u00bb"
_NOT_AN_END = re.compile(r"(?:\b(?:mr|mrs|ms|dr|prof|st|vs|etc|e\.g|i\.e|no|jr|sr|u\.s|a\.m|p\.m)|\b[A-Z]|\d)\.$", re.I)
"""A dot after an abbreviation, an initial or a digit may belong to what follows; only more text can tell."""

FIRST_MIN_CHARS = 12
"""The first clause may end at a comma from here on: shorter ones sound clipped and gain nothing."""

MAX_CHARS = 240
"""A clause without any punctuation is cut at a word boundary here: a voice must not wait for ever."""


@dataclass(slots=True)
class ClauseSplitter:
    """Cuts a stream of text deltas into clauses. The joined clauses are the text, spaces at the cuts aside.

    The first clause closes as early as it can be spoken (a comma will do); later ones are whole
    sentences, which sound better and cost nothing while the first one plays. A sentence end closes
    a clause at once, without waiting for the next delta, unless it may be an abbreviation or a number.
    """

    _text: str = ""
    _first: bool = True

    def push(self, delta: str) -> list[str]:
        """Take more text; returns the clauses that it closed."""
        self._text += delta
        closed: list[str] = []
        while (end := self._cut()) is not None:
            clause, self._text = self._text[:end].strip(), self._text[end:]
            if clause:
                closed.append(clause)
                self._first = False
        return closed

    def flush(self) -> list[str]:
        """The text is over; returns what is left, if it is anything."""
        rest, self._text = self._text.strip(), ""
        return [rest] if rest else []

    def _cut(self) -> int | None:
        text = self._text
        for i, char in enumerate(text):
            if char in _SENTENCE_END or char == "\n":
                end = _past_closers(text, i + 1)
                if self._ends_sentence(text, i, end):
                    return end
            elif char in _CLAUSE_END and self._ends_clause(text, i):
                return i + 1
        if len(text) > MAX_CHARS and (space := text.rfind(" ", 0, MAX_CHARS)) > 0:
            return space
        return None

    def _ends_sentence(self, text: str, i: int, end: int) -> bool:
        if not any(char.isalnum() for char in text[:i]):
            return False
        followed = end < len(text)
        if followed and not text[end].isspace() and text[i] in ".!?":
            return False  # 3.5, example.com, "Wait..." still going on
        if text[i] == "." and _NOT_AN_END.search(text[: i + 1]):
            # "Dr." or "p. 3" goes on; "at 5. Then" does not: a capital after the space tells them apart.
            rest = text[end:].lstrip()
            return bool(rest) and rest[0].isupper() and text[i - 1].isdigit()
        return True

    def _ends_clause(self, text: str, i: int) -> bool:
        followed_by_space = i + 1 < len(text) and text[i + 1].isspace()
        return self._first and i + 1 >= FIRST_MIN_CHARS and followed_by_space


def _past_closers(text: str, at: int) -> int:
    while at < len(text) and text[at] in _CLOSERS:
        at += 1
    return at
