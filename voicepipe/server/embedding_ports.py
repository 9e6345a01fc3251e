"""Ports for the embedding models of REST requests, which the wiring implements."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from voicepipe.protocol.embeddings import EmbeddingRequest, ProviderEmbeddings


class EmbeddingModel(Protocol):
    """An embedding model."""

    async def pass_on(self, request: EmbeddingRequest) -> ProviderEmbeddings:
        """Send a request to the provider, and return its answer.

        Raises:
            StageError: the provider refused, stalled or broke.
        """
        ...


class EmbeddingRoute(Struct, frozen=True, kw_only=True):
    """The route of the requests to one name."""

    name: str
    agent: str | None
    """The agent whose documents have the model; None for a spec."""

    spec: str
    model: EmbeddingModel


class EmbeddingModels(Protocol):
    """The embedding models that requests may name."""

    def find(self, name: str) -> EmbeddingRoute | None:
        """Return the route of that name; None: there is none."""
        ...

    def cost_usd(self, spec: str, n_tokens: int) -> float | None:
        """Return the price of a request; None: unknown."""
        ...
