"""The in-process STT keeps the port's promises, and follows a test's cues."""

from __future__ import annotations

import numpy as np
import pytest

from voicepipe.errors import StageTimeout
from voicepipe.ports.transcriber import Final, Interim, TranscriptionOptions
from voicepipe.testing.conformance.transcriber import ScriptedTranscriberConformance
from voicepipe.testing.fakes.cues import SttCue
from voicepipe.testing.fakes.ports import FakeTranscriber, ReceivedFlush
from voicepipe.testing.fakes.script import Script

TRANSCRIPTION = TranscriptionOptions(model="any")


class TestFakeTranscriber(ScriptedTranscriberConformance):
    @pytest.fixture
    def transcriber(self, timeout_ms: int) -> FakeTranscriber:
        return FakeTranscriber(SttCue(), idle_timeout_ms=timeout_ms)

    @pytest.fixture
    def script(self, transcriber: FakeTranscriber) -> Script[SttCue | None, ReceivedFlush]:
        return transcriber.script


async def test_transcripts_are_sent_by_hand() -> None:
    """The test says interim texts of its own accord, and answers flushes when it wants."""
    transcriber = FakeTranscriber()
    async with transcriber.open(TRANSCRIPTION) as stream:
        stream.begin(1)
        stream.push(np.arange(5, dtype=np.int16))
        stream.emit(Interim(1, "what"))
        stream.flush(1)
        request = await transcriber.script.nth(0)
        assert request.samples.tolist() == [0, 1, 2, 3, 4]
        request.answer("what time is it", "en")
        assert await anext(stream) == Interim(1, "what")
        assert await anext(stream) == Final(1, 1, "what time is it", "en")
    assert transcriber.streams[0].left.is_set()


async def test_breaks_by_hand() -> None:
    """The test's error ends the stream."""
    error = StageTimeout("stt", provider="fake/stt", why="too slow", retryable=True)
    async with FakeTranscriber().open(TRANSCRIPTION) as stream:
        stream.fail(error)
        with pytest.raises(StageTimeout, match="too slow"):
            await anext(stream)
