"""A vendor, its models and its whims, as plain values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any, Final, Literal

import msgspec

from voicepipe.registry import Spec

Evidence = Literal["documented", "from_code", "unverified"]

MILLION: Final = 1_000_000

_DATED: Final = re.compile(r"-(20\d{6}|20\d\d-\d\d-\d\d|latest)$")
"""The end of a name that pins a model's day: `claude-haiku-4-5-20251001`, `gpt-5-mini-2025-08-07`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """What is known of one model at one provider; what is not known is None. Figures are others' claims."""

    name: str
    """At its provider."""

    input_usd_per_million: float | None = None
    """For a million tokens that it reads."""

    output_usd_per_million: float | None = None
    """For a million tokens that it writes, thinking among them."""

    cached_usd_per_million: float | None = None
    """For a million tokens that it reads from its cache; None: the same as `input_usd_per_million`."""

    cache_write_usd_per_million: float | None = None
    """For a million tokens that it puts into its cache; None: the same as `input_usd_per_million`."""

    context_tokens: int | None = None
    cache_min_tokens: int | None = None
    """A prompt that is shorter is never cached."""

    ttft_p50_ms: int | None = None
    tokens_per_s: float | None = None
    source: str = ""
    """Where prices and context come from."""

    figures_source: str = ""
    """Where `ttft_p50_ms` and `tokens_per_s` come from."""

    def cost_usd(
        self, *, input_tokens: int, output_tokens: int, cached_tokens: int = 0, cache_write_tokens: int = 0
    ) -> float | None:
        """What an answer cost; None when no price is known.

        Args:
            input_tokens: all that it read, those of the cache among them.
            output_tokens: all that it wrote.
            cached_tokens: how many of `input_tokens` came from the cache.
            cache_write_tokens: how many of `input_tokens` were put into it.
        """
        fresh, written = self.input_usd_per_million, self.output_usd_per_million
        if fresh is None or written is None:
            return None
        cached = fresh if self.cached_usd_per_million is None else self.cached_usd_per_million
        kept = fresh if self.cache_write_usd_per_million is None else self.cache_write_usd_per_million
        from_cache = min(cached_tokens, input_tokens)
        for_cache = min(cache_write_tokens, input_tokens - from_cache)
        read = (input_tokens - from_cache - for_cache) * fresh + from_cache * cached + for_cache * kept
        return (read + output_tokens * written) / MILLION


@dataclass(frozen=True, slots=True)
class Rule:
    """How some of a provider's models want to be asked."""

    models: tuple[str, ...]
    """Shell patterns of their names."""

    extra: Mapping[str, Any] = field(default_factory=dict)
    """Merged into the request."""

    refuses: tuple[str, ...] = ()
    """Fields that are never sent."""

    prefill: bool = False
    """They go on with an answer that the question ends with. Others are asked in words to go on."""

    def fits(self, model: str) -> bool:
        """Whether it is about a model of that name."""
        return any(fnmatchcase(model, pattern) for pattern in self.models)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderFacts:
    """One vendor: where it is and how it wants to be asked."""

    name: str
    title: str
    kind: str = "openai"
    """Which adapter speaks to it."""

    base_url: str = ""
    """Empty: only its user knows."""

    also: tuple[str, ...] = ()
    """Its other addresses: other regions, other names."""

    yours: bool = False
    """Its address is its user's own, so that any address is its own."""

    key_env: tuple[str, ...] = ()
    """Environment variables that may hold its key, in this order."""

    key_needed: bool = True
    auth: str = "Bearer"
    """How it wants its key, for people; its first word is the scheme, the header's name, or `none`."""

    evidence: Evidence
    source: str
    cached_tokens: str
    """Where its answers tell what came from the cache."""

    affinity: str
    """What keeps a session's requests on one replica."""

    lists_models: bool = True
    """It answers `GET /models`."""

    note: str = ""
    options: tuple[tuple[str, str], ...] = ()
    """Of its adapter."""

    when: tuple[Rule, ...] = ()
    models: Mapping[str, ModelFacts] = field(default_factory=lambda: MappingProxyType({}))

    def owns(self, base_url: str) -> bool:
        """Whether the server at `base_url` is this vendor's."""
        return self.yours or base_url.rstrip("/") in (self.base_url, *self.also)

    def model(self, name: str) -> ModelFacts:
        """What is known of a model: by its name, or by its name without the day that pins it."""
        known = self.models.get(name) or self.models.get(_DATED.sub("", name))
        return known if known is not None else ModelFacts(name=name)

    def prefills(self, model: str) -> bool:
        """Whether that model goes on with an answer that the question ends with."""
        return any(rule.prefill and rule.fits(model) for rule in self.when)

    def options_for(self, model: str) -> tuple[tuple[str, str], ...]:
        """The adapter's options that depend on the model: `model_extra` and `model_refuses`; none if it has no rule."""
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


@dataclass(frozen=True, slots=True)
class Catalog:
    """All vendors that are known by name."""

    providers: Mapping[str, ProviderFacts] = field(default_factory=lambda: MappingProxyType({}))

    def provider(self, name: str) -> ProviderFacts | None:
        """One vendor, or None if nobody of that name is known."""
        return self.providers.get(name)

    def model(self, spec: Spec) -> ModelFacts:
        """What is known of the model that `spec` names; nothing but its name for one that is not known."""
        vendor = self.providers.get(spec.provider)
        return vendor.model(spec.model) if vendor is not None else ModelFacts(name=spec.model)
