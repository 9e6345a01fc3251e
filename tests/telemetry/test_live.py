"""Live figures: which turns a window sees, and what it says of them."""

from __future__ import annotations

from voicepipe.telemetry.live import WINDOWS, LiveFigures, StageFigures, Window
from voicepipe.testing.records import turn_record
from voicepipe.turn.record import StageSpan

MINUTE_MS, HOUR_MS = 60_000, 3_600_000


def totals(live: LiveFigures, now_ms: int) -> dict[str, int]:
    return {window.window: sum(s.count for s in window.stages if s.stage == "total") for window in live.figures(now_ms)}


def test_the_windows_are_those_of_the_dashboard() -> None:
    """A minute, a quarter of an hour, a day."""
    assert {window.name: window.slot_ms * window.n_slots for window in WINDOWS} == {
        "1m": MINUTE_MS,
        "15m": 15 * MINUTE_MS,
        "24h": 24 * HOUR_MS,
    }


def test_a_turn_leaves_each_window_in_time() -> None:
    """Seen for nearly as long as the window's name says, never longer."""
    live = LiveFigures()
    live.see(turn_record(), now_ms=0)
    assert totals(live, 0) == {"1m": 1, "15m": 1, "24h": 1}
    assert totals(live, 50_000) == {"1m": 1, "15m": 1, "24h": 1}
    assert totals(live, MINUTE_MS) == {"1m": 0, "15m": 1, "24h": 1}
    assert totals(live, 15 * MINUTE_MS) == {"1m": 0, "15m": 0, "24h": 1}
    assert totals(live, 24 * HOUR_MS) == {"1m": 0, "15m": 0, "24h": 0}


def test_each_stage_is_counted_with_its_broken_limits() -> None:
    """Total first, then the stages; over counts the verdicts, quantiles are within one percent."""
    live = LiveFigures((Window("w", 1_000, 2),))
    for number in range(100):
        total_ms = 10 * (number + 1)
        span = StageSpan("llm_ttft", total_ms // 2, 450, "over" if total_ms > 900 else "within", 0, 0, "x")
        live.see(turn_record(total_ms=total_ms, total_verdict="within", stages=(span,)), now_ms=number * 20)
    (window,) = live.figures(now_ms=1_999)
    total, model = window.stages
    assert (total.stage, total.count, total.over) == ("total", 100, 0)
    assert (model.stage, model.count, model.over) == ("llm_ttft", 100, 10)
    assert abs(total.p50_ms - 500) <= 5
    assert abs(total.p95_ms - 950) <= 10
    assert abs(total.p99_ms - 990) <= 10


def test_turns_still_spoken_are_not_counted() -> None:
    """A record comes twice; only the closed one counts."""
    live = LiveFigures()
    live.see(turn_record(outcome=None), now_ms=0)
    assert totals(live, 0)["1m"] == 0


def test_a_turn_that_was_not_heard_counts_its_stages_alone() -> None:
    """A failed turn has no total, but its model was slow all the same; slow work before t0 counts as none."""
    live = LiveFigures((Window("w", 1_000, 1),))
    spans = (StageSpan("endpoint", -20, 150, "within", 0, 0, "x"),)
    live.see(turn_record(outcome="failed", total_ms=None, total_verdict=None, stages=spans), now_ms=0)
    assert live.figures(now_ms=0)[0].stages == (StageFigures("endpoint", 1, 0, 0, 0, 0),)


def test_nothing_seen_nothing_told() -> None:
    """No turns: no rows, rather than zeros."""
    assert all(window.stages == () for window in LiveFigures().figures(now_ms=0))


def test_a_late_turn_joins_the_newest_slot() -> None:
    """Two processes' clocks may differ by a little: nothing breaks, nothing is lost."""
    live = LiveFigures((Window("w", 1_000, 2),))
    live.see(turn_record(), now_ms=5_000)
    live.see(turn_record(), now_ms=4_999)
    assert totals(live, 5_000) == {"w": 2}
