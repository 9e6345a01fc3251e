"""The order of the user's packets: nothing waits without a reason, and nothing waits for long."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import pytest
from aiortc import rtcrtpreceiver

from voicepipe.server.webrtc.packet_order import MAX_BEHIND, PacketOrder
from voicepipe.server.webrtc.peer import JITTER_BUFFER


@dataclass
class Packet:
    sequence_number: int
    timestamp: int
    _data: bytes = b""


def passed(numbers: list[int]) -> list[list[int]]:
    """The packets that pass with each packet that comes."""
    order = PacketOrder(SimpleNamespace)
    found: list[list[int]] = []
    for number in numbers:
        is_picture_missing, frame = order.add(Packet(number % 65_536, number))
        assert not is_picture_missing
        found.append([] if frame is None else [frame.timestamp])
    return found


def test_packets_in_order_pass_at_once() -> None:
    assert passed([65_534, 65_535, 65_536, 65_537]) == [[65_534], [65_535], [65_536], [65_537]]


def test_a_late_packet_is_waited_for() -> None:
    assert passed([1, 3, 2, 4]) == [[1], [], [2], [3]]


def test_a_lost_packet_is_given_up_once_enough_have_come_behind_it() -> None:
    came = passed([1, *range(3, 12)])
    assert came[:4] == [[1], [], [], []]
    assert came[4:] == [[number] for number in range(3, 9)]
    assert MAX_BEHIND == 3


@pytest.mark.parametrize("late", [1, 2])
def test_a_packet_that_comes_after_its_time_is_dropped(late: int) -> None:
    assert passed([1, *range(3, 8), late])[-1] == []


def test_aiortc_has_what_is_replaced() -> None:
    """The attribute is private: another version of aiortc may have another."""
    for name in ("JitterBuffer", "RTCRtpReceiver"):
        assert hasattr(rtcrtpreceiver, name)
    assert JITTER_BUFFER in rtcrtpreceiver.RTCRtpReceiver.__init__.__code__.co_names
