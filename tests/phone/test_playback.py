"""What a carrier has played, from its marks."""

from __future__ import annotations

from voicepipe.phone.playback import CarrierPlayback, Played


def test_a_mark_says_what_was_played_of_its_item() -> None:
    playback = CarrierPlayback()
    first, second = playback.send("a", 1_600, 0), playback.send("a", 800, 0)
    assert playback.mark(first, 220) == Played("a", 200, 100)
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
    assert last == Played("a", 300, 0)
