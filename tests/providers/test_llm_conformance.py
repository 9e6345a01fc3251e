"""Every dialect keeps the port's promises, against a vendor that misbehaves."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from voicepipe.providers.llm import anthropic, gemini, openai
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.stages.model import Model
from voicepipe.testing.conformance.model import LlmDesk, ScriptedModelConformance
from voicepipe.testing.fakes.vendor import FakeVendor


class TestOpenAiModel(ScriptedModelConformance):
    @pytest.fixture
    def desk(self, vendor: FakeVendor) -> LlmDesk:
        return vendor.llm

    @pytest.fixture
    def model(self, settings: Callable[..., ProviderSettings]) -> Model:
        return openai.open_model(Spec("groq", "llama-3.3-70b"), settings())


class TestAnthropicModel(ScriptedModelConformance):
    @pytest.fixture
    def desk(self, vendor: FakeVendor) -> LlmDesk:
        return vendor.llm

    @pytest.fixture
    def model(self, settings: Callable[..., ProviderSettings]) -> Model:
        return anthropic.open_model(Spec("anthropic", "any"), settings())


class TestGeminiModel(ScriptedModelConformance):
    @pytest.fixture
    def desk(self, vendor: FakeVendor) -> LlmDesk:
        return vendor.llm

    @pytest.fixture
    def model(self, settings: Callable[..., ProviderSettings]) -> Model:
        return gemini.open_model(Spec("gemini", "any"), settings())
