"""The edges that a segmenter finds in a clip, fed as a client sends it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import numpy as np

from tests.audio.conftest import Clip
from voicepipe.audio.samples import Samples
from voicepipe.audio.speech_events import Edge, Instant, SilenceProgress, SpeechResume, SpeechStart, SpeechStop
from voicepipe.audio.vad_segmenter import VadSegmenter

RATE_HZ = 24_000
LIVE_MS = 20
PER_MS = RATE_HZ // 1_000

AnEdge = TypeVar("AnEdge", SpeechStart, SpeechStop, SpeechResume)


def segmented(
    segmenter: VadSegmenter, samples: Samples, *, begins_ms: int = 0, frame_ms: int = LIVE_MS
) -> Iterator[tuple[int, Edge]]:
    """Feed samples in real time; each edge with the session time of the frame that showed it."""
    for first in range(0, len(samples), frame_ms * PER_MS):
        frame = samples[first : first + frame_ms * PER_MS]
        now_ms = begins_ms + (first + len(frame)) // PER_MS
        for edge in segmenter.push(frame, now_ms):
            yield now_ms, edge


def edges_of(segmenter: VadSegmenter, samples: Samples) -> list[Edge]:
    return [edge for _, edge in segmented(segmenter, samples)]


def kinds(edges: list[Edge]) -> list[type[Edge]]:
    """What happened, without the steps of silence."""
    return [type(edge) for edge in edges if not isinstance(edge, SilenceProgress)]


def first_edge(edges: list[Edge], kind: type[AnEdge]) -> AnEdge:
    """Return the first edge of a kind."""
    return next(edge for edge in edges if isinstance(edge, kind))


def last_voiced(segmenter: VadSegmenter) -> Instant:
    """Return the last voiced sample of the voice that the VAD is following."""
    instant = segmenter.last_voiced()
    assert instant is not None
    return instant


def cut_in_mid_word(clips: dict[str, Clip]) -> tuple[Samples, Samples]:
    """Speech up to the middle of a vowel, and the rest."""
    samples = clips["clean/jfk"].samples(RATE_HZ)
    loudest = int(np.abs(samples[2 * RATE_HZ : 3 * RATE_HZ].astype(int)).argmax()) + 2 * RATE_HZ
    cut = loudest // (LIVE_MS * PER_MS) * LIVE_MS * PER_MS
    return samples[:cut], samples[cut:]
