"""Whether words sound finished."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicepipe.turn.endpointing.completeness import (
    ANSWERED,
    CLOSED,
    LIKELY_UNFINISHED,
    OPEN,
    PAUSED,
    SPELLING,
    UNKNOWN,
    same_words,
    unfinished,
)
from voicepipe.turn.endpointing.vocabularies import VOCABULARIES, Vocabulary


def test_vowel_signs_do_not_spell_a_word() -> None:
    assert unfinished("मुझे कॉफ़ी चाहिए।", "hi") == CLOSED
    assert unfinished("deja\u0300", "fr") == unfinished("dej\u00e0", "fr") == UNKNOWN


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
        ("I want to go to", LIKELY_UNFINISHED),
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
    assert unfinished(text, after_question=True) == ANSWERED
    assert unfinished(text) > ANSWERED


def test_a_longer_answer_is_a_sentence_like_any_other() -> None:
    assert unfinished("Yes, but the", after_question=True) == OPEN
    assert unfinished("Yes, I think so.", after_question=True) == CLOSED


@pytest.mark.parametrize(
    ("text", "language", "expected"),
    [
        ("Jag h\u00e4mtar en", "sv-SE", UNKNOWN),
        ("Jag h\u00e4mtar mj\u00f6lk.", "sv-SE", CLOSED),
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


@pytest.mark.parametrize(
    ("language", "opens", "leans", "closes", "dictates"),
    [
        ("de", "Ich hole die Milch und.", "Ich hole die", "Ich komme mit", "null acht neun"),
        ("fr", "Je voudrais un", "C'est pour", "Je viens demain", "z\u00e9ro six un"),
        ("es", "Quiero el", "Quiero una", "Quiero esto", "seis uno dos"),
        ("it", "Vorrei il", "Vorrei una", "Vorrei questo qui", "tre uno due"),
        ("pt", "Eu quero o", "Eu quero uma", "Eu quero isso", "nove meia um"),
        ("nl", "Ik haal de melk en", "Ik haal het", "Ik ga mee", "nul zes een"),
    ],
)
def test_other_languages_have_lists_of_their_own(
    language: str, opens: str, leans: str, closes: str, dictates: str
) -> None:
    """With the verbs that end in a preposition where there are such, and digits that are articles too."""
    classes = [unfinished(text, language) for text in (opens, leans, closes, dictates)]
    assert classes == [OPEN, LIKELY_UNFINISHED, UNKNOWN, SPELLING]


@pytest.mark.parametrize("lists", VOCABULARIES.values(), ids=VOCABULARIES)
def test_a_word_has_one_class(lists: Vocabulary) -> None:
    """The lists don't contradict one another; all are in lower case."""
    assert not lists.opening & lists.likely_unfinished
    assert not lists.opening & lists.answers
    assert not lists.likely_unfinished & lists.digits - {"uno", "una", "uma", "een"}
    assert all(
        word == word.lower() for words in (lists.opening, lists.likely_unfinished, lists.answers) for word in words
    )


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("what time is it", "What time is it?"),
        ("Well , I don't know .", "Well I dont know"),
        ("ice cream", "Ice-cream!"),
        ("\u4f60\u597d\uff0c\u4e16\u754c", "\u4f60\u597d \u4e16\u754c\u3002"),
        ("STRASSE", "stra\u00dfe"),
    ],
)
def test_case_punctuation_and_spacing_change_no_words(a: str, b: str) -> None:
    """As transcribers differ between a guess and the final text."""
    assert same_words(a, b)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("3.5", "35"),
        ("at 10:30", "at 1030"),
        ("50%", "50"),
        ("C#", "C"),
        ("I can", "I can't"),
        ("\u0915\u093f", "\u0915"),
    ],
)
def test_what_is_spoken_changes_them(a: str, b: str) -> None:
    """Marks between digits, those that are read aloud, and vowel signs."""
    assert not same_words(a, b)


@given(text=st.text(max_size=80), language=st.none() | st.text(max_size=8), after_question=st.booleans())
def test_any_text_has_a_class(text: str, language: str | None, after_question: bool) -> None:
    """Whatever a transcriber sends."""
    assert unfinished(text, language, after_question=after_question) in {
        ANSWERED,
        CLOSED,
        UNKNOWN,
        PAUSED,
        SPELLING,
        LIKELY_UNFINISHED,
        OPEN,
    }
