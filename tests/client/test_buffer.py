"""A loudspeaker that keeps sound for a while before it plays it, as players do against jitter."""

from __future__ import annotations

from voicepipe.client import RATE_HZ
from voicepipe.client.speaker import Played, Speaker

SECOND = RATE_HZ


def test_audio_is_buffered_and_played_without_a_gap() -> None:
    """Once, at the beginning; what comes while it plays follows at once."""
    speaker = Speaker(buffer_ms=300)
    speaker.play("item", SECOND, 1_000)
    assert speaker.reports(1_250) == []
    speaker.play("item", SECOND, 1_280)
    assert speaker.reports(1_500) == [Played("item", 200, 1_800)]
    assert speaker.reports(3_300) == [Played("item", 2_000, 0)]


def test_next_answer_is_buffered_again() -> None:
    """The first one has been played to its end."""
    speaker = Speaker(buffer_ms=300)
    speaker.play("first", SECOND, 0)
    speaker.play("second", SECOND, 5_000)
    assert [played.item_id for played in speaker.reports(5_299)] == ["first"]
    assert speaker.reports(5_400) == [Played("second", 100, 900)]
