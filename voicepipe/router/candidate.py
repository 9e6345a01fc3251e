"""One model that may answer: what is known of it before it has ever been asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MILLION: Final = 1_000_000

CACHED_SHARE: Final = 0.8
"""Of the prompt, that a provider which has read the session's earlier turns finds in its cache: on stable prompts 60
to 90 % are published."""


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars for a million tokens."""

    input_usd: float
    output_usd: float
    cached_usd: float | None = None
    """For those found in the provider's cache; None: as any other."""

    cache_write_usd: float | None = None
    """For those put into it; None: as any other."""

    def usd(
        self,
        input_tokens: float,
        output_tokens: float,
        cached_tokens: float = 0.0,
        cache_write_tokens: float = 0.0,
    ) -> float:
        """What so many tokens cost; those from and for the cache are among `input_tokens`."""
        cached_usd = self.input_usd if self.cached_usd is None else self.cached_usd
        write_usd = self.input_usd if self.cache_write_usd is None else self.cache_write_usd
        usd = (input_tokens - cached_tokens - cache_write_tokens) * self.input_usd
        usd += cached_tokens * cached_usd + cache_write_tokens * write_usd
        return (usd + output_tokens * self.output_usd) / MILLION


UNKNOWN_PRICE: Final = Price(0.30, 2.50)
"""What a model without a known price is taken to cost when it is decided whom to ask: that of a common fast one.
Nothing is charged by it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One model at one provider."""

    spec: str
    """`groq/llama-3.3-70b`."""

    price: Price | None = None
    ttft_p50_ms: float = 400.0
    """The median time to its first speakable token that was published, or a guess: a prior with a short life."""

    tokens_per_s: float = 100.0
    region: str = ""
    """Where it runs, in words parted by `-`: `eu-west-1`."""

    prefills: bool = False
    """It goes on with an answer that others began, in the same breath, where the question ends with it."""

    def read_usd(self, input_tokens: float, *, warm: bool) -> float:
        """What asking it costs, even if it never answers; planned with `UNKNOWN_PRICE` where none is known."""
        price = self.price or UNKNOWN_PRICE
        return price.usd(input_tokens, 0.0, CACHED_SHARE * input_tokens if warm else 0.0)

    def answer_usd(self, input_tokens: float, output_tokens: float, *, warm: bool) -> float:
        """What an answer of it costs, planned likewise."""
        price = self.price or UNKNOWN_PRICE
        return self.read_usd(input_tokens, warm=warm) + price.usd(0.0, output_tokens)
