"""The in-process TTS keeps the port's promises, and follows a test's cues."""

from __future__ import annotations

import pytest

from voicepipe.errors import StageBroken
from voicepipe.ports.synthesizer import Voice
from voicepipe.testing.conformance.synthesizer import ScriptedSynthesizerConformance
from voicepipe.testing.fakes.cues import TtsCue
from voicepipe.testing.fakes.ports import FakeSynthesizer, ReceivedClause
from voicepipe.testing.fakes.script import Script
from voicepipe.testing.fakes.tone import tone

VOICE = Voice(model="any")


class TestFakeSynthesizer(ScriptedSynthesizerConformance):
    @pytest.fixture
    def synthesizer(self, timeout_ms: int) -> FakeSynthesizer:
        return FakeSynthesizer(TtsCue(), idle_timeout_ms=timeout_ms)

    @pytest.fixture
    def script(self, synthesizer: FakeSynthesizer) -> Script[TtsCue | None, ReceivedClause]:
        return synthesizer.script


async def test_speaks_by_hand() -> None:
    """Without a cue the test makes every sound, when it wants."""
    synthesizer = FakeSynthesizer()
    async with synthesizer.open(VOICE) as speech:
        speech.push("First.")
        speech.push("Second.")
        speech.finish()
        first, second = synthesizer.script.received
        first.send(tone("a"))
        assert (await anext(speech)).clause == 0
        first.finish()
        second.send(tone("b"))
        assert (await anext(speech)).clause == 1
        second.finish()
        assert [spoken async for spoken in speech] == []
    assert speech.clauses == ["First.", "Second."]
    assert speech.left.is_set()


async def test_fails_by_hand() -> None:
    """The test's error is raised after what it sent, and clauses that were never spoken are seen as left."""
    synthesizer = FakeSynthesizer()
    async with synthesizer.open(VOICE) as speech:
        speech.push("First.")
        speech.push("Second.")
        first, second = synthesizer.script.received
        first.send(tone("a"))
        first.fail(StageBroken("tts", provider=synthesizer.name, why="cut", retryable=True))
        assert (await anext(speech)).clause == 0
        with pytest.raises(StageBroken, match="cut"):
            await anext(speech)
    assert second.gone.is_set()
