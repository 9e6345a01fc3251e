"""The times of a provider: learned from answers, also from abandoned ones, and at once when its pace changes."""

from __future__ import annotations

import numpy as np
import pytest

from voicepipe.router.survival import HALF_LIFE_MS, Survival, quantile_ms


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


def at_pace(factor: float, n: int, seed: int) -> np.ndarray:
    return factor * 250.0 * np.exp(0.5 * np.random.default_rng(seed).standard_normal(n))


@pytest.mark.parametrize("every_ms", [100.0, 700.0, 10_000.0])
def test_ten_answers_in_a_bad_minute_move_the_median_whatever_the_traffic(every_ms: float) -> None:
    """A memory by the clock alone learns nothing at a turn in ten seconds, and takes minutes at ten a second."""
    survival, now_ms = Survival(250.0), 0.0
    for ms in at_pace(1.0, 200, seed=1):
        survival.spoke(ms, now_ms)
        now_ms += every_ms
    assert quantile_ms(survival.curve(now_ms), 0.5) == pytest.approx(250, rel=0.2)
    for ms in at_pace(4.0, 10, seed=2):
        survival.spoke(ms, now_ms)
        now_ms += every_ms
    assert quantile_ms(survival.curve(now_ms), 0.5) == pytest.approx(1_000, rel=0.35)


def test_calls_closed_early_show_a_bad_minute_too() -> None:
    survival = Survival(250.0)
    for i in range(10):
        survival.was_silent(600.0, 700.0 * i)
    assert quantile_ms(survival.curve(7_000.0), 0.5) > 600


def test_one_straggler_is_no_bad_minute() -> None:
    survival = Survival(250.0)
    for i, ms in enumerate(at_pace(1.0, 100, seed=1)):
        survival.spoke(ms, 700.0 * i)
    before_ms = quantile_ms(survival.curve(70_000.0), 0.5)
    survival.spoke(2_000.0, 70_000.0)
    assert quantile_ms(survival.curve(70_000.0), 0.5) == pytest.approx(before_ms, rel=0.15)


def test_what_lasts_for_an_hour_is_usual() -> None:
    """After a pause, a model that was always twice as slow as published is not taken for a fast one."""
    survival = Survival(250.0)
    for i, ms in enumerate(at_pace(2.0, 1_800, seed=3)):
        survival.spoke(ms, 2_000.0 * i)
    after_pause_ms = 3_600_000 + 10 * HALF_LIFE_MS
    assert quantile_ms(survival.curve(after_pause_ms), 0.5) == pytest.approx(500, rel=0.15)
