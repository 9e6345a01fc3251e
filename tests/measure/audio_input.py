"""Measure the CPU that a session's audio input takes: `python -m tests.measure.audio_input --sound FILE`.

Many sessions get frames of 20 ms in turn, in virtual time: 2.5 s of speech, then 5.8 s of room noise. An empty stream
takes what the STT would get. The CPU time of the thread is counted, which a busy machine changes little.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from pathlib import Path
from typing import Any, Final, get_args

import numpy as np

from voicepipe.audio.classifier import Vad
from voicepipe.audio.files import read_sound
from voicepipe.audio.samples import Samples
from voicepipe.ports.transcriber import TranscriberCapabilities
from voicepipe.protocol.session_config import SessionConfig
from voicepipe.session.audio_input import AudioInput
from voicepipe.session.read_limit import ReadLimit
from voicepipe.turn import events as e

RATE_HZ: Final = 24_000
FRAME_MS: Final = 20
FRAME_SAMPLES: Final = RATE_HZ * FRAME_MS // 1_000
SPEECH_MS: Final = 2_500
PAUSE_MS: Final = 500
TURN_MS: Final = 8_300
SILENCE_MS: Final = 200


class VirtualClock:
    """A session's clock that is moved by hand."""

    ms = 0

    def now_ms(self) -> int:
        return self.ms


class EmptyStream:
    """Takes what a transcriber would get."""

    n_pushes = 0

    def begin(self, utterance: int) -> None:
        """Ignore it."""

    def push(self, samples: Samples) -> None:
        """Count it."""
        self.n_pushes += 1

    def flush(self, flush: int) -> None:
        """Ignore it."""


class OneSession:
    """An audio input whose turns end after `SILENCE_MS`."""

    def __init__(self, clock: VirtualClock, vad: Vad) -> None:
        self.stream, self.read_limit = EmptyStream(), ReadLimit()
        capabilities = TranscriberCapabilities(rate_hz=16_000, streams=True)
        config = SessionConfig(session_id="s", model="m", expires_at=0, vad=vad)
        self.audio_input = AudioInput(config, capabilities, clock, self._post)  # type: ignore[arg-type]
        self.audio_input.feed.attach(self.stream)  # type: ignore[arg-type]
        self._utterance = 0

    def _post(self, event: e.Event) -> None:
        if isinstance(event, e.SpeechStarted) and not self.audio_input.in_utterance:
            self._utterance += 1
            self.audio_input.begin(self._utterance)
        elif isinstance(event, e.SilenceGrew) and event.silence_ms >= SILENCE_MS and self.audio_input.in_utterance:
            self.audio_input.flush(1)
            self.audio_input.end(self._utterance)


def turn_frames(speech: Samples, noise_rms: float) -> list[bytes]:
    """Return a turn in frames: speech and silence, in a room of this noise."""
    turn = np.zeros(TURN_MS * RATE_HZ // 1_000)
    n_speech = min(len(speech), SPEECH_MS * RATE_HZ // 1_000)
    turn[:n_speech] = speech[:n_speech]
    turn += np.random.default_rng(0).normal(0, noise_rms, len(turn))
    pcm = turn.clip(-32_768, 32_767).astype("<i2").reshape(-1, FRAME_SAMPLES)
    return [frame.tobytes() for frame in pcm]


async def measure(frames: list[bytes], n_sessions: int, vad: Vad = "silero") -> dict[str, float]:
    """Return the CPU time of a frame in us, by part of the turn; the first turn of all is not counted."""
    clock = VirtualClock()
    sessions = [OneSession(clock, vad) for _ in range(n_sessions)]
    spent_s, n_frames = dict.fromkeys(("speech", "pause", "room"), 0.0), dict.fromkeys(("speech", "pause", "room"), 0)
    for counted in (False, True):
        for number, frame in enumerate(frames):
            clock.ms += FRAME_MS
            began_s = time.thread_time()
            for each in sessions:
                await each.audio_input.process(frame, each.read_limit)
            part = _part(number * FRAME_MS)
            spent_s[part] += (time.thread_time() - began_s) * counted
            n_frames[part] += n_sessions * counted
    for each in sessions:
        each.audio_input.close()
    figures = {part: 1e6 * spent_s[part] / n_frames[part] for part in spent_s}
    whole_us = 1e6 * sum(spent_s.values()) / sum(n_frames.values())
    pushes = sum(each.stream.n_pushes for each in sessions) / n_sessions / 2
    return figures | {"whole turn": whole_us, "of a core, %": whole_us / FRAME_MS / 10, "messages to the STT": pushes}


def _part(at_ms: int) -> str:
    return "speech" if at_ms < SPEECH_MS else "pause" if at_ms < SPEECH_MS + PAUSE_MS else "room"


def main(arguments: list[str] | None = None) -> int:
    """Print the figures of each room."""
    parser = argparse.ArgumentParser(prog="python -m tests.measure.audio_input", description=__doc__)
    parser.add_argument("--sound", type=Path, required=True, help="what users say: 2.5 s of one voice")
    parser.add_argument("--sessions", type=int, default=40, help="in turn (40)")
    parser.add_argument("--noise", type=float, nargs="+", default=[0, 10, 100], help="level of each room (0 10 100)")
    parser.add_argument("--vad", choices=get_args(Vad), default="silero", help="the setting `agents.NAME.vad` (silero)")
    options = parser.parse_args(arguments)
    speech = read_sound(options.sound, RATE_HZ)
    for noise_rms in options.noise:
        figures: dict[str, Any] = asyncio.run(measure(turn_frames(speech, noise_rms), options.sessions, options.vad))
        cells = ", ".join(f"{name} {value:.3g}" for name, value in figures.items())
        sys.stdout.write(f"noise {noise_rms:g}: us a frame: {cells}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
