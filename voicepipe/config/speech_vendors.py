"""Vendors whose STT and TTS use another API than their LLMs, under the same name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from voicepipe.providers.built_in import VENDORS
from voicepipe.providers.vendor import KnownProvider
from voicepipe.registry import ProviderSettings, Stage
from voicepipe.values import replace

SPEECH: Final[Mapping[str, KnownProvider]] = MappingProxyType(
    {entry.name: entry for vendor in VENDORS.values() for entry in vendor.providers if entry.speech_only}
)
"""Provider -> how its STT and TTS are reached; a section that sets `kind` is not changed."""


def for_stage(provider: str, stage: Stage, connection: ProviderSettings) -> ProviderSettings:
    """Return the connection as the stage's adapter needs it."""
    speech = SPEECH.get(provider)
    if stage == "llm" or speech is None or connection.kind != "openai":
        return connection
    named = connection.base_url.startswith(("ws://", "wss://"))  # the settings name the speech address
    return replace(
        connection,
        kind=speech.kind,
        base_url=connection.base_url if named else speech.base_url,
        options=tuple(pair for pair in connection.options if pair[0].startswith(f"{stage}_")),
    )
