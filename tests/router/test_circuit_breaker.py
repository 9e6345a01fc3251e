"""When a model is left alone, and how it comes back."""

from __future__ import annotations

import pytest

from voicepipe.errors import StageBroken, StageError, StageRefused, StageTimeout
from voicepipe.router.circuit_breaker import OPEN_MS, CircuitBreaker

BROKEN = StageBroken("llm", provider="a/m", why="cut", retryable=True)


def refused(status: int, *, retry_after_ms: int | None = None, retryable: bool = True) -> StageRefused:
    return StageRefused(
        "llm", provider="a/m", why="no", retryable=retryable, status=status, retry_after_ms=retry_after_ms
    )


def after(*failures: StageError, at_ms: float = 0.0) -> CircuitBreaker:
    breaker = CircuitBreaker()
    for failure in failures:
        breaker.failed(failure, at_ms)
    return breaker


def test_a_few_failures_are_borne() -> None:
    assert after(*[BROKEN] * 4).state(0.0) == "closed"


def test_more_than_four_open_it_for_a_while_and_then_it_is_on_trial() -> None:
    breaker = after(*[BROKEN] * 5)
    assert breaker.state(OPEN_MS - 1) == "open"
    assert breaker.state(OPEN_MS) == "half_open"
    breaker.succeeded(began_ms=OPEN_MS)
    assert breaker.state(OPEN_MS) == "closed"


def test_a_call_that_began_before_it_opened_does_not_close_it() -> None:
    """Such as the stream of another session, which the provider still serves."""
    breaker = after(refused(402, retryable=False), at_ms=1_000.0)
    breaker.succeeded(began_ms=999.0)
    assert (breaker.state(60_999.0), breaker.state(61_000.0), breaker.alert) == ("open", "half_open", "402: no")
    assert breaker.is_tripped
    assert breaker.n_answers == 1


def test_a_call_that_began_while_it_was_open_closes_it() -> None:
    """Where no other model is there, it is asked all the same."""
    breaker = after(refused(429, retry_after_ms=60_000), at_ms=1_000.0)
    breaker.succeeded(began_ms=1_000.0)
    assert (breaker.state(2_000.0), breaker.retry_in_ms(2_000.0)) == ("closed", 0.0)
    assert not breaker.is_tripped


def test_a_failed_trial_opens_it_again() -> None:
    breaker = after(*[BROKEN] * 5)
    breaker.failed(BROKEN, OPEN_MS + 1)
    assert breaker.state(2 * OPEN_MS) == "open"
    assert breaker.n_opened == 2


def test_failures_that_lie_back_count_less() -> None:
    """One every ten seconds comes to 3.4 at most."""
    breaker = CircuitBreaker()
    for i in range(50):
        breaker.failed(BROKEN, i * 10_000)
    assert breaker.n_opened == 0


@pytest.mark.parametrize(
    ("failure", "open_ms"),
    [
        (refused(429, retry_after_ms=7_000), 7_000),
        (refused(429), 15_000),
        (refused(429, retry_after_ms=86_400_000), 300_000),
        (refused(401, retryable=False), 60_000),
        (refused(402, retryable=False), 60_000),
        (refused(403, retryable=False), 60_000),
        (refused(404, retryable=False), 60_000),
    ],
)
def test_some_words_open_it_at_once(failure: StageRefused, open_ms: int) -> None:
    breaker = after(failure, at_ms=1_000.0)
    assert breaker.state(1_000 + open_ms - 1) == "open"
    assert breaker.state(1_000 + open_ms) == "half_open"


def test_a_request_that_is_wrong_is_not_the_models_failure() -> None:
    assert after(*[refused(400, retryable=False)] * 20).state(0.0) == "closed"


def test_used_up_credit_is_an_alert_until_the_model_answers() -> None:
    breaker = after(refused(402, retryable=False))
    assert breaker.alert == "402: no"
    breaker.succeeded(began_ms=1.0)
    assert breaker.alert == ""


def test_a_probe_with_a_request_that_is_wrong_shows_that_the_provider_answers() -> None:
    breaker = after(refused(429))
    breaker.failed(refused(400, retryable=False), OPEN_MS - 1)
    assert breaker.state(OPEN_MS) == "half_open"
    breaker.failed(refused(400, retryable=False), OPEN_MS)
    assert breaker.state(OPEN_MS) == "closed"


def test_failures_are_distinguished_and_a_wrong_request_is_none() -> None:
    late = StageTimeout("llm", provider="a/m", why="late", retryable=True)
    breaker = after(BROKEN, BROKEN, late, refused(429), refused(503), refused(401, retryable=False))
    breaker.failed(refused(400, retryable=False), 0.0)
    assert breaker.errors == {"broken": 2, "timeout": 1, "rate_limit": 1, "refused": 2}
