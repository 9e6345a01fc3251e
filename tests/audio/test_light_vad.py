"""The light VAD on real speech: what it finds, beside the model, and what it does without it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from tests.audio.conftest import Clip, OfKind
from tests.audio.edges import LIVE_MS, PER_MS, RATE_HZ, edges_of, first_edge, kinds, segmented
from tests.audio.test_vad_segmenter import FRAMES, before
from tests.audio.test_vad_segmenter import crowd as crowd
from voicepipe.audio import silero
from voicepipe.audio.samples import Samples, silence
from voicepipe.audio.speech_events import Edge, SilenceProgress, SpeechResume, SpeechStart, SpeechStop
from voicepipe.audio.vad_segmenter import VadSegmenter, VadState
from voicepipe.audio.voiced_frames import VoicedFrames


def light() -> VadSegmenter:
    """A segmenter with the light VAD."""
    return VadSegmenter(RATE_HZ, vad="webrtc")


def test_the_model_is_not_loaded(clips: dict[str, Clip], monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor asked: with the light VAD alone a server does not need it."""
    monkeypatch.setattr(silero, "shared", lambda: pytest.fail("loaded"))
    assert kinds(edges_of(light(), clips["clean/LJ001-0008"].samples(RATE_HZ))) == [SpeechStart, SpeechStop]


def test_the_probability_is_the_share_of_voiced_frames() -> None:
    """Of the latest 5; a restart forgets them."""
    voiced = [True, True, False, True, True, True, True]
    results = iter([*voiced, True])
    frames = VoicedFrames(lambda: next(results), lambda share: True)
    assert [frames.classify() for _ in voiced] == pytest.approx([0.2, 0.4, 0.4, 0.6, 0.8, 0.8, 0.8])
    assert frames.end == 7 * 320
    frames.restart(6_400)
    assert frames.classify() == pytest.approx(0.2)
    assert frames.end == 6_720


def test_a_frame_must_rise_less_within_speech() -> None:
    """From 5 voiced frames on, until none of 5 is voiced. A level of a half is enough for a third, and not for all."""
    levels = [0.5, 1, 1, 1, 1, 1, 0.5, 0.2, 0.2, 0.2, 0.2, 0.5, 0.2, 0.2, 0.2, 0.2, 0.2, 0.5]
    remaining = iter(levels)
    frames = VoicedFrames(lambda: True, lambda share: next(remaining) >= share)
    found = [round(5 * frames.classify()) for _ in levels]
    assert found == [0, 1, 2, 3, 4, 5, 5, 4, 3, 2, 1, 1, 1, 1, 1, 1, 0, 0]


# --- quality --------------------------------------------------------------------------------


def test_no_clip_is_missed_and_t0_is_where_people_put_it(of_kind: OfKind) -> None:
    ends, onsets = [], []
    for clip in of_kind("clean", "conversation", "pause_built", "phone", "hesitation", "concat"):
        edges = edges_of(light(), clip.samples(RATE_HZ))
        onsets.append(first_edge(edges, SpeechStart).onset.stream_ms - clip.start_ms)
        ends.append([edge for edge in edges if isinstance(edge, SpeechStop)][-1].last_voiced.stream_ms - clip.end_ms)
    for errors in (ends, onsets):
        assert abs(np.median(errors)) <= 20
        assert np.percentile(np.abs(errors), 90) <= 80


@pytest.mark.parametrize(("name", "n_starts"), [("noise/dog_0", 1), ("noise/syn_keyboard_1", 0), ("noise/syn_fan", 1)])
def test_false_starts_are_few(clips: dict[str, Clip], name: str, n_starts: int) -> None:
    """The model starts none of these. A bark is voiced and loud, and so is a fan that swells."""
    assert kinds(edges_of(light(), clips[name].samples(RATE_HZ))).count(SpeechStart) <= n_starts


@pytest.mark.parametrize("noise_rms", [0, 1, 10, 100, 1_000])
def test_a_steady_room_starts_nothing(noise_rms: int) -> None:
    """Neither at once, where webrtcvad takes any noise for speech, nor within 8 s."""
    room = np.random.default_rng(5).normal(0, noise_rms, 8 * RATE_HZ).astype(np.int16)
    assert edges_of(light(), room) == []


@pytest.mark.parametrize("name", ["clean/LJ001-0008", "clean/vctk_p287_001", "clean/ls_1998-15444-0007"])
def test_other_people_do_not_hold_the_turn(clips: dict[str, Clip], crowd: Samples, name: str) -> None:
    """A crowd 15 dB weaker never stops: still the user is found silent for 700 ms, within 2 s of the end."""
    clip = clips[name]
    late = [
        now_ms
        for now_ms, edge in segmented(light(), before(crowd, clip, 15))
        if isinstance(edge, SilenceProgress) and edge.silence_ms >= 700 and now_ms > clip.end_ms
    ]
    assert late[0] < clip.end_ms + 2_000


# --- the same edges -----------------------------------------------------------------------------


def test_edges_are_those_of_the_model(of_kind: OfKind) -> None:
    """Start, stops and resumes in the same order in most clips; in each of them, one start first and a stop last."""
    same = []
    for clip in of_kind("clean", "conversation", "pause_built", "phone", "hesitation"):
        found = kinds(edges_of(light(), clip.samples(RATE_HZ)))
        n_pauses = found.count(SpeechStop)
        assert found == [SpeechStart, *[SpeechStop, SpeechResume] * (n_pauses - 1), SpeechStop], clip.path
        same.append(found == kinds(edges_of(VadSegmenter(RATE_HZ), clip.samples(RATE_HZ))))
    assert np.mean(same) > 0.5


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(lengths=FRAMES)
def test_edges_do_not_depend_on_how_the_stream_was_cut(clips: dict[str, Clip], lengths: list[int]) -> None:
    """Any frames give the same edges at the same positions and session times."""
    samples = clips["clean/vctk_p287_001"].samples(RATE_HZ)[: 3 * RATE_HZ]
    ends = np.cumsum(np.resize(lengths, len(samples) // min(lengths) + len(lengths)))
    cut: list[Edge] = []
    segmenter, n_pushed = light(), 0
    for frame in np.split(samples, ends[ends < len(samples)]):
        n_pushed += len(frame)
        cut += segmenter.push(frame, n_pushed // PER_MS)
    assert cut == edges_of(light(), samples)


@pytest.mark.parametrize("noise_rms", [0, 10, 100])
def test_deferred_audio_has_the_same_edges(of_kind: OfKind, noise_rms: int) -> None:
    """Calm audio and loud syllables wait for what follows them, and each edge comes at the same frame."""
    rng, n_deferred = np.random.default_rng(1), 0
    for clip in of_kind("clean"):
        speech = np.pad(clip.samples(RATE_HZ), RATE_HZ)
        samples = (speech + rng.normal(0, noise_rms, len(speech))).clip(-32_768, 32_767).astype(np.int16)
        at_once, later = light(), light()
        for begin in range(0, len(samples), LIVE_MS * PER_MS):
            frame, now_ms = samples[begin : begin + LIVE_MS * PER_MS], begin // PER_MS + LIVE_MS
            assert later.push(frame, now_ms, may_defer=True) == at_once.push(frame, now_ms)
            n_deferred += later.has_deferred
    assert n_deferred * LIVE_MS > 800


def test_muting_in_mid_word_ends_like_silence(clips: dict[str, Clip]) -> None:
    """No frame comes any more: after 200 ms of jitter a pause is found."""
    segmenter = light()
    edges_of(segmenter, clips["clean/jfk"].samples(RATE_HZ)[: 5 * RATE_HZ // 2])
    assert segmenter.state is VadState.SPEAKING
    assert kinds(list(segmenter.tick(segmenter.late_from_ms))) == [SpeechStop]


def test_a_long_silence_before_the_speech_changes_nothing(clips: dict[str, Clip]) -> None:
    """The frames of an earlier opening of the gate do not count for this one."""
    speech = clips["clean/ls_2414-128291-0003"].samples(RATE_HZ)
    segmenter = light()
    assert edges_of(segmenter, silence(60 * RATE_HZ)) == []
    late = first_edge([edge for _, edge in segmented(segmenter, speech, begins_ms=60_000)], SpeechStart).onset.stream_ms
    early = first_edge(edges_of(light(), speech), SpeechStart).onset.stream_ms
    assert late - 60_000 == pytest.approx(early, abs=20)
