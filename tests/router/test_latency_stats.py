"""Latency statistics learn from answers, also from abandoned ones."""

from __future__ import annotations

import numpy as np
import pytest

from voicepipe.router.candidate import Candidate
from voicepipe.router.latency_stats import HALF_LIFE_MS, LatencyStats, Survival, TokenGaps, quantile_ms, warmer

MODEL = Candidate(spec="a/m", ttft_p50_ms=250.0)


def drawn(n: int, median_ms: float = 400.0) -> np.ndarray:
    return median_ms * np.exp(0.5 * np.random.default_rng(1).standard_normal(n))


def test_what_is_not_known_yet_is_as_published() -> None:
    assert quantile_ms(Survival(250.0).curve(0.0), 0.5) == pytest.approx(250, rel=0.05)


def test_answers_beat_what_was_published() -> None:
    survival = Survival(250.0)
    for i, ms in enumerate(drawn(400)):
        survival.spoke(ms, i)
    assert quantile_ms(survival.curve(400.0), 0.5) == pytest.approx(400, rel=0.08)
    assert quantile_ms(survival.curve(400.0), 0.95) == pytest.approx(400 * np.exp(0.5 * 1.645), rel=0.15)


def test_losers_that_were_closed_early_do_not_look_fast() -> None:
    """All are closed after 500 ms: the median is learned all the same, and a third is known to be slower than that."""
    survival = Survival(250.0)
    for i, ms in enumerate(drawn(800)):
        if ms <= 500:
            survival.spoke(ms, i / 10)
        else:
            survival.was_silent(500, i / 10)
    curve = survival.curve(80.0)
    assert quantile_ms(curve, 0.5) == pytest.approx(400, rel=0.1)
    assert curve[48] == pytest.approx((drawn(800) > 480).mean(), abs=0.06)


def test_evidence_fades_towards_the_prior() -> None:
    """So a model that gets no requests any more is tried again."""
    survival = Survival(250.0)
    for _ in range(100):
        survival.spoke(3_000, 0.0)
    assert quantile_ms(survival.curve(0.0), 0.5) > 2_000
    assert quantile_ms(survival.curve(12.0 * HALF_LIFE_MS), 0.5) == pytest.approx(250, rel=0.05)


def test_a_curve_only_falls_and_stays_a_share() -> None:
    survival = Survival(250.0)
    for i, ms in enumerate((0.0, 39.0, 40.0, 5_000.0, 12_000.0, 90_000.0)):
        survival.spoke(ms, i)
        survival.was_silent(ms, i)
    curve = survival.curve(10.0)
    assert (np.diff(curve) <= 1e-12).all()
    assert (curve >= -1e-12).all()
    assert curve[0] == 1.0


def test_a_warm_cache_moves_the_curve_to_the_left() -> None:
    curve = Survival(250.0).curve(0.0)
    assert quantile_ms(warmer(curve), 0.5) == pytest.approx(0.8 * quantile_ms(curve, 0.5), abs=10)


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
        pace.note(10)
    assert pace.p95_ms() == pytest.approx(10, rel=0.02)
    for _ in range(5_000):
        pace.note(100)
    assert pace.p95_ms() == pytest.approx(100, rel=0.02)
