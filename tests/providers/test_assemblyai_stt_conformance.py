"""The AssemblyAI transcriber keeps the port's promises, against a vendor that misbehaves."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from voicepipe.ports.transcriber import Transcriber, TranscriptionOptions
from voicepipe.providers.assemblyai import stt
from voicepipe.providers.assemblyai.stt import open_transcriber
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.testing.conformance.cancellation import TranscriberCancellation
from voicepipe.testing.conformance.streaming_transcriber import LiveTranscriberConformance
from voicepipe.testing.conformance.transcriber import SttScript
from voicepipe.testing.fakes.assemblyai_stt import KEY, FakeAssemblyAi
from voicepipe.values import replace


class TestAssemblyAiTranscriber(LiveTranscriberConformance, TranscriberCancellation):
    """Without the silence that fills up short messages, so that the vendor's samples are the user's."""

    @pytest.fixture(autouse=True)
    def _unfilled(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(stt, "LINE", replace(stt.LINE, min_ms=0))

    @pytest.fixture
    async def vendor(self) -> AsyncIterator[FakeAssemblyAi]:
        async with FakeAssemblyAi() as vendor:
            yield vendor

    @pytest.fixture
    def script(self, vendor: FakeAssemblyAi) -> SttScript:
        return vendor.script

    @pytest.fixture
    def transcription(self) -> TranscriptionOptions:
        return TranscriptionOptions(model="universal-streaming", language="en-US")

    @pytest.fixture
    def transcriber(self, vendor: FakeAssemblyAi, timeout_ms: int) -> Transcriber:
        settings = ProviderSettings(
            kind="assemblyai", base_url=vendor.base_url, api_key=KEY, idle_timeout_ms=timeout_ms
        )
        return open_transcriber(Spec("assemblyai", "universal-streaming"), settings)
