"""Options of a provider of kind `gemini`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from voicepipe.providers.net import options
from voicepipe.registry import ProviderSettings, Spec


@dataclass(frozen=True, slots=True, kw_only=True)
class GeminiOptions:
    """Options of a server that speaks Gemini's `streamGenerateContent`."""

    refuses: frozenset[str] = frozenset()
    """Fields of `generationConfig` that are never sent."""

    model_refuses: frozenset[str] = frozenset()
    """The same, for this model only."""

    llm_extra: str = ""
    """A JSON object merged into each request, at every depth: `{"generationConfig": {"topP": 0.9}}`."""

    model_extra: str = ""
    """The same, for this model only; `llm_extra` goes before it."""

    @classmethod
    def of(cls, spec: Spec, settings: ProviderSettings) -> GeminiOptions:
        """Read `settings.options`.

        Raises:
            ConfigError: an option is unknown or has a wrong value.
        """
        return cls(**options.read("gemini", READERS, spec, settings))


READERS: Final[Mapping[str, options.Read]] = {
    "refuses": options.words,
    "model_refuses": options.words,
    "llm_extra": options.json_object(),
    "model_extra": options.json_object(),
}
