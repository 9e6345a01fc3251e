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
    n_chars: int = 0
    """How much of the text that had been handed over it says, in place of the voice before it."""


@dataclass(frozen=True, slots=True)
class VoiceUnheard:
    """A voice was given so much text in vain: another was sooner."""

    turn: int
    revision: int
    provider: str
    n_chars: int


@dataclass(frozen=True, slots=True)
class VoiceRecited:
    """So much text was said from disk, without the voice."""

    turn: int
    revision: int
    provider: str
    n_chars: int


@dataclass(frozen=True, slots=True)
class VoiceReached:
    """The reply has a connection to its voice's provider, kept from before or new."""

    turn: int
    revision: int
    hidden_ms: int
    """How much of connecting was over when the reply began, which is what did not wait for it."""
