"""Embed the passages of an index beside the server's work, and each query within a time limit."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import numpy as np
from msgspec import Struct

from voicepipe.clock import monotonic_ms
from voicepipe.errors import Overload, StageError, StageRefused
from voicepipe.knowledge.passages import Passage
from voicepipe.knowledge.vector_store import VectorStore
from voicepipe.knowledge.vectors import Embedder, VectorIndex, Vectors
from voicepipe.telemetry.log import log_event

BATCH: Final = 32
"""Passages of one request: about 6,400 tokens, which every vendor takes."""

RETRY_S: Final = 2.0
MAX_RETRY_S: Final = 300.0
"""Pause between two tries at a failing vendor: doubles each time, at most this."""

LOCKED_S: Final = 1.0
"""Pause until a process looks again whether another one has embedded the passages."""

WHOLE_S: Final = 60.0
"""Time limit of one request for passages."""

MAX_VECTORS: Final = 20_000
"""Passages that are embedded: more are searched for by their words only, since comparing all takes too long."""

MAX_NUMBERS: Final = 32_000_000
"""Numbers of all vectors that are compared, 128 MB: 20,000 vectors of 1,536, which take 12 ms of CPU."""

MAX_FAILURES: Final = 3
PAUSE_MS: Final = 30_000
"""After 3 failures in a row no query is embedded for 30 s: each would wait for its whole time limit."""


class EmbeddedQuery(Struct, frozen=True):
    """A query that was to be embedded: its vector, and whether it is paid."""

    vector: Vectors | None = None
    """None: it is late, the vendor fails, or the passages are not embedded yet."""

    charged: bool = False
    """Whether the vendor charges for it: it has got the query, also if the vector came too late."""


class SemanticIndex:
    """The vectors of an index's passages. Until all of them are there, nothing is near a query."""

    def __init__(self, embedder: Embedder, passages: Sequence[Passage], file: Path, *, deadline_ms: int) -> None:
        """`file`: of the vectors. `deadline_ms`: how long a search waits for its query's vector."""
        self._embedder, self._file, self._deadline_ms = embedder, file, deadline_ms
        self._texts = tuple(_text(each) for each in passages[:MAX_VECTORS])
        self._vectors: VectorIndex | None = None
        self._n_failures = 0
        self._paused_until_ms = 0

    async def embed_query(self, query: str) -> EmbeddedQuery:
        """Return the query's vector, if it comes in time, and whether it is charged."""
        if self._vectors is None or not query.strip() or monotonic_ms() < self._paused_until_ms:
            return EmbeddedQuery()
        try:
            async with asyncio.timeout(self._deadline_ms / 1_000):
                vector = await self._embedder.embed((query,))
        except TimeoutError:
            self._log_failure(f"no vector within {self._deadline_ms} ms")
            return EmbeddedQuery(charged=True)
        except (StageError, Overload) as why:
            # A vendor may quote the query in its error's text, and that is what the user said.
            status = f" (HTTP {why.status})" if isinstance(why, StageRefused) else ""
            self._log_failure(f"{type(why).__name__}{status}")
            return EmbeddedQuery()
        self._n_failures = 0
        return EmbeddedQuery(vector, charged=True)

    def nearest(self, vector: Vectors) -> list[int]:
        """Return the numbers of the nearest passages, nearest first. Not for the event loop."""
        if self._vectors is None:
            return []
        try:
            return self._vectors.nearest(vector)
        except ValueError:  # under the same name there is another model now
            self._log_failure("the query's vector has another length than those of the passages")
            return []

    async def build(self) -> None:
        """Embed what the file does not have, until all is there, or the vendor refuses for good."""
        began_ms, pause_s = monotonic_ms(), RETRY_S
        while True:
            try:
                with _only_process(self._file.with_suffix(".lock")):
                    n_new = await self._build()
            except BlockingIOError:
                await asyncio.sleep(LOCKED_S)
                continue
            except (StageError, Overload, TimeoutError, sqlite3.Error, OSError) as why:
                text = str(why) or "a request took too long"
                log_event("knowledge_embedding_failed", level=logging.WARNING, model=self._embedder.name, why=text)
                if isinstance(why, StageError) and not why.retryable:
                    return
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, MAX_RETRY_S)
                continue
            took_ms = monotonic_ms() - began_ms
            log_event(
                "knowledge_embedded", model=self._embedder.name, passages=len(self._texts), new=n_new, took_ms=took_ms
            )
            return

    async def _build(self) -> int:
        vectors = await asyncio.to_thread(self._stored)
        missing = [number for number, vector in enumerate(vectors) if vector is None]
        for first in range(0, len(missing), BATCH):
            numbers = missing[first : first + BATCH]
            texts = [self._texts[number] for number in numbers]
            async with asyncio.timeout(WHOLE_S):
                new = await self._embedder.embed(texts)
            await asyncio.to_thread(self._store, texts, new)
            for number, vector in zip(numbers, new, strict=True):
                vectors[number] = vector
        self._vectors = await asyncio.to_thread(_index_of, vectors)
        return len(missing)

    def _stored(self) -> list[Vectors | None]:
        with VectorStore(self._file) as store:
            found = store.of(self._embedder.name, self._texts)
            store.delete_unused()
        dimensions = {len(vector) for vector in found if vector is not None}
        # Under the same name, a server may have got another model: its vectors can't be compared.
        return found if len(dimensions) <= 1 else [None] * len(found)

    def _store(self, texts: Sequence[str], vectors: Vectors) -> None:
        with VectorStore(self._file) as store:
            store.store(self._embedder.name, texts, vectors)

    def _log_failure(self, why: str) -> None:
        """Log that queries are searched for by their words only: once, until one is embedded."""
        self._n_failures += 1
        if self._n_failures >= MAX_FAILURES:
            self._paused_until_ms = monotonic_ms() + PAUSE_MS
        if self._n_failures == 1:
            log_event("knowledge_query_not_embedded", level=logging.WARNING, model=self._embedder.name, why=why)


@contextmanager
def _only_process(path: Path) -> Iterator[None]:
    """Hold a lock, so that the workers of a server don't all pay for the same vectors.

    Raises:
        BlockingIOError: another process has it.
    """
    file = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(file)


def _text(passage: Passage) -> str:
    return f"{passage.heading}\n{passage.text}" if passage.heading else passage.text


def _index_of(vectors: Sequence[Vectors | None]) -> VectorIndex:
    whole = np.stack([vector for vector in vectors if vector is not None])
    return VectorIndex(whole[: MAX_NUMBERS // whole.shape[1]])
