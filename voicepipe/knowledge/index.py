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
from voicepipe.knowledge.vectors import MAX_RANKED, fused
from voicepipe.turn.cost import estimated_tokens

MAX_QUERY_WORDS: Final = 12
"""Maximum number of words that a query searches for, the rarest first: more words cost time and find little."""

COMMON_SHARE: Final = 0.2
"""A word in a larger share of all passages is not searched for, with `MIN_PASSAGES` passages or more: it matches almost
everything, in any language ("the", "und")."""

MIN_PASSAGES: Final = 20
MAX_FOUND: Final = 8
"""Maximum number of passages of one search."""

_WORD: Final = re.compile(r"[^\W_]+")


class KnowledgeIndex:
    """The index of one agent's documents. Build and search it in a thread, never in the event loop."""

    def __init__(self, passages: Sequence[Passage], *, max_tokens: int) -> None:
        """`max_tokens`: the limit of all passages of one search, estimated from their text.

        Raises:
            ConfigError: SQLite has no FTS5.
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
        """Return all passages; the position of a passage is its number."""
        return self._passages

    def search(self, query: str) -> tuple[Passage, ...]:
        """Return the best matches, best first, within `max_tokens`. A heading counts more than the text below it."""
        return self._within_limits(self._rank_by_words(query, MAX_FOUND))

    def search_both(self, query: str, nearest: Callable[[], Sequence[int]]) -> tuple[Passage, ...]:
        """Return the best matches by words and by `nearest`, which returns numbers of passages, within `max_tokens`."""
        return self._within_limits(fused((self._rank_by_words(query, MAX_RANKED), nearest()))[:MAX_FOUND])

    def _rank_by_words(self, query: str, limit: int) -> list[int]:
        words = self._rarest_words(query)
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
            passage_tokens = estimated_tokens(len(passage.heading) + len(passage.text))
            if tokens + passage_tokens <= self._max_tokens:
                passages.append(passage)
                tokens += passage_tokens
        return tuple(passages)

    def find(
        self, query: str, nearest: Callable[[], Sequence[int]] | None = None
    ) -> asyncio.Future[tuple[Passage, ...]]:
        """Start `search` in the thread, or `search_both` if `nearest` is given."""
        search = partial(self.search, query) if nearest is None else partial(self.search_both, query, nearest)
        return asyncio.get_running_loop().run_in_executor(self._thread, search)

    def close(self) -> None:
        """Release the thread and the memory."""
        self._thread.shutdown()
        self._database.close()

    def _rarest_words(self, query: str) -> list[str]:
        """Return the words to search for. Words that are in no passage are included: their stems may be in one."""
        max_passages = (
            len(self._passages) * COMMON_SHARE if len(self._passages) >= MIN_PASSAGES else len(self._passages)
        )
        words = [word for word in dict.fromkeys(_words(query)) if self._n_passages_with[word] <= max_passages]
        return sorted(words, key=lambda word: self._n_passages_with[word])[:MAX_QUERY_WORDS]


def _words(text: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(text)]


def build_index(folder: Path, *, max_tokens: int, key: str) -> KnowledgeIndex:
    """Read a folder and index it; takes about a second for 10,000 passages.

    Raises:
        ConfigError: as `read_folder`, and without FTS5.
    """
    return KnowledgeIndex(read_folder(folder.expanduser(), key=key), max_tokens=max_tokens)
