"""The OpenAI-shaped voice keeps the port's promises, against a vendor that misbehaves."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from voicepipe.providers.tts.openai import open_synthesizer
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.stages.synthesizer import Synthesizer
from voicepipe.testing.conformance.synthesizer import ScriptedSynthesizerConformance, TtsDesk
from voicepipe.testing.fakes.vendor import FakeVendor


class TestOpenAiSynthesizer(ScriptedSynthesizerConformance):
    @pytest.fixture
    def desk(self, vendor: FakeVendor) -> TtsDesk:
        return vendor.tts

    @pytest.fixture
    def synthesizer(self, settings: Callable[..., ProviderSettings]) -> Synthesizer:
        return open_synthesizer(Spec("kokoro", "kokoro"), settings())
