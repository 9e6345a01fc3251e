"""Speech to speech by Gemini's Live API, over the WebSocket `BidiGenerateContent`.

The vendor's turn detection is off: a question is sent between `activityStart` and `activityEnd`. A connection can
neither delete what it got nor change its instructions. So another one replaces it after an interruption, and gets what
was played as text; what the user says goes up with the question. `generationComplete` ends an answer: `turnComplete`
waits until it would have been played. Sources: ai.google.dev, "Live API - WebSockets API reference" and "Live API
capabilities guide". Unverified: `x-goog-api-key` in place of the address's `key`; calls and results of functions in the
history; that the words of an answer come within `GRACE_S` of its end; text behind the first answer of the 3.x models.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final

import msgspec
import pybase64

from voicepipe.audio.samples import PcmJoiner, Samples
from voicepipe.errors import StageError
from voicepipe.ports.model import CallDelta, Called, Content, Finished, ModelRequest, Returned, Text, TextDelta
from voicepipe.ports.speech_model import SpeechConversation, SpeechModel, SpeechModelEvent, SpeechOptions
from voicepipe.ports.speech_price import SpeechUsage
from voicepipe.ports.synthesizer import RATE_HZ, Spoken
from voicepipe.providers.google import live_wire as wire
from voicepipe.providers.net import failures
from voicepipe.providers.net.address import ProviderAddress
from voicepipe.providers.net.ws import SocketRules, VendorSocket, dial
from voicepipe.providers.speech_model.vendor_history import HistoryChanges, HistoryEntry, VendorHistory
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.tasks import BackgroundTasks, background_tasks

PATH: Final = "/ws/google.ai.generativelanguage.v1beta.GenerativeService.BidiGenerateContent"
GRACE_S: Final = 0.3
"""How long after the end of the generation its words and the count of its tokens are awaited, in seconds."""

LIFETIME_MS: Final = 9 * 60_000
"""A connection lasts around 10 minutes (guide "Session management"); it is replaced between two answers after 9."""

MAX_MESSAGES: Final = 1_000
"""Messages of an answer that wait to be read; beyond it the WebSocket is not read, and the vendor has to wait."""

MAX_PUSHED_BYTES: Final = 120 * wire.RATE_HZ * 2
"""How much of what the user says is held until the question is sent."""


def open_speech_model(spec: Spec, settings: ProviderSettings) -> SpeechModel:
    """Return the Live model `spec.model` at the server of `settings`.

    Raises:
        ConfigError: a setting is missing or wrong.
    """
    address = ProviderAddress.of("llm", spec, settings, auth_scheme="", key_header="x-goog-api-key", scheme="ws")
    return _LiveModel(address)


class _LiveModel:
    rate_hz = wire.RATE_HZ
    lifetime_ms: int | None = LIFETIME_MS
    voices: frozenset[str] | None = None

    def __init__(self, address: ProviderAddress) -> None:
        self.name = address.name
        self._address = address

    def open(
        self, options: SpeechOptions, unused: Callable[[SpeechUsage], None]
    ) -> AbstractAsyncContextManager[SpeechConversation]:
        return self._open(options, unused)

    @asynccontextmanager
    async def _open(
        self, options: SpeechOptions, unused: Callable[[SpeechUsage], None]
    ) -> AsyncIterator[SpeechConversation]:
        async with background_tasks() as owned:
            yield _Conversation(self._address, options, owned, unused)


class _Connection:
    """One WebSocket, with the setup that cannot change."""

    def __init__(self, address: ProviderAddress, setup: str, unused: Callable[[SpeechUsage], None]) -> None:
        self.setup, self._address, self._unused = setup, address, unused
        self.messages: asyncio.Queue[wire.Message | StageError] = asyncio.Queue(MAX_MESSAGES)
        self.is_ready = asyncio.Event()
        """Set when the setup is complete, or the connection has failed."""

        self.is_spent = False
        """Whether it can serve no further answer."""

        self.is_answering = False
        """Whether it makes an answer now."""

        self.awaits_end = False
        """Whether the end of the answer before is still to come."""

        self.failure: StageError | None = None
        self._socket: VendorSocket | None = None

    async def run(self) -> None:
        """Dial, and read all that comes."""
        rules = SocketRules(greeting=self.setup, message_bytes=8 << 20)
        try:
            async with dial(self._address, PATH, rules) as self._socket:
                while True:
                    await self._take(wire.message_of(self._address, await self._socket.receive()))
        except StageError as failure:
            self.failure, self.is_spent = failure, True
            self.is_ready.set()
            if self.messages.full():
                self.messages.get_nowait()
            self.messages.put_nowait(failure)

    async def _take(self, message: wire.Message) -> None:
        if message.setup_complete is not None:
            self.is_ready.set()
        if message.go_away is not None:
            self.is_spent = True
        if self.is_answering and not self._is_of_earlier(message):
            await self.messages.put(message)
        elif (usage := wire.usage_of(message)) is not None:
            self._unused(usage)

    def _is_of_earlier(self, message: wire.Message) -> bool:
        """Return whether a message belongs to the answer before, whose generation was complete."""
        content = message.server_content
        if not self.awaits_end or message.tool_call is not None or (content is not None and content.model_turn):
            self.awaits_end = False
            return False
        self.awaits_end = content is None or not content.turn_complete
        return True

    def send(self, text: str) -> None:
        """Send a message, once it is ready."""
        assert self._socket is not None
        self._socket.send(text)


class _Conversation:
    """Implements `SpeechConversation`."""

    def __init__(
        self,
        address: ProviderAddress,
        options: SpeechOptions,
        owned: BackgroundTasks,
        unused: Callable[[SpeechUsage], None],
    ) -> None:
        self._address, self._options, self._owned, self._unused = address, options, owned, unused
        self._history = VendorHistory()
        self._pushed = bytearray()  # bounded by `MAX_PUSHED_BYTES`
        self._question = b""
        """What the user said of the latest question, which another connection must get from the beginning."""

        self._connection: _Connection | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_current = False
        """Whether the connection has the conversation of the history."""

        self._failure: asyncio.Future[StageError] = asyncio.get_running_loop().create_future()

    def push(self, samples: Samples) -> None:
        self._pushed += samples.astype("<i2").tobytes()
        del self._pushed[: max(0, len(self._pushed) - MAX_PUSHED_BYTES)]

    def drop(self) -> None:
        self._pushed.clear()

    async def broken(self) -> StageError:
        return await asyncio.shield(self._failure)

    @asynccontextmanager
    async def answer(self, request: ModelRequest, *, spoken: bool) -> AsyncIterator[AsyncIterator[SpeechModelEvent]]:
        setup = wire.setup(self._address, self._options, request)
        changes = self._history.sync(request, spoken=spoken and bool(self._pushed))
        repeated = changes.voiced is not None and bool(changes.voiced.items)
        known = self._connection
        if known is None or known.setup != setup or known.is_spent or changes.deleted or changes.truncated or repeated:
            self._connect(setup)
        connection = self._connection
        assert connection is not None
        await connection.is_ready.wait()
        if connection.failure is not None:
            self._fail(connection.failure)
            raise connection.failure
        pcm, self._pushed = bytes(self._pushed), bytearray()
        self._question = (self._question + pcm)[-MAX_PUSHED_BYTES:] if repeated else pcm
        self._send_question(connection, request, changes)
        answer = _Answer(self._address, connection, self._history)
        try:
            yield answer
        except StageError as failure:
            self._fail(failure)
            raise
        finally:
            connection.is_answering = False
            if (usage := answer.unreported()) is not None:
                self._unused(usage)
            if not answer.is_over and not connection.is_spent:
                self._connect(setup)  # while the user speaks: the answer must not go on

    def _connect(self, setup: str) -> None:
        """Open another connection in place of this one."""
        if self._task is not None:
            self._task.cancel()
        self._connection, self._is_current = _Connection(self._address, setup, self._unused), False
        self._task = self._owned.start(self._connection.run(), name=f"speech-{self._address.name}")

    def _send_question(self, connection: _Connection, request: ModelRequest, changes: HistoryChanges) -> None:
        """Send what the connection has not got yet, and the question."""
        voiced, added = changes.voiced, changes.added
        if not self._is_current:
            added = tuple(each for each in self._history.entries if each is not voiced)
        self._is_current = connection.is_answering = True
        while not connection.messages.empty():
            connection.messages.get_nowait()
        if voiced is not None:
            pcm = self._question
            voiced.items.append("sent")
            if added:
                connection.send(wire.content_of(request, added, complete=False))
            connection.send(wire.BEGINS)
            for first in range(0, len(pcm), wire.PIECE_BYTES):
                connection.send(wire.audio_of(pcm[first : first + wire.PIECE_BYTES]))
            connection.send(wire.ENDS)
            return
        returned = [each.message for each in added if isinstance(each.message, Returned)]
        if returned and len(returned) == len(added):
            calls = (each.message for each in self._history.entries)
            names = {each.call_id: each.name for each in calls if isinstance(each, Called)}
            connection.send(wire.results(returned, names))
        else:
            connection.send(wire.content_of(request, added, complete=True))

    def _fail(self, failure: StageError) -> None:
        if not self._failure.done():
            self._failure.set_result(failure)


class _Answer:
    """The events of one answer."""

    def __init__(self, address: ProviderAddress, connection: _Connection, history: VendorHistory) -> None:
        self.is_over = False
        self._address, self._connection = address, connection
        self._entry = HistoryEntry(Content("assistant", ()))
        history.append(self._entry)
        self._history = history
        self._events: deque[SpeechModelEvent] = deque()
        self._usage: SpeechUsage | None = None
        self._is_generated = False
        self._n_calls = 0
        self._text = ""
        self._joiner = PcmJoiner()

    def __aiter__(self) -> _Answer:
        return self

    def unreported(self) -> SpeechUsage | None:
        """Return the tokens of an answer that was left, as far as the vendor has reported them."""
        usage = next((each for each in self._events if isinstance(each, SpeechUsage)), None)
        if self.is_over:
            return usage
        usage = self._usage
        while not self._connection.messages.empty():
            message = self._connection.messages.get_nowait()
            if not isinstance(message, StageError):
                usage = wire.usage_of(message) or usage
        return usage

    async def __anext__(self) -> SpeechModelEvent:
        while not self._events:
            if self.is_over:
                raise StopAsyncIteration
            try:
                async with asyncio.timeout(GRACE_S if self._is_generated else None):
                    message = await self._connection.messages.get()
            except TimeoutError:
                self._connection.awaits_end = True
                self._finish("stop")
                continue
            if isinstance(message, StageError):
                raise message
            self._read(message)
        return self._events.popleft()

    def _read(self, message: wire.Message) -> None:
        self._usage = wire.usage_of(message) or self._usage
        if message.server_content is not None:
            self._read_content(message.server_content)
        if message.tool_call is not None and not self.is_over:
            for call in message.tool_call.function_calls:
                arguments = msgspec.json.encode(call.args or {}).decode()
                self._events.append(CallDelta(self._n_calls, call.id, call.name, arguments))
                self._history.append(HistoryEntry(Called(call.id, call.name, arguments)))
                self._n_calls += 1
            self._finish("tool_calls")

    def _read_content(self, content: wire.Content) -> None:
        for part in content.model_turn.parts if content.model_turn is not None else ():
            if part.inline_data is not None:
                self._take_audio(part.inline_data.data)
        if content.output_transcription is not None and content.output_transcription.text:
            self._text += content.output_transcription.text
            self._entry.message = Content("assistant", (Text(self._text),))
            self._events.append(TextDelta(content.output_transcription.text))
        if content.interrupted:
            raise failures.broken(self._address, "the vendor interrupted its answer")
        self._is_generated = self._is_generated or content.generation_complete
        if content.turn_complete:
            self._finish("stop")

    def _take_audio(self, data: str) -> None:
        try:
            samples = self._joiner.push(pybase64.b64decode(data, validate=True))
        except ValueError:
            raise failures.broken(self._address, "expected base64, got another text") from None
        self._entry.audio_ms += len(samples) * 1_000 // RATE_HZ
        if len(samples):
            self._events.append(Spoken(0, samples))

    def _finish(self, reason: str) -> None:
        self.is_over, self._connection.is_answering = True, False
        if not self._text and self._entry in self._history.entries:
            self._history.entries.remove(self._entry)
        if self._usage is not None:
            self._events.append(self._usage)
        self._events.append(Finished("tool_calls" if reason == "tool_calls" else "stop"))
