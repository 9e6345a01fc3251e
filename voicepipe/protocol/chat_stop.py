"""Stop sequences: cut a streamed text before the first of them. This is done here, so that it works with every LLM."""

from __future__ import annotations


class StopCutter:
    """Takes a text in pieces and returns what certainly comes before every stop sequence."""

    def __init__(self, stops: tuple[str, ...]) -> None:
        """Create a cutter. `stops`: none of them empty."""
        self._stops = stops
        self._held = ""
        """The end of what came, as far as a stop sequence may begin with it."""

        self.found = False
        """A stop sequence came: nothing after it counts."""

    def push(self, text: str) -> str:
        """Add text; return the part of it that may be sent, perhaps nothing."""
        text = self._held + text
        ends = [at for at in map(text.find, self._stops) if at >= 0]
        if ends:
            self.found, self._held = True, ""
            return text[: min(ends)]
        n_held = max((_overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - n_held :]
        return text[: len(text) - n_held]

    def finish(self) -> str:
        """End the text; return what was held back."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """Return how many characters at the end of `text` are the beginning of `stop`."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0)
