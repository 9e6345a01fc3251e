"""Measure the search of an agent's knowledge: `python -m tests.measure.knowledge [PASSAGES] [QUERIES]`.

The passages are drawn from a vocabulary of 20,000 words whose frequencies fall as in language (Zipf), with a fixed
seed. A query is spoken: 12 words, of which most are common.
"""

from __future__ import annotations

import random
import sys
import time
from itertools import accumulate
from statistics import quantiles
from string import ascii_lowercase

from voicepipe.knowledge.index import KnowledgeIndex
from voicepipe.knowledge.passages import Passage

VOCABULARY = 20_000
WORDS = 110
"""Words of a passage, about 700 characters."""


def main(n_passages: int, n_queries: int) -> None:
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
    took_ms = []
    for _ in range(n_queries):
        query = " ".join(drawn.choices(vocabulary, cum_weights=weights, k=12))
        began_ns = time.process_time_ns()
        index.search(query)
        took_ms.append((time.process_time_ns() - began_ns) / 1e6)
    shares = quantiles(took_ms, n=20)
    p50, p95 = shares[9], shares[18]
    sys.stdout.write(
        f"{n_passages} passages, {n_queries} queries; CPU: index {build_ms:.0f} ms, "
        f"search p50 {p50:.2f} ms, p95 {p95:.2f} ms, worst {max(took_ms):.2f} ms\n"
    )
    index.close()


if __name__ == "__main__":
    main(*(int(each) for each in (*sys.argv[1:], "10000", "500")[:2]))
