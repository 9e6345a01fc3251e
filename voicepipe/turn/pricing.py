"""Prices of providers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

MILLION: Final = 1_000_000

CHARS_PER_TOKEN: Final = 4
"""Of English text in common vocabularies, by OpenAI's rule of thumb."""


def estimated_tokens(n_chars: int) -> float:
    """Return about how many tokens a text of this length is, for what no provider has counted."""
    return n_chars / CHARS_PER_TOKEN


def tts_usd(n_chars: int, usd_per_million: float) -> float:
    """Return what the speech of a text of this length costs, at a price for a million characters."""
    return n_chars * usd_per_million / MILLION


@dataclass(frozen=True, slots=True)
class Price:
    """The price of a language model for a million tokens, in USD."""

    input_usd: float
    output_usd: float
    cached_usd: float | None = None
    """Of the input, the price of tokens read from the provider's cache; None: as the rest of the input."""

    cache_write_usd: float | None = None
    """Of the input, the price of tokens written to the provider's cache; None: as the rest of the input."""

    def cost_usd(
        self, input_tokens: float, output_tokens: float, cached_tokens: float = 0, cache_write_tokens: float = 0
    ) -> float:
        """Return the cost of these tokens in USD; those read from and written to the cache are among `input_tokens`."""
        cached_usd = self.input_usd if self.cached_usd is None else self.cached_usd
        write_usd = self.input_usd if self.cache_write_usd is None else self.cache_write_usd
        cached = min(cached_tokens, input_tokens)
        written = min(cache_write_tokens, input_tokens - cached)
        usd = (input_tokens - cached - written) * self.input_usd + cached * cached_usd + written * write_usd
        return (usd + output_tokens * self.output_usd) / MILLION


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceList:
    """The prices of a session's providers. An unlisted provider has no known price."""

    models: Mapping[str, Price] = field(default_factory=dict)
    """By spec."""

    voices: Mapping[str, float] = field(default_factory=dict)
    """Likewise, for a million characters."""

    transcribers: Mapping[str, float] = field(default_factory=dict)
    """Likewise, for a minute of audio."""
