"""Frames that don't come, or come late: silence goes on by the session's clock, and is counted once."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.audio.conftest import Clip
from tests.audio.edges import (
    LIVE_MS,
    PER_MS,
    RATE_HZ,
    cut_in_mid_word,
    edges_of,
    first_edge,
    kinds,
    last_voiced,
    segmented,
)
from voicepipe.audio.samples import silence
from voicepipe.audio.speech_events import Edge, SilenceProgress, SpeechResume, SpeechStart, SpeechStop
from voicepipe.audio.vad_segmenter import VadOptions, VadSegmenter, VadState


def ticked(segmenter: VadSegmenter, from_ms: int, to_ms: int) -> Iterator[tuple[int, Edge]]:
    """Let time pass without a frame."""
    for now_ms in range(from_ms, to_ms, LIVE_MS):
        for edge in segmenter.tick(now_ms):
            yield now_ms, edge


def silence_ms(edge: Edge) -> int:
    """Return how long the pause is that an edge reports."""
    assert isinstance(edge, SpeechStop | SilenceProgress)
    return edge.silence_ms


def test_muting_in_mid_word_ends_like_silence(clips: dict[str, Clip]) -> None:
    """No frame comes any more: nothing for 200 ms of jitter, then a pause whose t0 is where the sound was cut."""
    said, _ = cut_in_mid_word(clips)
    segmenter = VadSegmenter(RATE_HZ)
    edges_of(segmenter, said)
    assert segmenter.state is VadState.SPEAKING
    cut_ms = len(said) // PER_MS
    edges = list(ticked(segmenter, cut_ms, cut_ms + 700))
    (noticed_ms, paused), *grown = edges
    assert noticed_ms == cut_ms + 220
    assert isinstance(paused, SpeechStop)
    assert cut_ms - 40 <= paused.last_voiced.session_ms <= cut_ms
    assert all(isinstance(edge, SilenceProgress) for _, edge in grown)
    for now_ms, edge in edges:
        assert silence_ms(edge) == now_ms - paused.last_voiced.session_ms
    assert edges[-1][0] == cut_ms + 680


def test_zeros_in_mid_word_end_like_silence(clips: dict[str, Clip]) -> None:
    """A client that mutes by sending digital silence: the same t0, noticed within 250 ms."""
    said, _ = cut_in_mid_word(clips)
    muted = np.concatenate((said, silence(RATE_HZ)))
    now_ms, paused = [
        (now, edge) for now, edge in segmented(VadSegmenter(RATE_HZ), muted) if isinstance(edge, SpeechStop)
    ][-1]
    # The last 10 ms that hold any of the voice end up to one hop behind it.
    assert len(said) // PER_MS - 40 <= paused.last_voiced.session_ms <= len(said) // PER_MS + 10
    assert now_ms <= len(said) // PER_MS + 250


def test_speech_after_a_gap_resumes_and_the_gap_counts_once(clips: dict[str, Clip]) -> None:
    """Muted in mid-word, 5 s later the rest: one pause, its silence grows by the clock to 5 s, then a resume."""
    said, rest = cut_in_mid_word(clips)
    segmenter = VadSegmenter(RATE_HZ)
    edges_of(segmenter, said)
    cut_ms = len(said) // PER_MS
    gap = [edge for _, edge in ticked(segmenter, cut_ms, cut_ms + 5_000)]
    assert kinds(gap) == [SpeechStop]
    again = list(segmented(segmenter, rest, begins_ms=cut_ms + 5_000))
    resumed = next(edge for _, edge in again if not isinstance(edge, SilenceProgress))
    assert isinstance(resumed, SpeechResume)
    assert resumed.onset.session_ms == pytest.approx(cut_ms + 5_000, abs=60)
    assert resumed.onset.stream_ms == pytest.approx(cut_ms, abs=60)
    before = [edge for _, edge in again]
    silences = [silence_ms(edge) for edge in gap + before[: before.index(resumed)]]
    assert silences == sorted(set(silences))
    assert max(silences) <= 5_000 + 250


@pytest.mark.parametrize("ticks", [True, False])
def test_silence_after_a_gap_goes_on_by_the_clock(clips: dict[str, Clip], ticks: bool) -> None:
    """Muted, 2 s nothing, then frames of room tone: the silence is the time passed, with ticks between or without."""
    said, _ = cut_in_mid_word(clips)
    tone = clips["clean/jfk"].samples(RATE_HZ)[-RATE_HZ:]
    segmenter = VadSegmenter(RATE_HZ)
    edges_of(segmenter, said)
    cut_ms = len(said) // PER_MS
    edges = [edge for _, edge in ticked(segmenter, cut_ms, cut_ms + 2_000)] if ticks else []
    edges += [edge for _, edge in segmented(segmenter, tone, begins_ms=cut_ms + 2_000)]
    assert kinds(edges) == [SpeechStop]
    since_ms = first_edge(edges, SpeechStop).last_voiced.session_ms
    assert silence_ms(edges[-1]) == pytest.approx(cut_ms + 3_000 - since_ms, abs=25)


def test_frames_that_were_only_late_are_not_counted_twice(clips: dict[str, Clip]) -> None:
    """In a pause the network stalls for 500 ms and then delivers all at once: the silence is what the samples say."""
    samples = clips["clean/LJ001-0008"].samples(RATE_HZ)
    segmenter = VadSegmenter(RATE_HZ)
    stall_ms = clips["clean/LJ001-0008"].end_ms // 20 * 20 + 400
    edges_of(segmenter, samples[: stall_ms * PER_MS])
    assert segmenter.state is VadState.PAUSED
    last_ms = last_voiced(segmenter).stream_ms
    edges = [edge for _, edge in ticked(segmenter, stall_ms, stall_ms + 500)]
    for first in range(stall_ms, stall_ms + 500, 20):
        edges += segmenter.push(samples[first * PER_MS : (first + 20) * PER_MS], stall_ms + 500)
    on_time = samples[(stall_ms + 500) * PER_MS : (stall_ms + 700) * PER_MS]
    edges += [edge for _, edge in segmented(segmenter, on_time, begins_ms=stall_ms + 500)]
    silences = [silence_ms(edge) for edge in edges]
    assert silences == sorted(silences)
    assert silences[-1] == pytest.approx(stall_ms + 700 - last_ms, abs=25)


def test_ticks_between_frames_that_come_change_nothing(clips: dict[str, Clip]) -> None:
    """Frames of 100 ms with a tick every 20."""
    samples = clips["clean/vctk_p287_001"].samples(RATE_HZ)
    samples = samples[: len(samples) // (100 * PER_MS) * 100 * PER_MS]
    segmenter = VadSegmenter(RATE_HZ)
    edges: list[Edge] = []
    for first in range(0, len(samples), 100 * PER_MS):
        for tick_ms in range(first // PER_MS, first // PER_MS + 100, 20):
            edges += segmenter.tick(tick_ms)
        edges += segmenter.push(samples[first : first + 100 * PER_MS], first // PER_MS + 100)
    assert edges == edges_of(VadSegmenter(RATE_HZ), samples)


def test_a_long_silence_ends_the_pause_by_itself(clips: dict[str, Clip]) -> None:
    """After `max_pause_ms` the next voice starts, without an event in between."""
    said, rest = cut_in_mid_word(clips)
    segmenter = VadSegmenter(RATE_HZ, VadOptions(max_pause_ms=1_000))
    edges_of(segmenter, said)
    cut_ms = len(said) // PER_MS
    gap = [edge for _, edge in ticked(segmenter, cut_ms, cut_ms + 5_000)]
    assert 1_000 <= silence_ms(gap[-1]) <= 1_020
    assert segmenter.state is VadState.QUIET
    assert kinds([edge for _, edge in segmented(segmenter, rest, begins_ms=cut_ms + 5_000)])[0] is SpeechStart
