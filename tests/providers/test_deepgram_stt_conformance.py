"""The Deepgram transcriber keeps the port's promises, against a vendor that misbehaves."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from voicepipe.ports.transcriber import Transcriber
from voicepipe.providers.deepgram.stt import open_transcriber
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.testing.conformance.cancellation import TranscriberCancellation
from voicepipe.testing.conformance.streaming_transcriber import LiveTranscriberConformance
from voicepipe.testing.conformance.transcriber import SttScript
from voicepipe.testing.fakes.deepgram_stt import KEY, FakeDeepgram


class TestDeepgramTranscriber(LiveTranscriberConformance, TranscriberCancellation):
    @pytest.fixture
    async def vendor(self) -> AsyncIterator[FakeDeepgram]:
        async with FakeDeepgram() as vendor:
            yield vendor

    @pytest.fixture
    def script(self, vendor: FakeDeepgram) -> SttScript:
        return vendor.script

    @pytest.fixture
    def transcriber(self, vendor: FakeDeepgram, timeout_ms: int) -> Transcriber:
        settings = ProviderSettings(kind="deepgram", base_url=vendor.base_url, api_key=KEY, idle_timeout_ms=timeout_ms)
        return open_transcriber(Spec("deepgram", "nova-3"), settings)
