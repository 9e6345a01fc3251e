"""Speech to text over OpenAI's Realtime WebSocket, and by the self-hosted servers that speak it: Speaches and vLLM.

Utterances are sent with the vendor's own turn detection off, and committed at each flush. The option `stt_server` names
the kind of server. Sources: OpenAI API reference, "Realtime", client and server events, and its own Python package for
their fields; the code of Speaches and vLLM for their deviations. Facts marked `unverified` are in none of them.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Final, Literal
from urllib.parse import urlencode

import msgspec

from voicepipe.audio.encoding import ALAW, MULAW, AudioEncoding
from voicepipe.ports.transcriber import Transcriber, TranscriberCapabilities, TranscriptionOptions, TranscriptStream
from voicepipe.providers.net import options
from voicepipe.providers.net.address import ProviderAddress
from voicepipe.providers.net.ws import SocketRules, VendorSocket
from voicepipe.providers.openai import realtime_stt_wire as wire
from voicepipe.providers.openai import vllm_wire
from voicepipe.providers.stt.encodings import Encodings, telephone_of
from voicepipe.providers.stt.keyterms import terms
from voicepipe.providers.stt.manual_commit import CommitProtocol, manual_commit
from voicepipe.registry import ProviderSettings, Spec

Server = Literal["openai", "speaches", "vllm"]

ENCODINGS: Final[dict[Server, Encodings]] = {
    "openai": {None: AudioEncoding(24_000), "audio/pcmu": MULAW, "audio/pcma": ALAW},
    "speaches": {None: AudioEncoding(24_000)},
    "vllm": {None: AudioEncoding(vllm_wire.RATE_HZ)},
}
"""Those that each takes."""

LIFETIME_MS: Final[dict[Server, int | None]] = {"openai": 50 * 60_000, "speaches": None, "vllm": None}
"""A session of OpenAI's ends after 60 minutes, without a warning; it ends between two utterances after 50."""

KEYWORD_MODELS: Final = ("gpt-transcribe", "gpt-live-transcribe")
"""Prefixes of the names of models that take `keywords`."""

NO_PROMPT_MODELS: Final = ("gpt-realtime-whisper", "gpt-4o-transcribe-diarize")
"""Prefixes of models that take neither keywords nor a `prompt`."""

KEY_TERMS: Final = 50
"""A limit of this adapter."""

READERS: Final = {
    "stt_server": options.one_of("openai", "speaches", "vllm"),
    "stt_noise_reduction": options.one_of("off", "near_field", "far_field"),
    "stt_extra": options.json_object(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RealtimeOptions:
    """Options below `[providers.NAME.options]`."""

    stt_server: Server = "openai"
    """The kind of server: `openai`, or a self-hosted `speaches` or `vllm`."""

    stt_noise_reduction: str = "off"
    """Noise reduction at OpenAI: `near_field` for a headset, `far_field` for a room, or `off`."""

    stt_extra: str = ""
    """A JSON object for OpenAI, merged into `audio.input.transcription`: `{"delay": "minimal"}`."""

    def path(self, transcription: TranscriptionOptions) -> str:
        """Return the path of the WebSocket, below the base address."""
        pairs = [("intent", "transcription")]
        if self.stt_server == "vllm":
            return "/realtime"
        if self.stt_server == "speaches":  # which takes the model from the address
            pairs += [("model", transcription.model), *([("language", code)] if (code := _code(transcription)) else [])]
        return f"/realtime?{urlencode(pairs)}"

    def greeting(self, transcription: TranscriptionOptions) -> str:
        """Return the `session.update` with the transcription settings."""
        match self.stt_server:
            case "vllm":
                update: dict[str, Any] = {"model": transcription.model}
            case "speaches":
                update = {"session": {"turn_detection": None, "input_audio_transcription": _named(transcription)}}
            case "openai":
                update = {"session": {"type": "transcription", "audio": {"input": self._input(transcription)}}}
        return msgspec.json.encode({"type": "session.update", **update}).decode()

    def _input(self, transcription: TranscriptionOptions) -> dict[str, Any]:
        described = _named(transcription)
        if transcription.model.startswith(KEYWORD_MODELS):
            described |= {"keywords": words} if (words := terms(transcription.prompt, KEY_TERMS)) else {}
        elif transcription.prompt and not transcription.model.startswith(NO_PROMPT_MODELS):
            described["prompt"] = transcription.prompt
        encoding = ENCODINGS["openai"][transcription.telephone]
        more = {"noise_reduction": {"type": self.stt_noise_reduction}} if self.stt_noise_reduction != "off" else {}
        return {
            "format": {"type": encoding.name} | ({"rate": encoding.rate_hz} if encoding.name == "audio/pcm" else {}),
            "transcription": described | options.members(self.stt_extra),
            "turn_detection": None,
            **more,
        }


def _named(transcription: TranscriptionOptions) -> dict[str, Any]:
    code = _code(transcription)
    return {"model": transcription.model, "language": code} if code else {"model": transcription.model}


def _code(transcription: TranscriptionOptions) -> str:
    """Return the language in ISO 639-1, the only accepted form; empty to let the vendor detect it."""
    return (transcription.language or "").partition("-")[0].lower()


def open_transcriber(spec: Spec, settings: ProviderSettings) -> Transcriber:
    """Return the STT `spec.model` at the server of `settings`.

    Raises:
        ConfigError: a setting is missing or wrong.
    """
    chosen = RealtimeOptions(**options.read("openai_realtime", READERS, spec, settings, stage="stt"))
    return _RealtimeTranscriber(ProviderAddress.of("stt", spec, settings, scheme="ws"), chosen)


class _RealtimeTranscriber:
    def __init__(self, address: ProviderAddress, chosen: RealtimeOptions) -> None:
        self.name = address.name
        encodings = ENCODINGS[chosen.stt_server]
        self.capabilities = TranscriberCapabilities(
            rate_hz=encodings[None].rate_hz,
            streams=False,
            partials=True,
            finalize=True,
            telephone=telephone_of(encodings),
        )
        self._address, self._options = address, chosen

    def open(self, transcription: TranscriptionOptions) -> AbstractAsyncContextManager[TranscriptStream]:
        server = self._options.stt_server
        line = SocketRules(
            encoding=ENCODINGS[server][transcription.telephone],
            wrap=wire.append,
            greeting=self._options.greeting(transcription),
        )
        path = self._options.path(transcription)
        return manual_commit(self._address, path, line, self._wire, lifetime_ms=LIFETIME_MS[server])

    def _wire(self, socket: VendorSocket) -> CommitProtocol:
        if self._options.stt_server == "vllm":
            return vllm_wire.VllmWire(self._address, socket)
        return wire.OpenAiWire(self._address, socket)
