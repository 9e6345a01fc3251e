"""Written clauses in, sound and word times of written clauses out, and something else in between."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicepipe.ports.synthesizer import Speech, Spoken, Voice, WordTime
from voicepipe.ports.text_normalizer import open_normalized, places
from voicepipe.testing.conformance.synthesizer import ScriptedSynthesizerConformance, speak
from voicepipe.testing.fakes.cues import TtsCue
from voicepipe.testing.fakes.ports import FakeSynthesizer, ReceivedClause
from voicepipe.testing.fakes.script import Script
from voicepipe.testing.fakes.tone import tone

VOICE = Voice(model="any", language="en")


class NormalizingSynthesizer:
    """A voice for written text, as if it were a provider."""

    voices: frozenset[str] | None = None

    def __init__(self, inner: FakeSynthesizer) -> None:
        self.inner, self.name = inner, inner.name

    def keep_warm(self, voice: Voice) -> AbstractContextManager[None]:
        return nullcontext()

    def open(self, voice: Voice) -> AbstractAsyncContextManager[Speech]:
        return open_normalized(self.inner, voice)


class TestNormalizedSpeech(ScriptedSynthesizerConformance):
    """It keeps the promises of what it wraps."""

    @pytest.fixture
    def inner(self, timeout_ms: int) -> FakeSynthesizer:
        return FakeSynthesizer(TtsCue(), idle_timeout_ms=timeout_ms)

    @pytest.fixture
    def synthesizer(self, inner: FakeSynthesizer) -> NormalizingSynthesizer:
        return NormalizingSynthesizer(inner)

    @pytest.fixture
    def script(self, inner: FakeSynthesizer) -> Script[TtsCue | None, ReceivedClause]:
        return inner.script


async def test_clauses_keep_their_numbers() -> None:
    """A clause that can't be spoken has a number and no audio; the TTS gets no request for it."""
    inner = FakeSynthesizer(TtsCue())
    received = await speak(NormalizingSynthesizer(inner), VOICE, "**One**, ", "```x = 1```", "\U0001f389", "costs $5.")
    assert inner.speeches[0].clauses == ["One,", "costs five dollars."]
    assert {spoken.clause for spoken in received} == {0, 3}


async def test_reply_without_anything_to_say() -> None:
    """It ends in silence."""
    inner = FakeSynthesizer(TtsCue())
    assert await speak(NormalizingSynthesizer(inner), VOICE, "\U0001f389") == []
    assert inner.script.received == []


async def test_language_of_the_voice() -> None:
    """Numbers are read in it."""
    inner = FakeSynthesizer(TtsCue())
    await speak(NormalizingSynthesizer(inner), Voice(model="any", language="de-CH"), "5 km")
    assert inner.speeches[0].clauses == ["fünf Kilometer"]


class TimedSynthesizer:
    """Speak each word for 100 ms, and report its time."""

    name = "fake/voice"
    voices: frozenset[str] | None = None

    def keep_warm(self, voice: Voice) -> AbstractContextManager[None]:
        return nullcontext()

    def open(self, voice: Voice) -> AbstractAsyncContextManager[Speech]:
        return self

    async def __aenter__(self) -> TimedSynthesizer:
        self._said: list[str] = []
        return self

    async def __aexit__(self, *failure: object) -> None: ...

    def push(self, clause: str) -> None:
        self._said.append(clause)

    def finish(self) -> None: ...

    def __aiter__(self) -> TimedSynthesizer:
        self._sound = iter(
            Spoken(clause, tone("x"), (WordTime(word, 100 * place),))
            for clause, text in enumerate(self._said)
            for place, word in enumerate(text.split())
        )
        return self

    async def __anext__(self) -> Spoken:
        try:
            return next(self._sound)
        except StopIteration:
            raise StopAsyncIteration from None


async def test_word_times_are_of_written_words() -> None:
    """A word that is said in three begins with the first of them; one that is not said with the next that is."""
    received = await speak(NormalizedTimedSynthesizer(), VOICE, "**It** costs $5.50 \U0001f389 in all.", "Yes.")
    word_times = [(spoken.clause, word.word, word.start_ms) for spoken in received for word in spoken.words]
    assert word_times == [
        (0, "**It**", 0),
        (0, "costs", 100),
        (0, "$5.50", 200),
        (0, "\U0001f389", 400),
        (0, "in", 500),
        (0, "all.", 600),
        (1, "Yes.", 0),
    ]


class NormalizedTimedSynthesizer:
    name = "fake/voice"
    voices: frozenset[str] | None = None

    def keep_warm(self, voice: Voice) -> AbstractContextManager[None]:
        return nullcontext()

    def open(self, voice: Voice) -> AbstractAsyncContextManager[Speech]:
        return open_normalized(TimedSynthesizer(), voice)


WORDS = st.lists(st.sampled_from(["a", "b", "c", "$5", "d.", "**e**"]), min_size=1, max_size=20)


@given(WORDS, WORDS)
def test_places_never_go_back(written: list[str], spoken: list[str]) -> None:
    """Every spoken word has a written one, in order."""
    found = places(written, spoken)
    assert len(found) == len(spoken)
    assert found == sorted(found)
    assert all(0 <= place < len(written) for place in found)
