"""What a carrier has played, from its marks."""

from __future__ import annotations

import pytest

from voicepipe.phone import playback as playback_of
from voicepipe.phone.playback import CarrierPlayback, Played


def test_a_mark_says_what_was_played_of_its_item() -> None:
    playback = CarrierPlayback()
    first, second = playback.send("a", 1_600, 0), playback.send("a", 800, 0)
    assert playback.mark(first, 220) == Played("a", 200, 100, carrier_estimated_ms=20)
    assert playback.is_playing
    assert playback.mark(second, 320) == Played("a", 300, 0)
    assert not playback.is_playing


def test_a_later_mark_stands_for_those_before_it() -> None:
    playback = CarrierPlayback()
    playback.send("a", 1_600, 0)
    last = playback.send("b", 800, 0)
    assert playback.mark(last, 400) == Played("b", 100, 0)
    assert not playback.is_playing


def test_between_two_marks_the_audio_plays_in_real_time() -> None:
    playback = CarrierPlayback()
    first = playback.send("a", 1_600, 1_000)
    playback.send("a", 1_600, 1_000)
    playback.send("b", 800, 1_100)
    playback.mark(first, 1_250)
    assert playback.clear(1_330) == (Played("a", 280, 0), Played("b", 0, 0))
    assert playback.clear(1_340) == ()


def test_a_cut_is_never_beyond_the_piece_whose_mark_has_not_come() -> None:
    playback = CarrierPlayback()
    playback.send("a", 800, 0)
    playback.send("a", 800, 0)
    assert playback.clear(5_000) == (Played("a", 100, 0),)


def test_a_mark_of_dropped_audio_says_nothing() -> None:
    playback = CarrierPlayback()
    dropped = playback.send("a", 800, 0)
    playback.clear(50)
    playback.send("a", 800, 60)
    assert playback.mark(dropped, 70) is None
    assert playback.mark("of nobody", 70) is None
    assert playback.is_playing


def test_an_item_that_goes_on_is_counted_from_its_beginning() -> None:
    playback = CarrierPlayback()
    playback.send("b", 160, 0)
    for _ in range(3):
        mark = playback.send("a", 800, 0)
        last = playback.mark(mark, 100)
    assert last == Played("a", 300, 0, carrier_estimated_ms=0)


def test_the_way_to_the_carrier_is_estimated_by_a_mark_of_audio_that_waited_for_nothing() -> None:
    playback = CarrierPlayback()
    first, second = playback.send("a", 800, 1_000), playback.send("a", 800, 1_000)
    assert playback.mark(first, 1_180) == Played("a", 100, 100, carrier_estimated_ms=80)
    assert playback.mark(second, 1_280) == Played("a", 200, 0)
    third = playback.send("b", 800, 2_000)
    assert playback.mark(third, 2_090) == Played("b", 100, 0, carrier_estimated_ms=0), "the user's audio has stuttered"


def test_what_is_not_cut_plays_on_and_its_marks_report_it() -> None:
    playback = CarrierPlayback()
    first, second = playback.send("a", 800, 0), playback.send("keys", 1_600, 0)
    playback.send("a", 800, 0)
    playback.send("b", 800, 0)
    uncut = playback.marks_to(second)
    assert uncut == {first, second}
    assert playback.unplayed_ms == 500
    assert playback.clear(50, keep=uncut) == (Played("b", 0, 0),)
    assert playback.unplayed_ms == 300
    assert playback.clear(60, keep=uncut) == ()
    assert playback.mark(first, 120) == Played("a", 100, 0, carrier_estimated_ms=20)
    assert playback.marks_to(first) == frozenset(), "it has come back"
    assert playback.clear(200) == (Played("keys", 80, 0),)


def test_a_carrier_that_returns_no_marks_loses_the_oldest_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(playback_of, "MAX_PIECES", 2)
    playback = CarrierPlayback()
    for _ in range(3):
        playback.send("a", 800, 0)
    assert playback.unplayed_ms == 200
