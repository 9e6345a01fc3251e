"""Prices of providers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

MILLION: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Tariff:
    """The price of a language model for a million tokens, in USD."""

    input_usd: float
    output_usd: float
    cached_usd: float | None = None
    """Of the input, the price of tokens read from its cache; None: as the rest of the input."""

    cache_write_usd: float | None = None
    """Of the input, the price of tokens written into its cache; None: as the rest of the input."""

    def cost_usd(
        self, input_tokens: int, output_tokens: int, cached_tokens: int = 0, cache_write_tokens: int = 0
    ) -> float:
        """Return the cost of these tokens in USD; cached tokens are part of the input."""
        cached_usd = self.input_usd if self.cached_usd is None else self.cached_usd
        write_usd = self.input_usd if self.cache_write_usd is None else self.cache_write_usd
        usd = max(0, input_tokens - cached_tokens - cache_write_tokens) * self.input_usd
        usd += cached_tokens * cached_usd + cache_write_tokens * write_usd
        return (usd + output_tokens * self.output_usd) / MILLION


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceList:
    """The prices of a session's providers. An unlisted provider has no known price."""

    models: Mapping[str, Tariff] = field(default_factory=dict)
    """By spec."""

    voices: Mapping[str, float] = field(default_factory=dict)
    """Likewise, for a million characters."""

    transcribers: Mapping[str, float] = field(default_factory=dict)
    """Likewise, for a minute of audio."""
