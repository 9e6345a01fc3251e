"""Translate a carrier's media stream to the connection of a session's client, and back."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from voicepipe.phone.carrier import (
    BYTES_PER_MS,
    AudioReceived,
    DigitPressed,
    DtmfTones,
    IgnoredMessage,
    MarkPlayed,
    StreamEvent,
    StreamSerializer,
    StreamStarted,
    StreamStopped,
)
from voicepipe.phone.digits import DigitCollector
from voicepipe.phone.playback import CarrierPlayback, Played
from voicepipe.protocol import binary
from voicepipe.session.shutdown import NORMAL
from voicepipe.session.socket import ClientSocket

START_TIMEOUT_S: Final = 10.0
"""Time for the carrier's `start` after its WebSocket is open."""

LAST_MARK_S: Final = 2.0
"""How long the end of a call waits for the carrier to play the agent's last audio. The session expects it to play
without a pause from its latest mark on; a late packet, or the carrier's jitter buffer, delays the rest."""

MARK_TIMEOUT_MS: Final = 2_000
"""Time for which held audio waits for a mark after the audio before it should have been played: a carrier may lose a
mark, or confirm none."""

SESSION: Final = {
    "audio": {"input": {"format": {"type": "audio/pcmu"}}, "output": {"format": {"type": "audio/pcmu"}}},
    "providerData": {"voicepipe": {"binary_audio": True, "playback_reports": True}},
}
"""What a session on the phone starts with, as in `session.update`: G.711 both ways, at the carrier's own rate."""


_DTMF_ITEM: Final = ""
"""The item of the agent's DTMF, which is no part of the conversation."""


@dataclass(frozen=True, slots=True)
class _Held:
    """What waits to be sent to the carrier, behind audio that it has not played."""

    mark: str
    """The mark behind it; empty: it has none."""

    n_bytes: int
    messages: Callable[[], Iterable[bytes]]
    """Makes the messages when they are sent: those of audio depend on what was sent before."""

    is_tones: bool = False


class _Response(msgspec.Struct, frozen=True):
    status: str = ""


class _ServerEvent(msgspec.Struct, frozen=True):
    """What the phone needs of any event of the server."""

    type: str
    item_id: str = ""
    stream: int = 0
    response: _Response | None = None


_DECODER: Final = msgspec.json.Decoder(_ServerEvent)


class PhoneSocket:
    """Implements `ClientSocket` over a carrier's WebSocket, as a client does that plays audio and reports it."""

    def __init__(
        self, websocket: ClientSocket, serializer: StreamSerializer, count_invalid: Callable[[], None]
    ) -> None:
        """`websocket` has the carrier's messages. `count_invalid` is called at each one that can't be read."""
        self._websocket, self.serializer, self._count_invalid = websocket, serializer, count_invalid
        self._playback, self._digits = CarrierPlayback(), DigitCollector()
        # Bounded: one message of the carrier makes a few, and all are taken before the next is read. Cuts add some.
        self._messages: deque[bytes] = deque()
        self._n_bytes = 0
        self._items: dict[int, str] = {}
        """The stream of the latest binary audio, and its item."""

        self._held: deque[_Held] = deque()  # bounded as the session's answers are
        self._n_held_bytes = 0
        self._sending: _Held | None = None
        """What is being sent, which may wait until the carrier reads."""

        self._plays_until_ms = 0
        """`input_ms` at which the carrier will have played all that was sent, if it plays without a pause from its
        latest mark on."""

        self._tones_mark = ""
        """The mark of the tones that the carrier has and has not played; empty: there are none."""

        self._tones_until_ms = 0
        """`input_ms` at which their mark counts as lost."""

        self._responding = self._stopped = False
        self._changed = asyncio.Event()
        """Set at each message of the carrier."""

    @property
    def hung_up(self) -> bool:
        """Return whether either side ended the call on purpose."""
        return self._stopped or self._websocket.hung_up

    @property
    def gone(self) -> bool:
        """Return whether the connection is closed."""
        return self._websocket.gone

    @property
    def is_over(self) -> bool:
        """Return whether the carrier has said that the stream is over."""
        return self._stopped

    @property
    def has_message(self) -> bool:
        """Return whether an event waits that was made of an earlier message."""
        return bool(self._messages)

    @property
    def input_ms(self) -> int:
        """Return how much of the user's audio has come, in ms."""
        return self._n_bytes // BYTES_PER_MS

    async def start(self) -> StreamStarted | None:
        """Wait for the carrier's `start`; None: it did not come within `START_TIMEOUT_S`, or the connection is
        closed."""
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                while (raw := await self._websocket.receive()) is not None:
                    event = self.serializer.read(raw)
                    if isinstance(event, StreamStarted):
                        return event
                    await self._take(event)
        except TimeoutError:
            pass
        return None

    async def receive(self) -> str | bytes | None:
        """Return the next event of the user; None when the call is over, and on every later call."""
        while not self._messages:
            raw = None if self._stopped else await self._websocket.receive()
            if raw is None:
                self._changed.set()
                return None
            await self._take(self.serializer.read(raw))
        return self._messages.popleft()

    async def _take(self, event: StreamEvent) -> None:
        self._changed.set()
        match event:
            case AudioReceived(audio):
                self._n_bytes += len(audio)
                self._messages.append(binary.user_frame(audio))
                self._send_digits()
                if self._tones_mark and self.input_ms >= self._tones_until_ms:
                    self._tones_mark = ""
                await self._release()
            case MarkPlayed(name):
                played = self._playback.mark(name, self.input_ms)
                if played is not None:
                    self._plays_until_ms = max(self._plays_until_ms, self.input_ms + self._unconfirmed_ms)
                if name == self._tones_mark:
                    self._tones_mark = ""
                await self._release()
                if played is not None and played.item_id != _DTMF_ITEM:
                    self._report((played,))
            case DigitPressed(digit):
                await self._take_digit(digit)
            case StreamStopped():
                self._stopped = True
            case IgnoredMessage(is_invalid=True):
                self._count_invalid()

    # --- keys ---------------------------------------------------------------------------------

    async def _take_digit(self, digit: str) -> None:
        """Take a key. The first one stops the agent, as a voice does."""
        if self._digits.is_empty:
            await self._stop_agent()
        self._digits.add(digit, self.input_ms)
        self._send_digits()

    async def _stop_agent(self) -> None:
        if cut := await self._cut(tones_too=True):
            playing, *later = cut
            at = {"item_id": playing.item_id, "content_index": 0, "audio_end_ms": playing.played_ms}
            self._post("conversation.item.truncate", **at)
            self._report(later)
        elif self._responding:
            self._post("response.cancel")

    def _send_digits(self) -> None:
        """Send the keys as the user's words, once they are complete, and request an answer to them."""
        digits = self._digits.take(self.input_ms)
        if digits:
            if self._responding:
                self._post("response.cancel")
            content = [{"type": "input_text", "text": f"[DTMF: {digits}]"}]
            self._post("conversation.item.create", item={"type": "message", "role": "user", "content": content})
            self._post("response.create")

    # --- to the carrier -----------------------------------------------------------------------

    async def send(self, frame: bytes) -> None:
        """Play a `SoundFrame`; of any other event, record what the phone needs."""
        if isinstance(frame, binary.SoundFrame):
            await self._play(binary.agent_sound(frame))
            return
        event = _DECODER.decode(frame)
        match event:
            case _ServerEvent(type="voicepipe.output_audio.started"):
                self._items = {event.stream: event.item_id}
            case _ServerEvent(type="response.output_audio.done"):
                await self._hold(_Held("", 0, self.serializer.flush))
            case _ServerEvent(type="response.created"):
                self._responding = True
            case _ServerEvent(type="response.done", response=response):
                self._responding = False
                if response is not None and response.status == "cancelled":
                    self._report(await self._cut())
            case _ServerEvent(type="input_audio_buffer.speech_started"):
                self._report(await self._cut())

    async def _play(self, sound: binary.AgentSound) -> None:
        audio = sound.audio
        mark = self._playback.send(self._items.get(sound.stream, ""), len(audio), self.input_ms)
        await self._hold(_Held(mark, len(audio), lambda: (*self.serializer.audio(audio), *self.serializer.mark(mark))))

    async def send_dtmf(self, dtmf: DtmfTones | Iterable[bytes]) -> None:
        """Send DTMF: as messages at once, or as tones behind the audio so far. A voice does not cut tones."""
        if not isinstance(dtmf, DtmfTones):
            for message in dtmf:
                await self._websocket.send(message)
            return
        serializer, audio = self.serializer, dtmf.audio
        mark = self._playback.send(_DTMF_ITEM, len(audio), self.input_ms)

        def messages() -> Iterable[bytes]:
            return (*serializer.flush(), *serializer.audio(audio), *serializer.mark(mark))

        await self._hold(_Held(mark, len(audio), messages, is_tones=True))

    async def _hold(self, held: _Held) -> None:
        self._held.append(held)
        self._n_held_bytes += held.n_bytes
        await self._release()

    async def _release(self) -> None:
        """Send what is held back, as far as the carrier has room. What is behind tones waits until they were played:
        the carrier can drop all that it has, or nothing."""
        while self._held and self._sending is None and not self._tones_mark and self._has_room():
            held = self._sending = self._held.popleft()
            self._n_held_bytes -= held.n_bytes
            self._plays_until_ms = max(self._plays_until_ms, self.input_ms) + held.n_bytes // BYTES_PER_MS
            if held.is_tones:
                self._tones_mark, self._tones_until_ms = held.mark, self._plays_until_ms + MARK_TIMEOUT_MS
            try:
                for message in held.messages():
                    await self._websocket.send(message)
                    if self._sending is not held:  # cut while the carrier did not read
                        break
            finally:
                if self._sending is held:
                    self._sending = None

    def _has_room(self) -> bool:
        """Return whether the carrier can take the first piece that is held back."""
        if self.serializer.queue_ms is None:
            return True
        queued_ms = min(self._unconfirmed_ms, self._plays_until_ms + MARK_TIMEOUT_MS - self.input_ms)
        return queued_ms + self._held[0].n_bytes // BYTES_PER_MS <= self.serializer.queue_ms or queued_ms <= 0

    @property
    def _unconfirmed_ms(self) -> int:
        """Audio that was sent and whose mark has not come."""
        return self._playback.unplayed_ms - self._n_held_bytes // BYTES_PER_MS

    async def _cut(self, *, tones_too: bool = False) -> tuple[Played, ...]:
        """Have the carrier drop what it has not played; return how much was played of each item that is cut. A voice
        does not cut tones, which may answer it, nor what the carrier has before them."""
        uncut: frozenset[str] = frozenset()
        if not tones_too:
            held_tones = (each.mark for each in self._held if each.is_tones)
            uncut = self._playback.marks_to(self._tones_mark).union(held_tones)
        cut = self._playback.clear(self.input_ms, keep=uncut)
        self._held = deque(each for each in self._held if each.mark in uncut or not each.mark)
        self._n_held_bytes = sum(each.n_bytes for each in self._held)
        if tones_too:
            self._tones_mark = ""
        if cut and not self._tones_mark:
            self._plays_until_ms = self.input_ms
            if self._sending is not None and self._sending.mark not in uncut:
                self._sending = None
            await self._websocket.send(self.serializer.clear())
        await self._release()
        return tuple(each for each in cut if each.item_id != _DTMF_ITEM)

    # --- to the session -----------------------------------------------------------------------

    def _report(self, played: Iterable[Played]) -> None:
        for each in played:
            self._post(
                "voicepipe.playback",
                item_id=each.item_id,
                played_ms=each.played_ms,
                buffered_ms=each.buffered_ms,
                input_ms=self.input_ms,
                carrier_estimated_ms=each.carrier_estimated_ms,
            )

    def _post(self, kind: str, **fields: Any) -> None:
        self._messages.append(msgspec.json.encode({"type": kind, **fields}))

    async def close(self, code: int, reason: str) -> None:
        """Close the media stream: the carrier goes on with the call as the webhook has answered.

        The end of a conversation waits until the carrier has played what it has, for at most `LAST_MARK_S`.
        """
        if code == NORMAL:
            with suppress(TimeoutError):
                async with asyncio.timeout(LAST_MARK_S):
                    await self._played_to_its_end()
        await self._websocket.close(code, reason)

    async def _played_to_its_end(self) -> None:
        while self._playback.is_playing and not self.hung_up and not self.gone:
            self._changed.clear()
            await self._changed.wait()

    def abort(self) -> None:
        """Abort the connection now."""
        self._websocket.abort()
