"""Vectors of an agent's documents: made once, beside the server's work; and a query's vector within its time limit."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from voicepipe.errors import StageBroken, StageRefused
from voicepipe.knowledge.index import KnowledgeIndex
from voicepipe.knowledge.passages import Passage
from voicepipe.knowledge.vectors import Vectors, unit
from voicepipe.ports.model import Content, ModelRequest, Text
from voicepipe.session import semantic_search
from voicepipe.session.knowledge import Knowledge
from voicepipe.session.semantic_search import EmbeddedQuery, SemanticIndex
from voicepipe.testing.waiting import WAIT_S

NOT_SENT = EmbeddedQuery()
PASSAGES = [Passage("a.md", n, "Head" if n == 1 else "", f"passage {n}") for n in range(1, 4)]


class FakeEmbedder:
    """A vector for each text, by its length; it fails and stalls on cue."""

    name = "fake/embed"

    def __init__(self, dimensions: int = 2) -> None:
        self.requested: list[list[str]] = []
        self.failures: list[Exception] = []
        self.stalls = False
        self.dimensions = dimensions

    async def embed(self, texts: Sequence[str]) -> Vectors:
        self.requested.append(list(texts))
        if self.failures:
            raise self.failures.pop(0)
        if self.stalls:
            await asyncio.Event().wait()
        vectors = np.ones((len(texts), self.dimensions), np.float32)
        vectors[:, 0] = [ord(text[-1]) - 48 for text in texts]
        return unit(vectors)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tries follow one another at once."""
    monkeypatch.setattr(semantic_search, "RETRY_S", 0)
    monkeypatch.setattr(semantic_search, "LOCKED_S", 0)


def index_of(embedder: FakeEmbedder, folder: Path, *, deadline_ms: int = 60_000) -> SemanticIndex:
    return SemanticIndex(embedder, PASSAGES, folder / "knowledge.sqlite3", deadline_ms=deadline_ms)


async def test_passages_are_embedded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In batches, with their headings; the next start takes them from the file."""
    monkeypatch.setattr(semantic_search, "BATCH", 2)
    first, second = FakeEmbedder(), FakeEmbedder()
    await index_of(first, tmp_path).build()
    assert first.requested == [["Head\npassage 1", "passage 2"], ["passage 3"]]
    index = index_of(second, tmp_path)
    assert await index.embed_query("about 3") == NOT_SENT, "until all is there, words alone are searched for"
    await index.build()
    assert second.requested == []
    vector = (await index.embed_query("about 3")).vector
    assert vector is not None
    assert index.nearest(vector) == [2, 1, 0]


async def test_a_vendor_that_fails_is_tried_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What came before is not requested again."""
    embedder = FakeEmbedder()
    embedder.failures = [StageBroken("llm", provider="fake/embed", why="cut", retryable=True)] * 2
    caplog.set_level(logging.INFO)
    await index_of(embedder, tmp_path).build()
    assert len(embedder.requested) == 3
    assert [each.message for each in caplog.records] == ["knowledge_embedding_failed"] * 2 + ["knowledge_embedded"]


async def test_a_vendor_that_refuses_for_good_is_left_alone(tmp_path: Path) -> None:
    """A wrong key, an unknown model: words alone are searched for until the next start."""
    embedder = FakeEmbedder()
    embedder.failures = [StageRefused("llm", provider="fake/embed", why="no key", retryable=False, status=401)]
    index = index_of(embedder, tmp_path)
    await index.build()
    assert (len(embedder.requested), await index.embed_query("1")) == (1, NOT_SENT)


async def test_one_process_embeds_and_the_others_wait_for_it(tmp_path: Path) -> None:
    """They take its vectors from the file."""
    waiting, busy = FakeEmbedder(), FakeEmbedder()
    with semantic_search._only_process(tmp_path / "knowledge.lock"):
        build = asyncio.create_task(index_of(waiting, tmp_path).build())
        for _ in range(10):
            await asyncio.sleep(0)
        await index_of(busy, tmp_path)._build()
        assert waiting.requested == []
    async with asyncio.timeout(WAIT_S):
        await build
    assert (len(busy.requested), waiting.requested) == (1, [])


async def test_another_model_under_the_same_name_is_embedded_anew(tmp_path: Path) -> None:
    """A server may have got another one: vectors of different lengths can't be compared."""
    await index_of(FakeEmbedder(2), tmp_path).build()
    index = index_of(changed := FakeEmbedder(3), tmp_path)
    await index.build()
    assert changed.requested == []
    vector = (await index.embed_query("1")).vector
    assert vector is not None
    assert index.nearest(vector) == []


async def test_a_query_that_is_late_or_refused_is_searched_for_by_its_words(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Logged once, without what the user said; after three failures in a row queries are not sent for a while."""
    embedder = FakeEmbedder()
    index = index_of(embedder, tmp_path, deadline_ms=10)
    await index.build()
    embedder.stalls = True
    assert await index.embed_query("my secret 1") == EmbeddedQuery(charged=True), "the vendor has got it"
    embedder.stalls = False
    refusal = StageRefused("llm", provider="fake/embed", why="bad input: my secret 1", retryable=False, status=400)
    embedder.failures = [refusal, refusal]
    assert [await index.embed_query("my secret 1") for _ in range(2)] == [NOT_SENT] * 2
    n_requests = len(embedder.requested)
    assert await index.embed_query("my secret 1") == NOT_SENT
    assert len(embedder.requested) == n_requests
    events = [each for each in caplog.records if each.message == "knowledge_query_not_embedded"]
    assert len(events) == 1
    assert "secret" not in str([vars(each) for each in events])


async def test_nothing_said_is_not_embedded(tmp_path: Path) -> None:
    """Silence has no meaning."""
    embedder = FakeEmbedder()
    index = index_of(embedder, tmp_path)
    assert index.nearest(np.ones((1, 2), np.float32)) == []
    await index.build()
    assert await index.embed_query("  ") == NOT_SENT


async def test_a_late_vector_is_paid(tmp_path: Path) -> None:
    """The vendor has read the query; a refused one costs nothing."""
    embedder = FakeEmbedder()
    semantic = index_of(embedder, tmp_path, deadline_ms=10)
    await semantic.build()
    index = KnowledgeIndex(PASSAGES, max_tokens=100)
    knowledge = Knowledge(index, semantic, usd_per_million_tokens=2.0)
    request = ModelRequest(model="m", messages=(Content("user", (Text("pets " * 80),)),))
    try:
        embedder.stalls = True
        _, late = await knowledge.found_for(request)
        embedder.failures = [StageRefused("llm", provider="fake/embed", why="no", retryable=False, status=400)]
        _, refused = await knowledge.found_for(request)
    finally:
        index.close()
    assert (late.embedding_ms, refused.embedding_ms) == (None, None)
    assert late.embedding_usd == pytest.approx(100 * 2 / 1e6)
    assert refused.embedding_usd == 0
