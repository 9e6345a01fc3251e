"""STT that gets all audio of the session over one WebSocket: the common part of all such vendors.

A vendor module adds its query, its rules for the WebSocket (`StreamRules`), and a `Reader` for its messages. Its final
texts are joined to the text of an utterance. A flush requests the remaining final text, unless the vendor has sent it
already.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

from msgspec import Struct

from voicepipe import clock
from voicepipe.errors import StageError, StageTimeout
from voicepipe.ports.provider_events import TranscriberConnected
from voicepipe.ports.transcriber import Samples, TranscriptEvent, TranscriptStream
from voicepipe.providers.net.address import ProviderAddress
from voicepipe.providers.net.ws import SocketRules, VendorSocket, dial
from voicepipe.providers.stt.segment_assembler import Margins, Segment, SegmentAssembler
from voicepipe.providers.stt.transcript_queue import TranscriptQueue
from voicepipe.tasks import background_tasks
from voicepipe.values import replace

UNREAD_TEXTS = 64
"""Maximum number of unread texts."""


class Reader(Protocol):
    """Convert the messages of one stream to segments; may hold state."""

    @property
    def idle(self) -> bool:
        """Whether the vendor detects no speech, so that it may leave a request for the final text unanswered."""
        ...

    def read(self, message: str | bytes, upto: int) -> Segment | None:
        """Return the segment of a message; None for a message without one.

        Args:
            message: as received.
            upto: the latest end of its words, for vendors without positions: the end of the audio at the oldest
                unanswered request, or of the audio sent so far.

        Raises:
            StageError: it is an error, or not a message.
        """
        ...


class StreamRules(Struct, frozen=True, kw_only=True):
    """Rules for a vendor's live STT."""

    line: SocketRules
    margins: Margins
    finalize: str | None
    """The message that makes the vendor finalize all received audio; None if it has no such message."""

    flush_timeout_ms: int
    """Timeout of a flush whose utterance has some text, where the vendor need not answer."""

    first_flush_timeout_ms: int
    """Timeout of a flush whose utterance has no text: an empty text is only right without speech."""

    hold_ms: int = 0
    """Wait for the vendor's own message, before the request is sent."""

    lifetime_ms: int | None = None
    """Maximum age of a connection. An older one ends between two utterances, before the vendor cuts it inside one."""

    word_rate_hz: int | None = None
    """Sample rate of the positions, if the final texts shall have the times of their words; None: they have none."""

    positions: bool = True
    """Whether the vendor sends positions, in the audio it got. False: the reader takes them from `upto`, in the pushed
    audio."""


@asynccontextmanager
async def continuous_stream(
    address: ProviderAddress, path: str, rules: StreamRules, reader: Reader
) -> AsyncIterator[TranscriptStream]:
    """Yield one session's STT stream at once, and dial `address.base_url + path` in the background."""
    async with dial(address, path, rules.line) as socket, background_tasks() as owned:
        stream = _Stream(address, socket, rules, reader)
        owned.start(stream.run(), name=f"stt-{address.name}")
        try:
            yield stream
        finally:
            stream.close()


class _Stream:
    """The STT stream of one session."""

    def __init__(self, address: ProviderAddress, socket: VendorSocket, rules: StreamRules, reader: Reader) -> None:
        self._address, self._socket, self._rules, self._reader = address, socket, rules, reader
        self._segments = SegmentAssembler(rules.margins, word_rate_hz=rules.word_rate_hz)
        self._pushed_samples = 0
        self._texts = TranscriptQueue(UNREAD_TEXTS)
        self._flushed_s = self._received_s = self._up_s = 0.0  # by the loop's own clock, as its timeouts are
        self._held = False
        """Whether the latest flush waits for the vendor's own message: the request has not been sent."""

        self._wait: asyncio.Timeout | None = None

    # --- the session --------------------------------------------------------------------------

    def begin(self, utterance: int) -> None:
        self._segments.begin(utterance, self._pushed_samples)

    def push(self, samples: Samples) -> None:
        self._pushed_samples += len(samples)
        self._socket.send_audio(self._socket.encoding.encode(samples))

    def flush(self, flush: int) -> None:
        answer = self._segments.flush(flush, self._pushed_samples, must_request=self._texts.full())
        if answer is not None:
            self._texts.put_now(answer)
            return
        self._flushed_s = clock.loop_s()
        self._held = self._rules.finalize is not None and self._rules.hold_ms > 0
        if not self._held:
            self._finalize()
        if self._wait is not None and not self._wait.expired():  # otherwise the wait continues in `_is_due`
            self._wait.reschedule(self._due_s())

    def close(self) -> None:
        self._texts.close()

    def __aiter__(self) -> AsyncIterator[TranscriptEvent]:
        return self._texts

    # --- the vendor ---------------------------------------------------------------------------

    async def run(self) -> None:
        """Turn the vendor's messages into texts until the connection fails; the failure is the last item."""
        try:
            await self._socket.connected()
            await self._texts.put(TranscriberConnected(self._socket.connect_ms))
            self._up_s = clock.loop_s()
            while not self._is_expired():
                for text in await self._next():
                    await self._texts.put(text)
            self._texts.close()
        except StageError as failure:
            await self._texts.put(failure)

    async def _next(self) -> list[TranscriptEvent]:
        try:
            async with asyncio.timeout_at(self._due_s()) as self._wait:
                message = await self._socket.receive()
        except TimeoutError:
            return self._go_on_without() if self._is_due() else []
        finally:
            self._wait = None
        self._received_s = clock.loop_s()
        segment = self._reader.read(message, self._upto())
        new_texts = [] if segment is None else self._segments.take(self._placed(segment))
        self._held = self._held and self._segments.waiting
        return new_texts

    def _finalize(self) -> None:
        self._held = False
        if self._rules.finalize is not None:
            self._socket.send(self._rules.finalize)

    def _due_s(self) -> float | None:
        """Return when to stop waiting. A vendor may be silent without limit, except while a flush waits."""
        if not self._segments.waiting:
            return self._end_s()
        requested_s = max(self._flushed_s, self._up_s)
        if self._held:
            return requested_s + self._rules.hold_ms / 1_000
        if self._may_stay_unanswered():
            flush_timeout_ms = (
                self._rules.flush_timeout_ms if self._segments.known else self._rules.first_flush_timeout_ms
            )
            return requested_s + (self._rules.hold_ms + flush_timeout_ms) / 1_000
        return max(requested_s, self._received_s) + self._address.idle_timeout_ms / 1_000

    def _is_due(self) -> bool:
        """Whether the wait is over: not when a flush came at the very instant of an earlier deadline."""
        due_s = self._due_s()
        return due_s is not None and clock.loop_s() >= due_s

    def _may_stay_unanswered(self) -> bool:
        return self._rules.finalize is None or self._segments.too_short or self._reader.idle

    def _go_on_without(self) -> list[TranscriptEvent]:
        """Handle a vendor that was silent for its maximum time."""
        if not self._segments.waiting:
            return []  # the connection has reached its maximum age
        if self._held:
            self._finalize()
            return []
        if self._may_stay_unanswered():
            return [self._segments.give_up()]
        why = f"no data for {self._address.idle_timeout_ms} ms"
        raise StageTimeout(self._address.stage, provider=self._address.name, why=why, retryable=True)

    # --- a connection's age -------------------------------------------------------------------

    def _end_s(self) -> float | None:
        lifetime_ms = self._rules.lifetime_ms
        if lifetime_ms is None or not (self._reader.idle and self._segments.resting):
            return None
        return self._up_s + lifetime_ms / 1_000

    def _is_expired(self) -> bool:
        end_s = self._end_s()
        return end_s is not None and clock.loop_s() >= end_s

    # --- positions ----------------------------------------------------------------------------

    def _upto(self) -> int:
        position = self._segments.waited_at if self._rules.finalize is None else self._segments.requested_at
        return (
            position
            if position is not None
            else self._place(self._socket.sent_bytes // self._socket.encoding.sample_bytes)
        )

    def _placed(self, segment: Segment) -> Segment:
        """Return the segment in positions of the pushed audio: a vendor counts the audio it got."""
        if self._socket.in_step or not self._rules.positions:
            return segment
        words = tuple(replace(w, start=self._place(w.start), end=self._place(w.end)) for w in segment.words)
        return replace(segment, start=self._place(segment.start), end=self._place(segment.end), words=words)

    def _place(self, sample: int) -> int:
        sample_bytes = self._socket.encoding.sample_bytes
        return self._socket.pushed_at(sample * sample_bytes) // sample_bytes
