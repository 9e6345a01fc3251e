"""The transcribers on OpenAI's Realtime wire keep the port's promises, against vendors that misbehave."""

from __future__ import annotations

from collections.abc import AsyncIterator

import numpy as np
import pytest

from voicepipe.ports.transcriber import Final, Samples, Transcriber, TranscriptionOptions
from voicepipe.providers.openai.realtime_stt import open_transcriber
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.testing.conformance.cancellation import TranscriberCancellation
from voicepipe.testing.conformance.streaming_transcriber import LiveTranscriberConformance
from voicepipe.testing.conformance.transcriber import SttScript, final, push
from voicepipe.testing.fakes.cues import Hold, SttCue
from voicepipe.testing.fakes.openai_realtime_stt import KEY, FakeRealtimeStt, FakeSpeachesStt, FakeVllmStt
from voicepipe.testing.fakes.ws_stt import FakeWsTranscriber


class _RealtimeSuite(LiveTranscriberConformance, TranscriberCancellation):
    server = "openai"
    fake: type[FakeWsTranscriber] = FakeRealtimeStt

    @pytest.fixture
    async def vendor(self) -> AsyncIterator[FakeWsTranscriber]:
        async with self.fake() as vendor:
            yield vendor

    @pytest.fixture
    def script(self, vendor: FakeWsTranscriber) -> SttScript:
        return vendor.script

    @pytest.fixture
    def transcriber(self, vendor: FakeWsTranscriber, timeout_ms: int) -> Transcriber:
        settings = ProviderSettings(
            kind="openai_realtime",
            base_url=vendor.base_url,
            api_key=KEY,
            idle_timeout_ms=timeout_ms,
            options=(("stt_server", self.server),),
        )
        return open_transcriber(Spec("here", "whisper"), settings)


class TestOpenAi(_RealtimeSuite):
    pass


class TestSpeaches(_RealtimeSuite):
    server = "speaches"
    fake = FakeSpeachesStt


class TestVllm(_RealtimeSuite):
    """vLLM transcribes the next segment only after it has sent the text of the last one."""

    server = "vllm"
    fake = FakeVllmStt

    async def test_superseded_flush_is_taken_back(
        self, transcriber: Transcriber, script: SttScript, transcription: TranscriptionOptions, speech: Samples
    ) -> None:
        """The later flush is put when the earlier one has its answer, and has the text of both."""
        hold = Hold()
        script.cue(SttCue(text="first", hold=hold), SttCue(text="second"))
        async with transcriber.open(transcription) as stream:
            stream.begin(1)
            for flush in (1, 2):
                push(stream, speech)
                stream.flush(flush)
                await script.nth(0)
            hold.release.set()
            assert await final(stream) == Final(1, 2, "first second")
        assert np.array_equal((await script.nth(1)).samples, np.concatenate([speech, speech]))

    async def test_late_text_of_an_earlier_utterance_comes(
        self, transcriber: Transcriber, script: SttScript, transcription: TranscriptionOptions, speech: Samples
    ) -> None:
        """Audio that comes meanwhile waits, and is transcribed afterwards."""
        hold = Hold()
        script.cue(SttCue(text="slow", hold=hold), SttCue(text="quick"))
        async with transcriber.open(transcription) as stream:
            for utterance in (1, 2):
                stream.begin(utterance)
                push(stream, speech)
                stream.flush(1)
                await script.nth(0)
            hold.release.set()
            assert await final(stream) == Final(1, 1, "slow")
            assert await final(stream) == Final(2, 1, "quick")
