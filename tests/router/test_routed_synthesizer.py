"""A pool of TTS providers keeps the port's promises, and speaks to the last word when one of them breaks."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import numpy as np
import pytest

from voicepipe.errors import StageBroken, StageRefused
from voicepipe.ports.provider_events import ProviderChanged, SynthesizerConnected, UnusedSpeech
from voicepipe.ports.synthesizer import RATE_HZ, Speech, SpeechEvent, Spoken, Synthesizer, Voice, WordTime, audio_of
from voicepipe.router.candidate import Candidate
from voicepipe.router.options import RouterOptions
from voicepipe.router.pool import SharedStats
from voicepipe.router.speech_order import SpeechOrder
from voicepipe.router.tts.call import MAX_WAITING, SynthesizerCandidate
from voicepipe.router.tts.progress import CHAR_MS, SpeechProgress
from voicepipe.router.tts.synthesizer import RoutedSynthesizer
from voicepipe.testing.conformance.synthesizer import (
    ScriptedSynthesizerConformance,
    SynthesizerConformance,
    TtsScript,
    events_of,
    outcome,
    sound_of,
    speak,
)
from voicepipe.testing.conformance.waits import LONG_TIMEOUT_MS, LeavesNothing
from voicepipe.testing.fakes.cues import Cut, Hang, Stall, Status, TtsCue
from voicepipe.testing.fakes.ports import FakeSynthesizer
from voicepipe.testing.fakes.script import soon
from voicepipe.testing.fakes.tone import tone
from voicepipe.testing.waiting import WAIT_S

SEED = 20_261_121
SENTENCE = "The train to the city leaves at nine."


def routed(*voices: FakeSynthesizer, stats: SharedStats | None = None, **options: Any) -> RoutedSynthesizer:
    """Return a pool of these voices; the default policy is `fallback`, so that no hedge depends on the
    machine's pace.
    """
    candidates = tuple(Candidate(spec=voice.name, ttft_p50_ms=250.0) for voice in voices)
    chosen = RouterOptions(
        **{"policy": "fallback", "fallback_after_ms": 60_000, "attempt_timeout_ms": 60_000, **options}
    )
    speakers = tuple(
        SynthesizerCandidate(c, voice, i == 0) for i, (c, voice) in enumerate(zip(candidates, voices, strict=True))
    )
    return RoutedSynthesizer(speakers, SpeechOrder(candidates, chosen, stats or SharedStats()))


def named(*usual: TtsCue | Callable[[str], TtsCue | None] | None) -> list[FakeSynthesizer]:
    return [FakeSynthesizer(cue, name=f"v{i}/voice") for i, cue in enumerate(usual)]


VOICE = Voice(model="any")


def split(events: list[SpeechEvent]) -> tuple[list[Spoken], list[ProviderChanged]]:
    """Return the audio, and the changes of the provider."""
    return [e for e in events if isinstance(e, Spoken)], [e for e in events if isinstance(e, ProviderChanged)]


class TestAlone(ScriptedSynthesizerConformance):
    @pytest.fixture
    def timeout_ms(self) -> int:
        return LONG_TIMEOUT_MS

    @pytest.fixture
    def fake(self, timeout_ms: int) -> FakeSynthesizer:
        return FakeSynthesizer(TtsCue(), idle_timeout_ms=timeout_ms)

    @pytest.fixture
    def script(self, fake: FakeSynthesizer) -> TtsScript:
        script: TtsScript = cast("Any", fake.script)
        return script

    @pytest.fixture
    def synthesizer(self, fake: FakeSynthesizer) -> Synthesizer:
        return routed(fake, policy="hedge")


class TestBesideAnother(SynthesizerConformance):
    @pytest.fixture(params=["hedge", "race", "fallback", "single"])
    def synthesizer(self, request: Any) -> Synthesizer:
        return routed(*named(TtsCue(), TtsCue()), policy=request.param)


class TestBesideOneThatRefuses(SynthesizerConformance):
    @pytest.fixture(params=["hedge", "race", "fallback", "single"])
    def synthesizer(self, request: Any) -> Synthesizer:
        return routed(*named(TtsCue(fault=Status(503)), TtsCue()), policy=request.param)


async def test_another_speaks_for_one_that_refuses() -> None:
    """All of the text is played, and the event names the provider that spoke, and why."""
    first, second = named(TtsCue(fault=Status(503)), TtsCue())
    spoken_audio, provider_events = split(await events_of(routed(first, second), VOICE, "One clause,", "two clauses."))
    assert np.array_equal(sound_of(spoken_audio, 0), tone("One clause,"))
    assert np.array_equal(sound_of(spoken_audio, 1), tone("two clauses."))
    assert [(each.provider, each.role) for each in provider_events] == [("v1/voice", "replacement")]
    assert "503" in provider_events[0].why


async def test_characters_per_provider_are_reported() -> None:
    """The events suffice to charge each TTS: none for one that failed, unused speech for a late one, the rest for the
    next.
    """

    async def reported(synthesizer: Synthesizer, *clauses: str) -> list[ProviderChanged | UnusedSpeech]:
        events = await events_of(synthesizer, VOICE, *clauses)
        beside = [event for event in events if not isinstance(event, Spoken)]
        assert all(isinstance(event, ProviderChanged | UnusedSpeech) for event in beside)
        return cast("list[ProviderChanged | UnusedSpeech]", beside)

    late, soon = named(TtsCue(fault=Hang()), TtsCue())
    provider_events = await reported(routed(late, soon, policy="hedge"), "Hello.")
    assert UnusedSpeech("v0/voice", len("Hello.")) in provider_events
    assert [each.n_chars for each in provider_events if isinstance(each, ProviderChanged)] == [len("Hello.")]
    provider_events = await reported(routed(*named(TtsCue(fault=Status(503)), TtsCue())), "Hello.")
    assert [(type(each), each.provider, each.n_chars) for each in provider_events] == [
        (ProviderChanged, "v1/voice", len("Hello."))
    ]
    first, second = named(TtsCue(), TtsCue())
    first.script.cue(TtsCue(ms_per_char=round(CHAR_MS)), TtsCue(fault=Cut(after=0)))
    provider_events = await reported(routed(first, second), "All is well.", "Bye.")
    assert [(type(each), each.provider, each.n_chars) for each in provider_events] == [
        (ProviderChanged, "v1/voice", len("Bye."))
    ]


async def test_another_goes_on_with_the_clause_that_was_not_begun() -> None:
    """What one has said to its end is not said again."""
    first, second = named(TtsCue(), TtsCue())
    first.script.cue(TtsCue(ms_per_char=round(CHAR_MS)), TtsCue(fault=Cut(after=0)))
    spoken_audio, provider_events = split(
        await events_of(routed(first, second), VOICE, "All is well.", "And so on.", "Bye.")
    )
    assert second.speeches[0].clauses == ["And so on.", "Bye."]
    assert np.array_equal(sound_of(spoken_audio, 1), tone("And so on."))
    assert np.array_equal(sound_of(spoken_audio, 2), tone("Bye."))
    assert [each.role for each in provider_events] == ["continuation"]


async def test_another_goes_on_in_mid_sentence_with_the_next_word() -> None:
    """The audio's duration gives the position: no word is lost, and at most one is played twice."""
    cut_ms = round(11 * CHAR_MS)  # in "The train to"
    cut = Cut(after=2 * cut_ms * RATE_HZ // 1_000)
    first, second = named(TtsCue(fault=cut, ms_per_char=round(CHAR_MS)), TtsCue())
    spoken_audio, error = await outcome(routed(first, second), Voice(model="any"), SENTENCE, "Bye.")
    assert error is None
    assert second.speeches[0].clauses == ["to the city leaves at nine.", "Bye."]
    assert {spoken.clause for spoken in spoken_audio} == {0, 1}


async def test_a_voice_that_breaks_behind_its_last_word_has_said_all() -> None:
    """No other provider gets a request for audio that was played."""
    slow = TtsCue(fault=Cut(after=1 << 30), ms_per_char=2 * round(CHAR_MS))
    first, second = named(slow, TtsCue())
    spoken_audio, error = await outcome(routed(first, second), Voice(model="any"), "Hello there.")
    assert (error, second.speeches) == (None, [])
    assert np.array_equal(sound_of(spoken_audio, 0), tone("Hello there.", ms_per_char=2 * round(CHAR_MS)))


async def test_all_fail() -> None:
    """The last one's error is the turn's."""
    refuses, breaks = named(TtsCue(fault=Status(429)), TtsCue(fault=Cut(after=0)))
    spoken_audio, error = await outcome(routed(refuses, breaks), Voice(model="any"), "Hello.")
    assert (spoken_audio, type(error)) == ([], StageBroken)


async def test_a_session_keeps_its_voice() -> None:
    """A fallback voice speaks the next turns too, though the first choice is well again; other sessions use
    that one.
    """
    first, second = named(TtsCue(), TtsCue())
    first.script.cue(TtsCue(fault=Cut(after=0)))
    synthesizer = routed(first, second)
    for _ in range(2):
        await speak(synthesizer, Voice(model="any", session="a"), "Hello.")
    await speak(synthesizer, Voice(model="any", session="b"), "Hello.")
    assert [len(first.speeches), len(second.speeches)] == [2, 2]


async def test_a_stand_in_is_named_in_its_later_turns() -> None:
    """Whose audio it is, and for how much text, in each turn: who is dead is neither credited nor paid."""
    first, second = named(TtsCue(fault=Status(401)), TtsCue())
    synthesizer = routed(first, second)
    roles = []
    for _ in range(3):
        _, (change,) = split(await events_of(synthesizer, Voice(model="any", session="a"), "Hello.", "Bye."))
        assert (change.provider, change.n_chars) == ("v1/voice", len("Hello.Bye."))
        roles.append(change.role)
    assert roles == ["replacement", "primary", "primary"]
    assert len(first.speeches) == 1


async def test_one_that_was_refused_is_left_alone() -> None:
    """Its breaker is open: the next session is not made to wait for it."""
    first, second = named(TtsCue(fault=Status(401)), TtsCue())
    synthesizer = routed(first, second)
    for session in "abc":
        await speak(synthesizer, Voice(model="any", session=session), "Hello.")
    assert [len(first.speeches), len(second.speeches)] == [1, 3]


async def test_the_first_clause_is_hedged() -> None:
    """A second voice is started beside one that is late; the late one is closed."""
    first, second = named(TtsCue(fault=Hang()), TtsCue())
    spoken_audio, provider_events = split(await events_of(routed(first, second, policy="hedge"), VOICE, "Hello."))
    assert np.array_equal(sound_of(spoken_audio, 0), tone("Hello."))
    assert first.speeches[0].left.is_set()
    assert [(each.role, each.waited_for) for each in provider_events] == [("hedge", "v0/voice")]


async def test_a_voice_that_fails_at_once_is_not_what_was_waited_for() -> None:
    first, second = named(TtsCue(fault=Status(503)), TtsCue(ttfb_ms=50))
    _, provider_events = split(await events_of(routed(first, second), VOICE, "Hello."))
    assert [(each.role, each.waited_for) for each in provider_events] == [("replacement", "")]


@pytest.mark.parametrize("policy", ["hedge", "race", "fallback", "single"])
async def test_a_voice_without_audio_for_its_text_is_replaced(policy: str) -> None:
    """It ends without an error, as a voice of a package of its own may."""
    first, second = named(TtsCue(ms_per_char=0), TtsCue())
    spoken_audio, _ = split(await events_of(routed(first, second, policy=policy), VOICE, "Hello."))
    assert np.array_equal(sound_of(spoken_audio, 0), tone("Hello."))


class Reporting(FakeSynthesizer):
    """Report a connection before the audio, and between its pieces."""

    @asynccontextmanager
    async def open(self, voice: Voice) -> AsyncIterator[Any]:
        async with super().open(voice) as speech:
            yield Connecting(speech)


class Connecting:
    def __init__(self, speech: Speech) -> None:
        self.push, self.finish, self._speech = speech.push, speech.finish, speech

    async def __aiter__(self) -> AsyncIterator[SpeechEvent]:
        yield SynthesizerConnected(0)
        async for event in self._speech:
            yield event
            yield SynthesizerConnected(0)


async def test_a_connection_wins_no_race() -> None:
    """It is passed on, and the first audio decides."""
    first, second = Reporting(TtsCue(fault=Hang()), name="v0/voice"), FakeSynthesizer(TtsCue(), name="v1/voice")
    events = await events_of(routed(first, second, policy="race"), VOICE, "Hello.")
    spoken_audio, provider_events = split(events)
    assert SynthesizerConnected(0) in events
    assert np.array_equal(sound_of(spoken_audio, 0), tone("Hello."))
    assert [(each.provider, each.role) for each in provider_events] == [("v1/voice", "hedge")]


async def test_events_come_ahead_of_audio_that_waits() -> None:
    """All audio of a clause is there before the first of it is read: its events are read first."""
    synthesizer = Reporting(TtsCue(), name="v0/voice")
    async with routed(synthesizer).open(VOICE) as speech, asyncio.timeout(WAIT_S):
        speech.push("Hello.")
        speech.finish()
        await synthesizer.script.nth(0)
        await soon(synthesizer.speeches[0].left)
        kinds = [type(event) async for event in speech]
    assert kinds == sorted(kinds, key=lambda kind: kind is Spoken)
    assert SynthesizerConnected in kinds


class Endless(FakeSynthesizer):
    """It sends far more pieces of audio than anybody has read."""

    n_sent = 0

    @asynccontextmanager
    async def open(self, voice: Voice) -> AsyncIterator[Any]:
        async with super().open(voice) as speech:
            yield _Pieces(self, speech)


class _Pieces:
    def __init__(self, synthesizer: Endless, speech: Speech) -> None:
        self.push, self.finish, self._synthesizer = speech.push, speech.finish, synthesizer

    async def __aiter__(self) -> AsyncIterator[SpeechEvent]:
        for _ in range(5 * MAX_WAITING):
            self._synthesizer.n_sent += 1
            yield Spoken(0, np.ones(240, dtype=np.int16))


async def test_a_slow_listener_makes_the_voice_wait_and_loses_nothing() -> None:
    voice = Endless(TtsCue(), name="v0/voice")
    async with routed(voice).open(VOICE) as speech, asyncio.timeout(WAIT_S):
        speech.push("Hello.")
        speech.finish()
        await voice.script.nth(0)
        for _ in range(50):
            await asyncio.sleep(0)
        assert voice.n_sent == MAX_WAITING
        assert len(await _all_of(speech)) == 5 * MAX_WAITING


async def test_a_stall_in_a_sentence_is_detected_before_its_provider_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """A speaker with text to say that sends no sound is closed, and the rest is said."""
    monkeypatch.setattr("voicepipe.router.tts.synthesizer.STALL_MS", 50)
    first, second = named(TtsCue(fault=Stall(after=4_800)), TtsCue())
    spoken_audio, error = await outcome(routed(first, second), Voice(model="any"), SENTENCE)
    assert error is None
    assert second.speeches[0].clauses == [SENTENCE]
    assert len(sound_of(spoken_audio, 0)) == 2_400 + len(tone(SENTENCE))


async def test_who_lost_the_race_goes_on_for_one_that_stalls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("voicepipe.router.tts.synthesizer.STALL_MS", 50)
    first, second = named(TtsCue(fault=Stall(after=4_800)), TtsCue())
    second.script.cue(TtsCue(fault=Hang()), TtsCue())
    async with asyncio.timeout(WAIT_S):
        _, provider_events = split(await events_of(routed(first, second, policy="race"), VOICE, SENTENCE))
    assert [(each.provider, each.role) for each in provider_events] == [("v1/voice", "continuation")]


async def test_the_last_voice_may_take_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow answer is better than none."""
    monkeypatch.setattr("voicepipe.router.tts.synthesizer.STALL_MS", 1)
    first, second = named(TtsCue(fault=Cut(after=4_800)), None)
    async with routed(first, second).open(Voice(model="any")) as speech, asyncio.timeout(WAIT_S):
        speech.push(SENTENCE)
        speech.finish()
        spoken_audio = [await anext(audio_of(speech))]
        rest = asyncio.create_task(_all_of(speech))
        received = await second.script.nth(0)
        await asyncio.sleep(0.05)
        received.send(tone("nine."))
        received.finish()
        spoken_audio += await rest
    assert len(sound_of(spoken_audio, 0)) >= len(tone("nine."))


async def _all_of(speech: Any) -> list[Spoken]:
    return [spoken async for spoken in audio_of(speech)]


async def test_who_goes_on_may_stall_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stalls before any audio: the next voice speaks, without waiting for the turn's own deadline."""
    monkeypatch.setattr("voicepipe.router.tts.synthesizer.STALL_MS", 50)
    voices = named(TtsCue(fault=Stall(after=4_800)), TtsCue(fault=Hang()), TtsCue())
    async with asyncio.timeout(WAIT_S):
        _, provider_events = split(await events_of(routed(*voices), VOICE, SENTENCE))
    assert [each.provider for each in provider_events] == ["v2/voice"]


async def test_waiting_for_words_is_no_stall(monkeypatch: pytest.MonkeyPatch) -> None:
    """A voice that has said all its text does not stall while the model thinks."""
    monkeypatch.setattr("voicepipe.router.tts.synthesizer.STALL_MS", 1)
    first, second = named(TtsCue(), TtsCue())
    async with routed(first, second).open(Voice(model="any")) as speech, asyncio.timeout(WAIT_S):
        speech.push("First.")
        n_samples, sound = 0, audio_of(speech)
        while n_samples < len(tone("First.")):
            n_samples += len((await anext(sound)).samples)
        await asyncio.sleep(0.02)
        speech.push("Second.")
        speech.finish()
        assert {later.clause async for later in sound} == {1}
    assert second.speeches == []


async def test_a_voice_gets_only_names_that_it_knows() -> None:
    """Another vendor's voice would be refused."""
    first, second, third = named(TtsCue(fault=Status(503)), TtsCue(fault=Status(503)), TtsCue())
    third.voices = frozenset({"ada"})
    await speak(routed(first, second, third), Voice(model="any", voice="ada"), "Hello.")
    received = [await voice.script.nth(0) for voice in (first, second, third)]
    assert [(each.voice.model, each.voice.voice) for each in received] == [
        ("voice", "ada"),
        ("voice", None),
        ("voice", "ada"),
    ]


async def test_who_steps_in_is_warm_too() -> None:
    """Two voices are warmed, the third is not."""
    voices = named(TtsCue(), TtsCue(), TtsCue())
    with routed(*voices).keep_warm(Voice(model="any")):
        assert [len(voice.warm) for voice in voices] == [1, 1, 0]
    assert [voice.warm for voice in voices] == [[], [], []]


async def test_a_refusal_of_one_alone_is_the_turns() -> None:
    """No other voice can speak."""
    _, error = await outcome(routed(*named(TtsCue(fault=Status(404)))), Voice(model="any"), "Hello.")
    assert isinstance(error, StageRefused)


class TestCancellation(LeavesNothing):
    async def test_a_hundred_turns_are_cut_at_any_point(self) -> None:
        """Whichever voice speaks, fails or steps in just then: every opened voice is closed, and none counts
        as busy.
        """
        dice = random.Random(SEED)
        faults = (None, Status(503), Cut(after=0), Cut(after=4_800))
        voices = named(*(lambda _: TtsCue(fault=dice.choice(faults), ms_per_char=4) for _ in range(3)))
        for policy in ("hedge", "race", "fallback", "single"):
            stats = SharedStats()
            synthesizer = routed(*voices, stats=stats, policy=policy)
            for _ in range(25):
                await interrupted(synthesizer, dice)
            assert set(stats.running.values()) <= {0}
        assert all(speech.left.is_set() for voice in voices for speech in voice.speeches)


async def interrupted(synthesizer: RoutedSynthesizer, dice: random.Random) -> None:
    """A turn, cut after some turns of the loop."""
    clauses = [f"Clause number {n} of some length." for n in range(dice.randrange(4))]
    async with asyncio.TaskGroup() as group:
        turn = group.create_task(outcome(synthesizer, Voice(model="any", session="s"), *clauses))
        for _ in range(dice.randrange(60)):
            await asyncio.sleep(0)
        turn.cancel()


# --- how far a clause was spoken ------------------------------------------------------------------


def sounding(ms: int, *, clause: int = 0, words: tuple[WordTime, ...] = ()) -> Spoken:
    return Spoken(clause, np.full(ms * RATE_HZ // 1_000, 9_000, dtype=np.int16), words)


def test_word_times_locate_the_continuation() -> None:
    """A word that has hardly begun is said again; those before it are not, twice cut or not."""
    clauses = ("one two three four",)
    progress = SpeechProgress(1.0)
    times = tuple(WordTime(word, 400 * i) for i, word in enumerate(clauses[0].split()))
    progress.record(sounding(900, words=times), clauses)
    rest = progress.go_on(clauses)
    assert rest is not None
    assert (rest.text, rest.played_ms) == ("three four", 900)
    progress.record(sounding(450, words=(WordTime("three", 900), WordTime("four", 1_300))), clauses)
    again = progress.go_on(clauses)
    assert again is not None
    assert (again.text, again.played_ms) == ("four", 1_350)


def test_silence_before_a_clause_counts_for_no_word() -> None:
    """A voice that breathes first has said nothing."""
    progress = SpeechProgress(1.0)
    progress.record(Spoken(0, np.zeros(RATE_HZ, dtype=np.int16)), ("one two",))
    rest = progress.go_on(("one two",))
    assert rest is not None
    assert rest.text == "one two"


@pytest.mark.parametrize("words", [(), (WordTime("three", 0), WordTime("four", 300))])
def test_clauses_of_silence_are_all_said_again(words: tuple[WordTime, ...]) -> None:
    """A TTS that sends nothing else has said nothing, whatever the times of its words."""
    clauses, silence = ("one two", "three four"), np.zeros(RATE_HZ, dtype=np.int16)
    progress = SpeechProgress(1.0)
    progress.record(Spoken(0, silence), clauses)
    progress.record(Spoken(1, silence, words), clauses)
    rest = progress.go_on(clauses)
    assert rest is not None
    assert (rest.clause, rest.text, rest.played_ms) == (1, "one two three four", 1_000)


def test_a_voice_shows_its_pace() -> None:
    """A clause that was spoken to its end gives the pace of the next one's words."""
    clauses = ("a" * 20, "bbbb cccc dddd")
    progress = SpeechProgress(1.0)
    progress.record(sounding(20 * 40), clauses)
    progress.record(sounding(9 * 40, clause=1), clauses)
    rest = progress.go_on(clauses)
    assert rest is not None
    assert (rest.clause, rest.text) == (1, "dddd")


def test_nothing_is_left_of_what_was_said() -> None:
    """All words sounded."""
    progress = SpeechProgress(1.0)
    progress.record(sounding(5_000), ("one two",))
    assert progress.go_on(("one two",)) is None
