"""The order of the user's packets: nothing waits without a reason, and nothing waits for long."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

import pytest
from aiortc import rtcrtpreceiver

from voicepipe.server.webrtc.jitter_buffer import (
    MAX_DEPTH,
    MIN_DEPTH,
    STABLE_PACKETS,
    AudioJitterBuffer,
    DecoderQueue,
    DueFrames,
)
from voicepipe.server.webrtc.peer import DECODER_QUEUE, JITTER_BUFFER


@dataclass
class Packet:
    sequence_number: int
    timestamp: int
    _data: bytes = b""


def passed(numbers: list[int], order: AudioJitterBuffer | None = None) -> list[list[int]]:
    """The packets that pass with each packet that comes."""
    order = AudioJitterBuffer() if order is None else order
    found: list[list[int]] = []
    for number in numbers:
        is_picture_missing, due = order.add(Packet(number % 65_536, number))
        assert not is_picture_missing
        found.append([] if due is None else [due.timestamp, *(due.timestamp + after for _, after in due.later)])
    return found


def test_packets_in_order_pass_at_once() -> None:
    assert passed([65_534, 65_535, 65_536, 65_537]) == [[65_534], [65_535], [65_536], [65_537]]


def test_a_late_packet_is_waited_for_and_those_behind_it_pass_with_it() -> None:
    assert passed([1, 3, 2, 4]) == [[1], [], [2, 3], [4]]


def test_a_lost_packet_is_given_up_once_enough_have_come_behind_it_and_delays_no_others() -> None:
    came = passed([1, *range(3, 12)])
    assert came[: 2 + MIN_DEPTH] == [[1], [], [], [], [3, 4, 5, 6]]
    assert came[2 + MIN_DEPTH :] == [[number] for number in range(7, 12)]


@pytest.mark.parametrize("late", [1, 2])
def test_a_packet_that_comes_after_its_time_is_dropped(late: int) -> None:
    assert passed([1, *range(3, 8), late])[-1] == []


def overtaken(first: int, by: int) -> list[int]:
    """Packets of which the first comes behind so many others."""
    return [*range(first + 1, first + by + 1), first]


def test_where_packets_overtake_each_other_the_second_one_is_not_lost() -> None:
    """One second with packets that come 120 ms late loses the first of them, and no other."""
    numbers = [0, *chain.from_iterable(overtaken(first, 6) for first in range(1, 50, 7))]
    came = [number for due in passed(numbers) for number in due]
    assert came == [number for number in range(50) if number != 1]


@pytest.mark.parametrize(("by", "expected"), [(20, MAX_DEPTH), (200, MIN_DEPTH)])
def test_the_wait_is_bounded_and_follows_no_packet_from_long_ago(by: int, expected: int) -> None:
    order = AudioJitterBuffer()
    passed([0, *overtaken(1, by)], order)
    lost = by + 2
    came = passed(list(range(lost + 1, lost + 40)), order)
    assert came.index(next(filter(None, came))) == expected


def test_the_wait_is_short_again_once_the_network_keeps_the_order() -> None:
    order = AudioJitterBuffer()
    passed([0, *overtaken(1, MAX_DEPTH)], order)
    lost = MAX_DEPTH + 2 + (MAX_DEPTH - MIN_DEPTH) * STABLE_PACKETS
    passed(list(range(MAX_DEPTH + 2, lost)), order)
    came = passed(list(range(lost + 1, lost + 40)), order)
    assert came.index(next(filter(None, came))) == MIN_DEPTH


def test_frames_that_are_due_together_are_decoded_one_by_one() -> None:
    decoder = DecoderQueue(lambda data, timestamp: (data, timestamp))
    decoder.put(("opus", DueFrames(b"a", 960, ((b"b", 960), (b"c", 2_880)))))
    decoder.put(None)
    put = [decoder.get() for _ in range(4)]
    assert put == [("opus", (b"a", 960)), ("opus", (b"b", 1_920)), ("opus", (b"c", 3_840)), None]


def test_aiortc_has_what_is_replaced() -> None:
    """The attributes are private: another version of aiortc may have others."""
    for name in ("JitterBuffer", "RTCRtpReceiver"):
        assert hasattr(rtcrtpreceiver, name)
    assert {JITTER_BUFFER, DECODER_QUEUE} <= set(rtcrtpreceiver.RTCRtpReceiver.__init__.__code__.co_names)
