"""Continuations of a routed model: another LLM goes on with an answer that stalls or breaks."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.router.requests import HI, WORDS
from voicepipe.errors import StageBroken
from voicepipe.ports.model import (
    CallDelta,
    TextDelta,
)
from voicepipe.router.llm.request import RoutedAnswer
from voicepipe.testing.fakes.cues import CallCue, Cut, Hang, Hold, LlmCue, Stall, Status
from voicepipe.testing.fakes.script import soon
from voicepipe.testing.waiting import eventually


async def test_no_continuation_after_a_call_has_begun(pool: Any) -> None:
    """A call may have been decided on words that another model never said."""
    pooled = await pool(2, order="given", policy="single")
    pooled.vendors[0].llm.usual = LlmCue(calls=(CallCue("look_up", ('{"a"', ":1}")),), fault=Cut(2))
    came = await pooled.request(HI)
    assert isinstance(came.failure, StageBroken)
    assert pooled.vendors[1].llm.received == []


async def test_one_continuation_in_a_turn(pool: Any) -> None:
    pooled = await pool(3, order="given", policy="single")
    for i, vendor in enumerate(pooled.vendors):
        vendor.llm.usual = LlmCue(tokens=(f"Part {i}", " goes", " on"), fault=Cut(2))
    came = await pooled.request(HI)
    assert isinstance(came.failure, StageBroken)
    assert came.failure.provider in ("v1/m", "v2/m")
    assert [role for _, role, _ in came.attempts] == ["primary", "continuation"]


async def test_a_continuation_reads_what_was_said_and_has_no_tools(pool: Any) -> None:
    pooled = await pool(2, order="given", policy="single")
    pooled.vendors[0].llm.usual = LlmCue(tokens=WORDS, fault=Cut(5))
    await pooled.request(HI)
    received = (await pooled.vendors[1].llm.nth(0)).question
    assert [message["role"] for message in received["messages"]] == ["user", "assistant", "user"]
    assert received["messages"][1]["content"] == "".join(WORDS[:5])
    assert "tools" not in received


async def test_a_continuation_is_in_the_same_breath_where_that_can_be(pool: Any) -> None:
    """A word that was cut is finished, and the request has no written instruction."""
    pooled = await pool(2, order="given", policy="single", prefills=True)
    pooled.vendors[0].llm.usual = LlmCue(tokens=("It is al", "mo"), fault=Cut(2))
    pooled.vendors[1].llm.usual = LlmCue(tokens=("st", " noon."))
    came = await pooled.request(HI)
    assert came.text == "It is almost noon."
    received = (await pooled.vendors[1].llm.nth(0)).question["messages"]
    assert [(message["role"], message["content"]) for message in received[1:]] == [("assistant", "It is almo")]


async def test_resuming_can_be_turned_off(pool: Any) -> None:
    pooled = await pool(2, order="given", policy="single", continue_broken=False)
    pooled.vendors[0].llm.usual = LlmCue(tokens=WORDS, fault=Cut(5))
    came = await pooled.request(HI)
    assert isinstance(came.failure, StageBroken)
    assert pooled.vendors[1].llm.received == []


async def test_a_stalled_speaker_has_as_long_as_there_is_sound(pool: Any) -> None:
    """No other model gets a request while much audio is still to be played; when the audio runs out, one does."""
    left_ms = 60_000
    looked = asyncio.Event()

    def queued_ms() -> int:
        looked.set()
        return left_ms

    pooled = await pool(2, order="given", policy="single")
    pooled.vendors[0].llm.usual = LlmCue(tokens=WORDS, fault=Stall(10))
    pooled.vendors[1].llm.usual = LlmCue(tokens=(" and", " the", " end."))
    events: list[object] = []
    async with pooled.model.open(HI) as answer, asyncio.TaskGroup() as group:
        assert isinstance(answer, RoutedAnswer)
        answer.track_playback(queued_ms)

        async def listen() -> None:
            events.extend([event async for event in answer])

        group.create_task(listen())
        await soon(looked)
        assert pooled.vendors[1].llm.received == []
        left_ms = 0
        answer._look()  # its next look is due when the sound was to run out, in a minute
        await pooled.vendors[1].llm.nth(0)
    text = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert text == "".join(WORDS[:10]) + " and the end."


async def test_a_model_that_resumes_by_itself_keeps_answering(pool: Any) -> None:
    """Its heir is closed, and nothing is said twice."""
    hold = Hold(after=10)
    pooled = await pool(2, order="given", policy="single")
    pooled.vendors[0].llm.usual = LlmCue(tokens=WORDS, hold=hold)
    pooled.vendors[1].llm.usual = LlmCue(fault=Hang())
    async with asyncio.TaskGroup() as group:
        answering = group.create_task(pooled.request(HI))
        received = await pooled.vendors[1].llm.nth(0)
        hold.release.set()
        await soon(received.gone)
    came = answering.result()
    assert (came.text, came.routes) == ("".join(WORDS), ["v0/m"])
    assert came.attempts == [("v0/m", "primary", "spoke"), ("v1/m", "continuation", "lost")]


async def test_a_stalled_model_keeps_answering_when_its_continuation_fails(pool: Any) -> None:
    hold = Hold(after=10)
    pooled = await pool(2, order="given", policy="single")
    pooled.vendors[0].llm.usual = LlmCue(tokens=WORDS, hold=hold)
    pooled.vendors[1].llm.usual = LlmCue(fault=Status(503))
    async with asyncio.TaskGroup() as group:
        answering = group.create_task(pooled.request(HI))
        await eventually(lambda: failed_once(pooled, "v1/m"))
        hold.release.set()
    came = answering.result()
    assert (came.text, came.routes, came.is_whole) == ("".join(WORDS), ["v0/m"], True)
    assert came.attempts == [("v0/m", "primary", "spoke"), ("v1/m", "continuation", "failed")]


async def test_a_continuation_is_waited_for_when_the_stalled_model_breaks(pool: Any) -> None:
    """It was asked when the other had stalled, and no third is."""
    first, second = Hold(after=10), Hold(after=0)
    pooled = await pool(3, order="given", policy="single")
    pooled.vendors[0].llm.usual = LlmCue(tokens=WORDS, hold=first, fault=Cut(10))
    for vendor in pooled.vendors[1:]:
        vendor.llm.usual = LlmCue(tokens=(" and", " the", " end."), hold=second)
    async with asyncio.TaskGroup() as group:
        answering = group.create_task(pooled.request(HI))
        await soon(second.reached)
        first.release.set()
        await eventually(lambda: failed_once(pooled, "v0/m"))
        second.release.set()
    came = answering.result()
    assert came.text == "".join(WORDS[:10]) + " and the end."
    assert [(role, outcome) for _, role, outcome in came.attempts] == [("primary", "failed"), ("continuation", "spoke")]


async def failed_once(pooled: Any, spec: str) -> bool | None:
    return bool(pooled.stats.breaker_of(spec).errors) or None


async def test_what_a_continuation_held_back_comes_at_its_end(pool: Any) -> None:
    """It might have repeated what was said, and is new."""
    pooled = await pool(2, order="given", policy="single")
    pooled.vendors[0].llm.usual = LlmCue(tokens=("It is the end", " of"), fault=Cut(2))
    pooled.vendors[1].llm.usual = LlmCue(tokens=(" the", " end"))
    came = await pooled.request(HI)
    assert (came.text, came.is_whole) == ("It is the end of the end", True)


async def test_a_model_that_stalls_in_a_call_is_continued_by_none(pool: Any) -> None:
    """Nobody else can finish its arguments, however long it takes."""
    pooled = await pool(2, order="given", policy="single")
    pooled.vendors[0].llm.usual = LlmCue(calls=(CallCue("look_up", ('{"a"', ":1}")),), fault=Stall(1))
    async with pooled.model.open(HI) as answer:
        assert isinstance(answer, RoutedAnswer)
        async for event in answer:
            if isinstance(event, CallDelta):
                break
        await asyncio.sleep(0)  # from here on it is watched
        assert answer._stall_timer is not None
        answer._look()
        assert answer._stall_timer is None
    assert pooled.vendors[1].llm.received == []
