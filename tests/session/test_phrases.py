"""Phrases that are said again and again are spoken once, and are then there at once."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from voicepipe.errors import StageError
from voicepipe.session import phrases
from voicepipe.session.phrases import PhraseBook, Recital, RecitingVoice, clauses_of
from voicepipe.stages.model import Finished, ModelRequest, TextDelta
from voicepipe.stages.synthesizer import Voice
from voicepipe.testing.fakes.cues import Hang, Status, TtsCue
from voicepipe.testing.fakes.synthesizer import FakeSynthesizer

VOICE = Voice(model="m", voice="anna")
OTHER = Voice(model="m", voice="bert")


async def test_a_phrase_is_there_once_each_of_its_clauses_was_spoken() -> None:
    """In that voice, and in no other."""
    voice = FakeSynthesizer(TtsCue())
    book = PhraseBook(voice)
    words = "Sorry. That went wrong."
    first, second = clauses_of(words)
    spoken = await book.make(VOICE, first)
    assert book.sound(VOICE, words) is None
    also = await book.make(VOICE, second)
    sound = book.sound(VOICE, words)
    assert sound is not None
    assert np.array_equal(sound, np.concatenate([spoken, also]))
    assert book.sound(OTHER, words) is None


async def test_what_was_spoken_is_not_asked_for_again() -> None:
    voice = FakeSynthesizer(TtsCue())
    book = PhraseBook(voice)
    once, twice = await book.make(VOICE, "One moment."), await book.make(VOICE, "One moment.")
    assert np.array_equal(once, twice)
    assert len(voice.desk.asked) == 1


async def test_a_phrase_that_is_known_waits_for_no_other() -> None:
    """A voice that hangs over one for another session must not keep this one's apology back."""
    voice = FakeSynthesizer(TtsCue())
    book = PhraseBook(voice)
    known = await book.make(VOICE, "Sorry.")
    voice.desk.cue(TtsCue(fault=Hang()))
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        hangs = group.create_task(book.make(VOICE, "One moment."))
        await voice.desk.nth(1)
        assert np.array_equal(await book.make(VOICE, "Sorry."), known)
        hangs.cancel()


async def test_a_book_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest clause goes, and what is no phrase is not kept."""
    monkeypatch.setattr(phrases, "MOST_SOUNDS", 2)
    book = PhraseBook(FakeSynthesizer(TtsCue()))
    for words in ("One.", "Two.", "Three."):
        await book.make(VOICE, words)
    assert [book.sound(VOICE, words) is None for words in ("One.", "Two.", "Three.")] == [True, False, False]
    monkeypatch.setattr(phrases, "MOST_SAMPLES", 10)
    await book.make(VOICE, "Four.")
    assert book.sound(VOICE, "Four.") is None


async def test_a_voice_that_fails_leaves_no_half_phrase() -> None:
    book = PhraseBook(FakeSynthesizer(TtsCue(fault=Status(500))))
    with pytest.raises(StageError):
        await book.make(VOICE, "One moment.")
    assert book.sound(VOICE, "One moment.") is None


async def test_a_recital_is_said_as_an_answer_would_be() -> None:
    """A model that knows its words, and a voice that has them or gets them."""
    recital, request = Recital("Sorry. That went wrong."), ModelRequest(model="", messages=())
    await recital.warm(request)
    async with recital.open(request) as answer:
        assert [event async for event in answer] == [TextDelta("Sorry. That went wrong."), Finished("stop")]
    voice = FakeSynthesizer(TtsCue())
    book = PhraseBook(voice)
    await book.make(VOICE, "Sorry.")
    async with RecitingVoice(book, voice).open(VOICE) as speech:
        for clause in clauses_of("Sorry. That went wrong."):
            speech.say(clause)
        speech.finish()
        assert [spoken.clause async for spoken in speech] == [0, 1]
    assert [asked.question for asked in voice.desk.asked] == ["Sorry.", "That went wrong."]
