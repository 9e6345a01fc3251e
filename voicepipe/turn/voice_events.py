"""The facts about who speaks. `events` has them all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class VoiceChanged:
    """Of several voices another than the first choice speaks from here on."""

    turn: int
    revision: int
    provider: str
    role: Literal["hedge", "replacement", "continuation"]
    why: str
