"""Clients that guess credentials wait; other clients don't."""

from __future__ import annotations

import pytest

from voicepipe.auth.rate_limit import AttemptOptions, FailedAttempts
from voicepipe.errors import AuthError, ConfigError


@pytest.fixture
def attempts() -> FailedAttempts:
    return FailedAttempts(AttemptOptions(burst=3, recovery_ms=1_000, max_addresses=4))


def test_a_few_failures_are_free(attempts: FailedAttempts) -> None:
    """Up to the burst."""
    for _ in range(2):
        attempts.failed("192.0.2.1", 0)
        attempts.check("192.0.2.1", 0)
    attempts.failed("192.0.2.1", 0)
    with pytest.raises(AuthError, match="Try again in 1 s") as refused:
        attempts.check("192.0.2.1", 0)
    assert (refused.value.status, refused.value.code) == (429, "too_many_attempts")


def test_waiting_forgives_one_by_one(attempts: FailedAttempts) -> None:
    """After the time to wait one more try is let in, not the whole burst."""
    for _ in range(3):
        attempts.failed("192.0.2.1", 0)
    assert attempts.wait_ms("192.0.2.1", 400) == 600
    assert attempts.wait_ms("192.0.2.1", 1_000) == 0
    attempts.failed("192.0.2.1", 1_000)
    assert attempts.wait_ms("192.0.2.1", 1_000) == 1_000
    assert attempts.wait_ms("192.0.2.1", 9_000) == 0


def test_no_address_waits_longer_than_one_forgiveness(attempts: FailedAttempts) -> None:
    """However many failures were counted: an address that many share isn't shut for hours."""
    for _ in range(1_000):
        attempts.failed("192.0.2.1", 0)
    assert attempts.wait_ms("192.0.2.1", 0) == 1_000


def test_others_are_not_slowed_down(attempts: FailedAttempts) -> None:
    """Each address for itself."""
    for _ in range(3):
        attempts.failed("192.0.2.1", 0)
    attempts.check("192.0.2.2", 0)


def test_one_subscriber_of_ipv6_is_one(attempts: FailedAttempts) -> None:
    """All of a /64 counts as one, the next /64 as another, and IPv4 mapped into IPv6 as IPv4."""
    for n in range(3):
        attempts.failed(f"2001:db8::{n}", 0)
        attempts.failed(f"::ffff:192.0.2.{1}", 0)
    assert attempts.wait_ms("2001:db8::ffff:1", 0) > 0
    assert attempts.wait_ms("2001:db8:0:1::1", 0) == 0
    assert attempts.wait_ms("192.0.2.1", 0) > 0
    assert attempts.wait_ms("192.0.2.2", 0) == 0


def test_memory_is_bounded(attempts: FailedAttempts) -> None:
    """Full: who failed longest ago is forgotten."""
    for _ in range(3):
        attempts.failed("192.0.2.1", 0)
    for n in range(2, 6):
        assert attempts.wait_ms("192.0.2.1", 0) > 0
        attempts.failed(f"192.0.2.{n}", 0)
    assert attempts.wait_ms("192.0.2.1", 0) == 0


def test_an_address_that_is_none_counts_too(attempts: FailedAttempts) -> None:
    """A socket may have a path or nothing as its peer."""
    for _ in range(3):
        attempts.failed("", 0)
    assert attempts.wait_ms("", 0) > 0


def test_options_that_make_no_sense_are_refused() -> None:
    """By name."""
    with pytest.raises(ConfigError, match="burst=0"):
        AttemptOptions(burst=0)
