"""The requirements of the port `Model`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Protocol

import pytest

from voicepipe.errors import StageBroken, StageError, StageRefused, StageTimeout
from voicepipe.ports.model import (
    CallDelta,
    Content,
    Finished,
    Model,
    ModelEvent,
    ModelRequest,
    Text,
    TextDelta,
    Usage,
)
from voicepipe.ports.provider_events import ModelConnected
from voicepipe.testing.conformance.waits import (
    REFUSALS,
    LeavesNothing,
    TakesCues,
    ends_when_cancelled,
    lets_failures_out,
    names_its_provider,
    promptly,
    short_timeout,
)
from voicepipe.testing.fakes.cues import (
    CallCue,
    Cut,
    Fault,
    Garbage,
    Hang,
    HangUp,
    Hold,
    InBandError,
    LlmCue,
    Malformed,
    NoEnd,
    Stall,
    Status,
)
from voicepipe.testing.fakes.script import ReceivedRequest, soon
from voicepipe.values import replace


class LlmScript(Protocol):
    """The part of a fake's script that a scripted suite needs."""

    def cue(self, *cues: LlmCue) -> None: ...
    async def nth(self, n: int) -> ReceivedRequest: ...


async def answer(model: Model, request: ModelRequest) -> list[ModelEvent]:
    """Return the events of one answer, without its connection."""
    return _but_connection(await events_of(model, request))


async def events_of(model: Model, request: ModelRequest) -> list[ModelEvent]:
    """Return all events of one answer."""
    async with model.open(request) as events:
        return [event async for event in events]


async def outcome(model: Model, request: ModelRequest) -> tuple[list[ModelEvent], StageError | None]:
    """Return the events of one answer, without its connection, and the error that it ended with, if any."""
    events: list[ModelEvent] = []
    try:
        async with model.open(request) as stream:
            async for event in stream:
                events.append(event)  # noqa: PERF401  a comprehension would lose what came before the error
    except StageError as error:
        return _but_connection(events), error
    return _but_connection(events), None


def _but_connection(events: list[ModelEvent]) -> list[ModelEvent]:
    return [event for event in events if not isinstance(event, ModelConnected)]


async def first_output(events: AsyncIterator[ModelEvent]) -> ModelEvent:
    """Return the first event that is the model's output, not about its connection or its choice."""
    async for event in events:
        if isinstance(event, TextDelta | CallDelta | Finished):
            return event
    raise AssertionError("expected output, got none")


def text_of(events: list[ModelEvent]) -> str:
    """Return the text of the events."""
    return "".join(event.text for event in events if isinstance(event, TextDelta))


class ModelConformance(LeavesNothing):
    """For any model, real ones too. Fixture: `model`; optionally `question`, whose answer has a few words at least."""

    @pytest.fixture
    def question(self) -> ModelRequest:
        """Return the request."""
        return ModelRequest(model="any", messages=(Content("user", (Text("Say hello."),)),), max_output_tokens=24)

    async def test_answer_is_complete(self, model: Model, question: ModelRequest) -> None:
        """Text comes in pieces that are not empty, and the answer ends after one `Finished`."""
        events = await answer(model, question)
        assert text_of(events)
        assert all(event.text for event in events if isinstance(event, TextDelta))
        assert sum(isinstance(event, Finished) for event in events) == 1
        after = events[[isinstance(event, Finished) for event in events].index(True) + 1 :]
        assert all(isinstance(event, Usage) for event in after)

    async def test_connection_comes_before_output(self, model: Model, question: ModelRequest) -> None:
        """A model reports its connection before its output, if at all."""
        kinds = [type(event) for event in await events_of(model, question)]
        first = next(n for n, kind in enumerate(kinds) if kind in (TextDelta, CallDelta, Finished))
        assert ModelConnected not in kinds[first:]

    async def test_iterator_stays_over(self, model: Model, question: ModelRequest) -> None:
        """Reading after the end yields nothing, and does not wait."""
        async with model.open(question) as events:
            async for _ in events:
                pass
            async with promptly():
                assert [event async for event in events] == []

    async def test_leaving_early_is_prompt(self, model: Model, question: ModelRequest) -> None:
        """Leaving the context in the middle of an answer is prompt, and the model answers the next request."""
        context = model.open(question)
        await first_output(await context.__aenter__())
        async with promptly():
            await context.__aexit__(None, None, None)
        assert text_of(await answer(model, question))

    async def test_a_cancelled_request_ends_at_once(self, model: Model, question: ModelRequest) -> None:
        """A task that is cancelled inside an answer ends as cancelled, promptly."""
        begun = asyncio.Event()

        async def run() -> None:
            async with model.open(question) as events:
                await first_output(events)
                begun.set()
                await asyncio.Event().wait()

        await ends_when_cancelled(run(), begun)

    async def test_body_failure_leaves_as_it_is(self, model: Model, question: ModelRequest) -> None:
        """An exception of the user comes out unchanged, and is not attributed to the provider."""
        await lets_failures_out(model.open(question))

    async def test_questions_side_by_side(self, model: Model, question: ModelRequest) -> None:
        """One instance answers several requests at once, each completely."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(answer(model, question)) for _ in range(3)]
        assert all(text_of(task.result()) for task in tasks)
        assert all(any(isinstance(event, Finished) for event in task.result()) for task in tasks)

    async def test_leaving_twice_is_harmless(self, model: Model, question: ModelRequest) -> None:
        """A second exit of the same context does nothing."""
        context = model.open(question)
        await context.__aenter__()
        async with promptly():
            await context.__aexit__(None, None, None)
            await context.__aexit__(None, None, None)

    @pytest.mark.parametrize("in_answer", [False, True], ids=["at once", "in the answer"])
    async def test_left_context_gives_no_more(self, model: Model, question: ModelRequest, in_answer: bool) -> None:
        """Reading on after leaving ends or raises a stage error; it does not wait."""
        async with model.open(question) as events:
            if in_answer:
                await first_output(events)
        async with promptly():
            try:
                left = [event async for event in events]
            except StageError:
                left = []
        assert not any(isinstance(event, Finished) for event in left)

    async def test_warm_yields_nothing(self, model: Model, question: ModelRequest) -> None:
        """Warming returns None, and a request after it is answered as usual."""
        await model.warm(question)
        assert text_of(await answer(model, question))


class ScriptedModelConformance(TakesCues, ModelConformance):
    """For models that take cues. Fixtures: `model`, made with the suite's `timeout_ms`, and `script`."""

    async def test_text_keeps_its_order(self, model: Model, script: LlmScript, question: ModelRequest) -> None:
        """The answer's text is the vendor's, whole and in order, beyond ASCII too."""
        script.cue(LlmCue(tokens=("Ünter", " den", " 林", "檎", " 🌳"), input_tokens=7, cached_tokens=3))
        events = await answer(model, question)
        assert text_of(events) == "Ünter den 林檎 🌳"
        assert Finished("stop") in events
        assert Usage(input_tokens=7, output_tokens=5, cached_tokens=3) in events

    async def test_calls(self, model: Model, script: LlmScript, question: ModelRequest) -> None:
        """Function calls begin with their id and name, and their arguments add up."""
        first = CallCue("look_up", ('{"city"', ':"Oslo"}'), "call_1")
        script.cue(LlmCue(calls=(first, CallCue("hang_up", ("{}",), "call_2"))))
        events = await answer(model, question)
        deltas = [event for event in events if isinstance(event, CallDelta)]
        begun = {delta.index: (delta.call_id, delta.name) for delta in deltas if delta.name}
        assert begun == {0: ("call_1", "look_up"), 1: ("call_2", "hang_up")}
        assert "".join(delta.arguments for delta in deltas if delta.index == 0) == '{"city":"Oslo"}'
        assert Finished("tool_calls") in events

    @pytest.mark.parametrize(("status", "retry_after", "retryable"), REFUSALS)
    async def test_refusal(
        self,
        model: Model,
        script: LlmScript,
        question: ModelRequest,
        status: int,
        retry_after: str | None,
        retryable: bool,
    ) -> None:
        """A refusal has its status, whether a retry may succeed, and when."""
        script.cue(LlmCue(fault=Status(status, retry_after=retry_after)))
        with pytest.raises(StageRefused) as raised:
            await answer(model, question)
        names_its_provider(raised.value, stage="llm", provider=model.name)
        assert (raised.value.status, raised.value.retryable) == (status, retryable)
        assert raised.value.retry_after_ms == (2_000 if retry_after else None)

    @short_timeout
    @pytest.mark.parametrize("fault", [Hang(), Stall(after=0), Stall(after=2)], ids=["headers", "first", "middle"])
    async def test_stall(self, model: Model, script: LlmScript, question: ModelRequest, fault: Fault) -> None:
        """A vendor that stalls is a timeout; text sent before is not lost, and the vendor's connection closes."""
        script.cue(LlmCue(tokens=("One", " two", " three"), fault=fault))
        events, error = await outcome(model, question)
        assert isinstance(error, StageTimeout)
        names_its_provider(error, stage="llm", provider=model.name)
        assert error.retryable
        assert text_of(events) == ("One two" if fault == Stall(after=2) else "")
        await soon((await script.nth(0)).ended)

    @pytest.mark.parametrize(
        "fault",
        [
            HangUp(),
            Cut(after=0),
            Cut(after=2),
            Malformed(after=2),
            Garbage(after=2),
            InBandError(after=2),
            NoEnd(),
        ],
        ids=lambda fault: f"{type(fault).__name__}-{getattr(fault, 'after', 0)}",
    )
    async def test_break(self, model: Model, script: LlmScript, question: ModelRequest, fault: Fault) -> None:
        """A cut, malformed data or an early end is never taken for an answer; earlier text is not lost."""
        script.cue(LlmCue(tokens=("One", " two", " three"), fault=fault))
        events, error = await outcome(model, question)
        assert isinstance(error, StageBroken)
        names_its_provider(error, stage="llm", provider=model.name)
        assert error.retryable
        assert not any(isinstance(event, Finished) for event in events)
        if getattr(fault, "after", 0) == 2:
            assert text_of(events) == "One two"
        assert text_of(await answer(model, question))  # and the next request is answered

    async def test_leaving_is_seen(self, model: Model, script: LlmScript, question: ModelRequest) -> None:
        """The vendor's connection closes while it still has data to send."""
        hold = Hold(after=1)
        script.cue(LlmCue(hold=hold))
        async with model.open(question) as events:
            assert await first_output(events) == TextDelta("Hello")
        async with promptly():
            await (await script.nth(0)).gone.wait()
        assert not hold.release.is_set()

    async def test_cancel_before_the_first_token_is_seen(
        self, model: Model, script: LlmScript, question: ModelRequest
    ) -> None:
        """A turn that is cancelled while it waits for headers closes the connection too."""
        script.cue(LlmCue(fault=Hang()))
        async with asyncio.TaskGroup() as group:
            answering = group.create_task(answer(model, question))
            request = await script.nth(0)
            answering.cancel()
            async with promptly():
                await request.ended.wait()
        assert answering.cancelled()

    async def test_held_answer_does_not_hold_others(
        self, model: Model, script: LlmScript, question: ModelRequest
    ) -> None:
        """A slow answer delays no other, and arrives whole."""
        hold = Hold(after=1)
        script.cue(LlmCue(hold=hold), LlmCue(tokens=("Quick",)))
        async with asyncio.TaskGroup() as group:
            slow = group.create_task(answer(model, question))
            await script.nth(0)
            other = replace(question, session="other")
            assert text_of(await answer(model, other)) == "Quick"
            hold.release.set()
        assert text_of(slow.result()) == "Hello there, user."
