"""What a provider tells beside what it is asked for; whoever opens a stage may listen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class TookOver:
    """Of several providers another than the first choice serves from here on."""

    provider: str
    """Its spec, `local/hibari`."""

    role: Literal["hedge", "replacement", "continuation"]
    """`hedge`: it was faster. `replacement`: the other failed before anything came of it. `continuation`: in
    mid-utterance or mid-sentence."""

    why: str
    """In words for an operator: `cartesia/sonic: HTTP 503`."""

    n_chars: int = 0
    """A voice: how much of the text that had been handed over it says, in place of the one before it."""


@dataclass(frozen=True, slots=True)
class Unheard:
    """A voice was given so much text that another was sooner with: it asks for its money, and nobody heard it."""

    provider: str
    n_chars: int


@dataclass(frozen=True, slots=True)
class Recited:
    """So much text was said from disk, and its voice was not asked."""

    provider: str
    n_chars: int


Note = Callable[[TookOver], None]
"""Of ears. Returns at once."""

VoiceNote = Callable[[TookOver | Unheard | Recited], None]
"""Of voices. Returns at once."""
