"""Speech to text by the models that Together hosts, over its WebSocket `/realtime`.

The names of its events are those of OpenAI's Realtime transcription; their contents differ. An event names no item, a
delta replaces the one before it, and no message clears the audio buffer. Utterances are sent with Together's own turn
detection off, and committed at each flush. Sources: Together docs, "Streaming transcription", "Voice activity
detection" and the reference of the WebSocket; pipecat's client. Unverified: the shortest segment that may be committed;
that a segment without speech is answered too; how long a WebSocket may last.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final
from urllib.parse import urlencode

from voicepipe.audio.encoding import AudioEncoding
from voicepipe.ports.transcriber import Transcriber, TranscriberCapabilities, TranscriptionOptions, TranscriptStream
from voicepipe.providers.net import options
from voicepipe.providers.net.address import ProviderAddress
from voicepipe.providers.net.ws import SocketRules, VendorSocket
from voicepipe.providers.openai.realtime_stt_wire import COMMIT, append, event_of
from voicepipe.providers.stt.commit_assembler import Committed, Partial, TranscriptPart
from voicepipe.providers.stt.manual_commit import PaddedSegment, manual_commit
from voicepipe.registry import ProviderSettings, Spec

RATE_HZ: Final = 16_000

MIN_MS: Final = 120
"""Minimum segment; unverified: that of OpenAI's API, whose events these are."""


def open_transcriber(spec: Spec, settings: ProviderSettings) -> Transcriber:
    """Return the STT `spec.model` at the server of `settings`.

    Raises:
        ConfigError: a setting is missing or wrong.
    """
    readers: dict[str, options.Read] = {"stt_extra": options.json_object(str)}
    chosen = options.read("together", readers, spec, settings, stage="stt")
    address = ProviderAddress.of("stt", spec, settings, scheme="ws")
    return _Transcriber(address, options.members(chosen.get("stt_extra", ""), str))


class _Transcriber:
    def __init__(self, address: ProviderAddress, extra: dict[str, str]) -> None:
        self.name = address.name
        self.capabilities = TranscriberCapabilities(
            rate_hz=RATE_HZ, streams=False, partials=True, finalize=True, reports_language=False
        )
        self._address, self._extra = address, extra

    def open(self, transcription: TranscriptionOptions) -> AbstractAsyncContextManager[TranscriptStream]:
        line = SocketRules(encoding=AudioEncoding(RATE_HZ), wrap=append)
        return manual_commit(self._address, self._path(transcription), line, self._wire)

    def _path(self, transcription: TranscriptionOptions) -> str:
        query = {"model": transcription.model, "input_audio_format": "pcm_s16le_16000", "turn_detection": "none"}
        return f"/realtime?{urlencode(query | self._extra)}"

    def _wire(self, socket: VendorSocket) -> _Wire:
        return _Wire(self._address, socket)


class _Wire:
    """The events of one stream."""

    def __init__(self, address: ProviderAddress, socket: VendorSocket) -> None:
        self._address = address
        self._segment = PaddedSegment(socket, MIN_MS)

    def audio(self, audio: bytes) -> None:
        self._segment.send(audio)

    def commit(self) -> None:
        self._segment.end(COMMIT)

    def discard(self) -> bool:
        self.commit()
        return True

    def read(self, message: str | bytes) -> Sequence[TranscriptPart]:
        """Vendors add event types without notice: an unknown type is ignored."""
        event = event_of(self._address, message)
        match event.type:
            case "conversation.item.input_audio_transcription.delta":
                # The docs have the text in `delta`, pipecat's client in `transcript`.
                return (Partial((event.delta or event.transcript).strip()),)
            case "conversation.item.input_audio_transcription.completed":
                return (Committed(event.transcript.strip()),)
        return ()
