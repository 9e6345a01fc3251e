"""The Flux transcriber keeps the port's promises, against a vendor that misbehaves."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from voicepipe.ports.transcriber import Transcriber, TranscriptionOptions
from voicepipe.providers.deepgram.flux import open_transcriber
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.testing.conformance.cancellation import TranscriberCancellation
from voicepipe.testing.conformance.streaming_transcriber import LiveTranscriberConformance
from voicepipe.testing.conformance.transcriber import SttScript
from voicepipe.testing.fakes.deepgram_flux import FakeFlux
from voicepipe.testing.fakes.deepgram_stt import KEY


class TestFluxTranscriber(LiveTranscriberConformance, TranscriberCancellation):
    """The transcriber makes Flux end its turn at each flush, so that the fake sees each."""

    @pytest.fixture
    async def vendor(self) -> AsyncIterator[FakeFlux]:
        async with FakeFlux() as vendor:
            yield vendor

    @pytest.fixture
    def script(self, vendor: FakeFlux) -> SttScript:
        return vendor.script

    @pytest.fixture
    def transcription(self) -> TranscriptionOptions:
        return TranscriptionOptions(model="flux-general-en", language="en-US")

    @pytest.fixture
    def transcriber(self, vendor: FakeFlux, timeout_ms: int) -> Transcriber:
        settings = ProviderSettings(
            kind="flux",
            base_url=vendor.base_url,
            api_key=KEY,
            idle_timeout_ms=timeout_ms,
            options=(("force_end_after_ms", "0"),),
        )
        return open_transcriber(Spec("flux", "flux-general-en"), settings)
