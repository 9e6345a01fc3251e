"""The events of vLLM's `/v1/realtime`, both ways: OpenAI's names with a different sequence.

A commit starts the transcription, and a final commit ends it. vLLM drops audio that is sent before the text has
arrived, so that audio waits here. Source: vLLM's docs, `realtime.api_router`, and its code, `realtime/connection.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from voicepipe.providers.net.address import ProviderAddress
from voicepipe.providers.net.ws import VendorSocket
from voicepipe.providers.openai.realtime_stt_wire import event_of
from voicepipe.providers.stt.commit_assembler import Committed, Partial, TranscriptPart

RATE_HZ: Final = 16_000

BEGIN: Final = '{"type":"input_audio_buffer.commit","final":false}'
END: Final = '{"type":"input_audio_buffer.commit","final":true}'

MIN_MS: Final = 200
"""Minimum segment; unverified: a model may need some audio before it answers."""

WAITING_MS: Final = 30_000
"""Maximum audio that waits for the text of the previous segment; beyond it the oldest is dropped."""


class VllmWire:
    """The events of one stream."""

    def __init__(self, address: ProviderAddress, socket: VendorSocket) -> None:
        self._address, self._socket = address, socket
        self._sent_bytes = 0
        """Samples of the current segment; 0: there is none."""

        self._awaits_text = False
        """Whether the text of the previous segment has not arrived."""

        self._text = ""
        # Full: the oldest audio is dropped; the ends of segments (None) stay.
        self._waiting: deque[bytes | None] = deque()
        self._waiting_bytes = 0

    def audio(self, audio: bytes) -> None:
        if not self._awaits_text:
            self._send(audio)
            return
        self._waiting.append(audio)
        self._waiting_bytes += len(audio)
        while self._waiting_bytes > WAITING_MS * self._socket.encoding.bytes_per_ms:
            oldest = next(piece for piece in self._waiting if piece is not None)
            self._waiting.remove(oldest)
            self._waiting_bytes -= len(oldest)

    def commit(self) -> None:
        if self._awaits_text:
            self._waiting.append(None)
        else:
            self._end()

    def discard(self) -> bool:
        self.commit()
        return True

    def read(self, message: str | bytes) -> Sequence[TranscriptPart]:
        """Vendors add event types without notice: an unknown type is ignored."""
        event = event_of(self._address, message)
        match event.type:
            case "transcription.delta":
                self._text += event.delta or ""
                return (Partial(self._text.strip()),)
            case "transcription.done":
                self._go_on()
                return (Committed(event.text.strip()),)
        return ()

    def _send(self, pcm: bytes) -> None:
        if not self._sent_bytes:
            self._socket.send(BEGIN)
        self._sent_bytes += len(pcm)
        self._socket.send_audio(pcm)

    def _end(self) -> None:
        encoding = self._socket.encoding
        missing = MIN_MS * encoding.bytes_per_ms - self._sent_bytes
        if missing > 0:
            self._send(encoding.silence(missing))
        self._socket.send(END)
        self._sent_bytes, self._awaits_text = 0, True

    def _go_on(self) -> None:
        """Handle an arrived text: send the waiting audio, up to the end of the next segment."""
        self._text, self._awaits_text, self._sent_bytes = "", False, 0
        while self._waiting and not self._awaits_text:
            pcm = self._waiting.popleft()
            if pcm is None:
                self._end()
            else:
                self._waiting_bytes -= len(pcm)
                self._send(pcm)
