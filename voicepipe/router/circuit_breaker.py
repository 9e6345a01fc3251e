"""A circuit breaker for each model: it opens after too many recent failures, or for the time that the provider
requested.

A slow model needs no breaker: its latency statistics move calls away from it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

from voicepipe.errors import StageError, StageRefused, StageTimeout

BreakerState = Literal["closed", "open", "half_open"]

HALF_LIFE_MS: Final = 20_000
MAX_FAILURES: Final = 4.0
"""Failures, each counting half as much after `HALF_LIFE_MS`; above this limit the circuit breaker opens."""

OPEN_MS: Final = 15_000
REFUSED_OPEN_MS: Final = 60_000
"""Time that it stays open after a wrong key, an exhausted quota or an unknown model: only an operator can change
those."""

MAX_OPEN_MS: Final = 300_000
"""The longest `Retry-After` that is obeyed: providers that send hours are tried again earlier."""

AFTER_PROBE: Final = 1.0
"""Failures that count when it opens: one more in its trial, and it opens for as long again."""

OPERATOR_STATUSES: Final = frozenset({401, 402, 403, 404})
"""Statuses that an operator must resolve: wrong keys, no credit, unknown models."""


@dataclass(slots=True)
class CircuitBreaker:
    """The circuit breaker of one model. Pure: instants are passed in."""

    _failures: float = 0.0
    _at_ms: float = 0.0
    _open_until_ms: float = -1.0
    _opened_ms: float = 0.0
    _is_hinted: bool = False
    is_tripped: bool = False
    """Whether it has opened, and the model has not answered a call since."""

    n_answers: int = 0
    """Number of answers."""

    n_opened: int = 0
    """Number of times that it opened."""

    alert: str = ""
    """Why an operator must act, in the provider's words; empty once the model answers."""

    errors: dict[str, int] = field(default_factory=dict)
    """Number of failures by kind: `timeout`, `rate_limit`, `refused`, `broken`."""

    def state(self, now_ms: float) -> BreakerState:
        """Return the state. `half_open`: its time is over, and one call that no request depends on may test whether
        the model answers again."""
        if now_ms < self._open_until_ms:
            return "open"
        return "half_open" if self.is_tripped else "closed"

    def retry_in_ms(self, now_ms: float) -> float:
        """Return how long it stays open; 0 when it is not open."""
        return max(0.0, self._open_until_ms - now_ms) if self._open_until_ms > 0 else 0.0

    def succeeded(self, *, began_ms: float) -> None:
        """Record an answer to a call that began at `began_ms`. It closes the circuit breaker unless the call began
        before that opened: a stream that lasts shows nothing of the calls after it."""
        self.n_answers += 1
        if began_ms >= self._opened_ms:
            self._open_until_ms, self.is_tripped, self._is_hinted, self.alert = -1.0, False, False, ""

    def opening(self, now_ms: float) -> tuple[float, float] | None:
        """Return how long ago it opened by failures here, and for how long it stays open, in ms; None: it is not open,
        or by a hint alone."""
        if self.state(now_ms) != "open" or self._is_hinted:
            return None
        return now_ms - self._opened_ms, self._open_until_ms - now_ms

    def hinted(self, for_ms: float, now_ms: float) -> bool:
        """Open it since that of another node is open, for `OPEN_MS` at most; then one call tests the model, as always.
        Return False: it has opened here, or such a test is due."""
        if self.state(now_ms) != "closed":
            return False
        self._opened_ms, self._open_until_ms = now_ms, now_ms + min(for_ms, OPEN_MS)
        self.is_tripped = self._is_hinted = True
        return True

    def failed(self, error: StageError, now_ms: float) -> None:
        """Record a refusal, a stall or a break. A request that is itself wrong does not count: such a refusal of a
        probe shows that the provider answers."""
        if isinstance(error, StageRefused) and not (error.retryable or error.status in (429, *OPERATOR_STATUSES)):
            self.is_tripped = self.is_tripped and now_ms < self._open_until_ms
            return None
        kind = kind_of(error)
        self.errors[kind] = self.errors.get(kind, 0) + 1
        if isinstance(error, StageRefused):
            if error.status == 429:
                return self._open(min(error.retry_after_ms or OPEN_MS, MAX_OPEN_MS), now_ms)
            if error.status in OPERATOR_STATUSES:
                self.alert = f"{error.status}: {error.why}"
                return self._open(REFUSED_OPEN_MS, now_ms)
        fade = 0.5 ** (max(0.0, now_ms - self._at_ms) / HALF_LIFE_MS)
        self._failures, self._at_ms = self._failures * fade + 1.0, now_ms
        if self._failures > MAX_FAILURES or self.state(now_ms) == "half_open":
            self._open(OPEN_MS, now_ms)
        return None

    def _open(self, for_ms: float, now_ms: float) -> None:
        self._open_until_ms = max(self._open_until_ms, now_ms + for_ms)
        self._failures, self._at_ms = AFTER_PROBE, now_ms
        self._opened_ms, self.is_tripped, self._is_hinted = now_ms, True, False
        self.n_opened += 1


def kind_of(error: StageError) -> str:
    """Return the kind of a provider's failure, 1 of 4 words."""
    match error:
        case StageTimeout():
            return "timeout"
        case StageRefused(status=429):
            return "rate_limit"
        case StageRefused():
            return "refused"
        case _:
            return "broken"
