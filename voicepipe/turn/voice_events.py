"""The events of the TTS and its providers. `events` has them all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class VoiceChanged:
    """Another TTS than the first choice speaks from here on."""

    turn: int
    revision: int
    provider: str
    role: Literal["hedge", "replacement", "continuation"]
    why: str
    n_chars: int = 0
    """How many characters of the text that had been given away it says, in place of the TTS before it."""


@dataclass(frozen=True, slots=True)
class VoiceUnheard:
    """A TTS was given this text in vain: another TTS was sooner."""

    turn: int
    revision: int
    provider: str
    n_chars: int


@dataclass(frozen=True, slots=True)
class VoiceRecited:
    """This text was played from disk, without the TTS."""

    turn: int
    revision: int
    provider: str
    n_chars: int


@dataclass(frozen=True, slots=True)
class VoiceReached:
    """The reply has a connection to its TTS provider, kept from before or new."""

    turn: int
    revision: int
    hidden_ms: int
    """How much of connecting was over when the reply began, in ms: the part that did not wait for the reply."""
