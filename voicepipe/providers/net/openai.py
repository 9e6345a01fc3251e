"""How the servers that speak OpenAI's HTTP differ, as data: the options of providers of kind `openai`.

One `[providers.NAME]` may serve all three stages, so one type holds the options of all.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args
from urllib.parse import urlsplit

import msgspec

from voicepipe.errors import ConfigError
from voicepipe.registry import ProviderSettings, Spec

TokensField = Literal["max_tokens", "max_completion_tokens"]
SpeechFormat = Literal["pcm", "wav"]

_CHOICES: dict[str, tuple[str, ...]] = {
    "max_tokens_field": get_args(TokensField),
    "speech_format": get_args(SpeechFormat),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenAiOptions:
    """What one OpenAI-shaped server wants otherwise than the others."""

    auth_scheme: str = "Bearer"
    """The word before the key; Inworld wants `Basic`."""

    stream_usage: bool = True
    """Ask for token counts with `stream_options`; Cohere's compatible endpoint refuses that field."""

    max_tokens_field: TokensField = "max_tokens"
    """OpenAI's reasoning models refuse `max_tokens`, most other servers know nothing else."""

    session_field: str = ""
    """A field of the request's body for the session's opaque name, which keeps its cache on one replica: OpenAI and
    Mistral `prompt_cache_key`, Inworld `user`. Empty: not sent."""

    session_header: str = ""
    """The same as a header: Fireworks `x-session-affinity`, xAI `x-grok-conv-id`."""

    speech_format: SpeechFormat = "pcm"
    """What to ask a voice for. Groq's give `wav` only."""

    speech_rate_hz: int = 24_000
    """The rate of headerless speech. OpenAI's is 24 kHz; a server that passes on a voice's own rate may differ."""

    default_voice: str = ""
    """Sent when the agent names no voice. Empty: left out, which OpenAI and Speaches refuse."""

    llm_extra: str = ""
    """A JSON object merged into each chat request: `{"reasoning_effort": "none"}`."""

    stt_extra: str = ""
    """A JSON object of strings merged into each transcription request's form."""

    tts_extra: str = ""
    """A JSON object merged into each speech request: `{"instructions": "Speak calmly."}`."""

    @classmethod
    def of(cls, spec: Spec, settings: ProviderSettings) -> OpenAiOptions:
        """Read `settings.options` over what is known of the server at `base_url`.

        Raises:
            ConfigError: an option is unknown or has a wrong value.
        """
        known = {f.name: f for f in fields(cls)}
        chosen: dict[str, Any] = {}
        for name, text in settings.options:
            key = f"providers.{spec.provider}.{name}"
            if name not in known:
                raise ConfigError(f"{key}: unknown for kind openai; expected one of {', '.join(sorted(known))}")
            chosen[name] = _read(key, name, text)
        return replace(_usual(settings.base_url), **chosen)


def extra(text: str) -> dict[str, msgspec.Raw]:
    """The members of a JSON object that an option holds, each still as JSON; none for an empty text."""
    return msgspec.json.decode(text, type=dict[str, msgspec.Raw]) if text else {}


def _usual(base_url: str) -> OpenAiOptions:
    if urlsplit(base_url).hostname == "api.openai.com":
        return OpenAiOptions(
            max_tokens_field="max_completion_tokens", session_field="prompt_cache_key", default_voice="alloy"
        )
    return OpenAiOptions()


def _read(key: str, name: str, text: str) -> bool | int | str:
    if name == "stream_usage":
        if text.lower() not in ("true", "false"):
            raise ConfigError(f"{key}: expected true or false, got {text!r}")
        return text.lower() == "true"
    if name == "speech_rate_hz":
        if not text.isdecimal() or not 8_000 <= int(text) <= 192_000:
            raise ConfigError(f"{key}: expected a rate from 8000 to 192000 Hz, got {text!r}")
        return int(text)
    if name in _CHOICES and text not in _CHOICES[name]:
        raise ConfigError(f"{key}: expected {' or '.join(_CHOICES[name])}, got {text!r}")
    if name.endswith("_extra"):
        try:
            msgspec.json.decode(text or "{}", type=dict[str, str] if name == "stt_extra" else dict[str, msgspec.Raw])
        except msgspec.DecodeError as error:
            raise ConfigError(f"{key}: expected a JSON object, got {text!r} ({error})") from None
    return text
