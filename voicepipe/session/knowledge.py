"""Search an agent's documents for what the user speaks about, and give the passages found to the LLM."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from typing import Final

from voicepipe.clock import monotonic_ms
from voicepipe.knowledge.index import KnowledgeIndex
from voicepipe.knowledge.passages import Passage
from voicepipe.ports.model import Content, ModelRequest, Text
from voicepipe.session.semantic_search import SemanticIndex
from voicepipe.telemetry.log import log_crash, log_event
from voicepipe.turn.cost import MILLION, estimated_tokens
from voicepipe.turn.record.values import CitedPassage, KnowledgeUse
from voicepipe.values import replace

SEARCH_TIMEOUT_S: Final = 0.1
"""An answer does not wait longer for its passages. A search of 10,000 passages takes 2 ms of CPU."""

SHORT_WORDS: Final = 4
"""A message of fewer words ("and on Sundays?") is searched for together with the user's message before it."""

HEAD: Final = "Passages from your documents. Use them if they answer; do not mention them otherwise."


class Knowledge:
    """The documents of one session's agent."""

    def __init__(
        self,
        index: KnowledgeIndex,
        semantic: SemanticIndex | None = None,
        *,
        usd_per_million_tokens: float | None = None,
    ) -> None:
        """`semantic`: the vectors of the same passages; None: they are searched for by their words only.
        `usd_per_million_tokens`: the price of their model; None: not known.
        """
        self._index, self._semantic, self._price = index, semantic, usd_per_million_tokens

    async def found_for(self, request: ModelRequest) -> tuple[ModelRequest, KnowledgeUse]:
        """Return the request with the passages that match the user's last message, and which they are.

        A search that fails or is late is logged, and the request stays as it is.
        """
        began_ms, query = monotonic_ms(), query_of(request)
        passages: tuple[Passage, ...] = ()
        embedding_ms: int | None = None
        embedding_usd: float | None = 0.0
        try:
            nearest = None
            if self._semantic is not None:
                embedded = await self._semantic.embed_query(query)
                embedding_usd = self._usd_of(query) if embedded.charged else 0.0
                if embedded.vector is not None:
                    embedding_ms = monotonic_ms() - began_ms
                    nearest = partial(self._semantic.nearest, embedded.vector)
            search = self._index.find(query, nearest)
            # Not `asyncio.timeout`, which drops a result that came while the event loop was stalled.
            await asyncio.wait({search}, timeout=SEARCH_TIMEOUT_S)
            if search.done():
                passages = search.result()
            else:
                search.cancel()
                took_ms = monotonic_ms() - began_ms
                log_event("knowledge_late", level=logging.WARNING, session=request.session, took_ms=took_ms)
        except Exception as bug:
            log_crash("knowledge", bug, session=request.session)
        cited = tuple(CitedPassage(each.document, each.number) for each in passages)
        use = KnowledgeUse(cited, monotonic_ms() - began_ms, embedding_ms, embedding_usd)
        return with_passages(request, passages), use

    def _usd_of(self, query: str) -> float | None:
        return None if self._price is None else estimated_tokens(len(query)) * self._price / MILLION


def query_of(request: ModelRequest) -> str:
    """Return what to search for: the user's last message, with the one before it if it is short."""
    messages = [each for each in request.messages if isinstance(each, Content) and each.role == "user"]
    texts = [" ".join(part.text for part in message.parts if isinstance(part, Text)) for message in messages[-2:]]
    return " ".join(texts) if texts and len(texts[-1].split()) < SHORT_WORDS else "".join(texts[-1:])


def with_passages(request: ModelRequest, passages: Sequence[Passage]) -> ModelRequest:
    """Return the request with these passages behind the user's last message, in the same message.

    All that comes before stays as it is, so that the vendor's cache of it stays warm; and no vendor moves a user's
    message to the top, as some do with a system message.
    """
    places = [n for n, each in enumerate(request.messages) if isinstance(each, Content) and each.role == "user"]
    last = request.messages[places[-1]] if places else None
    if not passages or not isinstance(last, Content):
        return request
    message = replace(last, parts=(*last.parts, Text(_rendered(passages))))
    return replace(request, messages=(*request.messages[: places[-1]], message, *request.messages[places[-1] + 1 :]))


def _rendered(passages: Sequence[Passage]) -> str:
    blocks = (f"[{each.document}{': ' if each.heading else ''}{each.heading}]\n{each.text}" for each in passages)
    return "\n\n".join((f"\n\n{HEAD}", *blocks))
