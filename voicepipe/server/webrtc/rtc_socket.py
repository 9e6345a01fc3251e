"""A client over WebRTC behind the port that sessions use: events over the data channel, audio over RTP."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, Protocol

import msgspec

from voicepipe.audio.samples import PcmJoiner, Samples, to_pcm
from voicepipe.protocol.binary import SoundFrame
from voicepipe.server.webrtc import events
from voicepipe.server.webrtc.playout import PartAudio, Playout, PlayoutEvent

MAX_INBOX: Final = 512
"""Messages of the client that the session has not received: 10 s of audio. Beyond it audio is dropped, and an event
ends the call."""

DRAIN_S: Final = 1.0
"""Time to send the last events before the connection is closed."""


class EventChannel(Protocol):
    """The data channel."""

    def send(self, event: str) -> None:
        """Send an event; dropped if the channel is closed."""
        ...

    async def drained(self) -> None:
        """Wait until little is buffered, or the channel is closed."""
        ...

    async def flushed(self) -> None:
        """Wait until nothing is buffered, or the channel is closed."""
        ...


class EventSubscriber(Protocol):
    """A sideband connection: it receives the events that the client receives."""

    def put(self, frame: bytes) -> None:
        """Queue an event; returns at once."""
        ...

    def end(self) -> None:
        """Close the connection: the call is over."""
        ...


class RtcSocket:
    """Implements `ClientSocket`: to the session, a client that plays in real time and truncates interrupted items."""

    def __init__(self) -> None:
        self._channel: EventChannel | None = None
        self._inbox: asyncio.Queue[str | bytes | None] = asyncio.Queue()  # bounded by `MAX_INBOX`
        self._is_closed = self._is_drained = False
        self._subscribers: set[EventSubscriber] = set()
        self._pcm_joiner = PcmJoiner()
        self._session: dict[str, Any] | None = None
        self._speech_interrupts = True
        self._n_events = 0
        self.playout = Playout(self._on_playout)
        self.n_dropped = 0
        """Pieces of the user's audio that were dropped: the session did not receive them in time."""

    def attach(self, channel: EventChannel) -> None:
        """Send events over this channel from now on."""
        self._channel = channel

    # --- ClientSocket -------------------------------------------------------------------------

    @property
    def hung_up(self) -> bool:
        """Whether the call has ended: a call over WebRTC can't be resumed on another connection."""
        return self._is_closed

    @property
    def gone(self) -> bool:
        """Whether the connection is closed."""
        return self._is_closed

    @property
    def has_message(self) -> bool:
        """Whether a message waits that the session has not received."""
        return not self._inbox.empty() and not self._is_drained

    async def receive(self) -> str | bytes | None:
        """Return the next event, or the user's audio as an event; None when the call has ended."""
        if self._is_drained or (self._is_closed and self._inbox.empty()):
            return None
        message = await self._inbox.get()
        self._is_drained = message is None
        return message

    async def send(self, frame: bytes) -> None:
        """Send an event over the data channel, or queue its audio for RTP. Waits while the client does not read."""
        kind = "" if isinstance(frame, SoundFrame) else events.type_of(frame)
        if not kind:
            return
        if kind in events.AUDIO_DELTAS:
            delta = events.read_delta(frame)
            part = PartAudio(delta.response_id, delta.item_id, delta.content_index)
            self.playout.push(part, self._pcm_joiner.push(delta.pcm()))
            return
        if kind in ("session.created", "session.updated"):
            self._apply_session(frame)
        elif kind == "input_audio_buffer.speech_started" and self._speech_interrupts:
            self._stop_playout()
        self._forward(frame)
        if kind == "response.done":
            response_id, status = events.read_done(frame)
            if status == "cancelled":
                self._stop_playout(response_id)
            else:
                self.playout.complete(response_id)
        if self._channel is not None:
            await self._channel.drained()

    async def close(self, code: int, reason: str) -> None:
        """End the call once the last events are sent, or after `DRAIN_S`. WebRTC has no close codes.

        The function that opened the peer connection closes that connection: in aiortc, closing can't be cancelled.
        """
        channel = self._channel
        with suppress(TimeoutError):  # a client that does not read
            async with asyncio.timeout(DRAIN_S):
                if channel is not None:
                    await channel.flushed()
        self.abort()

    def abort(self) -> None:
        """End the call now, and drop unsent events."""
        self._channel = None
        self.end()

    # --- from the client ----------------------------------------------------------------------

    def end(self) -> None:
        """Record that the call has ended: `receive` returns the messages so far, and then None."""
        if self._is_closed:
            return
        self._is_closed = True
        self._inbox.put_nowait(None)
        self.playout.clear()
        for subscriber in tuple(self._subscribers):
            subscriber.end()

    def on_event(self, raw: str | bytes) -> None:
        """Handle an event of the client, from the data channel or a sideband connection."""
        kind, message = events.client_event(raw)
        if kind == "output_audio_buffer.clear":
            self._stop_playout()
        elif self._inbox.qsize() < MAX_INBOX:
            self._put(message)
        else:
            self.abort()

    def on_audio(self, samples: Samples) -> None:
        """Handle more of the user's audio, int16, (n_samples,), 24 kHz mono."""
        if self._inbox.qsize() < MAX_INBOX:
            self._put(events.append_event(to_pcm(samples)))
        else:
            self.n_dropped += 1

    def _put(self, message: str | bytes) -> None:
        if not self._is_closed:
            self._inbox.put_nowait(message)

    # --- sideband connections -----------------------------------------------------------------

    @contextmanager
    def subscribed(self, subscriber: EventSubscriber) -> Iterator[None]:
        """Send all events to a sideband connection while the block runs, first the present session."""
        if self._session is not None:
            subscriber.put(events.event("session.created", self._next_id(), session=self._session))
        self._subscribers.add(subscriber)
        if self._is_closed:
            subscriber.end()
        try:
            yield
        finally:
            self._subscribers.discard(subscriber)

    # --- to the client ------------------------------------------------------------------------

    def _forward(self, frame: bytes) -> None:
        if self._channel is not None:
            self._channel.send(frame.decode())
        for subscriber in self._subscribers:
            subscriber.put(frame)

    def _apply_session(self, frame: bytes) -> None:
        session: dict[str, Any] = msgspec.json.decode(frame)["session"]
        self._session, self._speech_interrupts = session, events.speech_interrupts(session)

    def _stop_playout(self, response_id: str | None = None) -> None:
        """Stop playing, and truncate the item that was playing: over WebRTC the server measures how much was played."""
        part = self.playout.clear(response_id)
        if part is not None:
            fields = {"item_id": part.item_id, "content_index": part.content_index, "audio_end_ms": part.played_ms}
            self._put(events.event("conversation.item.truncate", self._next_id(), **fields))

    def _on_playout(self, what: PlayoutEvent, response_id: str) -> None:
        if not self._is_closed:
            self._forward(events.event(f"output_audio_buffer.{what}", self._next_id(), response_id=response_id))

    def _next_id(self) -> str:
        self._n_events += 1
        return f"event_rtc_{self._n_events:x}"
