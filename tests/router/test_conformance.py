"""A routed model is a model: it keeps the port's promises, alone in its pool and with another one beside it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from voicepipe.ports.model import Model, ModelRequest, Routed, TextDelta
from voicepipe.ports.provider_events import ModelConnected
from voicepipe.testing.conformance.model import LlmScript, ModelConformance, ScriptedModelConformance
from voicepipe.testing.conformance.waits import LONG_TIMEOUT_MS, promptly
from voicepipe.testing.fakes.cues import Hold, LlmCue

Make = Callable[..., Any]


class TestAloneInItsPool(ScriptedModelConformance):
    @pytest.fixture
    def timeout_ms(self) -> int:
        return LONG_TIMEOUT_MS

    @pytest.fixture
    async def pooled(self, pool: Make, timeout_ms: int) -> Any:
        return await pool(1, idle_timeout_ms=timeout_ms)

    @pytest.fixture
    def model(self, pooled: Any) -> Model:
        model: Model = pooled.model
        return model

    @pytest.fixture
    def script(self, pooled: Any) -> LlmScript:
        script: LlmScript = pooled.vendors[0].llm
        return script

    async def test_leaving_is_seen(self, model: Model, script: LlmScript, question: ModelRequest) -> None:
        """A router says first who answers."""
        script.cue(LlmCue(hold=Hold(after=1)))
        async with model.open(question) as events:
            received = aiter(events)
            assert await anext(received) == ModelConnected()
            assert isinstance(await anext(received), Routed)
            assert await anext(received) == TextDelta("Hello")
        async with promptly():
            await (await script.nth(0)).gone.wait()


class TestBesideAnother(ModelConformance):
    @pytest.fixture(params=["hedge", "race", "fallback", "single"])
    async def model(self, pool: Make, request: Any) -> AsyncIterator[Model]:
        pooled = await pool(2, policy=request.param)
        yield pooled.model
        assert set(pooled.stats.running.values()) <= {0}
