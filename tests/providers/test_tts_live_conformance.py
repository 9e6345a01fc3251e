"""Voices that stream keep the port's promises, against vendors that misbehave, with sockets kept warm and without."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import nullcontext

import pytest

from voicepipe.providers.net import warm
from voicepipe.registry import ProviderSettings, Spec, factory
from voicepipe.stages.synthesizer import Synthesizer, Voice
from voicepipe.testing.conformance.synthesizer import ScriptedSynthesizerConformance, TtsDesk
from voicepipe.testing.fakes import cartesia_voice, deepgram_voice, elevenlabs_voice, inworld_voice, rime_voice
from voicepipe.testing.fakes.live_voice import FakeLiveVoice

VENDORS = {
    "deepgram": (deepgram_voice.FakeAura, deepgram_voice.KEY, "aura-2-thalia-en"),
    "inworld": (inworld_voice.FakeInworld, inworld_voice.KEY, "inworld-tts-2"),
    "cartesia": (cartesia_voice.FakeCartesia, cartesia_voice.KEY, "sonic-3"),
    "elevenlabs": (elevenlabs_voice.FakeElevenLabs, elevenlabs_voice.KEY, "eleven_flash_v2_5"),
    "rime": (rime_voice.FakeRime, rime_voice.KEY, "coda"),
}


class TestLiveSynthesizers(ScriptedSynthesizerConformance):
    @pytest.fixture(params=VENDORS)
    def kind(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)

    @pytest.fixture
    async def vendor(self, kind: str) -> AsyncIterator[FakeLiveVoice]:
        async with VENDORS[kind][0]() as vendor:
            yield vendor

    @pytest.fixture
    def desk(self, vendor: FakeLiveVoice) -> TtsDesk:
        return vendor.desk

    @pytest.fixture
    def voice(self, kind: str) -> Voice:
        return Voice(model=VENDORS[kind][2])

    @pytest.fixture(params=[False, True], ids=["dialled", "warm"])
    async def synthesizer(
        self, kind: str, vendor: FakeLiveVoice, voice: Voice, patience_ms: int, request: pytest.FixtureRequest
    ) -> AsyncIterator[Synthesizer]:
        settings = ProviderSettings(
            kind=kind, base_url=vendor.base_url, api_key=VENDORS[kind][1], idle_timeout_ms=patience_ms
        )
        async with warm.lifetime() if request.param else nullcontext():
            made: Synthesizer = factory(kind, "tts", key="tts")(Spec(kind, voice.model), settings)
            yield made
