"""Speech to text by ElevenLabs' Scribe, streaming, over `/v1/speech-to-text/realtime`.

Utterances are sent, and committed at each flush (`commit_strategy=manual`). Scribe refuses a commit of less than 0.3 s
and then ends the session: shorter audio is padded with silence. Audio can only be discarded by a commit. Sources:
ElevenLabs docs, "Realtime" of the API reference and "Realtime event reference"; messages recorded from the vendor, in
public repositories. Facts marked `unverified` are not in the docs.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from typing import Final as Constant
from urllib.parse import urlencode

import msgspec
import pybase64

from voicepipe.audio.encoding import MULAW, AudioEncoding, FormatName
from voicepipe.audio.g711 import G711_HZ
from voicepipe.errors import StageError
from voicepipe.ports.transcriber import Transcriber, TranscriberCapabilities, TranscriptionOptions, TranscriptStream
from voicepipe.providers.net import failures, options
from voicepipe.providers.net.address import ProviderAddress
from voicepipe.providers.net.multiplex import decoded
from voicepipe.providers.net.ws import SocketRules, VendorSocket
from voicepipe.providers.stt.commit_assembler import Committed, Partial, TranscriptPart
from voicepipe.providers.stt.encodings import Encodings, telephone_of
from voicepipe.providers.stt.keyterms import terms
from voicepipe.providers.stt.manual_commit import PaddedSegment, manual_commit
from voicepipe.registry import ProviderSettings, Spec

RATE_HZ: Constant = 16_000

ENCODINGS: Constant[Encodings] = {
    None: AudioEncoding(RATE_HZ),
    "audio/pcmu": MULAW,
    "audio/pcma": AudioEncoding(G711_HZ),  # it has no A-law
}
NAMES: Constant[dict[FormatName, str]] = {"audio/pcm": "pcm", "audio/pcmu": "ulaw"}
"""The vendor's names of encodings; behind each follows the rate. Source: `AudioFormat` in its own clients."""

MIN_MS: Constant = 320
"""A commit of less than 300 ms is refused: the vendor's own text in `commit_throttled`."""

KEEP_ALIVE_MS: Constant = 5_000
"""Unverified: without audio for some 15 s the vendor closes (reported by others); it has no other keep-alive."""

KEY_TERMS: Constant = 50
KEY_TERM_CHARS: Constant = 20
"""The vendor's own limits ("Realtime", `keyterms`)."""

REFUSALS: Constant = {
    "auth_error": 401,
    "quota_exceeded": 402,
    "unaccepted_terms": 403,
    "input_error": 400,
    "invalid_request": 400,
    "chunk_size_exceeded": 413,
    "rate_limited": 429,
    "queue_overflow": 429,
    "resource_exhausted": 503,
}
"""The HTTP status that matches an error type ("Realtime event reference", error events)."""

BREAKS: Constant = frozenset(
    {
        "error",
        "commit_throttled",
        "transcriber_error",
        "insufficient_audio_activity",
    }
)
"""Errors after which a new session may succeed."""

EXPIRED: Constant = "session_time_limit_exceeded"
"""Error types of a session at its maximum age, which is no fault."""


def _chunk(audio: bytes, rate_hz: int, *, commit: bool = False) -> str:
    base64, flag = pybase64.b64encode_as_string(audio), "true" if commit else "false"
    return f'{{"message_type":"input_audio_chunk","audio_base_64":"{base64}","commit":{flag},"sample_rate":{rate_hz}}}'


def _line(encoding: AudioEncoding) -> SocketRules:
    return SocketRules(
        encoding=encoding,
        wrap=partial(_chunk, rate_hz=encoding.rate_hz),
        keep_alive=encoding.silence(20 * encoding.bytes_per_ms),
        keep_alive_ms=KEEP_ALIVE_MS,
    )


_READERS = {"stt_keep_logs": options.flag, "stt_extra": options.json_object(str)}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    """Options below `[providers.NAME.options]`."""

    stt_keep_logs: bool = True
    """False: the vendor stores nothing (`enable_logging=false`; for customers with that permission)."""

    stt_extra: str = ""
    """A JSON object of strings, added to the query."""

    def query(self, transcription: TranscriptionOptions) -> str:
        """Return the query after `/speech-to-text/realtime?`. Source: ElevenLabs API reference, "Realtime"."""
        encoding = ENCODINGS[transcription.telephone]
        pairs = [
            ("model_id", transcription.model),
            ("audio_format", f"{NAMES[encoding.name]}_{encoding.rate_hz}"),
            ("commit_strategy", "manual"),
        ]
        if transcription.language:
            pairs.append(("language_code", transcription.language.partition("-")[0].lower()))
        if not self.stt_keep_logs:
            pairs.append(("enable_logging", "false"))
        pairs += [("keyterms", term) for term in terms(transcription.prompt, KEY_TERMS) if len(term) <= KEY_TERM_CHARS]
        extra = options.members(self.stt_extra, str)
        return urlencode([*(pair for pair in pairs if pair[0] not in extra), *extra.items()])


def open_transcriber(spec: Spec, settings: ProviderSettings) -> Transcriber:
    """Return the STT `spec.model` at the server of `settings`.

    Raises:
        ConfigError: a setting is missing or wrong.
    """
    chosen = _Options(**options.read("elevenlabs", _READERS, spec, settings, stage="stt"))
    address = ProviderAddress.of("stt", spec, settings, auth_scheme="", key_header="xi-api-key", scheme="ws")
    return _Scribe(address, chosen)


class _Scribe:
    def __init__(self, address: ProviderAddress, chosen: _Options) -> None:
        self.name = address.name
        self.capabilities = TranscriberCapabilities(
            rate_hz=RATE_HZ, streams=False, partials=True, finalize=True, telephone=telephone_of(ENCODINGS)
        )
        self._address, self._options = address, chosen

    def open(self, transcription: TranscriptionOptions) -> AbstractAsyncContextManager[TranscriptStream]:
        path = f"/speech-to-text/realtime?{self._options.query(transcription)}"
        line = _line(ENCODINGS[transcription.telephone])
        return manual_commit(self._address, path, line, lambda socket: _Wire(self._address, socket))


class _Message(msgspec.Struct):
    message_type: str
    text: str = ""
    language_code: str | None = None
    error: str = ""


_message = msgspec.json.Decoder(_Message)


class _Wire:
    """The messages of one stream."""

    def __init__(self, address: ProviderAddress, socket: VendorSocket) -> None:
        self._address = address
        self._segment = PaddedSegment(socket, MIN_MS)
        self._end = _chunk(b"", socket.encoding.rate_hz, commit=True)
        self._repeated = ""
        """The text of the last segment: the vendor sends it once more, as a partial text of the next."""

    def audio(self, audio: bytes) -> None:
        self._segment.send(audio)

    def commit(self) -> None:
        self._segment.end(self._end)

    def discard(self) -> bool:
        self.commit()
        return True

    def read(self, message: str | bytes) -> Sequence[TranscriptPart]:
        """Vendors add message types without notice: an unknown type is ignored."""
        decoded_message = decoded(self._address, _message, message)
        match decoded_message.message_type:
            case "partial_transcript":
                return self._partial(decoded_message.text.strip())
            case "committed_transcript":
                self._repeated = decoded_message.text.strip()
                return (Committed(self._repeated, decoded_message.language_code),)
            case kind if kind == EXPIRED or kind in REFUSALS or kind in BREAKS:
                raise self._failure(kind, decoded_message.error)
        return ()

    def _partial(self, text: str) -> Sequence[TranscriptPart]:
        repeated, self._repeated = self._repeated, ""
        return () if text == repeated else (Partial(text),)

    def _failure(self, kind: str, words: str) -> StageError:
        status = REFUSALS.get(kind)
        if kind == EXPIRED:
            return failures.expired(self._address, words)
        decoded_message = failures.quote(self._address, words) or "no reason"
        if status is None:
            return failures.broken(self._address, f"the vendor ended its stream with {kind} ({decoded_message})")
        body = msgspec.json.encode({"message": f"{kind}: {words}"})
        return failures.refused(self._address, status, body)
