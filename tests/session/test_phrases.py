"""Phrases that are said again and again are spoken once, and are then there at once."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from voicepipe.errors import StageError
from voicepipe.ports.model import Finished, ModelRequest, TextDelta
from voicepipe.ports.synthesizer import Voice, audio_of
from voicepipe.session import phrases
from voicepipe.session.phrases import CannedModel, PhraseCache, PhraseSynthesizer, clauses_of
from voicepipe.testing.fakes.cues import Hang, Status, TtsCue
from voicepipe.testing.fakes.synthesizer import FakeSynthesizer
from voicepipe.testing.waiting import WAIT_S

VOICE = Voice(model="m", voice="anna")
OTHER = Voice(model="m", voice="bert")


async def test_a_phrase_is_there_once_each_of_its_clauses_was_spoken() -> None:
    """In that voice, and in no other."""
    voice = FakeSynthesizer(TtsCue())
    cache = PhraseCache(voice)
    words = "Sorry. That went wrong."
    first, second = clauses_of(words)
    spoken = await cache.make(VOICE, first)
    assert cache.sound(VOICE, words) is None
    also = await cache.make(VOICE, second)
    sound = cache.sound(VOICE, words)
    assert sound is not None
    assert np.array_equal(sound, np.concatenate([spoken, also]))
    assert cache.sound(OTHER, words) is None


async def test_cached_phrase_is_not_requested_again() -> None:
    voice = FakeSynthesizer(TtsCue())
    cache = PhraseCache(voice)
    once, twice = await cache.make(VOICE, "One moment."), await cache.make(VOICE, "One moment.")
    assert np.array_equal(once, twice)
    assert len(voice.script.received) == 1


async def test_a_phrase_that_is_known_waits_for_no_other() -> None:
    """A voice that hangs over one for another session must not keep this one's apology back."""
    voice = FakeSynthesizer(TtsCue())
    cache = PhraseCache(voice)
    known = await cache.make(VOICE, "Sorry.")
    voice.script.cue(TtsCue(fault=Hang()))
    async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as group:
        hangs = group.create_task(cache.make(VOICE, "One moment."))
        await voice.script.nth(1)
        assert np.array_equal(await cache.make(VOICE, "Sorry."), known)
        hangs.cancel()


async def test_a_phrase_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest clause is dropped, and audio that is too long for a phrase is not stored."""
    monkeypatch.setattr(phrases, "MAX_SOUNDS", 2)
    cache = PhraseCache(FakeSynthesizer(TtsCue()))
    for words in ("One.", "Two.", "Three."):
        await cache.make(VOICE, words)
    assert [cache.sound(VOICE, words) is None for words in ("One.", "Two.", "Three.")] == [True, False, False]
    monkeypatch.setattr(phrases, "MAX_SAMPLES", 10)
    await cache.make(VOICE, "Four.")
    assert cache.sound(VOICE, "Four.") is None


async def test_a_voice_that_fails_leaves_no_half_phrase() -> None:
    cache = PhraseCache(FakeSynthesizer(TtsCue(fault=Status(500))))
    with pytest.raises(StageError):
        await cache.make(VOICE, "One moment.")
    assert cache.sound(VOICE, "One moment.") is None


async def test_canned_text_is_spoken_like_an_answer() -> None:
    """A model that knows its words, and a voice that has them or gets them."""
    canned_model, request = CannedModel("Sorry. That went wrong."), ModelRequest(model="", messages=())
    await canned_model.warm(request)
    async with canned_model.open(request) as answer:
        assert [event async for event in answer] == [TextDelta("Sorry. That went wrong."), Finished("stop")]
    voice = FakeSynthesizer(TtsCue())
    cache = PhraseCache(voice)
    await cache.make(VOICE, "Sorry.")
    async with PhraseSynthesizer(cache, voice).open(VOICE) as speech:
        for clause in clauses_of("Sorry. That went wrong."):
            speech.push(clause)
        speech.finish()
        assert [spoken.clause async for spoken in audio_of(speech)] == [0, 1]
    assert [spoken_request.question for spoken_request in voice.script.received] == ["Sorry.", "That went wrong."]
