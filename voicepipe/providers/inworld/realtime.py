"""Speech to speech by Inworld, over the WebSocket `/api/v1/realtime/session`.

It speaks OpenAI's protocol, with the LLM in the session (`openai/gpt-4o-mini`, or a router of Inworld's) and the
session's id in the address. Sources: Inworld's documentation, "WebSocket" and "OpenAI migration"; pipecat's client for
the format of audio. Unverified: that `turn_detection` may be null; that the fields of `response.create` are all heeded;
how old a session may get.
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlencode
from uuid import uuid4

from voicepipe.ports.speech_model import SpeechModel, SpeechOptions
from voicepipe.providers.net.address import ProviderAddress
from voicepipe.providers.openai.realtime_speech import RealtimeDialect, RealtimeSpeechModel, session_of
from voicepipe.registry import ProviderSettings, Spec


def _path(model: str) -> str:
    return f"/api/v1/realtime/session?{urlencode({'key': f'voice-{uuid4().hex}', 'protocol': 'realtime'})}"


def _session(options: SpeechOptions) -> dict[str, Any]:
    return {**session_of(options), "model": options.model}


DIALECT: Final = RealtimeDialect(path=_path, session=_session, voices=None, lifetime_ms=None)


def open_speech_model(spec: Spec, settings: ProviderSettings) -> SpeechModel:
    """Return the realtime session with the LLM `spec.model`, such as `openai/gpt-4o-mini`, at the server of `settings`.

    Raises:
        ConfigError: a setting is missing or wrong.
    """
    return RealtimeSpeechModel(ProviderAddress.of("llm", spec, settings, auth_scheme="Basic", scheme="ws"), DIALECT)
