"""Read and index the documents of all agents, off the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from voicepipe.config.settings import Settings
from voicepipe.knowledge.index import KnowledgeIndex, build_index
from voicepipe.session.knowledge import Knowledge


@asynccontextmanager
async def knowledge_of(settings: Settings) -> AsyncIterator[Mapping[str, Knowledge]]:
    """Yield the documents of each agent that has any. Agents with the same folder and limit share an index.

    Raises:
        ConfigError: a folder is none, has no documents, or one of them cannot be read.
    """
    indexes: dict[tuple[str, int], KnowledgeIndex] = {}
    found: dict[str, Knowledge] = {}
    try:
        for name, its in settings.agents.items():
            which = (its.knowledge, its.knowledge_tokens)
            if its.knowledge and which not in indexes:
                key = f"agents.{name}.knowledge"
                indexes[which] = await asyncio.to_thread(build_index, Path(its.knowledge), max_tokens=which[1], key=key)
            if its.knowledge:
                found[name] = Knowledge(indexes[which])
        yield found
    finally:
        for index in indexes.values():
            index.close()
