"""Words of two models, joined."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicepipe.router.seam import Seam


def joined(before: str, *pieces: str) -> str:
    seam = Seam(before)
    return before + "".join(seam.push(piece) for piece in pieces) + seam.finish()


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


@given(st.text("ab ", min_size=1, max_size=30), st.integers(0, 30), st.lists(st.integers(1, 5), max_size=12))
def test_new_words_are_never_lost(answer: str, at: int, cuts: list[int]) -> None:
    """A model that goes on with exactly what was missing is heard whole, however its text is cut into pieces."""
    before, rest = answer[:at] + "!", " " + answer[at:] + "#"
    pieces, left = [], rest
    for n in cuts:
        pieces.append(left[:n])
        left = left[n:]
    assert joined(before, *pieces, left) == before + rest
