"""The ears at Cartesia keep the port's promises, against a vendor that misbehaves."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from voicepipe.providers.stt.cartesia import open_transcriber
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.stages.transcriber import Transcriber
from voicepipe.testing.conformance.live_transcriber import LiveTranscriberConformance
from voicepipe.testing.conformance.promptness import PATIENT_MS
from voicepipe.testing.conformance.storm import TranscriberStorm
from voicepipe.testing.conformance.transcriber import SttDesk, TranscriberConformance
from voicepipe.testing.fakes.cartesia_stt import KEY, FakeInk, FakeInkTurns


def ear(vendor: FakeInk, model: str, patience_ms: int) -> Transcriber:
    settings = ProviderSettings(kind="cartesia", base_url=vendor.base_url, api_key=KEY, idle_timeout_ms=patience_ms)
    return open_transcriber(Spec("cartesia", model), settings)


class TestInkWhisper(LiveTranscriberConformance, TranscriberStorm):
    @pytest.fixture
    async def vendor(self) -> AsyncIterator[FakeInk]:
        async with FakeInk() as vendor:
            yield vendor

    @pytest.fixture
    def desk(self, vendor: FakeInk) -> SttDesk:
        return vendor.desk

    @pytest.fixture
    def transcriber(self, vendor: FakeInk, patience_ms: int) -> Transcriber:
        return ear(vendor, "ink-whisper", patience_ms)


class TestInkTurns(TranscriberConformance, TranscriberStorm):
    """The vendor takes no questions, so that there are none to take cues."""

    @pytest.fixture
    async def vendor(self) -> AsyncIterator[FakeInkTurns]:
        async with FakeInkTurns() as vendor:
            yield vendor

    @pytest.fixture
    def transcriber(self, vendor: FakeInkTurns, monkeypatch: pytest.MonkeyPatch) -> Transcriber:
        monkeypatch.setattr("voicepipe.providers.stt.cartesia.FIRST_PATIENCE_MS", 20)
        return ear(vendor, "ink-2", PATIENT_MS)
