"""The in-process model keeps the port's promises, and follows a test's cues."""

from __future__ import annotations

import pytest

from voicepipe.errors import StageBroken
from voicepipe.ports.model import Finished, ModelRequest, TextDelta, Usage
from voicepipe.testing.conformance.model import ScriptedModelConformance
from voicepipe.testing.fakes.cues import LlmCue
from voicepipe.testing.fakes.ports import FakeModel, ReceivedModelRequest
from voicepipe.testing.fakes.script import Script

QUESTION = ModelRequest(model="any", messages=())


class TestFakeModel(ScriptedModelConformance):
    @pytest.fixture
    def model(self, timeout_ms: int) -> FakeModel:
        return FakeModel(LlmCue(), idle_timeout_ms=timeout_ms)

    @pytest.fixture
    def script(self, model: FakeModel) -> Script[LlmCue | None, ReceivedModelRequest]:
        return model.script


async def test_answers_by_hand() -> None:
    """Without a cue the test says every event, when it wants."""
    model = FakeModel()
    async with model.open(QUESTION) as events:
        request = await model.script.nth(0)
        assert request.question == QUESTION
        request.send("Hi", TextDelta(" there"))
        assert await anext(events) == TextDelta("Hi")
        assert await anext(events) == TextDelta(" there")
        request.finish("length", Usage(input_tokens=1, output_tokens=2))
        assert [event async for event in events] == [Finished("length"), Usage(input_tokens=1, output_tokens=2)]
    assert request.ended.is_set()
    assert not request.gone.is_set()


async def test_fails_by_hand() -> None:
    """The test's error is raised after what it sent."""
    model = FakeModel()
    error = StageBroken("llm", provider=model.name, why="cut", retryable=True)
    async with model.open(QUESTION) as events:
        request = await model.script.nth(0)
        request.send("Hi")
        request.fail(error)
        assert await anext(events) == TextDelta("Hi")
        with pytest.raises(StageBroken, match="cut"):
            await anext(events)


async def test_leaving_an_answer_by_hand_is_noted() -> None:
    """The test sees that the turn has left."""
    model = FakeModel()
    async with model.open(QUESTION):
        pass
    assert model.script.received[0].gone.is_set()


async def test_usual_cue_may_be_a_function_of_the_question() -> None:
    """A fake can compute its answer from the request."""
    model = FakeModel(lambda request: LlmCue(tokens=(f"You asked {request.model}",)))
    async with model.open(QUESTION) as events:
        assert await anext(events) == TextDelta("You asked any")
