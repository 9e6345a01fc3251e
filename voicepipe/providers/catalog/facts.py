"""A vendor, its models and its deviations, as plain values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any, Final

import msgspec

from voicepipe.providers.vendor import Evidence
from voicepipe.registry import Spec
from voicepipe.turn.cost import Price

_DATED: Final = re.compile(r"-(20\d{6}|20\d\d-\d\d-\d\d|latest)$")
"""Suffix of a name that pins a model's date: `claude-haiku-4-5-20251001`, `gpt-5-mini-2025-08-07`."""


class PublishedSpeed(msgspec.Struct, frozen=True, kw_only=True):
    """The speed of a model in one publication; what it leaves out is None."""

    ttft_p50_ms: int | None = None
    tokens_per_s: float | None = None
    figures: str
    """The publication."""


class ModelFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about one model at one provider; unknown ones are None. Figures are published by others, not measured
    here."""

    name: str
    """The model's name at its provider."""

    input_usd_per_million: float | None = None
    """Price of a million input tokens."""

    output_usd_per_million: float | None = None
    """Price of a million output tokens, including reasoning."""

    cached_usd_per_million: float | None = None
    """Price of a million input tokens from the cache; None: the same as `input_usd_per_million`."""

    cache_write_usd_per_million: float | None = None
    """Price of a million input tokens written to the cache; None: the same as `input_usd_per_million`."""

    context_tokens: int | None = None
    cache_min_tokens: int | None = None
    """A shorter prompt is never cached."""

    ttft_p50_ms: int | None = None
    tokens_per_s: float | None = None
    source: str = ""
    """Source of prices and context size."""

    figures_source: str = ""
    """Source of `ttft_p50_ms` and `tokens_per_s`."""

    other_figures: tuple[PublishedSpeed, ...] = ()
    """Other publications' figures, which differ. The router doesn't use them."""

    @property
    def price(self) -> Price | None:
        """The price, if those of input and output are known."""
        if self.input_usd_per_million is None or self.output_usd_per_million is None:
            return None
        cache = (self.cached_usd_per_million, self.cache_write_usd_per_million)
        return Price(self.input_usd_per_million, self.output_usd_per_million, *cache)

    def cost_usd(
        self, *, input_tokens: int, output_tokens: int, cached_tokens: int = 0, cache_write_tokens: int = 0
    ) -> float | None:
        """Return the cost of an answer; None when no price is known.

        Args:
            input_tokens: all input tokens, including those from the cache.
            output_tokens: all output tokens.
            cached_tokens: number of `input_tokens` that came from the cache.
            cache_write_tokens: number of `input_tokens` that were written to the cache.
        """
        tokens = (input_tokens, output_tokens, cached_tokens, cache_write_tokens)
        return None if self.price is None else self.price.cost_usd(*tokens)


class RequestRule(msgspec.Struct, frozen=True):
    """Request rules for some of a provider's models."""

    models: tuple[str, ...]
    """Shell patterns of the models' names."""

    extra: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """Merged into the request."""

    refuses: tuple[str, ...] = ()
    """Fields that are never sent."""

    prefill: bool = False
    """Whether these models continue an answer that ends the conversation. Others get an instruction to continue."""

    def fits(self, model: str) -> bool:
        """Return whether the rule covers a model of that name."""
        return any(fnmatchcase(model, pattern) for pattern in self.models)


class ProviderFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A vendor: its address and its request rules."""

    name: str
    title: str
    kind: str = "openai"
    """The adapter's kind."""

    base_url: str = ""
    """The base URL; empty: there is no default."""

    also: tuple[str, ...] = ()
    """Other base URLs of the vendor: other regions, other names."""

    self_hosted: bool = False
    """Whether the address is the user's own, so that any address counts as the vendor's."""

    key_env: tuple[str, ...] = ()
    """Environment variables that may hold its key, in this order."""

    key_needed: bool = True
    auth: str = "Bearer"
    """The form of its key, for people; the first word is the scheme, the header's name, or `none`."""

    evidence: Evidence
    source: str
    cached_tokens: str
    """The field of its answers with the tokens from the cache."""

    affinity: str
    """The field or header that keeps a session's requests on one replica."""

    lists_models: bool = True
    """Whether it answers `GET /models`."""

    note: str = ""
    regions: str = ""
    """What is published of its regions: where it is fastest, and the latency that other places add."""

    options: tuple[tuple[str, str], ...] = ()
    """Options of its adapter."""

    when: tuple[RequestRule, ...] = ()
    models: Mapping[str, ModelFacts] = msgspec.field(default_factory=lambda: MappingProxyType({}))

    def owns(self, base_url: str) -> bool:
        """Return whether the server at `base_url` is this vendor's."""
        return self.self_hosted or base_url.rstrip("/") in (self.base_url, *self.also)

    def model(self, name: str) -> ModelFacts:
        """Return the facts of a model: by its name, or by its name without the date that pins it."""
        known = self.models.get(name) or self.models.get(_DATED.sub("", name))
        return known if known is not None else ModelFacts(name=name)

    def prefills(self, model: str) -> bool:
        """Return whether that model continues an answer that ends the conversation."""
        return any(rule.prefill and rule.fits(model) for rule in self.when)

    def options_for(self, model: str) -> tuple[tuple[str, str], ...]:
        """Return the adapter's options that depend on the model: `model_extra` and `model_refuses`; none without a
        rule."""
        extra: dict[str, Any] = {}
        refuses: dict[str, None] = {}
        for rule in self.when:
            if rule.fits(model):
                extra |= rule.extra
                refuses |= dict.fromkeys(rule.refuses)
        made = (
            ("model_extra", msgspec.json.encode(extra).decode() if extra else ""),
            ("model_refuses", " ".join(refuses)),
        )
        return tuple(pair for pair in made if pair[1])


class Catalog(msgspec.Struct, frozen=True):
    """Vendors by name."""

    providers: Mapping[str, ProviderFacts] = msgspec.field(default_factory=lambda: MappingProxyType({}))

    def provider(self, name: str) -> ProviderFacts | None:
        """Return one vendor, or None for an unknown name."""
        return self.providers.get(name)

    def model(self, spec: Spec) -> ModelFacts:
        """Return the facts of the model that `spec` names; only the name for an unknown one."""
        vendor = self.providers.get(spec.provider)
        return vendor.model(spec.model) if vendor is not None else ModelFacts(name=spec.model)
