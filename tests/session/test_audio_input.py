"""The audio input of a session: what it measures and passes on, and when it looks for missing frames."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from voicepipe.ports.transcriber import Samples, TranscriberCapabilities
from voicepipe.protocol.session_config import SessionConfig
from voicepipe.protocol.session_types import ServerVad
from voicepipe.session.audio_input import AudioInput
from voicepipe.session.pace import Pace
from voicepipe.telemetry.journal.port import NO_JOURNAL
from voicepipe.turn import events as e
from voicepipe.turn.endpointing.strategies import ADAPTIVE, SILENCE

CONFIG = SessionConfig.start(session_id="sess_a", model="default", voice="v", instructions="", expires_at=0)
STREAMS = TranscriberCapabilities(rate_hz=16_000, streams=True)


class Hand:
    """A session's clock that is moved by hand."""

    ms = 0

    def now_ms(self) -> int:
        return self.ms


class Given:
    """What the transcriber got, in samples."""

    n_samples = 0

    def begin(self, utterance: int) -> None: ...

    def flush(self, flush: int) -> None: ...

    def push(self, samples: Samples) -> None:
        self.n_samples += len(samples)


async def say(
    audio_input: AudioInput, clock: Hand, question: Samples, *, until: type[e.Event], events: list[Any]
) -> int:
    """Send frames of 20 ms until an event comes; return how many."""
    pace = Pace()
    for first in range(0, len(question), 480):
        clock.ms += 20
        await audio_input.process(question[first : first + 480].astype("<i2").tobytes(), pace)
        if any(isinstance(event, until) for event in events):
            return first // 480 + 1
    raise AssertionError(f"no {until.__name__}")


@pytest.mark.parametrize(
    ("strategy", "journal", "measured"),
    [(SILENCE, None, False), (ADAPTIVE, None, True), (SILENCE, NO_JOURNAL, True)],
)
async def test_the_ending_is_measured_only_on_request(
    question: Samples, strategy: str, journal: Any, measured: bool
) -> None:
    """The strategy `silence` does not, but who replays a journal may. Nothing else about the pause differs."""
    config = replace(CONFIG, turn_detection=ServerVad(end_of_turn=strategy))
    clock, events = Hand(), list[Any]()
    audio_input = AudioInput(config, STREAMS, clock, events.append, journal)  # type: ignore[arg-type]
    await say(audio_input, clock, question, until=e.SpeechPaused, events=events)
    pause = next(event for event in events if isinstance(event, e.SpeechPaused))
    assert (pause.final_voiced_ms is not None) is measured
    assert pause.noticed_ms >= 80
    audio_input.close()


async def test_missing_frames_are_looked_for_when_the_next_one_is_late(question: Samples) -> None:
    """Not every 20 ms: the timer of an utterance is due when frames would be missing for longer than they may. Then all
    speech that waited is given to the transcriber, and the pause has begun."""
    clock, events, given = Hand(), list[Any](), Given()
    audio_input = AudioInput(CONFIG, STREAMS, clock, events.append)  # type: ignore[arg-type]
    audio_input.attach(given)  # type: ignore[arg-type]
    n_frames = await say(audio_input, clock, question, until=e.SpeechStarted, events=events)
    timer = audio_input._timer
    assert timer is not None
    assert audio_input._tick_due_ms - clock.ms > 200
    rest, n_waited = question[n_frames * 480 :], 0
    for first in range(0, 60 * 480, 480):
        clock.ms += 20
        await audio_input.process(rest[first : first + 480].astype("<i2").tobytes(), Pace())
        n_frames, n_waited = n_frames + 1, n_waited + audio_input._segmenter.has_deferred
        if n_waited and audio_input._segmenter.has_deferred:
            break
    assert audio_input._timer is timer
    events.clear()
    clock.ms += 201
    audio_input._tick()
    assert [type(event) for event in events[:2]] == [e.SpeechPaused, e.SilenceGrew]
    assert given.n_samples >= n_frames * 320 - 64  # the rest is in the resampler
    audio_input.close()
