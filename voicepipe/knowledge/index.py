"""A full-text index of passages in memory, by SQLite's FTS5, ranked by BM25."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

from voicepipe.errors import ConfigError
from voicepipe.knowledge.passages import Passage, read_folder
from voicepipe.knowledge.vectors import DEPTH, fused
from voicepipe.turn.cost import estimated_tokens

QUERY_WORDS: Final = 12
"""Words of a query that are searched for, the rarest first: each more costs time and finds little."""

COMMON_SHARE: Final = 0.2
"""A word in more than this share of all passages is not searched for, if there are at least `MANY` passages: it finds
almost everything, in any language ("the", "und")."""

MANY: Final = 20
MAX_FOUND: Final = 8
"""Passages of one answer at most, however short."""

_WORD: Final = re.compile(r"[^\W_]+")


class KnowledgeIndex:
    """The index of one agent's documents. It is built and searched in a thread of its own, never in the event loop."""

    def __init__(self, passages: Sequence[Passage], *, max_tokens: int) -> None:
        """`max_tokens`: of all passages for one answer together, estimated from their text.

        Raises:
            ConfigError: this Python's SQLite has no FTS5.
        """
        self._passages, self._max_tokens = tuple(passages), max_tokens
        self._n_passages_with: Counter[str] = Counter()
        self._database = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="knowledge")
        try:
            self._database.execute(
                "CREATE VIRTUAL TABLE passages USING fts5(heading, text, content='', tokenize='porter unicode61')"
            )
        except sqlite3.OperationalError as why:
            raise ConfigError(f"knowledge: expected an SQLite with FTS5, got {sqlite3.sqlite_version}: {why}") from None
        for passage in self._passages:
            self._n_passages_with.update(set(_words(f"{passage.heading} {passage.text}")))
        rows = ((n, each.heading, each.text) for n, each in enumerate(self._passages))
        self._database.execute("BEGIN")
        self._database.executemany("INSERT INTO passages (rowid, heading, text) VALUES (?, ?, ?)", rows)
        self._database.execute("COMMIT")
        self._database.execute("INSERT INTO passages (passages) VALUES ('optimize')")

    def __len__(self) -> int:
        return len(self._passages)

    @property
    def passages(self) -> tuple[Passage, ...]:
        """Return all passages; a passage's place is its number."""
        return self._passages

    def search(self, query: str) -> tuple[Passage, ...]:
        """Return the passages that match best, best first, within the tokens for one answer; a heading counts more than
        the text below it.
        """
        return self._within_limits(self._by_words(query, MAX_FOUND))

    def search_both(self, query: str, nearest: Callable[[], Sequence[int]]) -> tuple[Passage, ...]:
        """Return the passages that match best by their words and by `nearest`, which returns numbers of passages."""
        return self._within_limits(fused((self._by_words(query, DEPTH), nearest()))[:MAX_FOUND])

    def _by_words(self, query: str, limit: int) -> list[int]:
        words = self._rarest(query)
        if not words:
            return []
        found = self._database.execute(
            "SELECT rowid FROM passages WHERE passages MATCH ? ORDER BY bm25(passages, 2.0, 1.0) LIMIT ?",
            (" OR ".join(f'"{word}"' for word in words), limit),
        ).fetchall()
        return [number for (number,) in found]

    def _within_limits(self, numbers: Sequence[int]) -> tuple[Passage, ...]:
        passages: list[Passage] = []
        tokens = 0.0
        for number in numbers:
            passage = self._passages[number]
            its_tokens = estimated_tokens(len(passage.heading) + len(passage.text))
            if tokens + its_tokens <= self._max_tokens:
                passages.append(passage)
                tokens += its_tokens
        return tuple(passages)

    def find(
        self, query: str, nearest: Callable[[], Sequence[int]] | None = None
    ) -> asyncio.Future[tuple[Passage, ...]]:
        """Start the same search in a thread; with `nearest` as `search_both` does."""
        search = partial(self.search, query) if nearest is None else partial(self.search_both, query, nearest)
        return asyncio.get_running_loop().run_in_executor(self._thread, search)

    def close(self) -> None:
        """Release the thread and the memory."""
        self._thread.shutdown()
        self._database.close()

    def _rarest(self, query: str) -> list[str]:
        """Return the words to search for. A word that is in no passage stays: its stem may be in one."""
        most = len(self._passages) * COMMON_SHARE if len(self._passages) >= MANY else len(self._passages)
        words = [word for word in dict.fromkeys(_words(query)) if self._n_passages_with[word] <= most]
        return sorted(words, key=lambda word: self._n_passages_with[word])[:QUERY_WORDS]


def _words(text: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(text)]


def build_index(folder: Path, *, max_tokens: int, key: str) -> KnowledgeIndex:
    """Read a folder and index it; takes about a second for 10,000 passages.

    Raises:
        ConfigError: as `read_folder`, and without FTS5.
    """
    return KnowledgeIndex(read_folder(folder.expanduser(), key=key), max_tokens=max_tokens)
