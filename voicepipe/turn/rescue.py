"""What may be done to save the budget, and when: the operator's choice."""

from __future__ import annotations

from dataclasses import dataclass

from voicepipe.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class RescueSettings:
    """What is done when the caller would wait for too long. Other models are the router's affair."""

    shorten_after_ms: int | None = 400
    """From the model's first text: if no clause has closed by then, the voice gets the words that there are. None: it
    waits for the clause, however long that is."""

    filler: str = ""
    """A phrase to say while the answer is late; empty: none."""

    filler_over_ms: int = 1_200
    """It is said only if the caller is expected to wait longer than this for the answer."""

    apology: str = ""
    """What to say in place of an answer that failed; empty: nothing, or what is usual."""

    apologises: bool = False
    """Where there is no `apology`, one in the session's language is said, if it is among those of `apology`."""

    def __post_init__(self) -> None:
        if self.shorten_after_ms is not None and self.shorten_after_ms < 0:
            raise ConfigError(f"shorten_after_ms: expected 0 ms or more, got {self.shorten_after_ms}")
        if self.filler_over_ms < 0:
            raise ConfigError(f"filler_over_ms: expected 0 ms or more, got {self.filler_over_ms}")
