"""The output of a reply: held until the gate opens, then sent to the client as it comes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from voicepipe.audio.samples import Samples
from voicepipe.ports.synthesizer import RATE_HZ
from voicepipe.protocol.outbound import EventRenderer
from voicepipe.session.outbox import Outbox, OutgoingFrame

FIRST_PIECE_MS = 40
"""The first audio is sent in a small frame: the client can play while the next frame travels."""

PIECE_MS = 200
"""Later audio is sent in larger frames: fewer frames to pack and unpack."""

HELD_SOUND_MS = 2_000
"""A closed gate holds at most this much audio; then the synthesizer waits."""


class GatedOutput:
    """One reply's output. Implements `reply.ReplyOutput`."""

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
        self._held: list[Callable[[], None]] = []  # bounded: text by the LLM's limit, audio through `room`
        self._held_ms = 0
        self._opened = asyncio.Event()
        self._first = True
        self._owed_ms = 0
        """Audio that the wire's codec holds until more comes."""

    def open(self, response_id: str) -> None:
        """Open the gate: send what was held, in order."""
        self._response_id = response_id
        self._opened.set()
        held, self._held = self._held, []
        for send in held:
            send()

    def text(self, delta: str) -> None:
        self._send(lambda: self._post(self._wire.text_delta(self._response_id, delta)))

    def call(self, index: int, arguments: str) -> None:
        self._send(lambda: self._post(self._wire.call_delta(self._response_id, index, arguments)))

    def sound(self, samples: Samples) -> None:
        self._held_ms += 0 if self._opened.is_set() else len(samples) * 1_000 // RATE_HZ
        self._send(lambda: self._post_sound(samples))

    async def room(self) -> None:
        if self._held_ms >= HELD_SOUND_MS:
            await self._opened.wait()
        await self._outbox.room()

    def last_words(self, frames: list[bytes]) -> None:
        """Queue the events that end the response, after the audio that was held back."""
        for i, frame in enumerate(frames):
            owed_ms = self._owed_ms if i == 0 else 0
            self._outbox.put(OutgoingFrame(frame, self.turn, self.revision, 0, owed_ms, owed_ms > 0))
        self._owed_ms = 0

    def _send(self, send: Callable[[], None]) -> None:
        if self._opened.is_set():
            send()
        else:
            self._held.append(send)

    def _post(self, frames: list[bytes]) -> None:
        for frame in frames:
            self._outbox.put(OutgoingFrame(frame, self.turn, self.revision, output=not self._fills))

    def _post_sound(self, samples: Samples) -> None:
        # Counted as `Reply` counts it: the sums of received and sent audio must be equal.
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
        self._owed_ms += piece_ms
        for frame in self._wire.audio(self._response_id, piece):
            own_ms, filler_ms = (0, self._owed_ms) if self._fills else (self._owed_ms, 0)
            self._outbox.put(OutgoingFrame(frame, self.turn, self.revision, self._owed_ms, own_ms, True, filler_ms))
            self._owed_ms = 0
