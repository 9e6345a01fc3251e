"""The measurement of the cap of hedges: every world with every limit, and an exit status that says whether it held."""

from __future__ import annotations

import pytest

from tests.measure import router_cap
from tests.measure.router_cap import LIMITS, Limits, Place, places, scene_of
from voicepipe.router.options import RouterOptions


def test_every_world_has_a_row_for_every_cap(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(router_cap, "row_of", lambda place, limits: (1.05, [place.name, limits.name, "", "", "", ""]))
    assert router_cap.main(["--turns", "100"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + len(list(places(100, 7))) * len(LIMITS) + 1
    assert lines[-1] == "The most of all is 1.050 times the cap, of at most 1.05."


def test_a_cap_that_is_exceeded_fails_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(router_cap, "row_of", lambda place, limits: (1.06, [place.name, limits.name, "", "", "", ""]))
    assert router_cap.main([]) == 1


def test_the_shipped_limits_are_those_of_the_router() -> None:
    place = next(places(100, 7))
    assert scene_of(place, LIMITS[0]).options == RouterOptions()


@pytest.mark.parametrize("limits", LIMITS, ids=lambda limits: limits.name)
def test_a_row_has_the_figures_of_a_run(limits: Limits) -> None:
    (place,) = [place for place in places(300, 7) if place.name == "same-price, spread 0.7, stragglers 5%"]
    assert isinstance(place, Place)
    most, row = router_cap.row_of(place, limits)
    assert row[:2] == [place.name, limits.name]
    assert 0 < most <= router_cap.LIMIT
