"""The ElevenLabs transcriber keeps the port's promises, against a vendor that misbehaves."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from voicepipe.ports.transcriber import Transcriber
from voicepipe.providers.elevenlabs.stt import open_transcriber
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.testing.conformance.cancellation import TranscriberCancellation
from voicepipe.testing.conformance.streaming_transcriber import LiveTranscriberConformance
from voicepipe.testing.conformance.transcriber import SttScript
from voicepipe.testing.fakes.elevenlabs_stt import KEY, FakeScribe


class TestScribe(LiveTranscriberConformance, TranscriberCancellation):
    @pytest.fixture
    async def vendor(self) -> AsyncIterator[FakeScribe]:
        async with FakeScribe() as vendor:
            yield vendor

    @pytest.fixture
    def script(self, vendor: FakeScribe) -> SttScript:
        return vendor.script

    @pytest.fixture
    def transcriber(self, vendor: FakeScribe, timeout_ms: int) -> Transcriber:
        settings = ProviderSettings(
            kind="elevenlabs", base_url=vendor.base_url, api_key=KEY, idle_timeout_ms=timeout_ms
        )
        return open_transcriber(Spec("elevenlabs", "scribe_v2_realtime"), settings)
