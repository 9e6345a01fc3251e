"""Words of two models, joined."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicepipe.ports.continuation import TextJoiner, continued
from voicepipe.ports.model import Content, Function, ModelRequest, Text
from voicepipe.router.llm.continuation import takes_prefill


def joined(before: str, *pieces: str) -> str:
    joiner = TextJoiner(before)
    return before + "".join(joiner.push(piece) for piece in pieces) + joiner.finish()


@pytest.mark.parametrize(
    ("before", "pieces", "whole"),
    [
        ("The train leaves at", (" nine", "."), "The train leaves at nine."),
        ("The train leaves at", ("nine", "."), "The train leaves at nine."),
        ("The train leaves at ", ("nine.",), "The train leaves at nine."),
        ("The train leaves", (", I", " think."), "The train leaves, I think."),
        ("The train leaves at", ("leaves", " at", " nine."), "The train leaves at nine."),
        ("The train leaves at", ("The train", " leaves at", " nine."), "The train leaves at nine."),
        ("It is a", ("a", " cat."), "It is a cat."),
        ("I like", ("eggs.",), "I like eggs."),
        ("It wor", ("works", "."), "It works."),
        ("Yes.", ("Yes.",), "Yes."),
        ("", ("Hello",), "Hello"),
        ("One two", (), "One two"),
    ],
)
def test_nothing_is_said_twice_and_words_do_not_run_together(before: str, pieces: tuple[str, ...], whole: str) -> None:
    assert joined(before, *pieces) == whole


@pytest.mark.parametrize(
    ("before", "pieces", "whole"),
    [
        ("The train leaves at", (" nine", "."), "The train leaves at nine."),
        ("The train lea", ("ves", " at nine."), "The train leaves at nine."),
        ("It is very", (" very", " good."), "It is very very good."),
        ("The answer is ", (" nine", "."), "The answer is nine."),
        ("The answer is ", ("nine", "."), "The answer is nine."),
        # Mistral gives the beginning back.
        ("The train", ("The", " train", " leaves."), "The train leaves."),
        ("The train", ("The train leaves.",), "The train leaves."),
        ("The train", ("Then it leaves.",), "The trainThen it leaves."),
        ("One two", (), "One two"),
    ],
)
def test_words_of_the_same_breath_are_taken_as_they_come(before: str, pieces: tuple[str, ...], whole: str) -> None:
    joiner = TextJoiner(before, prefills=True)
    assert before + "".join(joiner.push(piece) for piece in pieces) + joiner.finish() == whole


def test_a_prefilling_model_gets_no_instruction() -> None:
    """It gets no functions either; other models get the instruction as a message."""
    hi = (Content("user", (Text("Hi"),)),)
    request = ModelRequest(model="m", messages=hi, functions=(Function("stop", "Stops.", ""),))
    assert continued(request, "It is", prefills=True).messages == (*hi, Content("assistant", (Text("It is"),)))
    in_words = continued(request, "It is")
    assert [each.role for each in in_words.messages if isinstance(each, Content)] == [
        "user",
        "assistant",
        "user",
    ]
    assert in_words.functions == continued(request, "It is", prefills=True).functions == ()


@pytest.mark.parametrize(("passed", "takes"), [({}, True), ({"top_p": "1"}, True), ({"response_format": "{}"}, False)])
def test_an_answer_in_a_form_of_its_own_is_not_begun_by_others(passed: dict[str, str], takes: bool) -> None:
    assert takes_prefill(ModelRequest(model="m", messages=(), passed=tuple(passed.items()))) is takes


@given(st.text("ab ", min_size=1, max_size=30), st.integers(0, 30), st.lists(st.integers(1, 5), max_size=12))
def test_new_words_are_never_lost(answer: str, at: int, cuts: list[int]) -> None:
    """A model that goes on with exactly what was missing loses no text, however its text is cut into pieces."""
    before, rest = answer[:at] + "!", " " + answer[at:] + "#"
    pieces, left = [], rest
    for n in cuts:
        pieces.append(left[:n])
        left = left[n:]
    assert joined(before, *pieces, left) == before + rest
