"""Scenes of speech over the agent's: the audio of the user's microphone, from the agent's first audio on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from voicepipe.audio.samples import Samples
from voicepipe.bench.endpointing.speech_set import CLEAN, RATE_HZ, Clip, SpeechSet

Kind = Literal["backchannel", "backchannel over echo", "echo alone", "interruption"]
KINDS: Final[tuple[Kind, ...]] = ("backchannel", "backchannel over echo", "echo alone", "interruption")

OFFSETS: Final = 10
_FIRST_OFFSET_MS: Final = 700
_OFFSET_STEP_MS: Final = 630
"""A backchannel is placed at ten positions of the reply, some in its words and some in its pauses."""

_INTERRUPTION_MS: Final = 1_500
_BEFORE_MS: Final = 100
"""Audio of the recording before its first voiced sample."""

_ECHO_DB: Final = -20.0
_ECHO_DELAY_MS: Final = 80
_ECHO_DELAY_STEP_MS: Final = 60
"""Delays of the loudspeaker's echo at the microphone: in the echo scenes from 80 to 620 ms."""

_ROOM_RMS: Final = 8.0
"""The noise of a quiet room, -72 dBFS."""

_REPLY_MS: Final = 14_000
_REPLY_KINDS: Final = ("read_pauses", "conversation", "clean")
"""The reply differs from the users' words in the scenes, if the set has other recordings."""

_MS: Final = RATE_HZ // 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """One call: speech over the reply."""

    kind: Kind
    clip: str
    onset_ms: int
    """Start of the user's speech, since the reply's first audio."""

    sound: Samples
    """The microphone's audio from the start of the reply's playback: int16, (n_samples,), 24 kHz."""


def reply_of(speech: SpeechSet) -> Samples:
    """Return the agent's reply in all scenes: 14 s of concatenated recordings, int16, (n_samples,), 24 kHz."""
    kind = next(kind for kind in _REPLY_KINDS if speech.of_kind(kind))
    spoken = [_voiced(speech, clip) for clip in speech.of_kind(kind)]
    return np.resize(np.concatenate(spoken), _REPLY_MS * _MS)


def scenes(speech: SpeechSet, reply: Samples, kind: Kind) -> Iterator[Scene]:
    """Yield all scenes of a kind; always the same ones."""
    match kind:
        case "interruption":
            for index, clip in enumerate(speech.of_kind("clean")):
                yield _scene(kind, clip.id, _onset_ms(index), _first(speech, clip, _INTERRUPTION_MS))
        case "echo alone":
            for index in range(OFFSETS):
                echo = _echo(reply, index)
                yield Scene(kind=kind, clip="", onset_ms=0, sound=_in_room(echo, 0))
        case _:
            for clip in speech.of_kind("backchannel"):
                for index in range(OFFSETS):
                    scene = _scene(kind, clip.id, _onset_ms(index), _first(speech, clip, clip.duration_ms))
                    yield scene if kind == "backchannel" else _with_echo(scene, reply, index)


def _onset_ms(index: int) -> int:
    return _FIRST_OFFSET_MS + index % OFFSETS * _OFFSET_STEP_MS


def _scene(kind: Kind, clip: str, onset_ms: int, voice: Samples) -> Scene:
    return Scene(kind=kind, clip=clip, onset_ms=onset_ms, sound=_in_room(voice, onset_ms - _BEFORE_MS))


def _with_echo(scene: Scene, reply: Samples, index: int) -> Scene:
    echo = _echo(reply, index)
    both = np.zeros(max(len(echo), len(scene.sound)), dtype=np.int32)
    both[: len(echo)] += echo
    both[: len(scene.sound)] += scene.sound
    sound = np.clip(both, -32_768, 32_767).astype(np.int16)
    return Scene(kind=scene.kind, clip=scene.clip, onset_ms=scene.onset_ms, sound=sound)


def _echo(reply: Samples, index: int) -> Samples:
    delay = np.zeros((_ECHO_DELAY_MS + index * _ECHO_DELAY_STEP_MS) * _MS, dtype=np.int16)
    return np.concatenate((delay, (reply * 10 ** (_ECHO_DB / 20)).astype(np.int16)))


def _in_room(voice: Samples, from_ms: int) -> Samples:
    """Return speech after `from_ms` of silence, in the noise of a quiet room."""
    whole = np.concatenate((np.zeros(from_ms * _MS, dtype=np.int16), voice)).astype(np.int32)
    noise = room(len(whole))
    mixed: Samples = np.clip(whole + noise, -32_768, 32_767).astype(np.int16)
    return mixed


def room(n_samples: int) -> Samples:
    """Return the noise of a quiet room, int16, (n_samples,); always the same."""
    noise: Samples = np.random.default_rng(1).normal(0, _ROOM_RMS, n_samples).astype(np.int16)
    return noise


def _first(speech: SpeechSet, clip: Clip, length_ms: int) -> Samples:
    """Return a recording from just before its first voiced sample, at most `length_ms` after it."""
    start_ms = clip.start_ms or 0
    return speech.sound(clip, CLEAN)[max(0, start_ms - _BEFORE_MS) * _MS : (start_ms + length_ms) * _MS]


def _voiced(speech: SpeechSet, clip: Clip) -> Samples:
    return speech.sound(clip, CLEAN)[(clip.start_ms or 0) * _MS : (clip.end_ms or clip.duration_ms) * _MS]
