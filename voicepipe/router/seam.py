"""Where another model goes on with an answer: what it is asked, and how its words are joined to those before."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from voicepipe.stages.model import ModelRequest, Said, Text

GO_ON: Final = (
    "(Your answer above was cut off by a technical fault. Continue it from exactly where it stops, in the same "
    "language and tone. Do not repeat anything, do not greet, and do not mention the interruption.)"
)

LOOKED_BACK: Final = 4_000
"""Characters of the answer so far in which a repetition is looked for."""

SURE_CHARS: Final = 4
"""A repetition of so many characters is one wherever it begins; a shorter one must begin with a word."""


def continued(request: ModelRequest, so_far: str, *, prefills: bool = False) -> ModelRequest:
    """The question to whoever goes on. Functions are left out: a call may have been decided on words nobody knows.

    Args:
        request: the question that was answered so far.
        so_far: the answer's beginning.
        prefills: they need no words to go on with an answer that is not theirs.
    """
    told = (Said("assistant", (Text(so_far),)), *(() if prefills else (Said("user", (Text(GO_ON),)),)))
    return replace(request, messages=(*request.messages, *told), functions=(), tool_choice="auto")


def takes_prefill(request: ModelRequest) -> bool:
    """Whether others may go on in the same breath. Vendors refuse it for answers in a form of their own."""
    return all(name != "response_format" for name, _ in request.passed)


class Seam:
    """Takes the new words and gives them without what repeats the old ones, with a space where one is missing."""

    def __init__(self, so_far: str, *, prefills: bool = False) -> None:
        """`prefills`: the words go on in the same breath, so nothing is repeated but, by some, all from the start."""
        self._prefills = prefills
        self._before = so_far if prefills else so_far[-LOOKED_BACK:]
        self._held = ""
        self._joined = False

    def push(self, text: str) -> str:
        """What can be said of it now; empty while it may still be a repetition."""
        if self._joined:
            return text
        self._held += text
        may_repeat = self._before.startswith(self._held) if self._prefills else self._held in self._before
        return "" if may_repeat else self.finish()

    def finish(self) -> str:
        """What was held back, joined."""
        held, self._held = self._held, ""
        if self._joined or not held:
            return held
        self._joined = True
        if self._prefills:
            rest = held.removeprefix(self._before)
            return rest.lstrip() if self._before[-1:].isspace() else rest
        repeated = self._repeated(held)
        if repeated:
            return held[repeated:]
        is_bare = self._before and not self._before[-1].isspace() and held[0].isalnum()
        return f" {held}" if is_bare else held

    def _repeated(self, held: str) -> int:
        """How many characters at its beginning are those at the end of what was said before."""
        for n in range(min(len(held), len(self._before)), 0, -1):
            if self._before.endswith(held[:n]) and (n >= SURE_CHARS or self._begins_word(n)):
                return n
        return 0

    def _begins_word(self, n: int) -> bool:
        before = self._before[: len(self._before) - n]
        return not before or not before[-1].isalnum() or not self._before[-n].isalnum()
