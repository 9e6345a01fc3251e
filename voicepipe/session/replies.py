"""The replies of one session: the task of each, and its output, held until the gate opens and then sent as it comes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import numpy as np
from msgspec import Struct

from voicepipe.audio.echo_detector import EchoDetector
from voicepipe.audio.samples import Samples
from voicepipe.clock import SessionClock
from voicepipe.ports.model import Model, ModelRequest
from voicepipe.ports.synthesizer import RATE_HZ
from voicepipe.protocol.outbound import EventRenderer, Frames
from voicepipe.session.item_audio import ItemAudio
from voicepipe.session.knowledge import Knowledge
from voicepipe.session.messages import is_speech
from voicepipe.session.outbox import Outbox, OutgoingFrame
from voicepipe.session.phrases import CannedModel
from voicepipe.session.prompt import PromptBuilder
from voicepipe.session.reply import RunningReply
from voicepipe.session.session_voice import SessionVoice
from voicepipe.session.speech_model import SpeechSession
from voicepipe.session.speech_reply import SpeechReply
from voicepipe.tasks import AsyncEvent
from voicepipe.telemetry.journal.port import Journal
from voicepipe.telemetry.recording.port import CallRecorder
from voicepipe.turn import commands as c
from voicepipe.turn import events as e

FIRST_PIECE_MS = 40
"""The first audio is sent in a small frame: the client can play while the next frame travels."""

PIECE_MS = 200
"""Later audio is sent in larger frames: fewer frames to pack and unpack."""

MAX_PENDING_MS = 2_000
"""A closed gate holds at most this much audio; then the synthesizer waits."""

MAX_RETAINED_MS = 4_000
"""A reply that may be taken back has sent at most about this much audio; then the synthesizer waits. The client has
more than it can play until the reply is irrevocable, so it never runs out."""

Key = tuple[int, int]
"""(turn, revision)"""


class SentAudio:
    """Records the agent's audio as it is sent to the client: in the journal, in the recording of the call, and for the
    echo that may come back.
    """

    def __init__(
        self,
        echo: EchoDetector,
        clock: SessionClock,
        journal: Journal | None,
        recorder: CallRecorder | None,
        items: ItemAudio | None,
    ) -> None:
        self._echo, self._clock, self._journal, self._recorder, self._items = echo, clock, journal, recorder, items

    def of_item(self, item_id: str) -> Callable[[Samples, int], None]:
        """Return a function that records audio of an item that is sent."""
        if self._items is None:
            return self.sent
        held = self._items.of_agent(item_id)

        def sent(samples: Samples, rate_hz: int) -> None:
            held(samples, rate_hz)
            self.sent(samples, rate_hz)

        return sent

    def sent(self, samples: Samples, rate_hz: int) -> None:
        """Record audio that is sent."""
        if self._journal is not None:
            self._journal.agent_audio(samples, rate_hz)
        now_ms = self._clock.now_ms()
        if self._recorder is not None:
            self._recorder.agent_audio(samples, rate_hz, now_ms)
        self._echo.plays(samples, rate_hz, now_ms)

    def stopped(self) -> None:
        """Record that the client stopped playing what it was sent."""
        now_ms = self._clock.now_ms()
        if self._recorder is not None:
            self._recorder.agent_stops(now_ms)
        self._echo.stops(now_ms)


class _Text(Struct, frozen=True):
    """Text of the reply that waits for the gate."""

    delta: str


class _Call(Struct, frozen=True):
    """Arguments of a function call that wait for the gate, or until calls may leave."""

    item_id: str
    arguments: str


class _Sound(Struct, frozen=True):
    """Audio of the reply that waits for the gate, and the words that begin in it."""

    samples: Samples
    words: tuple[tuple[str, int], ...]


class GatedOutput:
    """One reply's output, which waits until the gate opens. Implements `reply.ReplyOutput`."""

    def __init__(
        self,
        turn: int,
        revision: int,
        wire: EventRenderer,
        outbox: Outbox,
        on_sound: Callable[[Samples, int], None],
        *,
        fills: bool = False,
    ) -> None:
        """`on_sound` gets the audio that is sent, and its rate in Hz. `fills`: this is the reply's filler."""
        self.turn, self.revision, self._fills = turn, revision, fills
        self._wire, self._outbox, self._on_sound = wire, outbox, on_sound
        self._response_id = ""
        # Bounded: text by the LLM's limit, audio through `wait_for_space`.
        self._pending: list[_Text | _Call | _Sound] = []
        self._pending_ms = 0
        self._opened = AsyncEvent()
        self._reversible = self._suspended = self._holds_calls = False
        self._irrevocable = AsyncEvent()
        self._irrevocable.set()
        self._pending_calls: list[_Call] = []  # bounded as `_pending`
        self._retained: list[Samples] = []  # bounded through `wait_for_space`
        """All audio of a reversible reply, sent or pending."""

        self._words: list[tuple[str, int]] = []  # bounded by the LLM's limit
        self._from_ms = 0
        """Where the response's audio begins in the reply's."""

        self._first = True
        self._buffered_ms = 0
        """Audio that the wire's codec buffers until it gets more."""

    def open(self, response_id: str, *, reversible: bool = False, holds_calls: bool = False) -> None:
        """Open the gate: send the pending output, in order."""
        self._response_id = response_id
        self._reversible, self._holds_calls = reversible, holds_calls
        if reversible:
            self._irrevocable.clear()
        self._opened.set()
        pending, self._pending = self._pending, []
        for output in pending:
            match output:
                case _Text(delta):
                    self._post(self._wire.text_delta(response_id, delta))
                case _Call():
                    self._send_call(output)
                case _Sound(samples, words):
                    self._send_sound(samples, words)

    def release_calls(self) -> None:
        """Send the function calls, pending ones first."""
        self._holds_calls = False
        pending, self._pending_calls = self._pending_calls, []
        for call in pending:
            self._send_call(call)

    @property
    def is_final(self) -> bool:
        """Return whether the reply can't be taken back, and holds no function calls."""
        return not self._reversible and not self._holds_calls

    def suspend(self) -> None:
        """Send nothing more for now."""
        self._suspended = True

    def resume(self, command: c.ContinueReply) -> None:
        """Send the rest, from a word on, in another response."""
        self._suspended, self._first, self._buffered_ms = False, True, 0
        self.revision, self._response_id = command.next_revision, command.response_id
        self._holds_calls = command.holds_calls
        audio = np.concatenate([np.empty(0, np.int16), *self._retained])
        audio, self._retained = audio[command.from_ms * RATE_HZ // 1_000 :], []
        if not command.reversible:
            self.finalize()
        if command.text:
            self._post(self._wire.text_delta(self._response_id, command.text))
        self._from_ms += command.from_ms
        self._post_words([word for word in self._words if word[1] >= self._from_ms])
        self._retain(audio)
        self._post_sound(audio)

    def finalize(self) -> None:
        """Retain no more audio: the reply can't be taken back."""
        self._reversible = False
        self._retained = []
        self._irrevocable.set()

    def text(self, delta: str) -> None:
        if not self._opened.is_set():
            self._pending.append(_Text(delta))
        elif not self._suspended:  # otherwise `resume` gets it
            self._post(self._wire.text_delta(self._response_id, delta))

    def call(self, item_id: str, arguments: str) -> None:
        call = _Call(item_id, arguments)
        if self._opened.is_set():
            self._send_call(call)
        else:
            self._pending.append(call)

    def _send_call(self, call: _Call) -> None:
        if self._holds_calls:
            self._pending_calls.append(call)
        else:
            self._post(self._wire.call_delta(self._response_id, call.item_id, call.arguments))

    def sound(self, samples: Samples, words: tuple[tuple[str, int], ...] = ()) -> None:
        if self._opened.is_set():
            self._send_sound(samples, words)
        else:
            self._pending_ms += len(samples) * 1_000 // RATE_HZ
            self._pending.append(_Sound(samples, words))

    def _send_sound(self, samples: Samples, words: Sequence[tuple[str, int]]) -> None:
        self._retain(samples)
        self._words += words
        if not self._suspended:
            self._post_words(words)
            self._post_sound(samples)

    def _post_words(self, words: Sequence[tuple[str, int]]) -> None:
        if words:
            timed = [(word, ms - self._from_ms) for word, ms in words]
            for frame in self._wire.words(self._response_id, timed):
                self._outbox.put(OutgoingFrame(frame, self.turn, self.revision))

    def _retain(self, samples: Samples) -> None:
        if self._reversible:
            self._retained.append(samples)

    async def wait_for_space(self) -> None:
        if self._pending_ms >= MAX_PENDING_MS:
            await self._opened.wait()
        if sum(map(len, self._retained)) >= MAX_RETAINED_MS * RATE_HZ // 1_000:
            await self._irrevocable.wait()
        await self._outbox.wait_for_space()

    def end(self, frames: list[bytes]) -> None:
        """Queue the events that end the response, after its audio."""
        for i, frame in enumerate(frames):
            buffered_ms = self._buffered_ms if i == 0 else 0
            own_ms, filler_ms = (0, buffered_ms) if self._fills else (buffered_ms, 0)
            self._outbox.put(OutgoingFrame(frame, self.turn, self.revision, 0, own_ms, buffered_ms > 0, filler_ms))
        self._buffered_ms = 0

    def _post(self, frames: list[bytes]) -> None:
        for frame in frames:
            self._outbox.put(OutgoingFrame(frame, self.turn, self.revision, output=not self._fills))

    def _post_sound(self, samples: Samples) -> None:
        # Counted as `RunningReply` counts it: the sums of received and sent audio must be equal.
        left_ms = len(samples) * 1_000 // RATE_HZ
        self._on_sound(samples, RATE_HZ)
        while len(samples):
            piece_ms = FIRST_PIECE_MS if self._first else PIECE_MS
            self._first = False
            n = piece_ms * RATE_HZ // 1_000
            piece, samples = samples[:n], samples[n:]
            piece_ms = left_ms if not len(samples) else piece_ms
            left_ms -= piece_ms
            self._post_piece(piece, piece_ms)

    def _post_piece(self, piece: Samples, piece_ms: int) -> None:
        self._buffered_ms += piece_ms
        for frame in self._wire.audio(self._response_id, piece):
            own_ms, filler_ms = (0, self._buffered_ms) if self._fills else (self._buffered_ms, 0)
            self._outbox.put(OutgoingFrame(frame, self.turn, self.revision, self._buffered_ms, own_ms, True, filler_ms))
            self._buffered_ms = 0


class Replies:
    """Executes the commands about replies."""

    def __init__(
        self,
        model: Model,
        prompt_builder: PromptBuilder,
        voices: SessionVoice,
        sent_audio: SentAudio,
        *,
        wire: EventRenderer,
        outbox: Outbox,
        post: Callable[[e.Event], None],
        knowledge: Knowledge | None = None,
        prepare: Callable[[ModelRequest], Awaitable[ModelRequest]] | None = None,
        speech: SpeechSession | None = None,
    ) -> None:
        """`knowledge`: the documents that are searched before each request to the LLM. `prepare` returns the request
        with what a hook adds to it. `speech`: the conversation with a speech-to-speech model, which answers in place of
        LLM and TTS."""
        self._speech = speech
        self._knowledge, self._prepare = knowledge, prepare
        self._model, self._prompt_builder, self._voices, self._sent_audio = model, prompt_builder, voices, sent_audio
        self._wire, self._outbox, self._post = wire, outbox, post
        self._gated: dict[Key, GatedOutput] = {}
        """The replies whose gate is closed."""

        self._filled: set[Key] = set()
        self._running: dict[Key, tuple[RunningReply, asyncio.Task[None]]] = {}
        self._responses: dict[str, GatedOutput] = {}
        self._not_final: dict[Key, GatedOutput] = {}
        """The replies that may be taken back, or hold function calls. One that is complete may still be played."""

    def use(
        self,
        model: Model,
        knowledge: Knowledge | None,
        prepare: Callable[[ModelRequest], Awaitable[ModelRequest]] | None,
    ) -> None:
        """Make the replies that start from now on with these, as in `__init__`."""
        self._model, self._knowledge, self._prepare = model, knowledge, prepare

    def start(self, command: c.StartReply, group: asyncio.TaskGroup) -> None:
        """Send the request to the LLM, or speak a known text, in a task of `group`."""
        key = (command.turn, command.revision)
        output = GatedOutput(*key, self._wire, self._outbox, self._sent_audio.of_item(command.item_id))
        reply = self._reply_of(command)(
            command,
            self._prompt_builder.question(command),
            self._voices.voice(command.reply),
            model=CannedModel(command.words) if command.words else self._model,
            synthesizer=self._voices.synthesizer_of(command.words),
            output=output,
            queued_ms=self._prompt_builder.queued_ms,
            post=self._post,
            redact=None if command.words else partial(self._prompt_builder.redacted, command),
            knowledge=None if command.words else self._knowledge,
            prepare=None if command.words else self._prepare,
        )
        task = group.create_task(reply.run(), name=f"reply-{command.turn}.{command.revision}")
        task.add_done_callback(self._remove)
        self._gated[key], self._running[key] = output, (reply, task)

    def _reply_of(self, command: c.StartReply) -> Callable[..., RunningReply]:
        """Return what makes the reply: the speech-to-speech model answers the conversation aloud, while it can."""
        reply, speech = command.reply, self._speech
        answers = not command.words and reply.audible and reply.in_conversation and reply.context is None
        if speech is None or not speech.is_ready or not answers:
            return RunningReply
        return partial(SpeechReply, speech=speech, spoken=bool(command.items) and is_speech(command.items[-1]))

    def execute(self, command: c.ReplyCommand) -> None:
        """Execute a command to a reply that was started."""
        match command:
            case c.OpenGate():
                self.open(command)
            case c.ReleaseCalls():
                self.release_calls(command)
            case c.SuspendReply():
                self.suspend(command)
            case c.ContinueReply():
                self.resume(command)
            case c.FinalizeReply():
                self.finalize(command)
            case c.ShortenClause():
                self.shorten(command)
            case c.SayFiller():
                self.fill(command)
            case c.StopReply():
                self.stop(command)

    def open(self, command: c.OpenGate) -> None:
        """Release a reply's output."""
        output = self._gated.pop((command.turn, command.revision), None)
        if output is not None:
            self._responses[command.response_id] = output
            output.open(command.response_id, reversible=command.reversible, holds_calls=command.holds_calls)
            self._add_unless_final((command.turn, command.revision), output)

    def release_calls(self, command: c.ReleaseCalls) -> None:
        """Release a reply's function calls."""
        key = (command.turn, command.revision)
        if (output := self._not_final.pop(key, None)) is not None:
            output.release_calls()
            self._add_unless_final(key, output)

    def suspend(self, command: c.SuspendReply) -> None:
        """Stop sending a reply, and drop its queued output. The reply itself goes on."""
        self._sent_audio.stopped()
        if (output := self._not_final.get((command.turn, command.revision))) is not None:
            output.suspend()
        self._outbox.drop_sound(command.turn)

    def resume(self, command: c.ContinueReply) -> None:
        """Go on with a suspended reply, as its next revision."""
        key, next_key = (command.turn, command.revision), (command.turn, command.next_revision)
        if (running := self._running.pop(key, None)) is not None:
            running[0].continue_as(command.next_revision)
            self._running[next_key] = running
        if (output := self._not_final.pop(key, None)) is not None:
            self._responses[command.response_id] = output
            output.resume(command)
            self._add_unless_final(next_key, output)

    def finalize(self, command: c.FinalizeReply) -> None:
        """Retain no more audio of a reply."""
        key = (command.turn, command.revision)
        if (output := self._not_final.pop(key, None)) is not None:
            output.finalize()
            self._add_unless_final(key, output)

    def _add_unless_final(self, key: Key, output: GatedOutput) -> None:
        if not output.is_final:
            self._not_final[key] = output

    def shorten(self, command: c.ShortenClause) -> None:
        """Make the synthesizer begin with the text that is available."""
        if (running := self._running.get((command.turn, command.revision))) is not None:
            running[0].shorten()

    def fill(self, command: c.SayFiller) -> None:
        """Speak a phrase before the reply, or while its tools run, if its audio is available in the present voice."""
        samples = self._voices.sound(command.words)
        if samples is None:
            return  # the voice has changed since
        key = (command.turn, command.revision)
        if key in self._running:  # otherwise the reply is over: no task would remove the key
            self._filled.add(key)
        output = GatedOutput(*key, self._wire, self._outbox, self._sent_audio.sent, fills=True)
        self._responses[command.response_id] = output  # until the reply's own output opens, if it is in the same one
        output.open(command.response_id)
        output.text(command.words)
        output.sound(samples)

    def stop(self, command: c.StopReply) -> None:
        """Cancel a reply, and drop its queued output."""
        key = (command.turn, command.revision)
        if self._gated.pop(key, None) is None or key in self._filled:
            self._sent_audio.stopped()  # its gate was open
        if (running := self._running.pop(key, None)) is not None:
            running[1].cancel()
        self._filled.discard(key)
        self._not_final.pop(key, None)
        self._outbox.drop_sound(command.turn)

    def end(self, response_id: str, last_frames: Frames) -> bool:
        """Send the events that end a response after its output; False when none of the output was released."""
        output = self._responses.pop(response_id, None)
        if output is not None:
            output.end(last_frames)
        return output is not None

    def _remove(self, task: asyncio.Task[None]) -> None:
        for key in [key for key, running in self._running.items() if running[1] is task]:
            del self._running[key]
            self._filled.discard(key)
