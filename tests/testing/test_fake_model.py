"""The in-process model keeps the port's promises, and does what a test's hand tells it."""

from __future__ import annotations

import pytest

from voicepipe.errors import StageBroken
from voicepipe.stages.model import Finished, ModelRequest, TextDelta, Usage
from voicepipe.testing.conformance.model import ScriptedModelConformance
from voicepipe.testing.fakes.cues import LlmCue
from voicepipe.testing.fakes.desk import Desk
from voicepipe.testing.fakes.stages import AskedModel, FakeModel

QUESTION = ModelRequest(model="any", messages=())


class TestFakeModel(ScriptedModelConformance):
    @pytest.fixture
    def model(self, patience_ms: int) -> FakeModel:
        return FakeModel(LlmCue(), idle_timeout_ms=patience_ms)

    @pytest.fixture
    def desk(self, model: FakeModel) -> Desk[LlmCue | None, AskedModel]:
        return model.desk


async def test_answers_by_hand() -> None:
    """Without a cue the test says every event, when it wants."""
    model = FakeModel()
    async with model.open(QUESTION) as events:
        asked = await model.desk.nth(0)
        assert asked.question == QUESTION
        asked.send("Hi", TextDelta(" there"))
        assert await anext(events) == TextDelta("Hi")
        assert await anext(events) == TextDelta(" there")
        asked.finish("length", Usage(input_tokens=1, output_tokens=2))
        assert [event async for event in events] == [Finished("length"), Usage(input_tokens=1, output_tokens=2)]
    assert asked.ended.is_set()
    assert not asked.gone.is_set()


async def test_fails_by_hand() -> None:
    """The test's error is raised after what it sent."""
    model = FakeModel()
    error = StageBroken("llm", provider=model.name, why="cut", retryable=True)
    async with model.open(QUESTION) as events:
        asked = await model.desk.nth(0)
        asked.send("Hi")
        asked.fail(error)
        assert await anext(events) == TextDelta("Hi")
        with pytest.raises(StageBroken, match="cut"):
            await anext(events)


async def test_leaving_an_answer_by_hand_is_noted() -> None:
    """The test sees that the turn has left."""
    model = FakeModel()
    async with model.open(QUESTION):
        pass
    assert model.desk.asked[0].gone.is_set()


async def test_usual_cue_may_be_a_function_of_the_question() -> None:
    """A fake can answer what it was asked."""
    model = FakeModel(lambda request: LlmCue(tokens=(f"You asked {request.model}",)))
    async with model.open(QUESTION) as events:
        assert await anext(events) == TextDelta("You asked any")
