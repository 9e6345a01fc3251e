"""Read and index the documents of all agents, off the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from voicepipe.config.agents import AgentSettings
from voicepipe.config.settings import DEFAULT_AGENT, Settings
from voicepipe.errors import ConfigError
from voicepipe.knowledge.index import KnowledgeIndex, build_index
from voicepipe.knowledge.vector_store import FILE_NAME
from voicepipe.knowledge.vectors import Embedder
from voicepipe.providers.openai.embeddings import OpenAiEmbedder
from voicepipe.registry import Spec
from voicepipe.session.knowledge import Knowledge
from voicepipe.session.semantic_search import SemanticIndex
from voicepipe.tasks import BackgroundTasks, background_tasks
from voicepipe.wiring.prices import embedding_usd_per_million_of

KIND: Final = "openai"
"""The kind of the providers that have embedding models."""


@asynccontextmanager
async def knowledge_of(settings: Settings) -> AsyncIterator[Mapping[str, Knowledge]]:
    """Yield the documents of each agent that has any. Agents with the same folder and limit share an index.

    Passages are embedded while the block runs; until that is done, they are searched for by their words only.

    Raises:
        ConfigError: a folder is none, has no documents, or one of them cannot be read; or an embedding model's provider
            is not configured, or has none.
    """
    indexes: dict[tuple[str, int], KnowledgeIndex] = {}
    semantics: dict[tuple[str, str, int], SemanticIndex] = {}
    found: dict[str, Knowledge] = {}
    try:
        async with background_tasks() as tasks:
            for name, agent in settings.agents.items():
                embedder = embedder_of(settings, name)
                if not agent.knowledge:
                    continue
                which = (agent.knowledge, agent.knowledge_tokens)
                if which not in indexes:
                    key = f"agents.{name}.knowledge"
                    folder = Path(agent.knowledge)
                    indexes[which] = await asyncio.to_thread(build_index, folder, max_tokens=which[1], key=key)
                index, semantic = indexes[which], None
                if embedder is not None:
                    semantic = _semantic_of(settings, agent, index, embedder, semantics, tasks)
                price = None if semantic is None else embedding_usd_per_million_of(settings, name)
                found[name] = Knowledge(index, semantic, usd_per_million_tokens=price)
            yield found
    finally:
        for index in indexes.values():
            index.close()


def _semantic_of(
    settings: Settings,
    agent: AgentSettings,
    index: KnowledgeIndex,
    embedder: Embedder,
    built: dict[tuple[str, str, int], SemanticIndex],
    tasks: BackgroundTasks,
) -> SemanticIndex:
    """Return the vectors of an agent's documents, which agents with the same folder, model and limit share."""
    which = (agent.knowledge, agent.knowledge_embedding, agent.knowledge_embedding_ms)
    if which not in built:
        file = settings.data_path / FILE_NAME
        built[which] = SemanticIndex(embedder, index.passages, file, deadline_ms=agent.knowledge_embedding_ms)
        tasks.start(built[which].build(), name="knowledge-vectors")
    return built[which]


def embedder_of(settings: Settings, agent: str) -> Embedder | None:
    """Return the embedding model of an agent's documents, or None.

    Raises:
        ConfigError: the agent has no documents, or the provider is not configured or has no embedding models.
    """
    options, key = settings.agents[agent], f"agents.{agent}.knowledge_embedding"
    if not options.knowledge_embedding:
        return None
    # Other agents may have taken the model over from the default one, and no documents.
    if not options.knowledge and agent == DEFAULT_AGENT:
        raise ConfigError(f"{key}: expected agents.{agent}.knowledge beside it, got none")
    spec = Spec.parse(options.knowledge_embedding, key=key)
    kind = settings.providers[spec.provider].kind
    if kind != KIND:
        raise ConfigError(f"{key}: expected a provider with OpenAI's API, got {str(spec)!r}, whose kind is {kind!r}")
    return OpenAiEmbedder(spec, settings.connection(spec, key=key))
