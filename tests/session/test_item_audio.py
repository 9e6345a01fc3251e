"""The audio that a session holds of its items: bounded, and whose is whose."""

from __future__ import annotations

from base64 import b64decode

import numpy as np
import pytest

from voicepipe.audio.samples import Samples
from voicepipe.protocol.outbound import EventRenderer
from voicepipe.protocol.session_config import SessionConfig
from voicepipe.session.item_audio import MAX_ITEMS, ItemAudio, RetrievedAudio, both
from voicepipe.session.read_limit import ReadLimit
from voicepipe.turn import notifications as a

RATE_HZ = 24_000
MS = RATE_HZ // 1_000


def ramp(from_ms: int, to_ms: int) -> Samples:
    """Each ms has its own value."""
    return np.repeat(np.arange(from_ms, to_ms, dtype=np.int16), MS)


def spoken(held: ItemAudio, until_ms: int, *, from_ms: int = 0, step_ms: int = 20) -> ItemAudio:
    for at_ms in range(from_ms, until_ms, step_ms):
        held.user_audio(ramp(at_ms, at_ms + step_ms), RATE_HZ, at_ms + step_ms)
    return held


def span(held: ItemAudio, item_id: str) -> tuple[int, int] | None:
    """The first and last ms of an item's audio."""
    found = held.of(item_id)
    return None if found is None else (int(found[0][0]), int(found[0][-1]))


def test_an_utterance_has_its_part_of_the_users_audio() -> None:
    held = spoken(ItemAudio(10), 1_000)
    held.on_notification(a.InputSpeechStarted("one", 110), 1_000)
    assert span(held, "one") == (110, 999)
    held.on_notification(a.InputSpeechStopped("one", 505), 1_000)
    held.on_notification(a.AudioCommitted("one", None), 1_000)
    assert span(held, "one") == (110, 504)
    found = held.of("one")
    assert found is not None
    assert (found[1], len(found[0])) == (RATE_HZ, 395 * MS)
    assert held.of("nothing") is None


def test_a_commit_by_hand_has_all_since_the_one_before() -> None:
    held = spoken(ItemAudio(10), 300)
    held.on_notification(a.AudioCommitted("one", None), 300)
    spoken(held, 500, from_ms=300)
    held.on_notification(a.AudioCleared(), 500)
    spoken(held, 700, from_ms=500)
    held.on_notification(a.AudioCommitted("two", "one"), 700)
    assert (span(held, "one"), span(held, "two")) == ((0, 299), (500, 699))


def test_speech_that_goes_on_is_the_same_item() -> None:
    held = spoken(ItemAudio(10), 800)
    held.on_notification(a.InputSpeechStarted("one", 100), 800)
    held.on_notification(a.InputSpeechStopped("one", 300), 800)
    held.on_notification(a.InputSpeechStarted("one", 400), 800)
    held.on_notification(a.InputSpeechStopped("one", 600), 800)
    assert span(held, "one") == (100, 599)


def test_a_silence_is_an_item_too() -> None:
    held = spoken(ItemAudio(10), 800)
    held.on_notification(a.SilenceTimedOut("one", 200, 400), 800)
    assert span(held, "one") == (200, 399)


def test_what_is_too_old_is_not_held_in_part() -> None:
    held = spoken(ItemAudio(1), 1_500)
    for name, start_ms in (("old", 400), ("cut", 490), ("new", 600)):
        held.on_notification(a.InputSpeechStarted(name, start_ms), 1_500)
        held.on_notification(a.InputSpeechStopped(name, start_ms + 200), 1_500)
    assert (span(held, "old"), span(held, "cut"), span(held, "new")) == (None, None, (600, 799))


def test_an_item_in_two_formats_has_no_audio() -> None:
    held = spoken(ItemAudio(10), 200)
    held.user_audio(np.zeros(1_600, dtype=np.int16), 8_000, 400)
    held.on_notification(a.AudioCommitted("one", None), 400)
    assert held.of("one") is None


def test_the_newest_items_are_known() -> None:
    held = spoken(ItemAudio(10), 200)
    for n in range(MAX_ITEMS + 1):
        held.on_notification(a.InputSpeechStarted(f"item_{n}", 100), 200)
    assert (held.of("item_0"), span(held, "item_1")) == (None, (100, 199))


def test_the_agents_audio_is_held_by_item_up_to_the_limit() -> None:
    held = ItemAudio(1)
    held.of_agent("one")(ramp(0, 600), RATE_HZ)
    held.of_agent("two")(ramp(600, 900), RATE_HZ)
    assert (span(held, "one"), span(held, "two")) == ((0, 599), (600, 899))
    held.of_agent("two")(ramp(900, 1_100), RATE_HZ)
    assert (held.of("one"), span(held, "two")) == (None, (600, 1_099))


def test_an_answer_that_is_too_long_has_no_audio() -> None:
    held = ItemAudio(1)
    held.of_agent("long")(ramp(0, 900), RATE_HZ)
    held.of_agent("long")(ramp(900, 1_100), RATE_HZ)
    held.of_agent("long")(ramp(1_100, 1_200), RATE_HZ)
    held.on_notification(a.ItemTruncated("long", 0, 100), 0)
    assert held.of("long") is None
    held.of_agent("next")(ramp(0, 1_000), RATE_HZ)
    assert span(held, "next") == (0, 999)


def test_a_truncated_answer_ends_where_it_was_cut() -> None:
    held = ItemAudio(1)
    held.of_agent("one")(ramp(0, 800), RATE_HZ)
    held.on_notification(a.ItemTruncated("one", 0, 300), 0)
    held.of_agent("two")(ramp(0, 700), RATE_HZ)
    assert (span(held, "one"), span(held, "two")) == ((0, 299), (0, 699))
    held.on_notification(a.ItemTruncated("nothing", 0, 300), 0)


def test_what_was_cut_from_an_answer_is_not_held() -> None:
    """Not behind the rest either; an answer of which nothing was heard is dropped."""
    held = ItemAudio(1)
    held.of_agent("one")(ramp(0, 800), RATE_HZ)
    held.on_notification(a.ItemTruncated("one", 0, 300), 0)
    (piece,) = held._agent["one"].pieces
    assert piece.base is None
    held.on_notification(a.ItemTruncated("one", 0, 0), 0)
    assert held.of("one") is None
    assert (len(held._agent), held._agent_ms) == (0, 0.0)


@pytest.mark.parametrize("item_id", ["user", "agent"])
def test_a_deleted_item_loses_its_audio(item_id: str) -> None:
    held = spoken(ItemAudio(1), 200)
    held.on_notification(a.AudioCommitted("user", None), 200)
    held.of_agent("agent")(ramp(0, 300), RATE_HZ)
    held.on_notification(a.ItemDeleted(item_id), 200)
    assert held.of(item_id) is None


def test_two_take_the_users_audio() -> None:
    one, other = ItemAudio(1), ItemAudio(1)
    assert both(None, other) is other
    assert both(one, None) is one
    assert both(None, None) is None
    recorder = both(one, other)
    assert recorder is not None
    recorder.user_audio(ramp(0, 100), RATE_HZ, 100)
    for each in (one, other):
        each.on_notification(a.AudioCommitted("item", None), 100)
        assert span(each, "item") == (0, 99)


async def test_only_the_item_that_was_prepared_has_audio_and_once() -> None:
    config = SessionConfig(session_id="s", model="m", expires_at=0)
    wire, held = EventRenderer(config), spoken(ItemAudio(1), 200)
    held.on_notification(a.AudioCommitted("user", None), 200)
    held.of_agent("agent")(ramp(0, 300), RATE_HZ)
    retrieved = RetrievedAudio(held, wire, ReadLimit())
    for item_id, until_ms in (("user", 200), ("agent", 300)):
        await retrieved.prepare(item_id, config)
        audio = wire.audio_of(item_id)
        assert audio is not None
        assert b64decode(audio) == ramp(0, until_ms).astype("<i2").tobytes()
        assert wire.audio_of(item_id) is None
    await retrieved.prepare("user", config)
    assert wire.audio_of("agent") is None
    await retrieved.prepare("none", config)
    assert wire.audio_of("none") is None
