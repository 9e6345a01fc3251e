"""A model that may answer, with its published facts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from voicepipe.registry import Spec
from voicepipe.turn.cost import Price

CACHED_SHARE: Final = 0.8
"""Share of the prompt that a provider finds in its cache after reading the session's earlier turns. On stable prompts
60 to 90 % are published."""


UNKNOWN_PRICE: Final = Price(0.30, 2.50)
"""The planning price of a model without a known price: that of a common fast model. No cost is recorded with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A model at a provider."""

    spec: str
    """`groq/llama-3.3-70b`: its name in settings, records and logs."""

    model: str = field(init=False, repr=False, compare=False)
    """`llama-3.3-70b`: its name at the provider."""

    price: Price | None = None
    ttft_p50_ms: float = 400.0
    """The median time to the first speakable token, published or estimated: a prior that fades soon."""

    tokens_per_s: float = 100.0
    region: str = ""
    """The region, as words separated by `-`: `eu-west-1`."""

    prefills: bool = False
    """Whether it continues another model's answer, where the request ends with that answer."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "model", Spec.read(self.spec).model)  # once: each call needs it

    def cost_usd(self, input_tokens: float, output_tokens: float, *, cached_share: float) -> float:
        """Return the cost of these tokens, of which that share of the input is read from a cache; planned with
        `UNKNOWN_PRICE` where no price is known."""
        return (self.price or UNKNOWN_PRICE).cost_usd(input_tokens, output_tokens, cached_share * input_tokens)

    def read_usd(self, input_tokens: float, *, warm: bool) -> float:
        """Return the planned cost of a request to it, even without an answer."""
        return self.cost_usd(input_tokens, 0.0, cached_share=CACHED_SHARE if warm else 0.0)

    def answer_usd(self, input_tokens: float, output_tokens: float, *, warm: bool) -> float:
        """Return the planned cost of an answer of it."""
        return self.cost_usd(input_tokens, output_tokens, cached_share=CACHED_SHARE if warm else 0.0)
