"""The ear at AssemblyAI keeps the port's promises, against a vendor that misbehaves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from voicepipe.providers.stt import assemblyai
from voicepipe.providers.stt.assemblyai import open_transcriber
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.stages.transcriber import Hearing, Transcriber
from voicepipe.testing.conformance.live_transcriber import LiveTranscriberConformance
from voicepipe.testing.conformance.storm import TranscriberStorm
from voicepipe.testing.conformance.transcriber import SttDesk
from voicepipe.testing.fakes.assemblyai import KEY, FakeAssemblyAi


class TestAssemblyAiTranscriber(LiveTranscriberConformance, TranscriberStorm):
    """Without the silence that fills up short messages, so that the vendor's samples are the caller's."""

    @pytest.fixture(autouse=True)
    def _unfilled(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(assemblyai, "LINE", replace(assemblyai.LINE, least_ms=0))

    @pytest.fixture
    async def vendor(self) -> AsyncIterator[FakeAssemblyAi]:
        async with FakeAssemblyAi() as vendor:
            yield vendor

    @pytest.fixture
    def desk(self, vendor: FakeAssemblyAi) -> SttDesk:
        return vendor.desk

    @pytest.fixture
    def hearing(self) -> Hearing:
        return Hearing(model="universal-streaming", language="en-US")

    @pytest.fixture
    def transcriber(self, vendor: FakeAssemblyAi, patience_ms: int) -> Transcriber:
        settings = ProviderSettings(
            kind="assemblyai", base_url=vendor.base_url, api_key=KEY, idle_timeout_ms=patience_ms
        )
        return open_transcriber(Spec("assemblyai", "universal-streaming"), settings)
