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


Note = Callable[[TookOver], None]
"""Returns at once."""
