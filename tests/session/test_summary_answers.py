"""A summary of a conversation: what the LLM answers, and what is logged where it answers nothing."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest

from voicepipe.ports.model import Finished, ModelEvent, ModelRequest, TextDelta
from voicepipe.session.summaries import SummaryModel, summary_of


class Scripted:
    """A model that answers with these pieces."""

    def __init__(self, *pieces: str) -> None:
        self.pieces = pieces

    @asynccontextmanager
    async def open(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[ModelEvent]]:
        async def events() -> AsyncGenerator[ModelEvent, None]:
            for piece in self.pieces:
                yield TextDelta(piece)
            yield Finished("stop")

        async with aclosing(events()) as answers:
            yield answers


@pytest.mark.parametrize(
    ("pieces", "text", "reasons"),
    [
        (("They want", " tea."), "They want tea.", []),
        ((), "", ["the answer has no words"]),
        ((" ", "\n"), "", ["the answer has no words"]),
    ],
)
async def test_an_empty_answer_is_logged(
    pieces: tuple[str, ...], text: str, reasons: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """The items leave without a summary then, as after an error: the operator sees why."""
    caplog.set_level(logging.WARNING)
    model: Any = Scripted(*pieces)
    summary = await summary_of("User: tea, please", SummaryModel(model=model, name="m"), session="s1")
    assert summary.text == text
    assert [getattr(each, "fields", {})["why"] for each in caplog.records] == reasons
