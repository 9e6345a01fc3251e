"""Speech to text by Inworld's own model, streaming, over `/stt/v1/transcribe:streamBidirectional`.

Utterances are sent with the vendor's turn detection off (`vadThreshold` 0), and each flush ends a turn (`endTurn`). The
vendor ends a turn of some 30 s itself. Audio can only be discarded by ending the turn. Inworld also sells other
vendors' models; use these at their own vendors, since not all of them end a turn on request. Sources: Inworld docs,
"Transcribe audio (WebSocket)" and "Turn Detection"; its own examples, for the shape of an error; Pipecat's and
LiveKit's clients, for empty finals. Unverified: that a turn without speech is answered too, that silence keeps a
WebSocket open, and the status of a handshake's refusal.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any
from typing import Final as Constant

import msgspec
import pybase64

from voicepipe.audio.encoding import AudioEncoding
from voicepipe.errors import ConfigError
from voicepipe.ports.transcriber import Transcriber, TranscriberCapabilities, TranscriptionOptions, TranscriptStream
from voicepipe.providers.net import grpc_errors, options
from voicepipe.providers.net.address import ProviderAddress
from voicepipe.providers.net.multiplex import decoded
from voicepipe.providers.net.ws import SocketRules, VendorSocket
from voicepipe.providers.stt.commit_assembler import Committed, Partial, TranscriptPart
from voicepipe.providers.stt.keyterms import terms
from voicepipe.providers.stt.manual_commit import PaddedSegment, manual_commit
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.values import replace

RATE_HZ: Constant = 16_000
ENCODING: Constant = AudioEncoding(RATE_HZ)

MODEL: Constant = "inworld-stt-1"
PATH: Constant = "/stt/v1/transcribe:streamBidirectional"
END_TURN: Constant = '{"endTurn":{}}'

MIN_MS: Constant = 200
"""Minimum length of a turn; unverified: the vendor may need some audio before it answers."""

KEEP_ALIVE_MS: Constant = 15_000
"""Silence, since it has no other keep-alive."""

KEY_TERMS: Constant = 50
"""A limit of this adapter on `prompts`, the expected words."""

NOT_IN_TERMS: Constant = frozenset("#/@|")
"""Terms with these are refused. Unverified: from other clients' code."""


def _audio(pcm: bytes) -> str:
    return f'{{"audioChunk":{{"content":"{pybase64.b64encode_as_string(pcm)}"}}}}'


LINE = SocketRules(
    encoding=ENCODING,
    wrap=_audio,
    keep_alive=ENCODING.silence(20 * ENCODING.bytes_per_ms),
    keep_alive_ms=KEEP_ALIVE_MS,
    farewell='{"closeStream":{}}',
)


def open_transcriber(spec: Spec, settings: ProviderSettings) -> Transcriber:
    """Return the STT `inworld-stt-1` at the server of `settings`.

    Raises:
        ConfigError: a setting is missing or wrong, or the model is another vendor's.
    """
    readers: dict[str, options.Read] = {"stt_extra": options.json_object()}
    chosen = options.read("inworld", readers, spec, settings, stage="stt")
    if spec.model != MODEL:
        raise ConfigError(f"{spec}: expected {spec.provider}/{MODEL}, the one model whose turns can be ended")
    address = ProviderAddress.of("stt", spec, settings, auth_scheme="Basic", scheme="ws")
    return _Inworld(address, **chosen)


class _Inworld:
    def __init__(self, address: ProviderAddress, *, stt_extra: str = "") -> None:
        self.name = address.name
        self.capabilities = TranscriberCapabilities(
            rate_hz=RATE_HZ, streams=False, partials=True, finalize=True, reports_language=False
        )
        self._address, self._extra = address, options.members(stt_extra)

    def open(self, transcription: TranscriptionOptions) -> AbstractAsyncContextManager[TranscriptStream]:
        line = replace(LINE, greeting=self._greeting(transcription))
        return manual_commit(self._address, PATH, line, lambda socket: _Wire(self._address, socket))

    def _greeting(self, transcription: TranscriptionOptions) -> str:
        config: dict[str, Any] = {
            "modelId": f"inworld/{MODEL}",
            "audioEncoding": "LINEAR16",
            "sampleRateHertz": RATE_HZ,
            "numberOfChannels": 1,
            "inworldSttV1Config": {"vadThreshold": 0},
        }
        if transcription.language:
            config["language"] = transcription.language
        if words := [term for term in terms(transcription.prompt, KEY_TERMS) if not NOT_IN_TERMS & set(term)]:
            config["prompts"] = words
        return msgspec.json.encode({"transcribeConfig": config | self._extra}).decode()


class _Transcription(msgspec.Struct, rename="camel"):
    transcript: str = ""
    is_final: bool = False


class _Result(msgspec.Struct):
    transcription: _Transcription | None = None


class _Status(msgspec.Struct):
    code: int = 0
    message: str = ""


class _Message(msgspec.Struct):
    result: _Result | None = None
    error: _Status | None = None


_message = msgspec.json.Decoder(_Message)


class _Wire:
    """The messages of one stream."""

    def __init__(self, address: ProviderAddress, socket: VendorSocket) -> None:
        self._address = address
        self._segment = PaddedSegment(socket, MIN_MS)

    def audio(self, audio: bytes) -> None:
        self._segment.send(audio)

    def commit(self) -> None:
        self._segment.end(END_TURN)

    def discard(self) -> bool:
        self.commit()
        return True

    def read(self, message: str | bytes) -> Sequence[TranscriptPart]:
        """Vendors add result types without notice: an unknown type is ignored."""
        decoded_message = decoded(self._address, _message, message)
        if decoded_message.error is not None:
            raise grpc_errors.failure(self._address, decoded_message.error.code, decoded_message.error.message)
        transcript = decoded_message.result.transcription if decoded_message.result is not None else None
        if transcript is None:
            return ()
        text = transcript.transcript.strip()
        return (Committed(text) if transcript.is_final else Partial(text),)
