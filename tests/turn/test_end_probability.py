"""The probability that the turn is over: its features, its scores, and the fit that its weights come from."""

from __future__ import annotations

import pytest

from tests.measure.end_probability import MODELS, Model, auc, cross_validated, fit
from tests.measure.endpointing_table import read_table
from voicepipe.turn.endpointing.probability import (
    FITTED,
    SENTENCE_END,
    SMART_TURN,
    STT_END,
    UNKNOWN,
    TextEnding,
    count_words,
    end_probability,
    features,
)
from voicepipe.turn.endpointing.strategy import Evidence

ORDER = "I would like a large coffee with milk"


def p(text: str = "", **evidence: object) -> float:
    return end_probability(Evidence(text=text, **evidence))  # type: ignore[arg-type]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_the_table_gives_the_weights_of_the_module(model: Model) -> None:
    assert fit(read_table(), model.columns) == getattr(FITTED, model.name)


def test_unknown_speakers_are_judged_better_than_by_chance_in_each_set() -> None:
    rows = read_table()
    probabilities = cross_validated(rows, MODELS[0].columns)
    for name in ("orders", "calls", "reading", "hesitation"):
        of_set = [(row, one) for row, one in zip(rows, probabilities, strict=True) if row.set == name]
        assert auc([row for row, _ in of_set], [one for _, one in of_set]) > 0.65, name


def test_a_whole_sentence_is_likelier_over_than_one_that_goes_on() -> None:
    assert p(f"{ORDER}?") > p(f"{ORDER}.") > p(ORDER) > p(f"{ORDER} and") > 0.1
    assert p(f"{ORDER}.") > p(f"{ORDER},")
    assert p(f"{ORDER}...") == p(f"{ORDER} -") < p(ORDER)


def test_more_words_are_likelier_a_whole_turn() -> None:
    assert p("Milk.") < p("A coffee with milk.") < p(f"{ORDER}.")


def test_a_whole_answer_to_a_question_is_not_short() -> None:
    assert p("Yes.", after_question=True) > 0.6 > p("Yes.")
    assert p("And.", after_question=True) == p("And.")


def test_a_long_turn_is_judged_by_its_end() -> None:
    assert p(f"{ORDER} and " * 1_000 + "sugar.") == p(f"{ORDER} and " * 10 + "sugar.")


@pytest.mark.parametrize(
    ("text", "language", "ending"),
    [
        ("Wie spät ist es?", "de-DE", TextEnding.QUESTION),
        ("Ich nehme den", "de", TextEnding.BROKEN_OFF),
        ("今日は天気がいいです。", "ja", TextEnding.CLOSED),
        ("你叫什么名字\uff1f", "zh-CN", TextEnding.QUESTION),
        ("我想要一杯咖啡\uff0c", "zh", TextEnding.GOES_ON),
        ("ما اسمك؟", "ar", TextEnding.QUESTION),
        ("मुझे कॉफ़ी चाहिए।", "hi", TextEnding.CLOSED),
        ("Хочу кофе.", "ru", TextEnding.CLOSED),
        ("kahvia kiitos", "fi", TextEnding.NONE),
        ("He said \u201ccome in.\u201d", "en", TextEnding.CLOSED),
        ("My number is five five", "en", TextEnding.BROKEN_OFF),
    ],
)
def test_punctuation_of_many_scripts(text: str, language: str, ending: TextEnding) -> None:
    assert features(Evidence(text=text, language=language)).ending is ending


@pytest.mark.parametrize(
    ("text", "n_words"),
    [
        ("", 0),
        ("...", 0),
        ("it's fine", 2),
        ("我想要一杯咖啡", 4),
        ("今日 coffee", 2),
        ("a " * 50, 20),
        ("ภาษาไทย", 4),
        ("मुझे कॉफ़ी चाहिए।", 3),
    ],
)
def test_words_are_counted_with_and_without_spaces(text: str, n_words: int) -> None:
    assert count_words(text) == n_words


def test_without_words_and_scores_it_is_even() -> None:
    assert p() == UNKNOWN == 0.5


def test_a_partial_transcript_stands_in_for_the_words_but_its_punctuation_is_no_evidence() -> None:
    assert p(interim_text=f"{ORDER}.") == p(interim_text=f"{ORDER},") == p(ORDER)
    assert p(interim_text=f"{ORDER} and") == p(f"{ORDER} and")
    assert p(f"{ORDER}.", interim_text="Uh") == p(f"{ORDER}.")


@pytest.mark.parametrize("score", [SENTENCE_END, SMART_TURN, STT_END])
def test_each_score_moves_it_and_none_decides_alone(score: str) -> None:
    low, middle, high = (p(f"{ORDER}.", scores=((score, value),)) for value in (0.0, 0.5, 1.0))
    assert 0.02 < low < middle < high < 0.999


def test_scores_without_words() -> None:
    assert p(scores=((SMART_TURN, 0.99),)) > 0.7
    assert p(scores=((STT_END, 0.9),)) == pytest.approx(0.9)
    assert p(scores=((SENTENCE_END, 0.99),)) == UNKNOWN, "a sentence that nobody has said"


def test_a_score_of_another_model_changes_nothing() -> None:
    assert p(f"{ORDER}.", scores=(("another", 0.01),)) == p(f"{ORDER}.")
