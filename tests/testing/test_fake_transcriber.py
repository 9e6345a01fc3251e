"""The in-process ear keeps the port's promises, and does what a test's hand tells it."""

from __future__ import annotations

import numpy as np
import pytest

from voicepipe.errors import StageTimeout
from voicepipe.stages.transcriber import Final, Hearing, Interim
from voicepipe.testing.conformance.transcriber import ScriptedTranscriberConformance
from voicepipe.testing.fakes.cues import SttCue
from voicepipe.testing.fakes.desk import Desk
from voicepipe.testing.fakes.stages import AskedEar, FakeTranscriber

HEARING = Hearing(model="any")


class TestFakeTranscriber(ScriptedTranscriberConformance):
    @pytest.fixture
    def transcriber(self, patience_ms: int) -> FakeTranscriber:
        return FakeTranscriber(SttCue(), idle_timeout_ms=patience_ms)

    @pytest.fixture
    def desk(self, transcriber: FakeTranscriber) -> Desk[SttCue | None, AskedEar]:
        return transcriber.desk


async def test_hears_by_hand() -> None:
    """The test says interim texts of its own accord, and answers flushes when it wants."""
    transcriber = FakeTranscriber()
    async with transcriber.open(HEARING) as ear:
        ear.begin(1)
        ear.push(np.arange(5, dtype=np.int16))
        ear.hear(Interim(1, "what"))
        ear.flush(1)
        asked = await transcriber.desk.nth(0)
        assert asked.samples.tolist() == [0, 1, 2, 3, 4]
        asked.answer("what time is it", "en")
        assert await anext(ear) == Interim(1, "what")
        assert await anext(ear) == Final(1, 1, "what time is it", "en")
    assert transcriber.ears[0].left.is_set()


async def test_breaks_by_hand() -> None:
    """The test's error ends the stream."""
    error = StageTimeout("stt", provider="fake/ear", why="too slow", retryable=True)
    async with FakeTranscriber().open(HEARING) as ear:
        ear.fail(error)
        with pytest.raises(StageTimeout, match="too slow"):
            await anext(ear)
