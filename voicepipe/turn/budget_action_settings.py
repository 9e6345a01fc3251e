"""The actions allowed to save the budget, and when: the operator's choice."""

from __future__ import annotations

from dataclasses import dataclass

from voicepipe.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetActionSettings:
    """Actions for when the user would wait too long. The router's settings cover other LLMs."""

    shorten_after_ms: int | None = 400
    """Time from the LLM's first text, in ms: if no clause has closed by then, the TTS gets the text so far. None: the
    TTS waits for the clause, however long that takes.
    """

    filler: str = ""
    """A phrase to say while the answer is late; empty: none."""

    filler_over_ms: int = 1_200
    """The filler is said only if the user is expected to wait longer than this for the answer."""

    apology: str = ""
    """What to say in place of an answer that failed; empty: nothing, or the usual phrase."""

    apologises: bool = False
    """Without an `apology`, one in the session's language is said, if the phrases of `apology` include that language.
    """

    def __post_init__(self) -> None:
        if self.shorten_after_ms is not None and self.shorten_after_ms < 0:
            raise ConfigError(f"shorten_after_ms: expected 0 ms or more, got {self.shorten_after_ms}")
        if self.filler_over_ms < 0:
            raise ConfigError(f"filler_over_ms: expected 0 ms or more, got {self.filler_over_ms}")
