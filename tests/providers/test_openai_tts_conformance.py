"""The OpenAI-shaped voice keeps the port's promises, against a vendor that misbehaves."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from voicepipe.ports.synthesizer import Synthesizer
from voicepipe.providers.openai.tts import open_synthesizer
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.testing.conformance.synthesizer import ScriptedSynthesizerConformance, TtsScript
from voicepipe.testing.fakes.vendor import FakeVendor


class TestOpenAiSynthesizer(ScriptedSynthesizerConformance):
    @pytest.fixture
    def script(self, vendor: FakeVendor) -> TtsScript:
        return vendor.tts

    @pytest.fixture
    def synthesizer(self, settings: Callable[..., ProviderSettings]) -> Synthesizer:
        return open_synthesizer(Spec("kokoro", "kokoro"), settings())
