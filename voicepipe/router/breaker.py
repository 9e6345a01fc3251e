"""When not to ask a model: it has failed too often lately, or said for how long not to.

A slow model needs no breaker: the scoreboard moves calls away from it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

from voicepipe.errors import StageError, StageRefused, StageTimeout

State = Literal["closed", "open", "half_open"]

HALF_LIFE_MS: Final = 20_000
MOST_FAILURES: Final = 4.0
"""More failures than this, each counting half as much after `HALF_LIFE_MS`, and it is not asked for a while."""

OPEN_MS: Final = 15_000
REFUSED_OPEN_MS: Final = 60_000
"""After a wrong key or an unknown model: nothing will change until somebody changes it."""

LONGEST_OPEN_MS: Final = 300_000
"""Of a `Retry-After`: providers that ask for hours are tried again before."""

AFTER_PROBE: Final = 1.0
"""Failures that count when it opens: one more in its trial, and it would take as many again."""

TELLS_THE_OPERATOR: Final = frozenset({401, 403, 404})
"""Statuses that a person must put right."""


@dataclass(slots=True)
class Breaker:
    """One model's. Pure: instants are passed in."""

    _failures: float = 0.0
    _at_ms: float = 0.0
    _open_until_ms: float = -1.0
    _on_trial: bool = False
    n_opened: int = 0
    """How often it has opened."""

    alert: str = ""
    """Why a person must act, in the provider's words; empty once it speaks."""

    errors: dict[str, int] = field(default_factory=dict)
    """How often it has failed, by kind: `timeout`, `rate_limit`, `refused`, `broken`."""

    @property
    def is_troubled(self) -> bool:
        """Whether it is open, or was and has not spoken since."""
        return self._on_trial

    def state(self, now_ms: float) -> State:
        """`half_open`: its time is over, and one call that nobody depends on may find out whether it answers again."""
        if now_ms < self._open_until_ms:
            return "open"
        return "half_open" if self._on_trial else "closed"

    def retry_in_ms(self, now_ms: float) -> float:
        """For how long it is open still; 0 when it is not."""
        return max(0.0, self._open_until_ms - now_ms) if self._open_until_ms > 0 else 0.0

    def succeeded(self) -> None:
        """It spoke."""
        self._on_trial, self.alert = False, ""

    def failed(self, error: StageError, now_ms: float) -> None:
        """It refused, stalled or broke. A request that is itself wrong is nobody's failure."""
        if isinstance(error, StageRefused) and not (error.retryable or error.status in (429, *TELLS_THE_OPERATOR)):
            return None
        kind = kind_of(error)
        self.errors[kind] = self.errors.get(kind, 0) + 1
        if isinstance(error, StageRefused):
            if error.status == 429:
                return self._open(min(error.retry_after_ms or OPEN_MS, LONGEST_OPEN_MS), now_ms)
            if error.status in TELLS_THE_OPERATOR:
                self.alert = f"{error.status}: {error.why}"
                return self._open(REFUSED_OPEN_MS, now_ms)
        fade = 0.5 ** (max(0.0, now_ms - self._at_ms) / HALF_LIFE_MS)
        self._failures, self._at_ms = self._failures * fade + 1.0, now_ms
        if self._failures > MOST_FAILURES or self.state(now_ms) == "half_open":
            self._open(OPEN_MS, now_ms)
        return None

    def _open(self, for_ms: float, now_ms: float) -> None:
        self._open_until_ms = max(self._open_until_ms, now_ms + for_ms)
        self._failures, self._at_ms = AFTER_PROBE, now_ms
        self._on_trial = True
        self.n_opened += 1


def kind_of(error: StageError) -> str:
    """How a provider failed, in one word of four."""
    match error:
        case StageTimeout():
            return "timeout"
        case StageRefused(status=429):
            return "rate_limit"
        case StageRefused():
            return "refused"
        case _:
            return "broken"
