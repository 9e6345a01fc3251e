"""Find the passages near a query by their vectors, and fuse two rankings."""

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

MAX_RANKED: Final = 20
"""Maximum number of passages of each ranking that are fused."""


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
    """The vectors of all passages. The search compares each one: exact, and fast enough for 20,000 passages."""

    def __init__(self, vectors: Vectors) -> None:
        """`vectors`: of length 1, in the order of the passages."""
        self._vectors = np.ascontiguousarray(vectors, dtype=np.float32)

    def nearest(self, query: Vectors, limit: int = MAX_RANKED) -> list[int]:
        """Return the numbers of the nearest passages by cosine, nearest first; `query`: (1, n_dimensions).

        Raises:
            ValueError: the query has another number of dimensions.
        """
        similarity = self._vectors @ query[0]
        limit = min(limit, len(similarity))
        best = np.argpartition(-similarity, limit - 1)[:limit]
        return [int(number) for number in best[np.argsort(-similarity[best], kind="stable")]]


def unit(vectors: Vectors) -> Vectors:
    """Return the vectors scaled to length 1; a vector of length 0 is unchanged."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(lengths > 0, lengths, 1), dtype=np.float32)


def fused(rankings: Sequence[Sequence[int]]) -> list[int]:
    """Return the numbers of all rankings, best first, by the sum of 1 / (60 + rank)."""
    scores: dict[int, float] = {}
    for ranking in rankings:
        for rank, number in enumerate(ranking, start=1):
            scores[number] = scores.get(number, 0.0) + 1 / (RANK_CONSTANT + rank)
    return sorted(scores, key=lambda number: -scores[number])
