"""The estimated part of a phone carrier in the latency of a turn."""

from __future__ import annotations

from voicepipe.testing.scenario import Scenario
from voicepipe.turn.record.values import TurnRecord


def record_after(*estimates: int | None) -> TurnRecord:
    """Return the record of a turn whose playback was reported with these estimates."""
    scenario = Scenario()
    scenario.utters()
    scenario.answers()
    for n, estimated_ms in enumerate(estimates, 1):
        scenario.reports(100 * n, input_ms=1_000 + 100 * n, carrier_estimated_ms=estimated_ms)
    scenario.passes(5_000)
    return scenario.driver.records["turn_s_0001"]


def test_the_first_estimate_is_in_the_record_and_changes_nothing_else() -> None:
    estimated, plain = record_after(None, 80, 300), record_after(None, None, None)
    assert (estimated.carrier_estimated_ms, plain.carrier_estimated_ms) == (80, None)
    assert (estimated.total_ms, estimated.contributions) == (plain.total_ms, plain.contributions)


def test_an_impossible_estimate_is_none_of_the_way() -> None:
    assert record_after(-5).carrier_estimated_ms == 0


def test_an_estimate_behind_the_outcome_is_in_the_record_too() -> None:
    """The turn is over by the clock, and the carrier's mark comes late."""
    scenario = Scenario()
    scenario.utters()
    scenario.answers()
    scenario.reports(100, input_ms=1_100)
    scenario.passes(5_000)
    before = scenario.driver.records["turn_s_0001"]
    assert (before.outcome, before.carrier_estimated_ms) == ("completed", None)
    scenario.reports(200, input_ms=6_200, carrier_estimated_ms=80)
    assert scenario.driver.records["turn_s_0001"].carrier_estimated_ms == 80
