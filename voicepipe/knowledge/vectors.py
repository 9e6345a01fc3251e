"""Passages near a query in the space of an embedding model, and the fusion of two rankings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

Vectors = npt.NDArray[np.float32]
"""(n_texts, n_dimensions)."""

RANK_CONSTANT: Final = 60
"""How little the first ranks differ. Source: Cormack, Clarke and Buettcher, Reciprocal Rank Fusion Outperforms
Condorcet and Individual Rank Learning Methods, SIGIR 2009, section 3."""

DEPTH: Final = 20
"""Passages of each ranking that are fused."""


class Embedder(Protocol):
    """An embedding model."""

    name: str
    """`provider/model`."""

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Return a vector of length 1 for each text.

        Raises:
            StageError: the provider refused, stalled, or sent something else.
        """
        ...


class VectorIndex:
    """The vectors of all passages, searched one by one: exact, and quick enough for 20,000 passages."""

    def __init__(self, vectors: Vectors) -> None:
        """`vectors`: of length 1, in the order of the passages."""
        self._vectors = np.ascontiguousarray(vectors, dtype=np.float32)

    def nearest(self, query: Vectors, limit: int = DEPTH) -> list[int]:
        """Return the numbers of the nearest passages by cosine, nearest first; `query`: (1, n_dimensions).

        Raises:
            ValueError: the query has another number of dimensions.
        """
        likeness = self._vectors @ query[0]
        limit = min(limit, len(likeness))
        best = np.argpartition(-likeness, limit - 1)[:limit]
        return [int(number) for number in best[np.argsort(-likeness[best], kind="stable")]]


def unit(vectors: Vectors) -> Vectors:
    """Return the vectors at length 1; one without a length stays."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(lengths > 0, lengths, 1), dtype=np.float32)


def fused(rankings: Sequence[Sequence[int]]) -> list[int]:
    """Return the numbers of all rankings, best first: by the sum of 1 / (60 + rank) over the rankings."""
    scores: dict[int, float] = {}
    for ranking in rankings:
        for rank, number in enumerate(ranking, start=1):
            scores[number] = scores.get(number, 0.0) + 1 / (RANK_CONSTANT + rank)
    return sorted(scores, key=lambda number: -scores[number])
