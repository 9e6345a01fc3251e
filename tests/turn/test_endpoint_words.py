"""Whether words sound finished."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicepipe.turn.words import ANSWERED, CLOSED, ENGLISH, LEANING, OPEN, PAUSED, SPELLING, UNKNOWN, unfinished


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("What can I do for you?", CLOSED),
        ("It works!", CLOSED),
        ('She said "no."', CLOSED),
        ("it works", UNKNOWN),
        ("Six.", CLOSED),
        ("When the sun shines,", PAUSED),
        ("I would like a.", OPEN),
        ("And then, um.", OPEN),
        ("Well I\u2019m", OPEN),
        ("I want to go to", LEANING),
        ("It was a long...", SPELLING),
        ("It was a long \u2014", SPELLING),
        ("My number is 4 1 5", SPELLING),
        ("four one five five five five", SPELLING),
        ("S M I", SPELLING),
        ("It is 4155550123.", CLOSED),
        ("415 555 0123.", CLOSED),
        ("", UNKNOWN),
        ("...", UNKNOWN),
    ],
)
def test_classes_of_english_ends(text: str, expected: float) -> None:
    """A transcriber's full stop doesn't close a sentence that ends on an article."""
    assert unfinished(text) == expected


@pytest.mark.parametrize("text", ["Yes.", "no,", "Yeah, sure.", "okay"])
def test_a_short_answer_to_a_question_is_whole(text: str) -> None:
    """Only when there was a question."""
    assert unfinished(text, asked=True) == ANSWERED
    assert unfinished(text) > ANSWERED


def test_a_longer_answer_is_a_sentence_like_any_other() -> None:
    assert unfinished("Yes, but the", asked=True) == OPEN
    assert unfinished("Yes, I think so.", asked=True) == CLOSED


@pytest.mark.parametrize(
    ("text", "language", "expected"),
    [
        ("Ich hole die", "de-DE", UNKNOWN),
        ("Ich hole die Milch.", "de-DE", CLOSED),
        ("\u884c\u304d\u307e\u3059\u3002", "ja", CLOSED),
        ("\u4f60\u597d\uff0c", "zh", PAUSED),
        ("\u0645\u0631\u062d\u0628\u0627\u061f", "ar", CLOSED),
        ("I see the", "en-GB", OPEN),
        ("I see the", None, OPEN),
    ],
)
def test_a_language_without_a_list_has_its_punctuation(text: str, language: str | None, expected: float) -> None:
    """And none at all is taken for English."""
    assert unfinished(text, language) == expected


def test_a_word_has_one_class() -> None:
    """The lists don't contradict one another."""
    assert not ENGLISH.opening & ENGLISH.leaning
    assert not (ENGLISH.opening | ENGLISH.leaning) & (ENGLISH.answers | ENGLISH.digits)


@given(text=st.text(max_size=80), language=st.none() | st.text(max_size=8), asked=st.booleans())
def test_any_text_has_a_class(text: str, language: str | None, asked: bool) -> None:
    """Whatever a transcriber sends."""
    assert unfinished(text, language, asked=asked) in {ANSWERED, CLOSED, UNKNOWN, PAUSED, SPELLING, LEANING, OPEN}
