"""End a streamed answer at a sentence: hold back what may turn out to be the beginning of one that is never ended."""

from __future__ import annotations

import re
from typing import Final

_END: Final = re.compile(r"[.!?]+[\"')\]]*(?=\s)")
"""The end of a sentence, known once white space follows."""


class WholeSentences:
    """Passes the first sentence on as it comes, since a user waits for it, and each later one once it is complete."""

    def __init__(self) -> None:
        self._text = ""
        self._n_passed = self._n_searched = 0

    @property
    def has_ended_one(self) -> bool:
        """Return whether a sentence is complete, so that `rest` may be left out."""
        return self._n_searched > 0

    def push(self, text: str) -> str:
        """Add a piece of the answer; return what may be spoken now, often empty."""
        self._text += text
        for end in _END.finditer(self._text, self._n_searched):
            self._n_searched = end.end()
        return self._pass_to(self._n_searched or len(self._text))

    def rest(self) -> str:
        """Return what is held back."""
        return self._pass_to(len(self._text))

    def _pass_to(self, n: int) -> str:
        passed = self._text[self._n_passed : n]
        self._n_passed = max(self._n_passed, n)
        return passed
