"""The ears on OpenAI's Realtime wire keep the port's promises, against vendors that misbehave."""

from __future__ import annotations

from collections.abc import AsyncIterator

import numpy as np
import pytest

from voicepipe.providers.stt.openai_realtime import open_transcriber
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.stages.transcriber import Final, Hearing, Samples, Transcriber
from voicepipe.testing.conformance.live_transcriber import LiveTranscriberConformance
from voicepipe.testing.conformance.storm import TranscriberStorm
from voicepipe.testing.conformance.transcriber import SttDesk, final, push
from voicepipe.testing.fakes.cues import Hold, SttCue
from voicepipe.testing.fakes.live_ear import FakeLiveEar
from voicepipe.testing.fakes.openai_realtime_stt import KEY, FakeRealtimeStt, FakeSpeachesStt, FakeVllmStt


class _RealtimeEar(LiveTranscriberConformance, TranscriberStorm):
    server = "openai"
    fake: type[FakeLiveEar] = FakeRealtimeStt

    @pytest.fixture
    async def vendor(self) -> AsyncIterator[FakeLiveEar]:
        async with self.fake() as vendor:
            yield vendor

    @pytest.fixture
    def desk(self, vendor: FakeLiveEar) -> SttDesk:
        return vendor.desk

    @pytest.fixture
    def transcriber(self, vendor: FakeLiveEar, patience_ms: int) -> Transcriber:
        settings = ProviderSettings(
            kind="openai_realtime",
            base_url=vendor.base_url,
            api_key=KEY,
            idle_timeout_ms=patience_ms,
            options=(("stt_server", self.server),),
        )
        return open_transcriber(Spec("here", "whisper"), settings)


class TestOpenAi(_RealtimeEar):
    pass


class TestSpeaches(_RealtimeEar):
    server = "speaches"
    fake = FakeSpeachesStt


class TestVllm(_RealtimeEar):
    """It hears nothing of the next segment before it has given the text of the last one."""

    server = "vllm"
    fake = FakeVllmStt

    async def test_superseded_flush_is_taken_back(
        self, transcriber: Transcriber, desk: SttDesk, hearing: Hearing, speech: Samples
    ) -> None:
        """The later flush is put when the earlier one has its answer, and has the text of both."""
        hold = Hold()
        desk.cue(SttCue(text="first", hold=hold), SttCue(text="second"))
        async with transcriber.open(hearing) as stream:
            stream.begin(1)
            for flush in (1, 2):
                push(stream, speech)
                stream.flush(flush)
                await desk.nth(0)
            hold.release.set()
            assert await final(stream) == Final(1, 2, "first second")
        assert np.array_equal((await desk.nth(1)).samples, np.concatenate([speech, speech]))

    async def test_late_text_of_an_earlier_utterance_comes(
        self, transcriber: Transcriber, desk: SttDesk, hearing: Hearing, speech: Samples
    ) -> None:
        """What is said meanwhile waits, and is heard afterwards."""
        hold = Hold()
        desk.cue(SttCue(text="slow", hold=hold), SttCue(text="quick"))
        async with transcriber.open(hearing) as stream:
            for utterance in (1, 2):
                stream.begin(utterance)
                push(stream, speech)
                stream.flush(1)
                await desk.nth(0)
            hold.release.set()
            assert await final(stream) == Final(1, 1, "slow")
            assert await final(stream) == Final(2, 1, "quick")
