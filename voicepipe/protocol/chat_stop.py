"""Stop sequences: a text that streams is cut before the first of them. Done here, so that every model heeds them."""

from __future__ import annotations


class StopCutter:
    """Takes a text in pieces and gives back what surely stands before every stop sequence."""

    def __init__(self, stops: tuple[str, ...]) -> None:
        """`stops`: none of them empty."""
        self._stops = stops
        self._held = ""
        """The end of what came, as far as a stop sequence may begin with it."""

        self.found = False
        """A stop sequence came: nothing after it counts."""

    def push(self, text: str) -> str:
        """More of the text; what of it may go on, perhaps nothing."""
        text = self._held + text
        ends = [at for at in map(text.find, self._stops) if at >= 0]
        if ends:
            self.found, self._held = True, ""
            return text[: min(ends)]
        n_held = max((_overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - n_held :]
        return text[: len(text) - n_held]

    def finish(self) -> str:
        """The text is over: what was held back."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of `text` are the beginning of `stop`."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0)
