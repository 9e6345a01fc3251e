"""The OpenAI-compatible transcriber keeps the port's promises, against a vendor that misbehaves."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from voicepipe.ports.transcriber import Transcriber
from voicepipe.providers.openai.stt import open_transcriber
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.testing.conformance.transcriber import ScriptedTranscriberConformance, SttScript
from voicepipe.testing.fakes.vendor import FakeVendor


class TestOpenAiTranscriber(ScriptedTranscriberConformance):
    @pytest.fixture
    def script(self, vendor: FakeVendor) -> SttScript:
        return vendor.stt

    @pytest.fixture
    def transcriber(self, settings: Callable[..., ProviderSettings]) -> Transcriber:
        return open_transcriber(Spec("groq", "whisper-large-v3-turbo"), settings())
