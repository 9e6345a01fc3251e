"""A TTS that reports when its words begin: its times reach the core, less the silence that is not sent."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext

import numpy as np

from voicepipe.ports.synthesizer import RATE_HZ, Spoken, Voice, WordTime
from voicepipe.ports.transcriber import Samples
from voicepipe.session.messages import request_of
from voicepipe.session.reply import RunningReply
from voicepipe.testing.fakes.cues import LlmCue
from voicepipe.testing.fakes.ports import FakeModel
from voicepipe.turn import events as e
from voicepipe.turn.commands import StartReply
from voicepipe.turn.settings import ReplySettings

MS = RATE_HZ // 1_000


def sound(ms: int, *, level: int = 8_000) -> Samples:
    return np.full(ms * MS, level, dtype=np.int16)


SPOKEN = (
    Spoken(0, sound(50, level=0)),
    Spoken(0, np.concatenate((sound(70, level=0), sound(400))), (WordTime("One", 120), WordTime("two.", 300))),
    Spoken(1, sound(300), (WordTime("Three.", 40),)),
)


class Speech:
    """Speak the same audio, whatever the text."""

    def push(self, clause: str) -> None: ...
    def finish(self) -> None: ...

    async def __aiter__(self) -> AsyncIterator[Spoken]:
        for spoken in SPOKEN:
            yield spoken


class TimedSynthesizer:
    """A synthesizer with word times."""

    name = "fake/voice"
    voices: frozenset[str] | None = None

    def keep_warm(self, voice: Voice) -> AbstractContextManager[None]:
        return nullcontext()

    @asynccontextmanager
    async def open(self, voice: Voice) -> AsyncIterator[Speech]:
        yield Speech()


class RecordingOutput:
    """Takes everything."""

    def text(self, delta: str) -> None: ...
    def call(self, item_id: str, arguments: str) -> None: ...
    def sound(self, samples: Samples, words: tuple[tuple[str, int], ...]) -> None: ...
    async def wait_for_space(self) -> None: ...


async def test_word_times_count_the_sound_that_is_sent() -> None:
    """120 ms of silence came before the first word, and 20 ms of it are sent."""
    command = StartReply(1, 0, "item", ReplySettings(), ())
    events: list[e.Event] = []
    model = FakeModel(LlmCue(tokens=("One two. ", "Three.")))
    await RunningReply(
        command,
        request_of(command, model="mind", session="s"),
        Voice(model="mouth"),
        model=model,
        synthesizer=TimedSynthesizer(),
        output=RecordingOutput(),
        queued_ms=lambda turn, revision: 0,
        post=events.append,
    ).run()
    sounds = [event for event in events if isinstance(event, e.SoundArrived)]
    assert [(event.clause, event.duration_ms, event.word_starts_ms) for event in sounds] == [
        (0, 420, (20, 200)),
        (1, 300, (40,)),
    ]
