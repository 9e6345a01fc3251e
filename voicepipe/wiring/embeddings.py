"""The embedding models that REST requests may name: those of the agents' documents, and those of the settings."""

from __future__ import annotations

from collections.abc import Iterator

from voicepipe.config.settings import Settings
from voicepipe.errors import ConfigError
from voicepipe.providers.openai.embeddings import OpenAiEmbedder
from voicepipe.registry import Spec
from voicepipe.server.embedding_ports import EmbeddingRoute
from voicepipe.wiring.knowledge import KIND

KEY = "server.embedding_models"


class Embeddings:
    """Implements the port `EmbeddingModels`. Builds all at the start: a wrong spec is found then."""

    def __init__(self, settings: Settings) -> None:
        """Raises ConfigError, naming the setting, for a provider that is not there, lacks its key, or has no embedding
        models."""
        self._settings = settings
        self._routes = {route.name: route for route in self._all()}

    def find(self, name: str) -> EmbeddingRoute | None:
        """Return the route of an agent's name or alias, or of a spec."""
        return self._routes.get(self._settings.agent_named(name) or name)

    def cost_usd(self, spec: str, n_tokens: int) -> float | None:
        """Return the cost of `n_tokens`; None: no price is known."""
        price = self._settings.providers[Spec.parse(spec).provider].embedding_usd_per_million
        return None if price is None else price * n_tokens / 1_000_000

    def _all(self) -> Iterator[EmbeddingRoute]:
        for name, agent in self._settings.agents.items():
            if agent.knowledge_embedding:
                key = f"agents.{name}.knowledge_embedding"
                yield self._route(name, agent.knowledge_embedding, key, agent=name)
                yield self._route(agent.knowledge_embedding, agent.knowledge_embedding, key, agent=None)
        for text in self._settings.server.embedding_models:
            yield self._route(text, text, KEY, agent=None)

    def _route(self, name: str, text: str, key: str, *, agent: str | None) -> EmbeddingRoute:
        spec = Spec.parse(text, key=key)
        kind = self._settings.providers[spec.provider].kind if spec.provider in self._settings.providers else None
        if kind != KIND:
            raise ConfigError(
                f"{key}: expected a provider with OpenAI's API, got {str(spec)!r}, whose kind is {kind!r}"
            )
        model = OpenAiEmbedder(spec, self._settings.connection(spec, key=key))
        return EmbeddingRoute(name=name, agent=agent, spec=str(spec), model=model)
