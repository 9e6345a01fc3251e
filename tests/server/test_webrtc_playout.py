"""The agent's audio between the session and RTP: frames, what they announce, and what is dropped."""

from __future__ import annotations

import numpy as np

from voicepipe.audio.samples import Samples
from voicepipe.server.webrtc.playout import MAX_QUEUED_S, RATE_HZ, PartAudio, Playout, mono

FRAME = 480


def audio(n_samples: int, value: int = 1) -> Samples:
    return np.full(n_samples, value, dtype=np.int16)


def playout() -> tuple[Playout, list[tuple[str, str]]]:
    noted: list[tuple[str, str]] = []
    return Playout(lambda what, response_id: noted.append((what, response_id))), noted


def part(response_id: str, item_id: str = "item") -> PartAudio:
    return PartAudio(response_id, item_id, 0)


def test_without_audio_a_frame_is_silence() -> None:
    queue, noted = playout()
    assert queue.take(FRAME).tolist() == [0] * FRAME
    assert noted == []


def test_a_response_starts_with_its_first_frame_and_stops_behind_its_last() -> None:
    queue, noted = playout()
    queue.push(part("r1"), audio(FRAME))
    queue.push(part("r1"), audio(FRAME // 2))
    assert queue.take(FRAME).tolist() == [1] * FRAME
    assert noted == [("started", "r1")]
    assert queue.take(FRAME).tolist() == [1] * (FRAME // 2) + [0] * (FRAME // 2)
    assert queue.is_playing  # more may come
    queue.complete("r1")
    assert noted == [("started", "r1"), ("stopped", "r1")]
    assert not queue.is_playing


def test_a_response_that_is_complete_stops_once_it_has_played() -> None:
    queue, noted = playout()
    queue.push(part("r1"), audio(2 * FRAME))
    queue.complete("r1")
    queue.take(FRAME)
    assert noted == [("started", "r1")]
    queue.take(FRAME)
    assert noted[-1] == ("stopped", "r1")


def test_one_response_follows_another_within_a_frame() -> None:
    queue, noted = playout()
    queue.push(part("r1"), audio(FRAME // 2))
    queue.push(part("r2"), audio(FRAME, 2))
    queue.complete("r1")
    assert set(queue.take(FRAME).tolist()) == {1, 2}
    assert noted == [("started", "r1"), ("stopped", "r1"), ("started", "r2")]
    queue.complete("nobody's")
    queue.complete("r2")
    queue.take(FRAME)
    assert noted[-1] == ("stopped", "r2")


def test_a_cut_says_what_was_played_of_the_item() -> None:
    queue, noted = playout()
    queue.push(part("r1", "first"), audio(FRAME))
    queue.push(part("r1", "second"), audio(3 * FRAME))
    for _ in range(3):
        queue.take(FRAME)
    cut = queue.clear()
    assert cut is not None
    assert (cut.item_id, cut.played_ms, queue.queued_ms) == ("second", 40, 0)
    assert noted == [("started", "r1"), ("cleared", "r1")]
    assert queue.take(FRAME).tolist() == [0] * FRAME


def test_a_response_that_waits_is_dropped_without_a_word() -> None:
    queue, noted = playout()
    queue.push(part("r1"), audio(2 * FRAME))
    queue.push(part("r2"), audio(FRAME))
    queue.take(FRAME)
    assert queue.clear("r2") is None
    assert (queue.queued_ms, noted) == (20, [("started", "r1")])


def test_an_answer_without_end_is_cut_off() -> None:
    queue, _ = playout()
    queue.push(part("r1"), audio(MAX_QUEUED_S * RATE_HZ + 1))
    queue.push(part("r1"), audio(1))
    assert queue.queued_ms == MAX_QUEUED_S * 1_000


def test_two_channels_become_one() -> None:
    stereo = np.array([[100, 300], [32_767, 32_767], [-32_768, -32_768]], dtype=np.int16)
    assert mono(stereo).tolist() == [200, 32_767, -32_768]
