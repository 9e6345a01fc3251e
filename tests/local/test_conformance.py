"""The local adapters keep the promises of the three ports, with the real models."""

from __future__ import annotations

import pytest

from voicepipe.ports.model import Content, Model, ModelRequest, Text
from voicepipe.ports.synthesizer import Synthesizer, Voice
from voicepipe.ports.transcriber import Samples, Transcriber, TranscriptionOptions
from voicepipe.providers.local.llm import open_model
from voicepipe.providers.local.stt import open_transcriber
from voicepipe.providers.local.tts import open_synthesizer
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.testing.conformance.model import ModelConformance
from voicepipe.testing.conformance.synthesizer import SynthesizerConformance
from voicepipe.testing.conformance.transcriber import TranscriberConformance


class TestMoonshine(TranscriberConformance):
    """The STT engine."""

    @pytest.fixture
    def transcriber(self, settings: ProviderSettings) -> Transcriber:
        return open_transcriber(Spec("local", "moonshine-tiny"), settings)

    @pytest.fixture
    def transcription(self) -> TranscriptionOptions:
        return TranscriptionOptions(model="moonshine-tiny", language="en-US")

    @pytest.fixture
    def speech(self, clips: dict[str, tuple[Samples, str]]) -> Samples:
        return clips["vctk_p287_001"][0][:40_000]


class TestSmolLm(ModelConformance):
    """The LLM engine."""

    @pytest.fixture
    def model(self, settings: ProviderSettings) -> Model:
        return open_model(Spec("local", "smollm2-135m"), settings)

    @pytest.fixture
    def question(self) -> ModelRequest:
        messages = (Content("user", (Text("Say hello."),)),)
        return ModelRequest(model="smollm2-135m", messages=messages, max_output_tokens=24)


class TestHibari(SynthesizerConformance):
    """The voice."""

    @pytest.fixture
    def synthesizer(self, settings: ProviderSettings) -> Synthesizer:
        return open_synthesizer(Spec("local", "hibari"), settings)

    @pytest.fixture
    def voice(self) -> Voice:
        return Voice(model="hibari")
