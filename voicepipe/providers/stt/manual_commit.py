"""STT with explicit commits at the end of speech: the common part of all such vendors.

A vendor module adds its rules for the WebSocket, and a `CommitProtocol`: messages for audio and commits, and parsing of
answers. Only utterances are sent, so that no audio is charged, or transcribed wrongly, while the agent speaks.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

from voicepipe import clock
from voicepipe.errors import StageError, StageTimeout
from voicepipe.ports.provider_events import TranscriberConnected
from voicepipe.ports.transcriber import Final, Samples, TranscriptEvent, TranscriptStream
from voicepipe.providers.net.address import ProviderAddress
from voicepipe.providers.net.ws import SocketRules, VendorSocket, dial
from voicepipe.providers.stt.commit_assembler import CommitAssembler, TranscriptPart
from voicepipe.providers.stt.transcript_queue import TranscriptQueue
from voicepipe.tasks import background_tasks

UNREAD_TEXTS = 64
"""Maximum number of unread texts."""


QUIET_S = 2.0
"""Time without audio after which a session is between two utterances; inside one, audio comes every 20 ms."""


class CommitProtocol(Protocol):
    """Convert the messages of one stream, in both directions; may hold state."""

    def audio(self, audio: bytes) -> None:
        """Send more of the segment, in the socket's encoding."""
        ...

    def commit(self) -> None:
        """End the segment, which may be empty; the vendor must answer with its text."""
        ...

    def discard(self) -> bool:
        """Discard the segment. True: the vendor can only commit it, and will answer that commit."""
        ...

    def read(self, message: str | bytes) -> Sequence[TranscriptPart]:
        """Return the result of a message, in the order of the commits.

        Raises:
            StageError: it is an error, or not a message.
        """
        ...


class PaddedSegment:
    """The current segment, for vendors that refuse one that is too short."""

    def __init__(self, socket: VendorSocket, min_ms: int) -> None:
        self._socket, self._min_bytes = socket, min_ms * socket.encoding.bytes_per_ms
        self._sent_bytes = 0

    def send(self, audio: bytes) -> None:
        """Send more of it."""
        self._sent_bytes += len(audio)
        self._socket.send_audio(audio)

    def end(self, message: str) -> None:
        """Pad it with silence, if necessary, and send the message that commits it."""
        self._socket.send_audio(self._socket.encoding.silence(max(0, self._min_bytes - self._sent_bytes)))
        self.end_unpadded(message)

    def end_unpadded(self, message: str) -> None:
        """Send the message that ends it, without padding."""
        self._socket.send(message)
        self._sent_bytes = 0


@asynccontextmanager
async def manual_commit(
    address: ProviderAddress,
    path: str,
    line: SocketRules,
    wire: Callable[[VendorSocket], CommitProtocol],
    *,
    lifetime_ms: int | None = None,
) -> AsyncIterator[TranscriptStream]:
    """Yield one session's STT stream at once, and dial `address.base_url + path` in the background.

    A connection older than `lifetime_ms` ends between two utterances, before the vendor cuts it inside one.
    """
    async with dial(address, path, line) as socket, background_tasks() as owned:
        stream = _Stream(address, socket, wire(socket), lifetime_ms)
        owned.start(stream.run(), name=f"stt-{address.name}")
        try:
            yield stream
        finally:
            stream.close()


class _Stream:
    """The STT stream of one session."""

    def __init__(
        self, address: ProviderAddress, socket: VendorSocket, wire: CommitProtocol, lifetime_ms: int | None
    ) -> None:
        self._address, self._socket, self._wire, self._lifetime_ms = address, socket, wire, lifetime_ms
        self._commits = CommitAssembler()
        self._texts = TranscriptQueue(UNREAD_TEXTS)
        self._pushed_s = self._requested_s = self._received_s = self._up_s = (
            0.0  # by the loop's own clock, as its timeouts are
        )
        self._wait: asyncio.Timeout | None = None

    # --- the session --------------------------------------------------------------------------

    def begin(self, utterance: int) -> None:
        if self._commits.begin(utterance) and self._wire.discard():
            self._commits.discarded()
            self._expect_answer()

    def push(self, samples: Samples) -> None:
        if len(samples):
            self._commits.pushed()
            self._pushed_s = clock.loop_s()
            self._wire.audio(self._socket.encoding.encode(samples))

    def flush(self, flush: int) -> None:
        match self._commits.flush(flush, may_return=not self._texts.full()):
            case Final() as answer:
                self._texts.put_now(answer)
            case "commit":
                self._wire.commit()
                self._expect_answer()

    def close(self) -> None:
        self._texts.close()

    def __aiter__(self) -> AsyncIterator[TranscriptEvent]:
        return self._texts

    def _expect_answer(self) -> None:
        self._requested_s = clock.loop_s()
        if self._wait is not None and not self._wait.expired():  # otherwise the wait continues in `_is_due`
            self._wait.reschedule(self._due_s())

    # --- the vendor ---------------------------------------------------------------------------

    async def run(self) -> None:
        """Turn the vendor's messages into texts until the connection fails; the failure is the last item."""
        try:
            await self._socket.connected()
            await self._texts.put(TranscriberConnected(self._socket.connect_ms))
            self._up_s = clock.loop_s()
            while not self._is_expired():
                await self._receive_next()
            self._texts.close()
        except StageError as failure:
            await self._texts.put(failure)

    async def _receive_next(self) -> None:
        try:
            async with asyncio.timeout_at(self._due_s()) as self._wait:
                message = await self._socket.receive()
        except TimeoutError:
            if self._is_due():
                self._give_up_on_a_commit()
            return
        finally:
            self._wait = None
        self._received_s = clock.loop_s()
        for part in self._wire.read(message):
            text = self._commits.take(part)
            if text is not None:
                await self._texts.put(text)

    def _due_s(self) -> float | None:
        """Return when to stop waiting. A vendor may be silent without limit, except with an unanswered commit."""
        if not self._commits.waiting:
            return self._end_s()
        return max(self._requested_s, self._up_s, self._received_s) + self._address.idle_timeout_ms / 1_000

    def _is_due(self) -> bool:
        """Whether the wait is over: not when a commit came at the very instant of an earlier deadline."""
        due_s = self._due_s()
        return due_s is not None and clock.loop_s() >= due_s

    def _give_up_on_a_commit(self) -> None:
        if self._commits.waiting:
            why = f"no data for {self._address.idle_timeout_ms} ms"
            raise StageTimeout(self._address.stage, provider=self._address.name, why=why, retryable=True)

    # --- a connection's age -------------------------------------------------------------------

    def _end_s(self) -> float | None:
        if self._lifetime_ms is None:
            return None
        return max(self._up_s + self._lifetime_ms / 1_000, self._pushed_s + QUIET_S)

    def _is_expired(self) -> bool:
        end_s = self._end_s()
        return end_s is not None and not self._commits.waiting and clock.loop_s() >= end_s
