"""The recording that speaks."""

from __future__ import annotations

import asyncio

import numpy as np

from voicepipe.audio.samples import Samples
from voicepipe.client import CallEnded
from voicepipe.client.microphone import FRAME_MS, GAP_MS, RATE_HZ, CaptureClock, Microphone
from voicepipe.testing.waiting import WAIT_S

FRAME_SAMPLES = RATE_HZ * FRAME_MS // 1_000


async def test_the_whole_recording_goes_out_in_order_and_silence_after_it() -> None:
    sound = np.arange(1, 2 * FRAME_SAMPLES + 8, dtype=np.int16)
    frames: list[Samples] = []
    enough = asyncio.Event()

    async def send(frame: Samples) -> None:
        frames.append(frame)
        if len(frames) == 4:
            enough.set()

    async with asyncio.TaskGroup() as group:
        speaking = group.create_task(Microphone(sound, first_ms=0).run(send))
        async with asyncio.timeout(WAIT_S):
            await enough.wait()
        speaking.cancel()
    assert {len(frame) for frame in frames} == {FRAME_SAMPLES}
    sent = np.concatenate(frames)
    assert (sent[: len(sound)] == sound).all()
    assert not sent[len(sound) :].any()


async def test_no_frame_leaves_before_it_was_captured() -> None:
    """A frame holds the past: its last sample has been captured when it is sent."""
    microphone = Microphone(np.zeros(10 * FRAME_SAMPLES, dtype=np.int16), first_ms=5_000)
    early: list[int] = []
    n_frames = 0

    async def send(frame: Samples) -> None:
        nonlocal n_frames
        n_frames += 1
        early.append(5_000 + n_frames * FRAME_MS - microphone.position_ms())
        if n_frames == 5:
            raise CallEnded(1000, "")

    async with asyncio.timeout(WAIT_S):
        await microphone.run(send)
    assert max(early) <= 0


async def test_it_ends_with_the_line() -> None:
    """The receiving side reports the end; the microphone just stops."""

    async def send(frame: Samples) -> None:
        raise CallEnded(1006, "")

    async with asyncio.timeout(WAIT_S):
        await Microphone(np.zeros(0, dtype=np.int16), first_ms=0).run(send)


def capture_until(ms: int) -> CaptureClock:
    """Frames that are sent as soon as they are captured, from 0 on the clock."""
    capture = CaptureClock()
    for sent_ms in range(FRAME_MS, ms + 1, FRAME_MS):
        capture.sent(sent_ms, 10_000 + sent_ms)
    return capture


def test_a_late_frame_does_not_move_the_captured_position() -> None:
    """The client was busy for 300 ms: its frames leave late, and all at once."""
    capture = capture_until(1_000)
    assert capture.position_ms(11_290) == 1_290
    for sent_ms in range(1_020, 1_301, FRAME_MS):
        capture.sent(sent_ms, 11_300)
        assert abs(capture.position_ms(11_300) - 1_300) <= 1


def test_time_passes_while_nothing_is_captured() -> None:
    """And what is sent after it counts on from what was sent before."""
    capture = capture_until(1_000)
    after_ms = 11_000 + GAP_MS + 1
    assert capture.position_ms(after_ms) == 1_000 + GAP_MS + 1
    capture.sent(1_020, after_ms)
    assert capture.position_ms(after_ms) == 1_020


def test_a_device_that_runs_behind_is_followed() -> None:
    """By a tenth of a millisecond a second, for ten minutes."""
    capture, at_ms = CaptureClock(), 0.0
    for n in range(1, 30_001):
        at_ms += FRAME_MS * 1.0001
        capture.sent(n * FRAME_MS, round(at_ms))
    assert abs(capture.position_ms(round(at_ms)) - 600_000) <= 1


def test_nothing_is_captured_before_the_first_frame() -> None:
    assert CaptureClock().position_ms(5_000) == 0
