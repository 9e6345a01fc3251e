"""Where speech ends: the levels of a pause are computed on from those of the frame before, and are the same."""

from __future__ import annotations

from tests.audio.conftest import Clip
from voicepipe.audio.history import RingBuffer
from voicepipe.audio.levels import LOOK_BACK_SAMPLES
from voicepipe.audio.speech_bounds import SpeechBounds

RATE_HZ = 16_000
FRAME = 320


def test_levels_that_follow_are_those_computed_anew(clips: dict[str, Clip]) -> None:
    """At each frame, at the next one but some, and across the move of the buffer's content to its front."""
    samples = clips["clean/jfk"].samples(RATE_HZ)
    buffer = RingBuffer(LOOK_BACK_SAMPLES + 2 * FRAME, FRAME)
    following, n_ends = SpeechBounds(buffer), set()
    for number, first in enumerate(range(0, len(samples) - FRAME, FRAME)):
        buffer.append(samples[first : first + FRAME])
        if number % 7 in (0, 1, 4):
            end = following.voice_end(buffer.end, buffer.end - 512)
            assert end == SpeechBounds(buffer).voice_end(buffer.end, buffer.end - 512)
            assert end == following.voice_end(buffer.end, buffer.end - 512), "without a new frame"
            n_ends.add(end)
    assert len(samples) > LOOK_BACK_SAMPLES
    assert len(n_ends) > 100
