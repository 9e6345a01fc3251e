"""The ear at Deepgram keeps the port's promises, against a vendor that misbehaves."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from voicepipe.providers.stt.deepgram import open_transcriber
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.stages.transcriber import Transcriber
from voicepipe.testing.conformance.live_transcriber import LiveTranscriberConformance
from voicepipe.testing.conformance.storm import TranscriberStorm
from voicepipe.testing.conformance.transcriber import SttDesk
from voicepipe.testing.fakes.deepgram import KEY, FakeDeepgram


class TestDeepgramTranscriber(LiveTranscriberConformance, TranscriberStorm):
    @pytest.fixture
    async def vendor(self) -> AsyncIterator[FakeDeepgram]:
        async with FakeDeepgram() as vendor:
            yield vendor

    @pytest.fixture
    def desk(self, vendor: FakeDeepgram) -> SttDesk:
        return vendor.desk

    @pytest.fixture
    def transcriber(self, vendor: FakeDeepgram, patience_ms: int) -> Transcriber:
        settings = ProviderSettings(kind="deepgram", base_url=vendor.base_url, api_key=KEY, idle_timeout_ms=patience_ms)
        return open_transcriber(Spec("deepgram", "nova-3"), settings)
