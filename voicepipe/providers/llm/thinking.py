"""Remove a model's reasoning from the text, for servers that leave `<think>` blocks in it."""

from __future__ import annotations

_OPEN, _CLOSE = "<think>", "</think>"


class ThinkingFilter:
    """Passes text on and drops the text between `<think>` and `</think>`, however the deltas are cut.

    At most 7 characters are held back, and only while they may be the beginning of a tag.
    """

    def __init__(self) -> None:
        self._held = ""
        self._inside = False
        self._trim = False  # the empty lines after a block belong to it

    def push(self, delta: str) -> str:
        """Return the text of `delta` without reasoning, perhaps empty."""
        if not (self._inside or self._trim or self._held or "<" in delta):
            return delta  # nearly all deltas
        text, self._held = self._held + delta, ""
        spoken = ""
        while True:
            tag = _CLOSE if self._inside else _OPEN
            before, found, after = text.partition(tag)
            if not found:
                break
            spoken += self._pass(before)
            self._trim = self._inside
            self._inside, text = not self._inside, after
        keep = _beginning_of(tag, text)
        self._held = text[len(text) - keep :]
        return spoken + self._pass(text[: len(text) - keep])

    def finish(self) -> str:
        """Return held-back characters that turned out to be text."""
        held, self._held = self._held, ""
        return self._pass(held)

    def _pass(self, text: str) -> str:
        if self._inside:
            return ""
        if self._trim:
            text = text.lstrip()
            self._trim = not text
        return text


def _beginning_of(tag: str, text: str) -> int:
    """Return how many of the last characters of `text` may be the beginning of `tag`."""
    for n in range(min(len(tag) - 1, len(text)), 0, -1):
        if tag.startswith(text[-n:]):
            return n
    return 0
