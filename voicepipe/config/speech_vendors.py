"""Vendors whose STT and TTS use another wire than their LLMs, under the same name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final, NamedTuple

from voicepipe.registry import ProviderSettings, Stage


class SpeechEndpoint(NamedTuple):
    """How a vendor's STT and TTS are reached."""

    kind: str
    base_url: str


SPEECH: Final[Mapping[str, SpeechEndpoint]] = MappingProxyType(
    {"inworld": SpeechEndpoint("inworld", "wss://api.inworld.ai")}
)
"""Provider -> its speech wire; a section that sets `kind` is not changed."""


def for_stage(provider: str, stage: Stage, connection: ProviderSettings) -> ProviderSettings:
    """Return the connection as the stage's adapter needs it."""
    wire = SPEECH.get(provider)
    if stage == "llm" or wire is None or connection.kind != "openai":
        return connection
    own = connection.base_url.startswith(("ws://", "wss://"))  # the settings name the speech address
    return replace(
        connection,
        kind=wire.kind,
        base_url=connection.base_url if own else wire.base_url,
        options=tuple(pair for pair in connection.options if pair[0].startswith(f"{stage}_")),
    )
