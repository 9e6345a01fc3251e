"""The ear at ElevenLabs keeps the port's promises, against a vendor that misbehaves."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from voicepipe.providers.stt.elevenlabs import open_transcriber
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.stages.transcriber import Transcriber
from voicepipe.testing.conformance.live_transcriber import LiveTranscriberConformance
from voicepipe.testing.conformance.storm import TranscriberStorm
from voicepipe.testing.conformance.transcriber import SttDesk
from voicepipe.testing.fakes.elevenlabs_stt import KEY, FakeScribe


class TestScribe(LiveTranscriberConformance, TranscriberStorm):
    @pytest.fixture
    async def vendor(self) -> AsyncIterator[FakeScribe]:
        async with FakeScribe() as vendor:
            yield vendor

    @pytest.fixture
    def desk(self, vendor: FakeScribe) -> SttDesk:
        return vendor.desk

    @pytest.fixture
    def transcriber(self, vendor: FakeScribe, patience_ms: int) -> Transcriber:
        settings = ProviderSettings(
            kind="elevenlabs", base_url=vendor.base_url, api_key=KEY, idle_timeout_ms=patience_ms
        )
        return open_transcriber(Spec("elevenlabs", "scribe_v2_realtime"), settings)
