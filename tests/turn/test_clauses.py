"""Text is cut early for the first clause, at sentences afterwards, and never where a voice would stumble."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicepipe.turn.clauses import MAX_CHARS, MAX_WORD_CHARS, MIN_FIRST_CHARS, ClauseSplitter


def cut(*deltas: str) -> list[list[str]]:
    """What each delta closed, and last what was left."""
    splitter = ClauseSplitter()
    return [*(splitter.push(delta) for delta in deltas), splitter.flush()]


def clauses(text: str) -> list[str]:
    """The clauses of a text that comes in one piece."""
    return [clause for closed in cut(text) for clause in closed]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello! How are you today?", ["Hello!", "How are you today?"]),
        ("Of course I can, gladly, and at once. Ask me.", ["Of course I can,", "gladly, and at once.", "Ask me."]),
        ("Yes, sure, gladly, anything.", ["Yes, sure, gladly,", "anything."]),
        ("It costs 3.50 at example.com today.", ["It costs 3.50 at example.com today."]),
        ("Ask Dr. Jones, or Mrs. Hall.", ["Ask Dr. Jones,", "or Mrs. Hall."]),
        ("We meet at 5. Then we eat.", ["We meet at 5.", "Then we eat."]),
        ("See p. 3 of it.", ["See p. 3 of it."]),
        ("1. First wash it\n2. Then dry it", ["1. First wash it", "2. Then dry it"]),
        ('He said "Stop!" Then he left.', ['He said "Stop!"', "Then he left."]),
        ("Wait... what?", ["Wait...", "what?"]),
        ("No. That is wrong.", ["No.", "That is wrong."]),
        ("今日は晴れです。明日は雨、", ["今日は晴れです。", "明日は雨、"]),
        ("はい、それはとてもいい考えだと、思います。", ["はい、それはとてもいい考えだと、", "思います。"]),
        ("It is twelve o'clock:the end", ["It is twelve o'clock:the end"]),
    ],
)
def test_where_a_text_is_cut(text: str, expected: list[str]) -> None:
    """At sentence ends and, the first time, at a comma; not at dots and commas inside of things."""
    assert clauses(text) == expected


def test_a_sentence_end_closes_a_clause_at_once() -> None:
    """The voice doesn't wait for the next delta, unless the dot may not be the end."""
    assert cut("It is", " noon.", " Good") == [[], ["It is noon."], [], ["Good"]]
    assert cut("It is 5", ".", " Then") == [[], [], ["It is 5."], ["Then"]]


def test_later_clauses_are_whole_sentences() -> None:
    """While the first one plays nothing is gained by cutting."""
    closed = clauses("First things first, friends, as ever. Second, with commas, and more, comes this.")
    assert closed == ["First things first,", "friends, as ever.", "Second, with commas, and more, comes this."]


@pytest.mark.parametrize("text", ["", " ", "\n\n", "...", "\u2014 !", "\U0001f44d"])
def test_marks_alone_are_not_spoken(text: str) -> None:
    """A voice can make nothing of them."""
    assert clauses(text) == []


def test_a_text_without_punctuation_is_cut_at_a_word() -> None:
    """A voice does not wait for ever; a word is never broken."""
    text = "word " * 200
    closed = clauses(text)
    assert all(len(clause) <= MAX_CHARS for clause in closed)
    assert {word for clause in closed for word in clause.split()} == {"word"}
    assert clauses("x" * 1_000) == ["x" * 1_000]


SAMPLE = "I am here. Yes! No, 3.5 e.g. Dr. Jones: said \u201cwait\u201d \u2014 or; 1. (stop.) so... U.S. a"
WORDS = st.lists(st.sampled_from(SAMPLE.split()), min_size=1, max_size=60)
SEPARATORS = st.lists(st.sampled_from([" ", "\n", "  "]), min_size=60, max_size=60)


@given(text=st.text(max_size=400), cuts=st.lists(st.integers(0, 400), max_size=20))
def test_joined_clauses_are_the_text(text: str, cuts: list[int]) -> None:
    """However it came in pieces; spaces at the cuts aside, and marks that nothing follows."""
    edges = [0, *sorted(min(at, len(text)) for at in cuts), len(text)]
    pieces = [text[a:b] for a, b in pairwise(edges)]
    joined = "".join(clause for closed in cut(*pieces) for clause in closed)
    whole, said = "".join(text.split()), "".join(joined.split())
    assert whole.startswith(said)
    assert not any(char.isalnum() for char in whole.removeprefix(said))


@given(words=WORDS, separators=SEPARATORS)
def test_a_cut_is_never_inside_a_word(words: list[str], separators: list[str]) -> None:
    """Text that comes word by word is cut between words; marks at the very end may be left out."""
    deltas = [f"{separator}{word}" for separator, word in zip(separators, words, strict=False)]
    closed = [clause for each in cut(*deltas) for clause in each]
    spoken = " ".join(closed).split()
    assert spoken == words[: len(spoken)]
    assert not any(char.isalnum() for word in words[len(spoken) :] for char in word)


@given(words=WORDS)
def test_the_first_clause_is_early(words: list[str]) -> None:
    """It ends no later than the first comma after a dozen characters, or the first mark that surely ends a sentence."""
    text = " ".join(words) + " and so on"
    comma = re.search(r"[,;:\u2014] ", text[MIN_FIRST_CHARS - 1 :])
    mark = re.search(r"\w[!?] ", text)
    ends = [comma.start() + MIN_FIRST_CHARS] if comma else []
    ends += [mark.start() + 2] if mark else []
    assert len(clauses(text)[0]) <= min([*ends, len(text)])


def test_a_clause_closed_early_ends_at_its_last_whole_word() -> None:
    """What follows may be short too: it is wanted soon."""
    splitter = ClauseSplitter()
    assert splitter.push("Well the capi") == []
    assert splitter.close_early() == ["Well the"]
    assert splitter.cut_short
    assert splitter.push("tal of France, as you know, is Paris.") == ["capital of France,", "as you know, is Paris."]


def test_a_clause_closed_early_waits_for_a_whole_word() -> None:
    """It is cut as soon as there is one; marks and spaces are none."""
    splitter = ClauseSplitter()
    splitter.push("- Unbe")
    assert splitter.close_early() == []
    assert splitter.push("lievable") == []
    assert splitter.push(" but") == ["- Unbelievable"]


def test_closing_early_means_the_first_clause_only() -> None:
    """And one that closes by itself in the meantime was not cut."""
    splitter = ClauseSplitter()
    splitter.push("No. And then")
    assert splitter.close_early() == []
    early = ClauseSplitter()
    early.push("Unbeliev")
    assert early.close_early() == []
    assert early.push("able. And") == ["Unbelievable."]
    assert not early.cut_short


@pytest.mark.parametrize("mark", [".", "\n", "-. ", "?\n"])
def test_marks_without_words_cost_no_more_than_their_length(mark: str) -> None:
    """A model that goes astray sends such marks for minutes, and other sessions wait meanwhile.

    Twice as many marks must not take four times as long: these would take hours.
    """
    splitter = ClauseSplitter()
    assert splitter.push(mark * 200_000) == []
    assert splitter.push("Well. Yes") == [f"{mark * 200_000}Well.".strip()]


def test_text_without_any_place_for_a_cut_is_cut() -> None:
    """A voice does not wait for the end of an endless word, nor of a language that has no spaces."""
    splitter = ClauseSplitter()
    closed = [clause for _ in range(10_000) for clause in splitter.push("x")]
    assert [len(clause) for clause in closed] == [MAX_WORD_CHARS] * 9
    assert "".join([*closed, *splitter.flush()]) == "x" * 10_000


def test_marks_that_come_one_by_one_are_looked_at_once() -> None:
    """A long row of them costs no more for each new one: this would take a quarter of an hour otherwise."""
    splitter = ClauseSplitter()
    for _ in range(100_000):
        assert splitter.push(".") == []
    assert splitter.push("Well. Yes") == [f"{'.' * 100_000}Well."]
