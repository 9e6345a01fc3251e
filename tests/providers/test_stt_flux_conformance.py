"""The ear at Flux keeps the port's promises, against a vendor that misbehaves."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from voicepipe.providers.stt.flux import open_transcriber
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.stages.transcriber import Hearing, Transcriber
from voicepipe.testing.conformance.live_transcriber import LiveTranscriberConformance
from voicepipe.testing.conformance.storm import TranscriberStorm
from voicepipe.testing.conformance.transcriber import SttDesk
from voicepipe.testing.fakes.deepgram import KEY
from voicepipe.testing.fakes.flux import FakeFlux


class TestFluxTranscriber(LiveTranscriberConformance, TranscriberStorm):
    """Flux is told to end its turn at each flush, so that the fake sees each."""

    @pytest.fixture
    async def vendor(self) -> AsyncIterator[FakeFlux]:
        async with FakeFlux() as vendor:
            yield vendor

    @pytest.fixture
    def desk(self, vendor: FakeFlux) -> SttDesk:
        return vendor.desk

    @pytest.fixture
    def hearing(self) -> Hearing:
        return Hearing(model="flux-general-en", language="en-US")

    @pytest.fixture
    def transcriber(self, vendor: FakeFlux, patience_ms: int) -> Transcriber:
        settings = ProviderSettings(
            kind="flux",
            base_url=vendor.base_url,
            api_key=KEY,
            idle_timeout_ms=patience_ms,
            options=(("force_end_after_ms", "0"),),
        )
        return open_transcriber(Spec("flux", "flux-general-en"), settings)
