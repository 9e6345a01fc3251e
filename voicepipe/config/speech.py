"""Vendors whose ears and voices speak another wire than their language models, under the same name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final, NamedTuple

from voicepipe.registry import ProviderSettings, Stage


class Wire(NamedTuple):
    """How a vendor's speech is reached."""

    kind: str
    base_url: str


SPEECH: Final[Mapping[str, Wire]] = MappingProxyType({"inworld": Wire("inworld", "wss://api.inworld.ai")})
"""Provider -> its speech; a section that names a `kind` of its own is left as it is."""


def for_stage(provider: str, stage: Stage, connection: ProviderSettings) -> ProviderSettings:
    """The connection as the stage's adapter wants it."""
    wire = SPEECH.get(provider)
    if stage == "llm" or wire is None or connection.kind != "openai":
        return connection
    own = connection.base_url.startswith(("ws://", "wss://"))  # somebody has written where its speech is
    return replace(
        connection,
        kind=wire.kind,
        base_url=connection.base_url if own else wire.base_url,
        options=tuple(pair for pair in connection.options if pair[0].startswith(f"{stage}_")),
    )
