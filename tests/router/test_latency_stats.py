"""Latency statistics of each model, by its spec."""

from __future__ import annotations

import pytest

from voicepipe.router.candidate import Candidate
from voicepipe.router.latency_stats import LatencyStats, TokenGaps
from voicepipe.router.survival import Survival

MODEL = Candidate(spec="a/m", ttft_p50_ms=250.0)


def test_boards_know_models_by_their_spec() -> None:
    latency = LatencyStats()
    latency.survival(MODEL).spoke(800, 0.0)
    again = Candidate(spec="a/m", ttft_p50_ms=10.0)
    assert latency.survival(again) is latency.survival(MODEL)
    assert 200 <= latency.quantile_ms(again, 0.5, 0.0) <= 320


def test_gaps_between_tokens_are_those_of_late() -> None:
    pace = TokenGaps()
    assert pace.p95_ms() == 50.0
    for _ in range(5_000):
        pace.record(10)
    assert pace.p95_ms() == pytest.approx(10, rel=0.02)
    for _ in range(5_000):
        pace.record(100)
    assert pace.p95_ms() == pytest.approx(100, rel=0.02)


def test_a_model_without_saved_counts_keeps_what_it_has_learned() -> None:
    """A model that is saved continues from its counts."""
    latency, other = LatencyStats(), Candidate(spec="b/m", ttft_p50_ms=250.0)
    for each in (MODEL, other):
        for _ in range(200):
            latency.survival(each).spoke(1_000, 0.0)
    fresh = Survival(250.0).learned()
    latency.restore({"a/m": fresh})
    assert latency.survival(MODEL).learned() == fresh
    assert latency.quantile_ms(other, 0.5, 0.0) == pytest.approx(1_000, rel=0.15)
