"""The first token of an answer: what counts as one, and how an answer without one ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.router.requests import HI
from voicepipe import clock
from voicepipe.errors import StageBroken, StageRefused
from voicepipe.ports.model import CallDelta, Finished, ModelEvent, TextDelta
from voicepipe.router.health import healths
from voicepipe.router.llm.first_token import MAX_UNSPOKEN_CHARS, FirstToken
from voicepipe.router.llm.model import RoutedModel
from voicepipe.testing.fakes.cues import CallCue, Hang, Hold, LlmCue
from voicepipe.testing.fakes.script import soon
from voicepipe.testing.waiting import eventually
from voicepipe.values import replace


async def test_an_answer_of_calls_only_wins_too(pool: Any) -> None:
    pooled = await pool(2, policy="race")
    pooled.vendors[0].llm.usual = LlmCue(fault=Hang())
    pooled.vendors[1].llm.usual = LlmCue(calls=(CallCue("look_up"),))
    came = await pooled.request(HI)
    assert any(isinstance(event, CallDelta) for event in came.events)
    assert came.routes == ["v1/m"]


@pytest.mark.parametrize(
    ("event", "counts"),
    [
        (TextDelta(""), False),
        (TextDelta(" \n"), False),
        (TextDelta("\u200b\ufeff"), False),
        (TextDelta(" a"), True),
        (CallDelta(0, "c", "look_up", ""), True),
        (Finished("stop"), False),
    ],
)
def test_what_counts_as_a_first_token(event: ModelEvent, counts: bool) -> None:
    assert FirstToken(is_spoken=True).look(event) is FirstToken(is_spoken=False).look(event) is counts


@pytest.mark.parametrize(
    ("pieces", "at"),
    [
        (("**", "Yes", "**"), 1),
        (("```", "py\n", "print(1)", "\n```", "\nDone."), 4),
        (("<b", "r", ">", "Yes"), 3),
        (("\N{GRINNING FACE}", " Hi"), 1),
        (("\u2026", " ", "well"), 2),
        (("I", "'m"), 0),
        (("```", "x" * MAX_UNSPOKEN_CHARS), 1),
    ],
)
def test_the_first_token_of_a_spoken_answer_can_be_spoken(pieces: tuple[str, ...], at: int) -> None:
    """Written, the first visible character is one."""
    first, written = FirstToken(is_spoken=True), FirstToken(is_spoken=False)
    assert [first.look(TextDelta(piece)) for piece in pieces].index(True) == at
    assert written.look(TextDelta(pieces[0]))


EMPTY = pytest.mark.parametrize(
    "cue",
    [
        LlmCue(tokens=()),
        LlmCue(tokens=(" ", "\n\n")),
        LlmCue(tokens=("**", " ", "**")),
        LlmCue(tokens=("```", "py\nx = 1\n", "```")),
        LlmCue(tokens=("\N{GRINNING FACE}",)),
        LlmCue(tokens=(), finish="length"),
        LlmCue(tokens=(), finish="content_filter"),
        LlmCue(tokens=("**",), finish="content_filter"),
    ],
    ids=["nothing", "blank text", "markup", "code", "emoji", "only reasoning", "filtered", "filtered after markup"],
)


SPOKEN = replace(HI, is_spoken=True)


@EMPTY
@pytest.mark.parametrize("policy", ["single", "race"])
async def test_an_empty_answer_does_not_win(pool: Any, policy: str, cue: LlmCue) -> None:
    pooled = await pool(2, policy=policy, order="given")
    hold = Hold(after=0)
    pooled.vendors[0].llm.usual = cue
    pooled.vendors[1].llm.usual = LlmCue(tokens=("Here", " I am."), hold=hold)
    async with asyncio.TaskGroup() as group:
        answering = group.create_task(pooled.request(SPOKEN))
        await soon(hold.reached)

        async def over() -> bool | None:
            return None if pooled.stats.running.get("v0/m", 1) else True

        await eventually(over)
        hold.release.set()
    came = answering.result()
    assert (came.text, came.is_whole, came.routes) == ("Here I am.", True, ["v1/m"])
    assert came.attempts[0] == ("v0/m", "primary", "failed")


@EMPTY
async def test_an_empty_answer_of_the_only_model_is_a_failure(pool: Any, cue: LlmCue) -> None:
    """In a pool and without one; its tokens are counted all the same."""
    pooled = await pool(1)
    single = replace(pooled, model=RoutedModel(pooled.model._first, "", pooled.model._routes, metadata={}))
    for each in (pooled, single):
        each.vendors[0].llm.usual = cue
        came = await each.request(SPOKEN)
        assert isinstance(came.failure, StageBroken | StageRefused)
        assert "filter" in came.failure.why or "the answer is empty" in came.failure.why
        assert not came.is_whole
        assert came.text == ""


@EMPTY
@pytest.mark.parametrize("n_vendors", [1, 2])
async def test_an_answer_that_may_be_empty_ends_as_it_does(pool: Any, cue: LlmCue, n_vendors: int) -> None:
    """The rest of an answer may be nothing, in a pool and without one; what was cut short or filtered still fails."""
    pooled = await pool(n_vendors, policy="race" if n_vendors > 1 else "single")
    single = replace(pooled, model=RoutedModel(pooled.model._first, "", pooled.model._routes, metadata={}))
    for each in (pooled,) if n_vendors > 1 else (pooled, single):
        for vendor in each.vendors:
            vendor.llm.usual = cue
        came = await each.request(replace(SPOKEN, may_be_empty=True))
        is_visible = bool("".join(cue.tokens).strip())
        assert came.is_whole is (is_visible or cue.finish == "stop")
        assert came.text.strip() == ("".join(cue.tokens) if came.is_whole else "").strip()
        assert came.events.count(Finished("stop")) == (came.is_whole and cue.finish == "stop")


async def test_filtered_answers_open_no_circuit_breaker(pool: Any) -> None:
    """The filter judges what was said, not the provider's health."""
    pooled = await pool(1)
    pooled.vendors[0].llm.usual = LlmCue(tokens=(), finish="content_filter")
    for _ in range(8):
        assert isinstance((await pooled.request(HI)).failure, StageRefused)
    (health,) = healths(pooled.stats, "llm", clock.monotonic_ms())
    assert health.state == "closed"


@pytest.mark.parametrize("home", ["voice", ""])
async def test_blank_text_before_the_first_word_is_passed_on_with_it(pool: Any, home: str) -> None:
    """In a pool and without one."""
    pooled = await pool(1)
    model = RoutedModel(pooled.model._first, home, pooled.model._routes, metadata={})
    pooled.vendors[0].llm.usual = LlmCue(tokens=("\n", " ", "Hello", " there"))
    came = await replace(pooled, model=model).request(HI)
    assert came.text == "\n Hello there"
    assert [event.text for event in came.events if isinstance(event, TextDelta)] == ["\n Hello", " there"]
