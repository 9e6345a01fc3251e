"""Every dialect keeps the port's promises, against a vendor that misbehaves."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from voicepipe.ports.model import Model
from voicepipe.providers.anthropic import model as anthropic
from voicepipe.providers.google import model as google
from voicepipe.providers.openai import model as openai
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.testing.conformance.model import LlmScript, ScriptedModelConformance
from voicepipe.testing.fakes.vendor import FakeVendor


class TestOpenAiModel(ScriptedModelConformance):
    @pytest.fixture
    def script(self, vendor: FakeVendor) -> LlmScript:
        return vendor.llm

    @pytest.fixture
    def model(self, settings: Callable[..., ProviderSettings]) -> Model:
        return openai.open_model(Spec("groq", "llama-3.3-70b"), settings())


class TestAnthropicModel(ScriptedModelConformance):
    @pytest.fixture
    def script(self, vendor: FakeVendor) -> LlmScript:
        return vendor.llm

    @pytest.fixture
    def model(self, settings: Callable[..., ProviderSettings]) -> Model:
        return anthropic.open_model(Spec("anthropic", "any"), settings())


class TestGeminiModel(ScriptedModelConformance):
    @pytest.fixture
    def script(self, vendor: FakeVendor) -> LlmScript:
        return vendor.llm

    @pytest.fixture
    def model(self, settings: Callable[..., ProviderSettings]) -> Model:
        return google.open_model(Spec("gemini", "any"), settings())
