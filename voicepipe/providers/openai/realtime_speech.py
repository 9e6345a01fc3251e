"""Speech to speech over OpenAI's Realtime WebSocket; other vendors speak the same protocol at another address.

The vendor's turn detection is off. The user's audio is appended as it comes; the session decides when it is committed
and answered. Sources: as in `realtime_speech_wire`; OpenAI's guide "Realtime conversations" for interruptions: what was
not played is cut with `conversation.item.truncate`. Unverified: that a new answer may be requested as soon as the
cancelled one is reported as done.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, Literal
from urllib.parse import urlencode

from msgspec import Struct

from voicepipe.audio.encoding import AudioEncoding
from voicepipe.audio.samples import PcmJoiner
from voicepipe.errors import StageError
from voicepipe.ports.model import CallDelta, Called, Content, Finished, ModelRequest, Text, TextDelta
from voicepipe.ports.speech_model import SpeechConversation, SpeechModel, SpeechModelEvent, SpeechOptions, WordsComplete
from voicepipe.ports.speech_price import SpeechUsage
from voicepipe.ports.synthesizer import RATE_HZ, Spoken
from voicepipe.ports.transcriber import Samples
from voicepipe.providers.net import failures
from voicepipe.providers.net.address import ProviderAddress
from voicepipe.providers.net.ws import SocketRules, VendorSocket, dial
from voicepipe.providers.openai import realtime_speech_wire as wire
from voicepipe.providers.openai.realtime_stt_wire import CLEAR, COMMIT, append
from voicepipe.providers.speech_model.vendor_history import HistoryEntry, VendorHistory
from voicepipe.providers.tts.websocket_tts import pcm_of
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.tasks import background_tasks

VOICES: Final = frozenset({"alloy", "ash", "ballad", "coral", "echo", "sage", "shimmer", "verse", "marin", "cedar"})
"""Source: OpenAI API reference, `session.audio.output.voice`."""

LIFETIME_MS: Final = 50 * 60_000
"""A session ends after 60 minutes (guide "Realtime conversations"); it is replaced between two answers after 50."""

SPEEDS: Final = (0.25, 1.5)
MIN_COMMIT_BYTES: Final = 120 * RATE_HZ * 2 // 1_000
"""A commit of less than 100 ms is refused (`input_audio_buffer_commit_empty`)."""

MAX_EVENTS: Final = 1_000
"""Events of an answer that wait to be read; beyond it the WebSocket is not read, and the vendor has to wait."""

REASONS: Final[dict[str, Literal["length", "content_filter"]]] = {
    "max_output_tokens": "length",
    "content_filter": "content_filter",
}


class RealtimeDialect(Struct, frozen=True, kw_only=True):
    """The differences of one vendor's protocol."""

    path: Callable[[str], str]
    """Makes the path of the WebSocket from the model's name."""

    session: Callable[[SpeechOptions], dict[str, Any]]
    """Makes the `session` of the first `session.update`."""

    voices: frozenset[str] | None
    lifetime_ms: int | None


def session_of(options: SpeechOptions) -> dict[str, Any]:
    """Return OpenAI's session: audio both ways, no turn detection."""
    pcm = {"type": "audio/pcm", "rate": RATE_HZ}
    output: dict[str, Any] = {"format": pcm}
    if options.voice is not None:
        output["voice"] = options.voice
    if options.speed != 1.0:
        output["speed"] = min(max(options.speed, SPEEDS[0]), SPEEDS[1])
    audio = {"input": {"format": pcm, "turn_detection": None}, "output": output}
    return {"type": "realtime", "output_modalities": ["audio"], "audio": audio}


OPENAI: Final = RealtimeDialect(
    path=lambda model: f"/realtime?{urlencode({'model': model})}",
    session=session_of,
    voices=VOICES,
    lifetime_ms=LIFETIME_MS,
)


def open_speech_model(spec: Spec, settings: ProviderSettings) -> SpeechModel:
    """Return the speech-to-speech model `spec.model`, such as `gpt-realtime`, at the server of `settings`.

    Raises:
        ConfigError: a setting is missing or wrong.
    """
    address = ProviderAddress.of("llm", spec, settings, scheme="ws")
    return RealtimeSpeechModel(address, OPENAI)


class RealtimeSpeechModel:
    """A model behind this protocol. Implements `SpeechModel`."""

    rate_hz = RATE_HZ

    def __init__(self, address: ProviderAddress, dialect: RealtimeDialect) -> None:
        self.name, self.voices = address.name, dialect.voices
        self.lifetime_ms = dialect.lifetime_ms
        self._address, self._dialect = address, dialect

    def open(
        self, options: SpeechOptions, unused: Callable[[SpeechUsage], None]
    ) -> AbstractAsyncContextManager[SpeechConversation]:
        """Start a conversation; see the port."""
        return self._open(options, unused)

    @asynccontextmanager
    async def _open(
        self, options: SpeechOptions, unused: Callable[[SpeechUsage], None]
    ) -> AsyncIterator[SpeechConversation]:
        rules = SocketRules(
            encoding=AudioEncoding(RATE_HZ),
            wrap=append,
            greeting=wire.encoded("session.update", session=self._dialect.session(options)),
            message_bytes=8 << 20,
        )
        async with (
            dial(self._address, self._dialect.path(options.model), rules) as socket,
            background_tasks() as owned,
        ):
            conversation = _Conversation(self._address, socket, unused)
            owned.start(conversation.read(), name=f"speech-{self.name}")
            yield conversation


class _Answer:
    """An answer that was requested; its events as they come."""

    def __init__(self, address: ProviderAddress) -> None:
        self.id = ""
        self.entry = HistoryEntry(Content("assistant", ()))
        """The message that it becomes."""

        self.calls: list[HistoryEntry] = []
        self.is_left = False
        """The session needs no more of it."""

        self._address = address
        self._events: asyncio.Queue[wire.VendorEvent | StageError] = asyncio.Queue(MAX_EVENTS)
        self._text = ""
        self._joiner = PcmJoiner()
        self._last: Finished | None = None
        self._is_over = False

    async def put(self, event: wire.VendorEvent) -> None:
        """Take an event; wait while `MAX_EVENTS` are unread."""
        if not self.is_left:
            await self._events.put(event)

    def fail(self, failure: StageError) -> None:
        """End it with a failure, behind what has come."""
        if self._events.full():
            self._events.get_nowait()
        self._events.put_nowait(failure)

    def leave(self) -> SpeechUsage | None:
        """Drop what is unread and what comes from here on; return the tokens that were reported and not read."""
        self.is_left = True
        usage: SpeechUsage | None = None
        while not self._events.empty():
            event = self._events.get_nowait()
            if isinstance(event, wire.VendorEvent) and event.type == "response.done" and event.response is not None:
                usage = wire.usage_of(event.response)
        return usage

    def __aiter__(self) -> _Answer:
        return self

    async def __anext__(self) -> SpeechModelEvent:
        if self._last is not None:
            last, self._last = self._last, None
            return last
        while not self._is_over:
            event = await self._events.get()
            if isinstance(event, StageError):
                raise event
            if (found := self._read(event)) is not None:
                return found
        raise StopAsyncIteration

    def _read(self, event: wire.VendorEvent) -> SpeechModelEvent | None:
        if event.type in wire.AUDIO:
            samples = self._joiner.push(pcm_of(self._address, event.delta))
            self.entry.audio_ms += len(samples) * 1_000 // RATE_HZ
            return Spoken(0, samples) if len(samples) else None
        if event.type in wire.WORDS and event.delta:
            self._text += event.delta
            self.entry.message = Content("assistant", (Text(self._text),))
            return TextDelta(event.delta)
        if event.type in wire.WORDS_COMPLETE:
            return WordsComplete()
        if event.type == "response.output_item.done" and event.item is not None and event.item.type == "function_call":
            return self._call(event.item)
        if event.type == "response.done" and event.response is not None:
            self._is_over = True
            finished, usage = self._finished(event.response), wire.usage_of(event.response)
            if usage is None:
                return finished
            self._last = finished
            return usage
        return None

    def _call(self, item: wire.Item) -> CallDelta:
        for index, call in enumerate(self.calls):
            if item.id in call.items:
                call.message = Called(item.call_id, item.name, item.arguments)
                return CallDelta(index, item.call_id, item.name, item.arguments)
        raise failures.broken(self._address, "the vendor ended a function call that it had not begun")

    def _finished(self, response: wire.Response) -> Finished:
        if response.status == "completed":
            return Finished("tool_calls" if self.calls else "stop")
        details = response.status_details
        if response.status == "incomplete" and details is not None and details.reason in REASONS:
            return Finished(REASONS[details.reason])
        raise wire.failed(self._address, response)


class _Conversation:
    """One WebSocket. Implements `SpeechConversation`."""

    def __init__(self, address: ProviderAddress, socket: VendorSocket, unused: Callable[[SpeechUsage], None]) -> None:
        self._address, self._socket, self._unused = address, socket, unused
        self._history = VendorHistory()
        self._pushed_bytes = self._n_items = 0
        self._answer: _Answer | None = None
        """The answer that the vendor has not reported as done."""

        self._done = asyncio.Event()
        self._done.set()
        self._commits: deque[HistoryEntry] = deque()  # bounded: each is answered, or the conversation breaks
        self._failure: asyncio.Future[StageError] = asyncio.get_running_loop().create_future()

    # --- the user -----------------------------------------------------------------------------

    def push(self, samples: Samples) -> None:
        pcm = samples.astype("<i2").tobytes()
        self._pushed_bytes += len(pcm)
        self._socket.send_audio(pcm)

    def drop(self) -> None:
        if self._pushed_bytes:
            self._socket.send(CLEAR)
        self._pushed_bytes = 0

    async def broken(self) -> StageError:
        return await asyncio.shield(self._failure)

    # --- an answer ----------------------------------------------------------------------------

    @asynccontextmanager
    async def answer(self, request: ModelRequest, *, spoken: bool) -> AsyncIterator[AsyncIterator[SpeechModelEvent]]:
        await self._done.wait()
        if self._failure.done():
            raise self._failure.result()
        self._sync_history(request, spoken=spoken)
        answer = self._answer = _Answer(self._address)
        self._done.clear()
        self._socket.send(wire.answer_request(request))
        try:
            yield answer
        finally:
            if (usage := answer.leave()) is not None:
                self._unused(usage)  # it was complete at the vendor, and the user interrupted its playback
            if self._answer is answer and not self._failure.done():
                self._socket.send(wire.CANCEL)

    def _sync_history(self, request: ModelRequest, *, spoken: bool) -> None:
        """Make the vendor's history the conversation of the request."""
        changes = self._history.sync(request, spoken=spoken and self._pushed_bytes > 0)
        for entry in changes.deleted:
            self._delete(entry)
        for truncation in changes.truncated:
            for item in truncation.entry.items:
                self._send(
                    "conversation.item.truncate", item_id=item, content_index=0, audio_end_ms=truncation.audio_end_ms
                )
        if changes.voiced is None:
            self.drop()
        for entry in changes.added:
            self._n_items += 1
            entry.items.append(f"vp_{self._n_items}")
            self._send("conversation.item.create", item=wire.item_of(entry.items[0], entry.message))
        if changes.voiced is not None:
            self._commit(changes.voiced)

    def _commit(self, entry: HistoryEntry) -> None:
        if self._pushed_bytes < MIN_COMMIT_BYTES:
            self._socket.send_audio(bytes(MIN_COMMIT_BYTES - self._pushed_bytes))
        self._pushed_bytes = 0
        self._commits.append(entry)
        self._socket.send(COMMIT)

    def _delete(self, entry: HistoryEntry) -> None:
        for item in entry.items:
            self._send("conversation.item.delete", item_id=item)
        entry.items.clear()

    def _send(self, kind: str, **fields: Any) -> None:
        self._socket.send(wire.encoded(kind, **fields))

    # --- the vendor ---------------------------------------------------------------------------

    async def read(self) -> None:
        """Read all that the vendor sends, until it breaks."""
        try:
            while True:
                await self._take(wire.event_of(self._address, await self._socket.receive()))
        except StageError as failure:
            self._failure.set_result(failure)
            self._done.set()
            if self._answer is not None:
                self._answer.fail(failure)

    async def _take(self, event: wire.VendorEvent) -> None:
        if event.type == "input_audio_buffer.committed" and self._commits:
            entry = self._commits.popleft()
            entry.items.append(event.item_id)
            if entry.deleted:
                self._delete(entry)
            return
        answer = self._answer
        if answer is None or not event.answer:
            return
        if event.type == "response.created":
            answer.id = event.answer
        if event.answer != answer.id:
            return
        if event.type == "response.output_item.added" and event.item is not None:
            self._record_item(answer, event.item)
        ended = event.response if event.type == "response.done" else None
        if ended is not None and answer.is_left and (usage := wire.usage_of(ended)) is not None:
            self._unused(usage)
        await answer.put(event)
        if ended is not None:
            self._answer = None
            self._done.set()

    def _record_item(self, answer: _Answer, item: wire.Item) -> None:
        if item.type == "message":
            answer.entry.items.append(item.id)
            self._history.append(answer.entry)
        elif item.type == "function_call":
            answer.calls.append(HistoryEntry(Called("", "", ""), [item.id]))
            self._history.append(answer.calls[-1])
