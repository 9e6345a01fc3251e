"""Options of a provider of kind `anthropic`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, get_args

from voicepipe.providers.net import options
from voicepipe.registry import ProviderSettings, Spec

Auth = Literal["x-api-key", "Bearer"]
Ttl = Literal["5m", "1h"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnthropicOptions:
    """Options of a server that speaks Anthropic's Messages."""

    auth: Auth = "x-api-key"
    """The header for the key: Anthropic's own, or `Authorization: Bearer`, as other vendors of this API have it."""

    version: str = "2023-06-01"
    """The `anthropic-version` header. From `2026-10-21` on every model refuses `temperature`, so it is not sent."""

    cache: bool = True
    """Mark instructions and conversation with `cache_control`. A cache write costs 1.25 times the price of uncached
    input, a hit a tenth. Below the model's minimum nothing is cached and nothing is charged."""

    cache_ttl: Ttl = "5m"
    """Cache lifetime since the last use; `1h` costs twice the price to write."""

    max_output_tokens: int = 1_024
    """Token limit when the agent sets none: the field is required."""

    refuses: frozenset[str] = frozenset()
    """Fields that are never sent, from any source. `prefill`: the conversation may not end with the agent, as in newer
    models; then a user message requests the continuation."""

    model_refuses: frozenset[str] = frozenset()
    """The same, for this model only."""

    llm_extra: str = ""
    """A JSON object merged into each request: `{"service_tier": "auto"}`."""

    model_extra: str = ""
    """The same, for this model only; `llm_extra` goes before it."""

    @classmethod
    def of(cls, spec: Spec, settings: ProviderSettings) -> AnthropicOptions:
        """Read `settings.options`.

        Raises:
            ConfigError: an option is unknown or has a wrong value.
        """
        return cls(**options.read("anthropic", READERS, spec, settings))

    @property
    def left_out(self) -> frozenset[str]:
        """Return all fields that are not sent."""
        sampling = SAMPLING if self.version >= NO_SAMPLING_SINCE else frozenset()
        return self.refuses | self.model_refuses | sampling


NO_SAMPLING_SINCE: Final = "2026-10-21"
"""The API version from which sampling parameters are refused. Versions are dates, so text order sorts them."""

SAMPLING: Final = frozenset({"temperature", "top_p", "top_k"})


READERS: Final[Mapping[str, options.Read]] = {
    "auth": options.one_of(*get_args(Auth)),
    "version": str,
    "cache": options.flag,
    "cache_ttl": options.one_of(*get_args(Ttl)),
    "max_output_tokens": options.whole(1, 1_000_000, "tokens"),
    "refuses": options.words,
    "model_refuses": options.words,
    "llm_extra": options.json_object(),
    "model_extra": options.json_object(),
}
