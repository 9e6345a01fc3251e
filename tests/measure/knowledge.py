"""Measure the search of an agent's knowledge: `python -m tests.measure.knowledge [PASSAGES] [QUERIES] [DIMENSIONS]`.

The passages are drawn from a vocabulary of 20,000 words whose frequencies fall as in language (Zipf), with a fixed
seed. A query is spoken: 12 words, of which most are common. With DIMENSIONS, the search by words and by vectors of that
length together is measured too, with random vectors: the embedding itself is the vendor's.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from itertools import accumulate
from statistics import quantiles
from string import ascii_lowercase

import numpy as np

from voicepipe.knowledge.index import KnowledgeIndex
from voicepipe.knowledge.passages import Passage
from voicepipe.knowledge.vectors import VectorIndex, Vectors, unit

VOCABULARY = 20_000
WORDS = 110
"""Words of a passage, about 700 characters."""


def main(n_passages: int, n_queries: int, n_dimensions: int) -> None:
    """Print the CPU time of building the index, and of a search: median, 95th percentile and worst."""
    drawn = random.Random(7)
    vocabulary = ["".join(drawn.choices(ascii_lowercase, k=drawn.randint(2, 10))) for _ in range(VOCABULARY)]
    weights = list(accumulate(1 / rank for rank in range(1, VOCABULARY + 1)))
    passages = [
        Passage(f"{n // 50}.md", n % 50 + 1, "", " ".join(drawn.choices(vocabulary, cum_weights=weights, k=WORDS)))
        for n in range(n_passages)
    ]
    began_ns = time.process_time_ns()
    index = KnowledgeIndex(passages, max_tokens=600)
    build_ms = (time.process_time_ns() - began_ns) / 1e6
    sys.stdout.write(f"{n_passages} passages, {n_queries} queries; CPU: index {build_ms:.0f} ms\n")
    queries = [" ".join(drawn.choices(vocabulary, cum_weights=weights, k=12)) for _ in range(n_queries)]
    report("by words", queries, index.search)
    if n_dimensions:
        random_numbers = np.random.default_rng(7)
        vectors = VectorIndex(unit(random_numbers.standard_normal((n_passages, n_dimensions), dtype=np.float32)))
        query = unit(random_numbers.standard_normal((1, n_dimensions), dtype=np.float32))
        report(f"by words and {n_dimensions} dimensions", queries, lambda words: both(index, words, vectors, query))
    index.close()


def both(index: KnowledgeIndex, words: str, vectors: VectorIndex, query: Vectors) -> object:
    """Search as an answer does once it has its query's vector."""
    return index.search_both(words, lambda: vectors.nearest(query))


def report(what: str, queries: list[str], search: Callable[[str], object]) -> None:
    """Print the CPU time of these searches."""
    took_ms = []
    for query in queries:
        began_ns = time.process_time_ns()
        search(query)
        took_ms.append((time.process_time_ns() - began_ns) / 1e6)
    shares = quantiles(took_ms, n=20)
    p50, p95 = shares[9], shares[18]
    sys.stdout.write(f"{what}: p50 {p50:.2f} ms, p95 {p95:.2f} ms, worst {max(took_ms):.2f} ms\n")


if __name__ == "__main__":
    main(*(int(each) for each in (*sys.argv[1:], *("10000", "500", "0")[len(sys.argv) - 1 :])))
