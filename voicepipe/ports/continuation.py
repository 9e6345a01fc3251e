"""Continue an unfinished answer: the request for the rest of it, and how the new text is joined to the text before."""

from __future__ import annotations

from typing import Final

from voicepipe.ports.model import Content, ModelRequest, Text
from voicepipe.values import replace

GO_ON: Final = (
    "(Your answer above was cut off by a technical fault. Continue it from exactly where it stops, in the same "
    "language and tone. Do not repeat anything, do not greet, and do not mention the interruption.)"
)

LOOKED_BACK: Final = 4_000
"""Characters of the answer so far in which a repetition is looked for."""

SURE_CHARS: Final = 4
"""A repetition of this many characters counts wherever it begins; a shorter one must begin with a word."""


def continued(request: ModelRequest, so_far: str, *, prefills: bool = False) -> ModelRequest:
    """Return the request to the model that continues. Functions are left out: a call may have been decided on unknown
    words.

    Args:
        request: the question that was answered so far.
        so_far: the answer's beginning.
        prefills: the model needs no instruction to continue an answer of another model.
    """
    added = (
        Content("assistant", (Text(so_far),)),
        *(() if prefills else (Content("user", (Text(GO_ON),)),)),
    )
    return replace(request, messages=(*request.messages, *added), functions=(), tool_choice="auto")


class TextJoiner:
    """Removes from the new text what repeats the old text, and adds a space where one is missing."""

    def __init__(self, so_far: str, *, prefills: bool = False) -> None:
        """`prefills`: the new text continues the old directly. Nothing is repeated, except that some models repeat
        all from the start."""
        self._prefills = prefills
        self._before = so_far if prefills else so_far[-LOOKED_BACK:]
        self._held = ""
        self._joined = False

    def push(self, text: str) -> str:
        """Return the text that can be passed on now; empty while it may still be a repetition."""
        if self._joined:
            return text
        self._held += text
        may_repeat = self._before.startswith(self._held) if self._prefills else self._held in self._before
        return "" if may_repeat else self.finish()

    def finish(self) -> str:
        """Return the text that was held back, joined."""
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
        """Return how many characters at its beginning repeat the end of the old text."""
        for n in range(min(len(held), len(self._before)), 0, -1):
            if self._before.endswith(held[:n]) and (n >= SURE_CHARS or self._begins_word(n)):
                return n
        return 0

    def _begins_word(self, n: int) -> bool:
        before = self._before[: len(self._before) - n]
        return not before or not before[-1].isalnum() or not self._before[-n].isalnum()
