"""The search by meaning: what is near, what both rankings say together, and what a file keeps of it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicepipe import clock
from voicepipe.knowledge.index import KnowledgeIndex
from voicepipe.knowledge.passages import Passage
from voicepipe.knowledge.vector_store import VectorStore
from voicepipe.knowledge.vectors import MAX_RANKED, VectorIndex, fused, unit

EAST, NORTH, NORTH_EAST = [1.0, 0.0], [0.0, 1.0], [0.7, 0.7]


def test_the_nearest_come_first() -> None:
    """By the angle, whatever the length; no more than there are."""
    index = VectorIndex(unit(np.array([EAST, NORTH_EAST, NORTH], np.float32)))
    assert index.nearest(unit(np.array([[0.1, 5.0]], np.float32)), 2) == [2, 1]
    assert index.nearest(unit(np.array([[3.0, 0.1]], np.float32))) == [0, 1, 2]


def test_a_query_of_another_model_is_refused() -> None:
    """It has another number of dimensions."""
    with pytest.raises(ValueError, match="mismatch"):
        VectorIndex(np.eye(2, dtype=np.float32)).nearest(np.ones((1, 3), np.float32))


def test_a_vector_without_a_length_stays() -> None:
    """It is near nothing, and no error."""
    assert unit(np.array([[0.0, 0.0], [3.0, 4.0]], np.float32)).ravel() == pytest.approx([0.0, 0.0, 0.6, 0.8])


def test_two_rankings_are_fused_by_their_reciprocal_ranks() -> None:
    """As Cormack et al. 2009 have it: second in both beats first in one (1/62 + 1/62 > 1/61)."""
    assert fused(([1, 2, 3], [4, 2, 5])) == [2, 1, 4, 3, 5]
    assert fused(([], [7, 8])) == [7, 8]
    assert fused(([], [])) == []


@given(rankings=st.lists(st.lists(st.integers(0, 9), unique=True), max_size=3))
def test_a_fusion_has_each_number_once(rankings: list[list[int]]) -> None:
    """All of them, and no others."""
    found = fused(rankings)
    assert sorted(found) == sorted({number for ranking in rankings for number in ranking})


def test_a_passage_is_found_by_words_or_by_meaning() -> None:
    """Words and meaning together; the limits of an answer hold for both."""
    passages = [Passage("a.md", n, "", f"filler text number {n}") for n in range(MAX_RANKED)]
    passages += [Passage("pets.md", 1, "", "Dogs are welcome."), Passage("cats.md", 1, "", "Felines stay outside.")]
    index = KnowledgeIndex(passages, max_tokens=200)
    by_both = index.search_both("dogs", lambda: [MAX_RANKED + 1, 0])
    assert [each.document for each in by_both][:2] == ["pets.md", "cats.md"]
    assert len(index.search_both("mhm", lambda: list(range(MAX_RANKED)))) == 8
    assert index.passages == tuple(passages)
    index.close()


def test_a_vector_is_stored_by_model_and_text(tmp_path: Path) -> None:
    """In a file for its owner only; another model's vector of the same text is another."""
    path = tmp_path / "knowledge.sqlite3"
    with VectorStore(path) as store:
        store.store("a/m", ["one", "two"], np.array([EAST, NORTH], np.float32))
    assert path.stat().st_mode & 0o077 == 0
    with VectorStore(path) as store:
        one, none, two = store.of("a/m", ["one", "three", "two"])
        assert store.of("b/m", ["one"]) == [None]
    assert one is not None
    assert two is not None
    assert (one.tolist(), none, two.tolist()) == (EAST, None, NORTH)
    assert b"one" not in path.read_bytes()


def test_a_vector_without_a_document_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """30 days after it was used last."""
    day_ms, now_ms = 86_400_000, clock.unix_ms()
    with VectorStore(tmp_path / "v") as store:
        store.store("a/m", ["old", "used"], np.array([EAST, NORTH], np.float32))
        monkeypatch.setattr(clock, "unix_ms", lambda: now_ms + 20 * day_ms)
        store.of("a/m", ["used"])
        monkeypatch.setattr(clock, "unix_ms", lambda: now_ms + 31 * day_ms)
        store.delete_unused()
        assert [vector is None for vector in store.of("a/m", ["old", "used"])] == [True, False]


def test_a_file_that_is_something_else_is_an_error(tmp_path: Path) -> None:
    """It stays as it is."""
    path = tmp_path / "knowledge.sqlite3"
    path.write_bytes(b"no database" * 500)
    with pytest.raises(sqlite3.Error):
        VectorStore(path)
    assert path.read_bytes() == b"no database" * 500
