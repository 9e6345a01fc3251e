"""Differences between servers that speak OpenAI's HTTP, as data: the options of providers of kind `openai`.

One `[providers.NAME]` may serve all three stages, so one type holds the options of all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args
from urllib.parse import urlsplit

import msgspec

from voicepipe.providers.net import options
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.values import replace

TokensField = Literal["max_tokens", "max_completion_tokens"]
SpeechFormat = Literal["pcm", "wav"]
ForcedTools = Literal["as_requested", "any", "auto"]
CallIds = Literal["any", "nine"]
Prefill = Literal["", "prefix", "partial"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenAiOptions:
    """Deviations of one OpenAI-shaped server."""

    auth_scheme: str = "Bearer"
    """The word before the key; some vendors require `Basic`."""

    headers: str = ""
    """A JSON object of strings, sent as headers with every request: Modal's proxy keys, OpenRouter's `X-Title`."""

    stream_usage: bool = True
    """Request token counts with `stream_options`; Cohere's OpenAI-compatible API refuses that field."""

    max_tokens_field: TokensField = "max_tokens"
    """The field for the token limit. OpenAI's reasoning models refuse `max_tokens`; most other servers accept only
    it."""

    max_output_tokens: int = 0
    """Maximum `max_tokens` of a request; 0: any. MiniMax's is 2048."""

    min_temperature: float = 0.0
    max_temperature: float = 2.0
    """A temperature outside this range is clamped to it: MiniMax's and Moonshot's end at 1."""

    session_field: str = ""
    """A field of the request's body for the session's opaque name, which keeps its cache on one replica: OpenAI and
    Mistral `prompt_cache_key`, others `user`. Empty: not sent."""

    session_header: str = ""
    """The same as a header: Fireworks `x-session-affinity`, xAI `x-grok-conv-id`."""

    refuses: frozenset[str] = frozenset()
    """Fields of a chat request that are never sent, from any source; names separated by spaces."""

    model_refuses: frozenset[str] = frozenset()
    """The same, for this model only."""

    forced_tools: ForcedTools = "as_requested"
    """The value of `tool_choice` when a function must be called: `required` or the function's name; `any` for Mistral;
    `auto` for a server that cannot require a call. A required function that cannot be named is the only one offered."""

    call_ids: CallIds = "any"
    """`nine`: the IDs of calls are 9 letters and digits, as Mistral requires."""

    strict_order: bool = False
    """Mistral's rules: system messages only at the start, and no user message right after a function's result."""

    prefill: Prefill = ""
    """The mark of an agent's message at the end of a conversation, for servers that then continue it: `prefix`
    (Mistral; DeepSeek's beta address) or `partial` (Moonshot). A catalog's rule (`prefill = true`) names the models
    that do."""

    text_only: bool = False
    """The server takes no images, and no message in parts."""

    speech_format: SpeechFormat = "pcm"
    """The format that a TTS request names. Groq's give `wav` only."""

    speech_rate_hz: int = 24_000
    """The sample rate of headerless speech. OpenAI's is 24 kHz; a server that passes on a voice's own rate may
    differ."""

    default_voice: str = ""
    """The voice when the agent names none. Empty: left out, which OpenAI and Speaches refuse."""

    llm_extra: str = ""
    """A JSON object merged into each chat request: `{"reasoning_effort": "none"}`."""

    model_extra: str = ""
    """The same, for this model only; `llm_extra` goes before it."""

    stt_extra: str = ""
    """A JSON object of strings merged into each transcription request's form."""

    stt_translations: bool = True
    """The server has `/audio/translations` for its Whisper models. False: the agent's LLM translates."""

    tts_extra: str = ""
    """A JSON object merged into each speech request: `{"instructions": "Speak calmly."}`."""

    @classmethod
    def of(cls, spec: Spec, settings: ProviderSettings) -> OpenAiOptions:
        """Read `settings.options`, with the catalog's facts about the server at `base_url` as defaults.

        Raises:
            ConfigError: an option is unknown or has a wrong value.
        """
        return replace(_usual(settings.base_url), **options.read("openai", READERS, spec, settings))


READERS: Final[Mapping[str, options.Read]] = {
    "auth_scheme": str,
    "headers": options.json_object(str),
    "stream_usage": options.flag,
    "max_tokens_field": options.one_of(*get_args(TokensField)),
    "max_output_tokens": options.whole(0, 1_000_000, "tokens"),
    "min_temperature": options.number(0, 2),
    "max_temperature": options.number(0, 2),
    "session_field": str,
    "session_header": str,
    "refuses": options.words,
    "model_refuses": options.words,
    "forced_tools": options.one_of(*get_args(ForcedTools)),
    "call_ids": options.one_of(*get_args(CallIds)),
    "strict_order": options.flag,
    "prefill": options.one_of(*get_args(Prefill)),
    "text_only": options.flag,
    "speech_format": options.one_of(*get_args(SpeechFormat)),
    "speech_rate_hz": options.whole(8_000, 192_000, "a rate in Hz"),
    "default_voice": str,
    "llm_extra": options.json_object(),
    "model_extra": options.json_object(),
    "stt_extra": options.json_object(str),
    "stt_translations": options.flag,
    "tts_extra": options.json_object(),
}


def extra(text: str) -> dict[str, msgspec.Raw]:
    """Return the members of a JSON object that an option holds, each still as JSON; none for an empty text."""
    made: dict[str, Any] = options.members(text)
    return made


def _usual(base_url: str) -> OpenAiOptions:
    if urlsplit(base_url).hostname == "api.openai.com":
        return OpenAiOptions(
            max_tokens_field="max_completion_tokens", session_field="prompt_cache_key", default_voice="alloy"
        )
    return OpenAiOptions()
