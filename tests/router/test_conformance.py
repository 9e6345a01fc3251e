"""A routed model is a model: it keeps the port's promises, alone in its pool and with another one beside it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from voicepipe.stages.model import Model, ModelRequest, Routed, TextDelta
from voicepipe.testing.conformance.model import LlmDesk, ModelConformance, ScriptedModelConformance
from voicepipe.testing.conformance.promptness import PATIENT_MS, promptly
from voicepipe.testing.fakes.cues import Hold, LlmCue

Make = Callable[..., Any]


class TestAloneInItsPool(ScriptedModelConformance):
    @pytest.fixture
    def patience_ms(self) -> int:
        return PATIENT_MS

    @pytest.fixture
    async def pooled(self, pool: Make, patience_ms: int) -> Any:
        return await pool(1, idle_timeout_ms=patience_ms)

    @pytest.fixture
    def model(self, pooled: Any) -> Model:
        model: Model = pooled.model
        return model

    @pytest.fixture
    def desk(self, pooled: Any) -> LlmDesk:
        desk: LlmDesk = pooled.vendors[0].llm
        return desk

    async def test_leaving_is_seen(self, model: Model, desk: LlmDesk, question: ModelRequest) -> None:
        """A router says first who answers."""
        desk.cue(LlmCue(hold=Hold(after=1)))
        async with model.open(question) as events:
            told = aiter(events)
            assert isinstance(await anext(told), Routed)
            assert await anext(told) == TextDelta("Hello")
        async with promptly():
            await (await desk.nth(0)).gone.wait()


class TestBesideAnother(ModelConformance):
    @pytest.fixture(params=["hedge", "race", "fallback", "single"])
    async def model(self, pool: Make, request: Any) -> AsyncIterator[Model]:
        pooled = await pool(2, policy=request.param)
        yield pooled.model
        assert set(pooled.experience.running.values()) <= {0}
