"""Translate a carrier's media stream to the connection of a session's client, and back."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
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
"""Time for which queued audio waits for a mark after the audio before it should have been played: a carrier may lose a
mark, or confirm none."""

SESSION: Final = {
    "audio": {"input": {"format": {"type": "audio/pcmu"}}, "output": {"format": {"type": "audio/pcmu"}}},
    "providerData": {"voicepipe": {"binary_audio": True, "playback_reports": True}},
}
"""What a session on the phone starts with, as in `session.update`: G.711 both ways, at the carrier's own rate."""


_DTMF_ITEM: Final = ""
"""The item of the agent's DTMF, which is no part of the conversation."""


class _QueuedOutput(msgspec.Struct, frozen=True):
    """Output for the carrier that waits behind audio that the carrier has not played."""

    mark: str
    """The name of the mark behind the output; empty: there is none."""

    n_bytes: int
    messages: Callable[[], Iterable[bytes]]
    """Returns the messages, at the time of sending: the messages of audio depend on what was sent before."""

    is_tones: bool = False


class _Response(msgspec.Struct, frozen=True):
    status: str = ""


class _ServerEvent(msgspec.Struct, frozen=True):
    """The fields of a server event that `PhoneSocket` uses."""

    type: str
    item_id: str = ""
    stream: int = 0
    response: _Response | None = None


_DECODER: Final = msgspec.json.Decoder(_ServerEvent)


class PhoneSocket:
    """Implements `ClientSocket` over a carrier's WebSocket, as a client that plays audio and reports playback."""

    def __init__(
        self, websocket: ClientSocket, serializer: StreamSerializer, count_invalid: Callable[[], None]
    ) -> None:
        """`websocket` receives the carrier's messages. `count_invalid` is called for each message that can't be
        read."""
        self._websocket, self.serializer, self._count_invalid = websocket, serializer, count_invalid
        self._playback, self._digits = CarrierPlayback(), DigitCollector()
        # Bounded: one message of the carrier makes a few, and all are taken before the next is read. Cuts add some.
        self._messages: deque[bytes] = deque()
        self._n_user_bytes = 0
        self._item_of_stream: dict[int, str] = {}
        """The stream of the latest binary audio, and its item."""

        self._queue: deque[_QueuedOutput] = deque()  # bounded as the session's output is
        self._n_queued_bytes = 0
        self._sending: _QueuedOutput | None = None
        """The output that is being sent; sending may wait until the carrier reads."""

        self._plays_until_ms = 0
        """`input_ms` at which the carrier will have played all that was sent, if it plays without a pause from its
        latest mark on."""

        self._tones_mark = ""
        """The mark of the tones that the carrier has not played; empty: there are none."""

        self._tones_until_ms = 0
        """`input_ms` at which `_tones_mark` counts as lost."""

        self._responding = self._stopped = False
        self._received = asyncio.Event()
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
        """Return whether the carrier has stopped the stream."""
        return self._stopped

    @property
    def has_message(self) -> bool:
        """Return whether an event from an earlier message waits."""
        return bool(self._messages)

    @property
    def input_ms(self) -> int:
        """Return how much audio of the user was received, in ms."""
        return self._n_user_bytes // BYTES_PER_MS

    async def start(self) -> StreamStarted | None:
        """Wait for the carrier's `start`. Return None if none was received within `START_TIMEOUT_S`, or the connection
        is closed."""
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                while (raw := await self._websocket.receive()) is not None:
                    event = self.serializer.read(raw)
                    if isinstance(event, StreamStarted):
                        return event
                    await self._handle(event)
        except TimeoutError:
            pass
        return None

    async def receive(self) -> str | bytes | None:
        """Return the next event of the user; None when the call is over, and on every later call."""
        while not self._messages:
            raw = None if self._stopped else await self._websocket.receive()
            if raw is None:
                self._received.set()
                return None
            await self._handle(self.serializer.read(raw))
        return self._messages.popleft()

    async def _handle(self, event: StreamEvent) -> None:
        self._received.set()
        match event:
            case AudioReceived(audio):
                self._n_user_bytes += len(audio)
                self._messages.append(binary.user_frame(audio))
                self._send_digits()
                if self._tones_mark and self.input_ms >= self._tones_until_ms:
                    self._tones_mark = ""
                await self._send_queued()
            case MarkPlayed(name):
                played = self._playback.mark(name, self.input_ms)
                if played is not None:
                    self._plays_until_ms = max(self._plays_until_ms, self.input_ms + self._unconfirmed_ms)
                if name == self._tones_mark:
                    self._tones_mark = ""
                await self._send_queued()
                if played is not None and played.item_id != _DTMF_ITEM:
                    self._report((played,))
            case DigitPressed(digit):
                await self._handle_digit(digit)
            case StreamStopped():
                self._stopped = True
            case IgnoredMessage(is_invalid=True):
                self._count_invalid()

    # --- keys ---------------------------------------------------------------------------------

    async def _handle_digit(self, digit: str) -> None:
        """Collect a key. The first key interrupts the agent, as speech does."""
        if self._digits.is_empty:
            await self._stop_agent()
        self._digits.add(digit, self.input_ms)
        self._send_digits()

    async def _stop_agent(self) -> None:
        if cut := await self._drop_unplayed(with_tones=True):
            playing, *later = cut
            at = {"item_id": playing.item_id, "content_index": 0, "audio_end_ms": playing.played_ms}
            self._post("conversation.item.truncate", **at)
            self._report(later)
        elif self._responding:
            self._post("response.cancel")

    def _send_digits(self) -> None:
        """Send the keys as a user message once they are complete, and request a response."""
        digits = self._digits.take(self.input_ms)
        if digits:
            if self._responding:
                self._post("response.cancel")
            content = [{"type": "input_text", "text": f"[DTMF: {digits}]"}]
            self._post("conversation.item.create", item={"type": "message", "role": "user", "content": content})
            self._post("response.create")

    # --- to the carrier -----------------------------------------------------------------------

    async def send(self, frame: bytes) -> None:
        """Play a `SoundFrame`; of any other event, read the fields of `_ServerEvent`."""
        if isinstance(frame, binary.SoundFrame):
            await self._play(binary.agent_sound(frame))
            return
        event = _DECODER.decode(frame)
        match event:
            case _ServerEvent(type="voicepipe.output_audio.started"):
                self._item_of_stream = {event.stream: event.item_id}
            case _ServerEvent(type="response.output_audio.done"):
                await self._enqueue(_QueuedOutput("", 0, self.serializer.flush))
            case _ServerEvent(type="response.created"):
                self._responding = True
            case _ServerEvent(type="response.done", response=response):
                self._responding = False
                if response is not None and response.status == "cancelled":
                    self._report(await self._drop_unplayed())
            case _ServerEvent(type="input_audio_buffer.speech_started"):
                self._report(await self._drop_unplayed())

    async def _play(self, sound: binary.AgentSound) -> None:
        audio = sound.audio
        mark = self._playback.send(self._item_of_stream.get(sound.stream, ""), len(audio), self.input_ms)
        await self._enqueue(
            _QueuedOutput(mark, len(audio), lambda: (*self.serializer.audio(audio), *self.serializer.mark(mark)))
        )

    async def send_dtmf(self, dtmf: DtmfTones | Iterable[bytes]) -> None:
        """Send DTMF: messages at once, tones behind the audio so far. The user's speech does not cut tones."""
        if not isinstance(dtmf, DtmfTones):
            for message in dtmf:
                await self._websocket.send(message)
            return
        serializer, audio = self.serializer, dtmf.audio
        mark = self._playback.send(_DTMF_ITEM, len(audio), self.input_ms)

        def messages() -> Iterable[bytes]:
            return (*serializer.flush(), *serializer.audio(audio), *serializer.mark(mark))

        await self._enqueue(_QueuedOutput(mark, len(audio), messages, is_tones=True))

    async def _enqueue(self, output: _QueuedOutput) -> None:
        self._queue.append(output)
        self._n_queued_bytes += output.n_bytes
        await self._send_queued()

    async def _send_queued(self) -> None:
        """Send queued output, as far as the carrier has room. Output behind tones waits until the tones were played:
        the carrier can drop all of its queue, or nothing."""
        while self._queue and self._sending is None and not self._tones_mark and self._carrier_queue_has_space():
            output = self._sending = self._queue.popleft()
            self._n_queued_bytes -= output.n_bytes
            self._plays_until_ms = max(self._plays_until_ms, self.input_ms) + output.n_bytes // BYTES_PER_MS
            if output.is_tones:
                self._tones_mark, self._tones_until_ms = output.mark, self._plays_until_ms + MARK_TIMEOUT_MS
            try:
                for message in output.messages():
                    await self._websocket.send(message)
                    if self._sending is not output:  # cut while the carrier did not read
                        break
            finally:
                if self._sending is output:
                    self._sending = None

    def _carrier_queue_has_space(self) -> bool:
        """Return whether the carrier's queue has room for the first queued output."""
        if self.serializer.queue_ms is None:
            return True
        queued_ms = min(self._unconfirmed_ms, self._plays_until_ms + MARK_TIMEOUT_MS - self.input_ms)
        return queued_ms + self._queue[0].n_bytes // BYTES_PER_MS <= self.serializer.queue_ms or queued_ms <= 0

    @property
    def _unconfirmed_ms(self) -> int:
        """Audio that was sent and whose mark was not returned, in ms."""
        return self._playback.unplayed_ms - self._n_queued_bytes // BYTES_PER_MS

    async def _drop_unplayed(self, *, with_tones: bool = False) -> tuple[Played, ...]:
        """Have the carrier drop unplayed audio; return how much was played of each item that is cut. Unless
        `with_tones`, tones and the audio before them stay: the tones may answer the voice that interrupts."""
        retained: frozenset[str] = frozenset()
        if not with_tones:
            queued_tones = (each.mark for each in self._queue if each.is_tones)
            retained = self._playback.marks_to(self._tones_mark).union(queued_tones)
        cut = self._playback.clear(self.input_ms, keep=retained)
        self._queue = deque(each for each in self._queue if each.mark in retained or not each.mark)
        self._n_queued_bytes = sum(each.n_bytes for each in self._queue)
        if with_tones:
            self._tones_mark = ""
        if cut and not self._tones_mark:
            self._plays_until_ms = self.input_ms
            if self._sending is not None and self._sending.mark not in retained:
                self._sending = None
            await self._websocket.send(self.serializer.clear())
        await self._send_queued()
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

        At the normal end of a conversation, first wait for the carrier to play its queue, at most `LAST_MARK_S`.
        """
        if code == NORMAL:
            with suppress(TimeoutError):
                async with asyncio.timeout(LAST_MARK_S):
                    await self._wait_until_played()
        await self._websocket.close(code, reason)

    async def _wait_until_played(self) -> None:
        while self._playback.is_playing and not self.hung_up and not self.gone:
            self._received.clear()
            await self._received.wait()

    def abort(self) -> None:
        """Abort the connection now."""
        self._websocket.abort()
