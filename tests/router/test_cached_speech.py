"""A voice that plays what it has said before: from disk when it is there and whole, and else as if nothing were."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voicepipe import clock
from voicepipe.errors import ConfigError, StageBroken, StageRefused
from voicepipe.ports.provider_events import CachedSpeech, SynthesizerConnected
from voicepipe.ports.synthesizer import Speech, SpeechEvent, Spoken, Synthesizer, Voice, WordTime, audio_of
from voicepipe.ports.transcriber import Samples
from voicepipe.registry import Spec
from voicepipe.router.candidate import Candidate
from voicepipe.router.options import RouterOptions
from voicepipe.router.pool import SharedStats
from voicepipe.router.single import SingleSynthesizer
from voicepipe.router.speech_order import SpeechOrder
from voicepipe.router.tts import audio_cache
from voicepipe.router.tts.audio_cache import MAX_SAMPLES, AudioCache, CachedAudio, decoded, encoded, open_audio_cache
from voicepipe.router.tts.cached import CachedSynthesizer, _Recording
from voicepipe.router.tts.call import SynthesizerCandidate
from voicepipe.router.tts.synthesizer import RoutedSynthesizer
from voicepipe.testing.conformance.synthesizer import (
    ScriptedSynthesizerConformance,
    events_of,
    outcome,
    sound_of,
    speak,
)
from voicepipe.testing.fakes.cues import Cut, TtsCue
from voicepipe.testing.fakes.ports import FakeSynthesizer, ReceivedClause
from voicepipe.testing.fakes.script import Script
from voicepipe.testing.fakes.tone import tone
from voicepipe.testing.waiting import WAIT_S, eventually
from voicepipe.values import replace

VOICE = Voice(model="any", voice="heart")
MEGABYTE = 1 << 20


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[AudioCache]:
    async with open_audio_cache(tmp_path / "audio-cache", max_bytes=MEGABYTE) as store:
        yield store


@pytest.fixture
def inner() -> FakeSynthesizer:
    return FakeSynthesizer(TtsCue(ms_per_char=10))


async def learn(stored: CachedSynthesizer, *clauses: str, voice: Voice = VOICE) -> None:
    """Speak clauses until they are stored."""
    for _ in range(2):
        await speak(stored, voice, *clauses)
    await stored.store.wait_until_written()


def said(inner: FakeSynthesizer) -> list[str]:
    return [received.question for received in inner.script.received]


class TestStoredVoice(ScriptedSynthesizerConformance):
    """It keeps the promises of what it wraps."""

    @pytest.fixture
    def inner(self, timeout_ms: int) -> FakeSynthesizer:
        return FakeSynthesizer(TtsCue(), idle_timeout_ms=timeout_ms)

    @pytest.fixture
    async def synthesizer(self, inner: FakeSynthesizer, store: AudioCache) -> CachedSynthesizer:
        return CachedSynthesizer(inner, store)

    @pytest.fixture
    def script(self, inner: FakeSynthesizer) -> Script[TtsCue | None, ReceivedClause]:
        return inner.script


async def test_what_is_said_again_is_played(inner: FakeSynthesizer, store: AudioCache) -> None:
    """The TTS gets two requests; the third time the cache answers, and the audio is the same."""
    stored = CachedSynthesizer(inner, store)
    await learn(stored, "Of course!")
    assert said(inner) == ["Of course!"] * 2
    spoken_audio = await speak(stored, VOICE, "Of course!")
    assert len(inner.speeches) == 2
    assert np.array_equal(sound_of(spoken_audio, 0), tone("Of course!", ms_per_char=10))
    assert (store.hits, store.misses) == (1, 2)


async def test_cached_audio_is_reported(inner: FakeSynthesizer, store: AudioCache) -> None:
    """So cached audio is not charged."""
    stored = CachedSynthesizer(inner, store)
    await learn(stored, "Of course!")
    events = await events_of(stored, VOICE, "Of course!", "New.")
    assert [event for event in events if not isinstance(event, Spoken)] == [CachedSpeech(inner.name, len("Of course!"))]


async def test_an_event_comes_ahead_of_the_audio_that_waits(inner: FakeSynthesizer, store: AudioCache) -> None:
    """The second clause is found while nobody has taken the first one's audio."""
    stored = CachedSynthesizer(inner, store)
    await learn(stored, "Sure.", "Anything else?")
    async with stored.open(VOICE) as speech, asyncio.timeout(WAIT_S):
        speech.push("Sure.")
        await eventually(lambda: found(store, 1))
        speech.push("Anything else?")
        speech.finish()
        await eventually(lambda: found(store, 2))
        events = [event async for event in speech]
    assert events[:2] == [CachedSpeech(inner.name, len("Anything else?")), CachedSpeech(inner.name, len("Sure."))]
    assert {event.clause for event in events[2:] if isinstance(event, Spoken)} == {0, 1}


async def found(store: AudioCache, n: int) -> bool | None:
    return store.hits == n or None


async def test_a_clause_said_once_is_not_cached(inner: FakeSynthesizer, store: AudioCache, tmp_path: Path) -> None:
    await speak(CachedSynthesizer(inner, store), VOICE, "Your code is four two.")
    await store.wait_until_written()
    assert list((tmp_path / "audio-cache").iterdir()) == []


async def test_cached_and_new_clauses_mixed(inner: FakeSynthesizer, store: AudioCache) -> None:
    """They come in order; the new clauses between two stored ones are one turn of the TTS."""
    stored = CachedSynthesizer(inner, store)
    await learn(stored, "Sure.", "Anything else?")
    clauses = ["New one.", "New two.", "Sure.", "New three.", "Anything else?", "Sure."]
    spoken_audio = await speak(stored, VOICE, *clauses)
    assert [spoken.clause for spoken in spoken_audio] == sorted(spoken.clause for spoken in spoken_audio)
    for number, clause in enumerate(clauses):
        assert np.array_equal(sound_of(spoken_audio, number), tone(clause, ms_per_char=10))
    assert [speech.clauses for speech in inner.speeches[2:]] == [["New one.", "New two."], ["New three."]]


async def test_cached_clause_is_played_while_more_may_come(inner: FakeSynthesizer, store: AudioCache) -> None:
    """The clause before it ends as soon as it is spoken; the cached clause does not wait for more."""
    stored = CachedSynthesizer(inner, store)
    await learn(stored, "Sure.")
    async with stored.open(VOICE) as speech, asyncio.timeout(WAIT_S):
        speech.push("New.")
        speech.push("Sure.")
        async for spoken in audio_of(speech):
            if spoken.clause == 1:
                break


@pytest.mark.parametrize(
    "other",
    [
        Voice(model="any", voice="other"),
        Voice(model="other", voice="heart"),
        Voice(model="any", voice="heart", speed=1.5),
        Voice(model="any", voice="heart", language="de"),
    ],
)
async def test_another_voice_is_synthesized(inner: FakeSynthesizer, store: AudioCache, other: Voice) -> None:
    """Voice, model, speed and language are part of the cache key."""
    stored = CachedSynthesizer(inner, store)
    await learn(stored, "Sure.")
    await speak(stored, other, "Sure.")
    assert len(inner.speeches) == 3


async def test_other_settings_of_the_provider(inner: FakeSynthesizer, store: AudioCache) -> None:
    await learn(CachedSynthesizer(inner, store, settings="warm"), "Sure.")
    await speak(CachedSynthesizer(inner, store, settings="cold"), VOICE, "Sure.")
    assert len(inner.speeches) == 3


async def test_interrupted_clause_is_not_cached(inner: FakeSynthesizer, store: AudioCache) -> None:
    """Only what was said to its end."""
    stored = CachedSynthesizer(inner, store)
    for _ in range(3):
        async with stored.open(VOICE) as speech, asyncio.timeout(WAIT_S):
            speech.push("A clause of some length that somebody interrupts.")
            await anext(audio_of(speech))
    await store.wait_until_written()
    assert store.n_bytes == 0


async def test_broken_clause_is_not_cached(inner: FakeSynthesizer, store: AudioCache) -> None:
    stored = CachedSynthesizer(inner, store)
    inner.script.usual = TtsCue(fault=Cut(after=4_800))
    for _ in range(3):
        _, error = await outcome(stored, VOICE, "A clause of some length.")
        assert isinstance(error, StageBroken)
    await store.wait_until_written()
    assert store.n_bytes == 0


# Files


def file_of(tmp_path: Path) -> Path:
    (path,) = (tmp_path / "audio-cache").iterdir()
    return path


SPOILS: dict[str, Callable[[Path], object]] = {
    "cut short": lambda path: os.truncate(path, 1_000),
    "empty": lambda path: os.truncate(path, 0),
    "header only": lambda path: os.truncate(path, 36),
    "changed": lambda path: path.write_bytes(path.read_bytes()[:-1] + b"\x55"),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"\0\0"),
    "another file": lambda path: path.write_bytes(b"RIFF" + bytes(5_000)),
    "gone": lambda path: path.unlink(),
    "old": lambda path: os.utime(path, (0, 0)),
}


@pytest.mark.parametrize("spoil", SPOILS.values(), ids=SPOILS)
async def test_spoilt_file_is_never_played(
    inner: FakeSynthesizer, store: AudioCache, tmp_path: Path, spoil: Callable[[Path], object]
) -> None:
    """The voice speaks instead, in its place among the others, and the file is gone."""
    stored = CachedSynthesizer(inner, store)
    await learn(stored, "Sure.")
    path = file_of(tmp_path)
    spoil(path)
    spoken_audio = await speak(stored, VOICE, "First.", "Sure.", "Last.")
    for number, clause in enumerate(("First.", "Sure.", "Last.")):
        assert np.array_equal(sound_of(spoken_audio, number), tone(clause, ms_per_char=10))
    assert store.hits == 0
    await store.wait_until_written()
    again = await speak(stored, VOICE, "Sure.")
    assert store.hits == 1
    assert np.array_equal(sound_of(again, 0), tone("Sure.", ms_per_char=10))


async def test_the_cache_remembers_few_clauses_that_were_said_once(
    store: AudioCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The least recent one is the first to count as new again."""
    monkeypatch.setattr(audio_cache, "SEEN", 2)
    known = [store.was_requested(key) for key in ("a", "b", "a", "c", "a", "b")]
    assert known == [False, False, True, False, True, False]


async def test_a_clause_that_made_room_meanwhile_is_not_there(store: AudioCache) -> None:
    store.keep("a" * 64, CachedAudio(tone("One.")))
    await store.wait_until_written()
    assert await store.read("a" * 64) is not None
    store._remove("a" * 64)
    assert await store.read("a" * 64) is None


class Reporting(FakeSynthesizer):
    """It reports its connection before it speaks."""

    @asynccontextmanager
    async def open(self, voice: Voice) -> AsyncIterator[Any]:
        async with super().open(voice) as speech:
            yield _Connecting(speech)


class _Connecting:
    def __init__(self, speech: Speech) -> None:
        self.push, self.finish, self._speech = speech.push, speech.finish, speech

    async def __aiter__(self) -> AsyncIterator[SpeechEvent]:
        yield SynthesizerConnected(7)
        async for event in self._speech:
            yield event


async def test_what_a_voice_reports_is_passed_on_and_is_no_audio(store: AudioCache) -> None:
    stored = CachedSynthesizer(Reporting(TtsCue(ms_per_char=10)), store)
    events = await events_of(stored, VOICE, "Sure.")
    assert [event for event in events if not isinstance(event, Spoken)] == [SynthesizerConnected(7)]
    assert np.array_equal(audio_only(events), tone("Sure.", ms_per_char=10))


def audio_only(events: list[SpeechEvent]) -> Samples:
    return np.concatenate([event.samples for event in events if isinstance(event, Spoken)])


def test_a_clause_that_is_too_long_is_not_stored_in_memory() -> None:
    """Nor is it ever whole; the next one is."""
    recording, long = _Recording(), np.ones(MAX_SAMPLES // 4, dtype=np.int16)
    for _ in range(40):
        assert recording.take(Spoken(0, long)) is None
    assert sum(map(len, recording._pieces)) <= MAX_SAMPLES
    assert recording.take(Spoken(1, long)) is None
    whole = recording.end()
    assert whole is not None
    assert (whole[0], len(whole[1].samples)) == (1, len(long))


async def test_sounds_outlive_the_process(inner: FakeSynthesizer, tmp_path: Path) -> None:
    """What is found at the start is played; a half-written file of long ago is removed, one of now is left."""
    folder = tmp_path / "audio-cache"
    async with open_audio_cache(folder, max_bytes=MEGABYTE) as store:
        await learn(CachedSynthesizer(inner, store), "Sure.")
    old, new = folder / "a.part", folder / "b.part"
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (0, 0))
    async with open_audio_cache(folder, max_bytes=MEGABYTE) as store:
        await speak(CachedSynthesizer(inner, store), VOICE, "Sure.")
        assert store.hits == 1
    assert (old.exists(), new.exists()) == (False, True)
    assert folder.stat().st_mode & 0o077 == 0
    assert all(path.stat().st_mode & 0o077 == 0 for path in folder.glob("*.sound"))


async def test_a_file_that_goes_while_others_are_found_stops_no_server(tmp_path: Path) -> None:
    """Another process moves what it has written, and makes room, whenever it likes."""
    folder = tmp_path / "audio-cache"
    folder.mkdir()
    (folder / "a.part").symlink_to("gone")
    (folder / "b.sound").symlink_to("gone")
    async with open_audio_cache(folder, max_bytes=MEGABYTE) as store:
        assert store.n_bytes == 0


async def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"server.audio_cache_mb: .*/file/audio-cache': Not a directory"):
        async with open_audio_cache(tmp_path / "file" / "audio-cache", max_bytes=MEGABYTE):
            pytest.fail("it was opened")


async def test_least_recently_played_goes_first(inner: FakeSynthesizer, tmp_path: Path) -> None:
    """The folder stays within its bytes."""
    folder = tmp_path / "audio-cache"
    room = 2 * 2 * len(tone("One.", ms_per_char=10)) + 500
    async with open_audio_cache(folder, max_bytes=room) as store:
        stored = CachedSynthesizer(inner, store)
        await learn(stored, "One.")
        await learn(stored, "Two.")
        await speak(stored, VOICE, "One.")
        await learn(stored, "Six.")
        assert [stored.key(VOICE, clause) in store for clause in ("One.", "Two.", "Six.")] == [True, False, True]
        assert sum(path.stat().st_size for path in folder.iterdir()) == store.n_bytes <= room
    async with open_audio_cache(folder, max_bytes=room // 2) as store:
        assert store.n_bytes <= room // 2


async def test_disk_that_fails_costs_no_turn(
    inner: FakeSynthesizer, store: AudioCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is stored, and every clause is spoken."""

    def full(path: Path, sound: CachedAudio) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(audio_cache, "_write", full)
    stored = CachedSynthesizer(inner, store)
    await learn(stored, "Sure.")
    assert len(await speak(stored, VOICE, "Sure."))
    assert store.n_bytes == 0


async def test_slow_disk_makes_no_queue(store: AudioCache) -> None:
    """Audio that the disk can't take in time is not stored, and counted; neither is audio that is too long."""
    for n in range(50):
        store.keep(f"{n:064}", CachedAudio(tone("One.")))
    assert store.dropped > 0
    store.keep("f" * 64, CachedAudio(np.ones(MAX_SAMPLES + 1, dtype=np.int16)))
    await store.wait_until_written()
    assert "f" * 64 not in store


@settings(deadline=None)
@given(
    st.lists(st.integers(-32_768, 32_767), min_size=1, max_size=50),
    st.lists(st.tuples(st.text(max_size=5), st.integers(0, 10_000)), max_size=5),
)
def test_file_gives_back_what_it_was_given(values: list[int], words: list[tuple[str, int]]) -> None:
    """Samples and word times; and no shorter file gives anything."""
    sound = CachedAudio(np.array(values, dtype=np.int16), tuple(WordTime(*word) for word in words))
    data = encoded(sound)
    found = decoded(data)
    assert found is not None
    assert np.array_equal(found.samples, sound.samples)
    assert found.words == sound.words
    assert all(decoded(data[:n]) is None for n in range(len(data)))


async def test_cached_audio_says_nothing_about_its_provider(inner: FakeSynthesizer, store: AudioCache) -> None:
    """It closes no circuit breaker and is no quick answer, in a pool and without one; a clause of its own does both."""
    stored, voice = CachedSynthesizer(inner, store), replace(VOICE, model=Spec.parse(inner.name).model)
    await learn(stored, "Of course!", voice=voice)
    candidate = Candidate(spec=inner.name, ttft_p50_ms=250.0)
    refused = StageRefused("tts", provider=inner.name, why="HTTP 429", retryable=True, status=429)
    for pooled in (True, False):
        stats = SharedStats()
        order = SpeechOrder((candidate,), RouterOptions(policy="fallback"), stats)
        synthesizer: Synthesizer = SingleSynthesizer(stored, stats)
        if pooled:
            synthesizer = RoutedSynthesizer((SynthesizerCandidate(candidate, stored, True),), order)
        stats.breaker(candidate).failed(refused, clock.monotonic_ms() - 20_000)
        await speak(synthesizer, voice, "Of course!")
        assert stats.breaker(candidate).is_tripped
        assert stats.latency.known(inner.name) is None
        await speak(synthesizer, voice, "Of course!", f"New, {pooled}.")
        assert not stats.breaker(candidate).is_tripped
        await speak(synthesizer, voice, f"Quite new, {pooled}.")
        assert (stats.latency.known(inner.name) is not None) is pooled
