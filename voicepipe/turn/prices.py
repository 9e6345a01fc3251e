"""What providers charge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

MILLION: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Tariff:
    """What a language model's provider charges for a million tokens, in USD."""

    input_usd: float
    output_usd: float
    cached_usd: float | None = None
    """Of the input, for what its cache had; None: as the rest of it."""

    def cost_usd(self, input_tokens: int, output_tokens: int, cached_tokens: int = 0) -> float:
        """What so many tokens cost; the cached ones are among the input."""
        cached_usd = self.input_usd if self.cached_usd is None else self.cached_usd
        fresh_tokens = max(0, input_tokens - cached_tokens)
        return (fresh_tokens * self.input_usd + cached_tokens * cached_usd + output_tokens * self.output_usd) / MILLION


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceList:
    """What the providers of a session charge. What is not in it has no known price."""

    models: Mapping[str, Tariff] = field(default_factory=dict)
    """By spec."""

    speech_usd: float | None = None
    """Of the voice, for a million characters."""
