"""Hints between nodes: they count where a node knows nothing newer, and only while they are fresh."""

from __future__ import annotations

import pytest

from voicepipe.errors import StageBroken
from voicepipe.router.candidate import Candidate
from voicepipe.router.circuit_breaker import OPEN_MS
from voicepipe.router.hints import NodeHints, OpenBreaker
from voicepipe.router.pool import SharedStats

A = Candidate(spec="a/m", ttft_p50_ms=250.0)
BROKEN = StageBroken("llm", provider="a/m", why="cut", retryable=True)


def node() -> tuple[SharedStats, NodeHints]:
    """A node that may use the model."""
    stats = SharedStats()
    stats.breaker(A)
    return stats, NodeHints({"llm": stats})


def failing(now_ms: float) -> tuple[SharedStats, NodeHints]:
    stats, hints = node()
    for _ in range(5):
        stats.breaker(A).failed(BROKEN, now_ms)
    return stats, hints


def test_an_opening_is_a_hint_to_another_node() -> None:
    """There it is on trial afterwards, as if it had opened there; that node does not pass it on."""
    _, one = failing(1_000.0)
    (hint,) = one.open_breakers(3_000.0)
    assert hint == OpenBreaker("llm", "a/m", 2_000.0, OPEN_MS - 2_000.0)
    stats, other = node()
    assert other.take(hint, 500, 7_000.0)
    breaker = stats.breaker(A)
    assert [breaker.state(at) for at in (7_000.0, 7_000.0 + OPEN_MS - 2_501, 7_000.0 + OPEN_MS)] == [
        *("open", "open", "half_open")
    ]
    assert other.open_breakers(7_000.0) == []
    assert breaker.n_opened == 0
    assert not other.take(hint, 500, 7_000.0), "it is no news"


def test_a_hint_that_is_stale_or_of_an_unknown_model_changes_nothing() -> None:
    stats, hints = node()
    hint = OpenBreaker("llm", "a/m", 0.0, 5_000.0)
    assert not hints.take(hint, 5_000, 9_000.0)
    assert not hints.take(OpenBreaker("llm", "a/m", -1.0, 5_000.0), 0, 9_000.0), "opened in the future"
    assert not hints.take(OpenBreaker("llm", "b/m", 0.0, 5_000.0), 0, 9_000.0)
    assert not hints.take(OpenBreaker("tts", "a/m", 0.0, 5_000.0), 0, 9_000.0)
    assert stats.breaker(A).state(9_000.0) == "closed"


def test_an_answer_here_counts_more_than_an_older_hint() -> None:
    """A trial that was answered is not undone by the hint that began it; a later opening is news again."""
    stats, hints = node()
    stats.breaker(A).succeeded(began_ms=9_000.0)
    hints.record_answers(10_000.0)
    assert not hints.take(OpenBreaker("llm", "a/m", 3_000.0, 9_000.0), 0, 11_000.0)
    hints.record_answers(11_000.0)
    assert hints.take(OpenBreaker("llm", "a/m", 500.0, 9_000.0), 0, 11_000.0)


def test_an_answer_to_a_call_from_before_the_hint_does_not_end_it() -> None:
    stats, hints = node()
    assert hints.take(OpenBreaker("llm", "a/m", 500.0, 9_000.0), 0, 11_000.0)
    stats.breaker(A).succeeded(began_ms=10_000.0)
    assert stats.breaker(A).state(11_000.0) == "open"
    stats.breaker(A).succeeded(began_ms=12_000.0)
    assert stats.breaker(A).state(12_000.0) == "closed"


def test_a_failure_here_ends_the_hint() -> None:
    """From then on the node gives hints itself."""
    stats, hints = node()
    hints.take(OpenBreaker("llm", "a/m", 0.0, 300_000.0), 0, 0.0)
    assert stats.breaker(A).state(OPEN_MS) == "half_open", "a hint opens it for as long as a failure, at most"
    stats.breaker(A).failed(BROKEN, OPEN_MS)
    assert [each.spec for each in hints.open_breakers(OPEN_MS)] == ["a/m"]


def test_a_node_that_starts_begins_with_the_times_of_another() -> None:
    """But what it has measured itself stays."""
    taught, one = node()
    for i in range(1_800):
        taught.latency.survival(A).spoke(1_000.0, 1_000.0 * i)
    for used_before in (False, True):
        stats, other = node()
        if used_before:
            stats.latency.survival(A)
        other.take_learned(one.learned())
        assert stats.latency.quantile_ms(A, 0.5, 0.0) == pytest.approx(1_000, rel=0.15)
    stats, other = node()
    stats.latency.survival(A).spoke(250.0, 0.0)
    other.take_learned(one.learned())
    assert stats.latency.quantile_ms(A, 0.5, 0.0) == pytest.approx(250, rel=0.15)


def test_damaged_times_change_nothing() -> None:
    stats, hints = node()
    with pytest.raises(ValueError, match="counts"):
        hints.take_learned({"llm": {"a/m": {"silent": [-1.0]}}})
    hints.take_learned({"tts": {}})
    assert stats.latency.quantile_ms(A, 0.5, 0.0) == pytest.approx(250, rel=0.1)
