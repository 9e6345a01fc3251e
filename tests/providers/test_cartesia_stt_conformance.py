"""The Cartesia transcribers keep the port's promises, against a vendor that misbehaves."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from voicepipe.ports.transcriber import Transcriber
from voicepipe.providers.cartesia.stt import open_transcriber
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.testing.conformance.cancellation import TranscriberCancellation
from voicepipe.testing.conformance.streaming_transcriber import LiveTranscriberConformance
from voicepipe.testing.conformance.transcriber import SttScript, TranscriberConformance
from voicepipe.testing.conformance.waits import LONG_TIMEOUT_MS
from voicepipe.testing.fakes.cartesia_stt import KEY, FakeInk, FakeInkTurns


def make_transcriber(vendor: FakeInk, model: str, timeout_ms: int) -> Transcriber:
    settings = ProviderSettings(kind="cartesia", base_url=vendor.base_url, api_key=KEY, idle_timeout_ms=timeout_ms)
    return open_transcriber(Spec("cartesia", model), settings)


class TestInkWhisper(LiveTranscriberConformance, TranscriberCancellation):
    @pytest.fixture
    async def vendor(self) -> AsyncIterator[FakeInk]:
        async with FakeInk() as vendor:
            yield vendor

    @pytest.fixture
    def script(self, vendor: FakeInk) -> SttScript:
        return vendor.script

    @pytest.fixture
    def transcriber(self, vendor: FakeInk, timeout_ms: int) -> Transcriber:
        return make_transcriber(vendor, "ink-whisper", timeout_ms)


class TestInkTurns(TranscriberConformance, TranscriberCancellation):
    """The vendor takes no questions, so that there are none to take cues."""

    @pytest.fixture
    async def vendor(self) -> AsyncIterator[FakeInkTurns]:
        async with FakeInkTurns() as vendor:
            yield vendor

    @pytest.fixture
    def transcriber(self, vendor: FakeInkTurns, monkeypatch: pytest.MonkeyPatch) -> Transcriber:
        monkeypatch.setattr("voicepipe.providers.cartesia.stt.FIRST_FLUSH_TIMEOUT_MS", 20)
        return make_transcriber(vendor, "ink-2", LONG_TIMEOUT_MS)
