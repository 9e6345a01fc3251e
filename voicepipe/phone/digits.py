"""Collect the keys that a user presses into one text for the agent."""

from __future__ import annotations

from typing import Final

PAUSE_MS: Final = 2_000
"""Pause after which a number is complete, for users who do not end it with `#`. Twilio's `<Gather>` waits 5 s, which is
long in a conversation."""

MAX_DIGITS: Final = 64
"""Length at which a text is complete: no number that a user types is longer."""

END_KEY: Final = "#"


class DigitCollector:
    """Collects digits until `#`, or until a pause. `input_ms` is the duration of the user's audio so far."""

    def __init__(self, pause_ms: int = PAUSE_MS) -> None:
        self._pause_ms, self._digits, self._latest_ms = pause_ms, "", 0

    @property
    def is_empty(self) -> bool:
        """Whether there are no digits."""
        return not self._digits

    def add(self, digit: str, input_ms: int) -> None:
        """Add a digit."""
        self._digits += digit
        self._latest_ms = input_ms

    def take(self, input_ms: int) -> str:
        """Return complete digits, and start anew; empty: there are no digits, or more may come."""
        if not self._digits:
            return ""
        is_complete = self._digits.endswith(END_KEY) or len(self._digits) >= MAX_DIGITS
        if not is_complete and input_ms - self._latest_ms < self._pause_ms:
            return ""
        digits, self._digits = self._digits, ""
        return digits
