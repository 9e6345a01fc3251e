"""A client that changes its voice has the agent's phrases spoken anew: one voice at a time, once it is steady, within
what its turns pay for, and charged to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from voicepipe.ports.provider_events import CachedSpeech, ProviderChanged, UnusedSpeech
from voicepipe.ports.synthesizer import Speech, SpeechEvent, Voice
from voicepipe.session import phrase_preparation
from voicepipe.session.phrase_preparation import MAX_BETWEEN_TURNS, Preparation
from voicepipe.session.phrases import PhraseCache
from voicepipe.session.session_voice import SessionVoice
from voicepipe.testing.fakes.cues import Status, TtsCue
from voicepipe.testing.fakes.synthesizer import FakeSynthesizer
from voicepipe.testing.records import turn_record
from voicepipe.values import replace

ANSWERED = replace(turn_record(), providers=(("llm", "fake/model"),))
COUGH = replace(turn_record(), providers=(("stt", "fake/stt"),), user_text="")


class FakeVoices:
    """A session's voice, as far as it is prepared; the test changes it."""

    def __init__(self) -> None:
        self.usual = 0
        self.prepared: list[int] = []
        self.n_at_once = 0
        self.go = asyncio.Event()
        self.go.set()

    def lacks(self) -> bool:
        return self.usual not in self.prepared

    async def prepare(self) -> None:
        self.n_at_once += 1
        assert self.n_at_once == 1, "one at a time"
        self.prepared.append(self.usual)
        await self.go.wait()
        self.n_at_once -= 1


@asynccontextmanager
async def running(voices: FakeVoices) -> AsyncIterator[Preparation]:
    preparation = Preparation(cast(SessionVoice, voices))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(preparation.run())
        yield preparation
        task.cancel()


@pytest.fixture
def steady(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Lets the wait for a steady voice end, as often as it is set."""
    event = asyncio.Event()

    async def sleep(_: float) -> None:
        await event.wait()
        event.clear()

    monkeypatch.setattr(phrase_preparation, "asyncio", Sleeping(sleep))
    return event


class Sleeping:
    """`asyncio` with another sleep."""

    def __init__(self, sleep: Any) -> None:
        self.sleep, self.Event = sleep, asyncio.Event


async def change(voices: FakeVoices, preparation: Preparation, voice: int) -> None:
    voices.usual = voice
    preparation.request()
    await breathe()


async def breathe() -> None:
    """Let the other tasks run until each waits for something."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_session_begins_with_its_voice_prepared(steady: asyncio.Event) -> None:
    """At once."""
    voices = FakeVoices()
    async with running(voices) as preparation:
        await change(voices, preparation, 0)
        assert voices.prepared == [0]


async def test_only_the_voice_that_stays_is_prepared(steady: asyncio.Event) -> None:
    """Not one of those that a dragged slider passes."""
    voices = FakeVoices()
    async with running(voices) as preparation:
        await change(voices, preparation, 0)
        for voice in range(1, 150):
            await change(voices, preparation, voice)
        steady.set()  # it has changed meanwhile: another wait
        await breathe()
        assert voices.prepared == [0]
        steady.set()
        await breathe()
        assert voices.prepared == [0, 149]


async def test_one_is_prepared_at_a_time(steady: asyncio.Event) -> None:
    """Though the voice hangs and the client goes on changing it."""
    voices = FakeVoices()
    async with running(voices) as preparation:
        voices.go.clear()
        for voice in range(5):
            await change(voices, preparation, voice)
            steady.set()
        assert voices.prepared == [0]
        voices.go.set()
        await breathe()
        steady.set()
        await breathe()
        assert voices.prepared == [0, 4]


async def test_turns_pay_for_preparations(steady: asyncio.Event) -> None:
    """A cough pays for none, since it costs its user nothing."""
    voices = FakeVoices()

    async def try_voices(preparation: Preparation, first: int) -> None:
        for voice in range(first, first + 10):
            await change(voices, preparation, voice)
            steady.set()
            await breathe()

    async with running(voices) as preparation:
        await try_voices(preparation, 0)
        assert voices.prepared == [0, 1, 2][:MAX_BETWEEN_TURNS]
        preparation.on_record(COUGH)
        preparation.on_record(replace(ANSWERED, outcome=None))
        await try_voices(preparation, 100)
        assert voices.prepared == [0, 1, 2]
        preparation.on_record(ANSWERED)
        await breathe()
        steady.set()
        await breathe()
        assert voices.prepared == [0, 1, 2, 109], "the voice that was refused, as it is now"


VOICE = Voice(model="m", voice="anna")


async def test_prepared_phrases_are_charged() -> None:
    """Each is charged once, by its provider and its characters; a failed request is charged too, since it was made."""
    voice, paid = FakeSynthesizer(TtsCue(), name="fake/voice"), []
    cache = PhraseCache(voice)
    for _ in range(3):
        await cache.make(VOICE, "One moment.", paid=lambda *what: paid.append(what))
    assert paid == [("fake/voice", len("One moment."))]
    voice.script.cue(TtsCue(fault=Status(500)))
    with pytest.raises(Exception, match="500"):
        await cache.make(VOICE, "Sorry.", paid=lambda *what: paid.append(what))
    assert paid[1:] == [("fake/voice", len("Sorry."))]


class Pool(FakeSynthesizer):
    """Report events of the voices behind it, as a router does."""

    def __init__(self, *events: ProviderChanged | UnusedSpeech | CachedSpeech) -> None:
        super().__init__(TtsCue(), name="pool")
        self._events = events

    @asynccontextmanager
    async def open(self, voice: Voice) -> AsyncIterator[Any]:
        async with super().open(voice) as speech:
            yield Reporting(speech, self._events)


class Reporting:
    """Report these events before the audio."""

    def __init__(self, speech: Speech, events: tuple[SpeechEvent, ...]) -> None:
        self.push, self.finish = speech.push, speech.finish
        self._speech, self._events = speech, events

    async def __aiter__(self) -> AsyncIterator[SpeechEvent]:
        for event in self._events:
            yield event
        async for event in self._speech:
            yield event


@pytest.mark.parametrize(
    ("events", "bill"),
    [
        ((), {"pool": 11}),
        ((CachedSpeech("pool", 11),), {}),
        ((ProviderChanged("b", "replacement", "a: HTTP 503", 11),), {"b": 11}),
        ((ProviderChanged("b", "hedge", "first audible", 11), UnusedSpeech("a", 11)), {"a": 11, "b": 11}),
    ],
    ids=["alone", "from disk", "replaced", "hedged"],
)
async def test_who_spoke_behind_a_router_is_paid(events: tuple[Any, ...], bill: dict[str, int]) -> None:
    paid: dict[str, int] = {}
    await PhraseCache(Pool(*events)).make(VOICE, "One moment.", paid=paid.__setitem__)
    assert paid == bill


async def test_voices_that_are_tried_once_do_not_push_out_the_usual_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """All sessions of an agent share its book."""
    monkeypatch.setattr("voicepipe.session.phrases.MAX_SOUNDS", 3)
    cache = PhraseCache(FakeSynthesizer(TtsCue()))
    await cache.make(VOICE, "One moment.")
    for n in range(20):
        assert cache.sound(VOICE, "One moment.") is not None
        await cache.make(replace(VOICE, speed=1 + n / 100), "One moment.")
    assert cache.sound(VOICE, "One moment.") is not None
