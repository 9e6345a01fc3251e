"""Count the files and calls that an event passes in a session: how far a reader must go to follow it.

    .venv/bin/python -m tests.measure.walks

A real session with its core runs on scripted providers and a scripted client; time is moved by hand. A walk begins
where its cause enters the session (a frame is received, a provider yields) and ends where the session waits for the
next one. It counts the modules of voicepipe whose functions are called, the calls, and the moves from file to file.
"""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import math
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Final, Generic, TypeVar
from unittest import mock

import numpy as np

import voicepipe
from voicepipe.audio.files import read_sound
from voicepipe.audio.samples import Samples
from voicepipe.clock import SessionClock, unix_s
from voicepipe.ports.model import ModelEvent, ModelRequest, TextDelta
from voicepipe.ports.synthesizer import Spoken, Voice
from voicepipe.ports.transcriber import Final as FinalText
from voicepipe.ports.transcriber import Interim, TranscriberCapabilities, TranscriptEvent, TranscriptionOptions
from voicepipe.protocol.session_config import SessionConfig
from voicepipe.protocol.session_types import ServerVad
from voicepipe.session.grant import SessionGrant
from voicepipe.session.ports import SessionPorts, SessionRecords
from voicepipe.session.read_limit import ALL_CLIENTS
from voicepipe.session.session import Session, SessionStages
from voicepipe.turn.endpointing.strategies import SOFT
from voicepipe.turn.record.values import TurnRecord
from voicepipe.turn.settings import CoreSettings

RATE_HZ: Final = 24_000
FRAME: Final = RATE_HZ // 50
SPEECH: Final = Path(__file__).parents[1] / "data" / "clean" / "vctk_p287_001.flac"
PACKAGE: Final = f"{Path(voicepipe.__file__).parent}/"
TESTING: Final = f"{PACKAGE}testing/"
_Event = TypeVar("_Event")
WALKS: Final = ("frame in silence", "frame in a pause", "text delta", "interruption")
BEFORE: Final = dict(zip(WALKS, (16, 32, 27, 47), strict=True))
"""Files passed when every event ran all of the core's passes."""

MAX_FILES: Final = dict(zip(WALKS, (11, 14, 12, 21), strict=True))
"""Files passed now; a test holds each walk to them."""


@dataclass
class Walk:
    """What one event has passed."""

    calls: list[str] = field(default_factory=list)
    """The file of each called function, in order."""

    @property
    def files(self) -> Counter[str]:
        """Return the files, with the number of calls in each."""
        return Counter(self.calls)

    @property
    def n_moves(self) -> int:
        """Return how often a call left its caller's file."""
        return sum(one != other for one, other in zip(self.calls, self.calls[1:], strict=False))

    def begin(self) -> None:
        """Record calls from here on."""
        sys.setprofile(self._call)

    def end(self) -> None:
        """Stop recording."""
        sys.setprofile(None)

    def _call(self, frame: FrameType, event: str, _: object) -> None:
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(PACKAGE) and not path.startswith(TESTING):
            self.calls.append(path.removeprefix(PACKAGE))


class Clock:
    """The session's time, moved by hand."""

    now_ms = 0


class Client:
    """A client's socket: `send` of the test is `receive` of the session."""

    hung_up = True
    gone = False
    has_message = False

    def __init__(self) -> None:
        self._messages: asyncio.Queue[str | None] = asyncio.Queue()  # never full: the script ends
        self._taken = asyncio.Event()
        self._walk: Walk | None = None
        self.types: list[str] = []

    async def receive(self) -> str | None:
        """Return the next message; the walk of the message before it ends here."""
        if self._walk is not None:
            self._walk.end()
            self._walk = None
        self._taken.set()
        message = await self._messages.get()
        self._taken.clear()
        if message is not None:
            self._walk = Walk()
            self.walk = self._walk
            self._walk.begin()
        return message

    async def send(self, frame: bytes) -> None:
        """Store the type of an event that the session has sent."""
        self.types.append(json.loads(frame)["type"])

    async def close(self, code: int, reason: str) -> None:
        """Do nothing."""

    def abort(self) -> None:
        """Do nothing."""

    async def say(self, event: dict[str, Any] | None) -> Walk:
        """Let the session process this event (None: the end), and all that follows from it; return its walk."""
        await self._taken.wait()
        self._taken.clear()
        self._messages.put_nowait(None if event is None else json.dumps(event))
        if event is not None:
            await self._taken.wait()
            await let_others_run()
        return self.walk

    async def frame(self, samples: Samples, clock: Clock) -> Walk:
        """Send 20 ms of audio."""
        clock.now_ms += 20
        audio = base64.b64encode(samples.tobytes()).decode()
        return await self.say({"type": "input_audio_buffer.append", "audio": audio})


async def let_others_run() -> None:
    """Let all other tasks run until each waits."""
    for _ in range(30):
        await asyncio.sleep(0)


class Scripted(Generic[_Event]):
    """A provider's events, given by the script; each is yielded at the beginning of its walk."""

    def __init__(self) -> None:
        self._events: asyncio.Queue[_Event | None] = asyncio.Queue()  # never full: the script ends
        self.walk = Walk()

    async def give(self, event: _Event) -> Walk:
        """Yield this event; return its walk."""
        self._events.put_nowait(event)
        await let_others_run()
        return self.walk

    def end(self) -> None:
        """End the events."""
        self._events.put_nowait(None)

    async def __aiter__(self) -> AsyncIterator[_Event]:
        while (event := await self._events.get()) is not None:
            self.walk = Walk()
            self.walk.begin()
            try:
                yield event
            finally:
                self.walk.end()


class Transcriber:
    """An STT provider."""

    name = "scripted/stt"
    capabilities = TranscriberCapabilities(rate_hz=16_000, streams=True, partials=True)

    def __init__(self) -> None:
        self.texts = Scripted[TranscriptEvent]()
        self.utterance = self.n_flushes = 0

    @asynccontextmanager
    async def open(self, transcription: TranscriptionOptions) -> AsyncIterator[Transcriber]:
        """Begin a session's transcription."""
        yield self

    def begin(self, utterance: int) -> None:
        """Note the utterance."""
        self.utterance = utterance

    def push(self, samples: Samples) -> None:
        """Drop the audio."""

    def flush(self, flush: int) -> None:
        """Note the flush."""
        self.n_flushes = flush

    def __aiter__(self) -> AsyncIterator[TranscriptEvent]:
        return aiter(self.texts)


class Model:
    """An LLM."""

    name = "scripted/llm"

    def __init__(self) -> None:
        self.events = Scripted[ModelEvent]()

    @asynccontextmanager
    async def open(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[ModelEvent]]:
        """Begin an answer."""
        yield aiter(self.events)

    async def warm(self, request: ModelRequest) -> None:
        """Do nothing."""


class Synthesizer:
    """A TTS provider. It reports the text that it was given."""

    name = "scripted/tts"
    voices: frozenset[str] | None = None

    def __init__(self) -> None:
        self.audio = Scripted[Spoken]()

    def keep_warm(self, voice: Voice) -> AbstractContextManager[None]:
        """Do nothing."""
        return nullcontext()

    @asynccontextmanager
    async def open(self, voice: Voice) -> AsyncIterator[Synthesizer]:
        """Begin a turn's speech."""
        yield self

    def push(self, clause: str) -> None:
        """Do nothing: the script gives the audio."""

    def finish(self) -> None:
        """End the audio."""
        self.audio.end()

    def __aiter__(self) -> AsyncIterator[Spoken]:
        return aiter(self.audio)


class Discarded(SessionRecords):
    """Stores no record. What a server does with it is no part of a walk."""

    def store(self, record: TurnRecord) -> None:
        """Do nothing."""


def session_of(transcriber: Transcriber, model: Model, synthesizer: Synthesizer) -> Session:
    """Return a session as the server's settings make it by default: replies are speculative and begin softly."""
    grant = SessionGrant(
        session_id="sess_walks",
        project="p",
        agent="default",
        model="default",
        identity=None,
        config=None,
        expires_at=unix_s() + 600,
    )
    config = SessionConfig.start(
        session_id="sess_walks",
        model="default",
        voice="v",
        instructions="Be brief.",
        expires_at=grant.expires_at,
        turn_detection=ServerVad(end_of_turn=SOFT, silence_set_by="agent_silence"),
    )
    ports = SessionPorts(records=Discarded())
    stages = SessionStages(
        transcriber=transcriber,
        model=model,
        synthesizer=synthesizer,
        stt_model="",
        llm_model="",
        tts_model="",
    )
    return Session(grant=grant, config=config, stages=stages, settings=CoreSettings(speculate=True), ports=ports)


@contextmanager
def moved_by_hand(clock: Clock) -> Iterator[None]:
    """Let each session's clock show the script's time, and let no reading be interrupted for another client."""
    with (
        mock.patch.object(SessionClock, "now_ms", side_effect=lambda: clock.now_ms),
        mock.patch.object(ALL_CLIENTS, "time_slice_us", math.inf),
    ):
        gc.disable()  # what it calls belongs to no walk
        try:
            yield
        finally:
            gc.enable()


async def measured() -> dict[str, Walk]:
    """Hold a short conversation, and return its walks by name."""
    clock, client = Clock(), Client()
    transcriber, model, synthesizer = Transcriber(), Model(), Synthesizer()
    session = session_of(transcriber, model, synthesizer)
    with moved_by_hand(clock):
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            group.create_task(session.run(client), name="session")
            try:
                return await _conversation(clock, client, transcriber, model, synthesizer)
            finally:
                await client.say(None)


async def _conversation(
    clock: Clock, client: Client, transcriber: Transcriber, model: Model, synthesizer: Synthesizer
) -> dict[str, Walk]:
    silence, speech = np.zeros(FRAME, np.int16), read_sound(SPEECH, RATE_HZ)
    question = [speech[i : i + FRAME] for i in range(0, len(speech) - FRAME, FRAME)]
    for _ in range(30):
        quiet = await client.frame(silence, clock)
    frames, entered = iter([*question, *[silence] * 50]), []
    while "input_audio_buffer.speech_stopped" not in client.types:
        walk = await client.frame(next(frames), clock)
        entered += [walk] if "turn/core.py" in walk.files else []
    pause = entered[-2]  # the frame before the one that ended the turn: it has reported more silence
    await transcriber.texts.give(FinalText(transcriber.utterance, transcriber.n_flushes, "Is anybody there?"))
    for text in ("It ", "is ", "noon. ", "And ", "so "):
        await model.events.give(TextDelta(text))
    loud = (np.sin(np.arange(RATE_HZ) / 10) * 10_000).astype(np.int16)
    await synthesizer.audio.give(Spoken(0, np.tile(loud, 20)))
    assert "response.output_audio.delta" in client.types
    delta = await model.events.give(TextDelta("on "))
    for _ in range(60):  # from then on speech is judged before it stops the answer
        await client.frame(silence, clock)
    for piece in question[:60]:
        await client.frame(piece, clock)
    assert "response.done" not in client.types
    taken = await transcriber.texts.give(Interim(transcriber.utterance, "Wait, please"))
    assert "response.done" in client.types
    return dict(zip(WALKS, (quiet, pause, delta, taken), strict=True))


def table(walks: dict[str, Walk]) -> str:
    """Return the walks as a table for a terminal."""
    lines = [f"{'walk':18}{'files':>6}{'before':>8}{'in turn/':>10}{'calls':>7}{'moves':>7}"]
    for name, walk in walks.items():
        n_turn = sum(path.startswith("turn/") for path in walk.files)
        row = f"{name:18}{len(walk.files):6}{BEFORE[name]:8}{n_turn:10}{len(walk.calls):7}{walk.n_moves:7}"
        lines.append(row)
    return "\n".join(lines)


def main() -> None:
    """Print the table, and the files of each walk in the order in which they are reached."""
    walks = asyncio.run(measured())
    passed = (f"{name}: {', '.join(f'{path} {n}' for path, n in walk.files.items())}" for name, walk in walks.items())
    sys.stdout.write("\n\n".join([table(walks), *passed]) + "\n")


if __name__ == "__main__":
    main()
