"""The OpenAI-shaped ear keeps the port's promises, against a vendor that misbehaves."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from voicepipe.providers.stt.openai import open_transcriber
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.stages.transcriber import Transcriber
from voicepipe.testing.conformance.transcriber import ScriptedTranscriberConformance, SttDesk
from voicepipe.testing.fakes.vendor import FakeVendor


class TestOpenAiTranscriber(ScriptedTranscriberConformance):
    @pytest.fixture
    def desk(self, vendor: FakeVendor) -> SttDesk:
        return vendor.stt

    @pytest.fixture
    def transcriber(self, settings: Callable[..., ProviderSettings]) -> Transcriber:
        return open_transcriber(Spec("groq", "whisper-large-v3-turbo"), settings())
