"""The search: what matches best comes first, within the tokens, whatever the user's words."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicepipe.errors import ConfigError
from voicepipe.knowledge.index import KnowledgeIndex
from voicepipe.knowledge.passages import Passage

HOTEL = [
    Passage("rooms.md", 1, "Rooms", "We have twelve rooms, and all of them have a balcony."),
    Passage("rooms.md", 2, "Prices", "A double room costs 80 francs, and breakfast is included."),
    Passage("pets.md", 1, "Pets", "Dogs are welcome, and cats as well."),
    Passage("hours.md", 1, "Arrival", "The desk is open from 3 pm, and on Sundays from 5 pm."),
    Passage("straße.md", 1, "Anfahrt", "Der Zug nach Zürich fährt jede Stunde."),
]


@pytest.fixture(scope="module")
def hotel() -> Iterator[KnowledgeIndex]:
    """The index of a hotel's documents."""
    index = KnowledgeIndex(HOTEL, max_tokens=200)
    yield index
    index.close()


@pytest.mark.parametrize(
    ("query", "best"),
    [
        ("can I bring my dog", "pets.md"),
        ("how much does a double room cost?", "rooms.md"),
        ("BREAKFAST", "rooms.md"),
        ("when do you open on a sunday", "hours.md"),
        ("fährt ein zug nach zurich", "straße.md"),
    ],
)
def test_what_matches_best_comes_first(hotel: KnowledgeIndex, query: str, best: str) -> None:
    """By stem, in any case, with or without accents."""
    assert hotel.search(query)[0].document == best


@pytest.mark.parametrize("query", ["", "?!", "mhm", "quantum chromodynamics", '" OR 1=1', "NEAR(xyzzy*)"])
def test_what_matches_nothing_finds_nothing(hotel: KnowledgeIndex, query: str) -> None:
    """And no sign of a query language is one."""
    assert hotel.search(query) == ()


@given(query=st.text(max_size=300))
def test_any_words_may_be_searched_for(hotel: KnowledgeIndex, query: str) -> None:
    """Nothing that a user says is an error."""
    assert set(hotel.search(query)) <= set(HOTEL)


def test_the_passages_of_one_answer_have_a_limit() -> None:
    """In tokens, all of them together; a passage that does not fit leaves its place to a shorter one."""
    passages = [Passage("a.md", n, "", f"bicycle number {n} " + "x " * (200 if n % 2 else 10)) for n in range(1, 9)]
    index = KnowledgeIndex(passages, max_tokens=60)
    found = index.search("bicycle number 3")
    index.close()
    assert found
    assert sum(len(each.text) for each in found) <= 4 * 60


def test_words_that_are_everywhere_are_not_searched_for() -> None:
    """Else each search would rank all passages."""
    passages = [Passage("a.md", n, "", f"the room has a bed, and thing {n}") for n in range(1, 101)]
    index = KnowledgeIndex(passages, max_tokens=10_000)
    assert index.search("the bed and the room") == ()
    assert [each.number for each in index.search("the thing 42")] == [42]
    index.close()


async def test_a_search_runs_beside_the_event_loop(hotel: KnowledgeIndex) -> None:
    """With the same result."""
    assert await hotel.find("my dog") == hotel.search("my dog")


def test_the_number_of_passages_is_known(hotel: KnowledgeIndex) -> None:
    assert len(hotel) == len(HOTEL)


def test_an_sqlite_without_full_text_search_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Without(sqlite3.Connection):
        def execute(self, *arguments: object) -> sqlite3.Cursor:
            raise sqlite3.OperationalError("no such module: fts5")

    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *where, **how: connect(*where, factory=Without, **how))
    with pytest.raises(ConfigError, match=r"knowledge: expected an SQLite with FTS5, got .*: no such module: fts5"):
        KnowledgeIndex(HOTEL, max_tokens=200)
