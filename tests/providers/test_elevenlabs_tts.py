"""What the ElevenLabs TTS adapter sends, and how it separates clauses and words by the times of characters."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from itertools import chain, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicepipe.errors import StageBroken, StageError, StageRefused
from voicepipe.ports.synthesizer import Synthesizer, Voice, audio_of
from voicepipe.providers.elevenlabs import tts
from voicepipe.providers.net import connection_pool
from voicepipe.providers.net.address import ProviderAddress
from voicepipe.providers.tts.websocket_tts import ClauseOver, Sound, Words
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.testing.conformance.synthesizer import outcome, sound_of, speak
from voicepipe.testing.conformance.waits import LONG_TIMEOUT_MS
from voicepipe.testing.fakes.cues import Hold, InBandError, TtsCue
from voicepipe.testing.fakes.elevenlabs_tts import KEY, FakeElevenLabs
from voicepipe.testing.fakes.tone import tone
from voicepipe.testing.waiting import WAIT_S
from voicepipe.values import replace

VOICE = Voice(model="eleven_flash_v2_5")
VOICE_ID = "EXAVITQu4vr4xnSDxMaL"


@pytest.fixture
async def vendor() -> AsyncIterator[FakeElevenLabs]:
    async with FakeElevenLabs() as vendor:
        yield vendor


def voice_at(vendor: FakeElevenLabs, **options: str) -> Synthesizer:
    settings = ProviderSettings(
        kind="elevenlabs",
        base_url=vendor.base_url,
        api_key=KEY,
        idle_timeout_ms=LONG_TIMEOUT_MS,
        options=tuple(options.items()),
    )
    return tts.open_synthesizer(Spec("elevenlabs", "eleven_flash_v2_5"), settings)


async def test_turn_is_a_context(vendor: FakeElevenLabs) -> None:
    """Settings first, each clause flushed and with a space, then closed: the rest of its sound comes, and an end."""
    await speak(voice_at(vendor), VOICE, "One.", "Two.")
    messages = vendor.calls[0].messages
    (context,) = {m["context_id"] for m in messages if "context_id" in m}
    assert [{name: value for name, value in m.items() if name != "context_id"} for m in messages] == [
        {"text": " ", "voice_settings": {}},
        {"text": "One. ", "flush": True},
        {"text": "Two. ", "flush": True},
        {"close_context": True},
        {"close_socket": True},
    ]
    assert context


@pytest.mark.parametrize(
    ("voice", "options", "query"),
    [
        (VOICE, {}, {"model_id": "eleven_flash_v2_5", "output_format": "pcm_24000", "auto_mode": "true"}),
        (Voice(model="eleven_flash_v2_5", language="de-CH"), {}, {"language_code": "de"}),
        (Voice(model="eleven_multilingual_v2", language="de-CH"), {}, {"language_code": None}),
        (Voice(model="m", voice="alloy"), {"tts_voice": VOICE_ID}, {}),
        (Voice(model="m", voice=VOICE_ID), {"stt_any": "1"}, {}),
    ],
)
async def test_query(
    vendor: FakeElevenLabs, voice: Voice, options: dict[str, str], query: dict[str, str | None]
) -> None:
    """The model's own languages; a voice by its id, another vendor's name for one passed over."""
    await speak(voice_at(vendor, **options), voice, "Hello.")
    call = vendor.calls[0]
    assert {name: call.query.get(name) for name in query} == query
    expected = VOICE_ID if voice.voice else tts.VOICE
    assert call.path == f"/v1/text-to-speech/{expected}/multi-stream-input"


@pytest.mark.parametrize(("speed", "expected"), [(1.1, 1.1), (4.0, 1.2), (0.25, 0.7)])
async def test_voice_settings(vendor: FakeElevenLabs, speed: float, expected: float) -> None:
    """The speed within the vendor's bounds, and what the settings add."""
    voice = Voice(model="eleven_flash_v2_5", speed=speed)
    await speak(voice_at(vendor, tts_voice_settings='{"stability": 0.4}'), voice, "Hello.")
    assert vendor.calls[0].messages[0]["voice_settings"] == {"speed": expected, "stability": 0.4}


async def test_cut_turns_stay_below_the_limit_of_a_socket(vendor: FakeElevenLabs) -> None:
    """A context that was closed counts until it is final: with four of them not final, a turn still fits; then not."""
    synthesizer = voice_at(vendor)
    vendor.script.usual = lambda received: TtsCue(hold=Hold(after=4_800))
    async with connection_pool.lifetime():
        for _ in range(7):
            async with synthesizer.open(VOICE) as speech:
                speech.push("A clause of some length.")
                await anext(audio_of(speech))
        assert [call.peak_contexts for call in vendor.calls][:2] == [5, 2]


async def test_keep_alive_without_a_context(vendor: FakeElevenLabs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between turns, and in one that waits for words: one that was named before its settings would be refused."""
    plan = replace(tts.PLAN, line=replace(tts.PLAN.line, keep_alive_ms=10))
    monkeypatch.setattr(tts._Wire, "plan", plan)
    synthesizer = voice_at(vendor)
    async with connection_pool.lifetime():
        with synthesizer.keep_warm(VOICE):
            call = await vendor.nth(0)
            await call.until(lambda: call.messages.count({"text": ""}) >= 2)
            assert len(sound_of(await speak(synthesizer, VOICE, "Hello."), 0)) == len(tone("Hello."))
    assert call.peak_contexts == 1


async def test_turn_that_is_closing_is_not_closed_twice(vendor: FakeElevenLabs) -> None:
    vendor.script.cue(TtsCue(hold=Hold(after=4_800)))
    async with connection_pool.lifetime():
        async with voice_at(vendor).open(VOICE) as speech:
            speech.push("A clause of some length.")
            speech.finish()
            await anext(audio_of(speech))
        async with voice_at(vendor).open(VOICE):
            pass
    assert [m.get("close_context") for m in vendor.calls[0].messages].count(True) == 1


@pytest.mark.parametrize(
    ("error", "code", "kind", "retryable", "why"),
    [
        ("max_active_conversations", 1008, StageRefused, True, "HTTP 429"),
        ("quota_exceeded", 1008, StageRefused, False, "HTTP 402"),
        ("input_timeout_exceeded", 1008, StageBroken, True, "Oh no"),
        ("some_violation", 1008, StageBroken, False, "Oh no"),
        ("something_else", 1011, StageBroken, True, "Oh no"),
    ],
)
async def test_error(
    vendor: FakeElevenLabs, error: str, code: int, kind: type[StageError], retryable: bool, why: str
) -> None:
    """In the vendor's words, and as the status that it stands for."""
    vendor.script.cue(TtsCue(hold=Hold()))
    async with voice_at(vendor).open(VOICE) as speech:
        speech.push("Hello.")
        await vendor.script.nth(0)
        await vendor.calls[0].send(json.dumps({"message": "Oh no.", "error": error, "code": code}))
        with pytest.raises(kind, match=why) as raised:
            await anext(audio_of(speech))
    assert raised.value.retryable is retryable


async def test_error_and_then_the_close(vendor: FakeElevenLabs) -> None:
    """The error has more detail than the close."""
    vendor.script.cue(TtsCue(fault=InBandError(message="Too many contexts.", code=429)))
    _, error = await outcome(voice_at(vendor), VOICE, "Hello.")
    assert error is not None
    assert "Too many contexts." in error.why


async def test_sound_without_times(vendor: FakeElevenLabs) -> None:
    """All of the audio is played, as the first clause's; nothing waits for times that never come."""
    vendor.sound = lambda piece, tts_context: [  # type: ignore[method-assign]
        json.dumps({"audio": base64.b64encode(piece.pcm).decode(), "contextId": piece.context, "alignment": None})
    ]
    spoken_audio = await speak(voice_at(vendor), VOICE, "One.", "Two.")
    assert len(sound_of(spoken_audio, 0)) == len(tone("One.")) + len(tone("Two."))


async def test_message_that_says_nothing_to_us(vendor: FakeElevenLabs) -> None:
    hold = Hold()
    vendor.script.cue(TtsCue(hold=hold))
    async with voice_at(vendor).open(VOICE) as speech, asyncio.timeout(WAIT_S):
        speech.push("Hello.")
        speech.finish()
        await vendor.script.nth(0)
        await vendor.calls[0].send('{"novelty": 1}')
        hold.release.set()
        assert len(sound_of([spoken async for spoken in audio_of(speech)], 0)) == len(tone("Hello."))


CLAUSES = st.lists(st.text("ab .", min_size=1, max_size=12).filter(str.strip), min_size=1, max_size=5)


@given(CLAUSES, st.lists(st.integers(0, 200), max_size=8))
def test_any_cut_gives_the_same_clauses(clauses: list[str], cuts: list[int]) -> None:
    """However the vendor cuts the sound, each sample is given once, in the clause of its character."""
    address = ProviderAddress.of(
        "tts", Spec("elevenlabs", "m"), ProviderSettings(kind="elevenlabs", base_url="ws://127.0.0.1"), scheme="ws"
    )
    codec = tts._TurnCodec(address, "key", {})
    for clause in clauses:
        codec.push(clause)
    chars = "".join(f"{clause} " for clause in clauses)
    # A ms for each character, whose samples say which one it is.
    places = sorted({0, len(chars), *(cut for cut in cuts if cut < len(chars))})
    found: list[list[int]] = [[]]
    for begin, end in pairwise(places):
        for event in codec.decode(message(chars, begin, end)):
            match event:
                case ClauseOver():
                    found.append([])
                case Sound(pcm):
                    found[-1] += np.frombuffer(pcm, dtype="<i2").tolist()
                case Words(words):
                    assert all(word.word.strip() == word.word for word in words)
    assert list(chain(*found)) == [i for i in range(len(chars)) for _ in range(24)]
    firsts = [min(i for i in range(len(chars)) if i >= start and chars[i] != " ") for start in starts_of(clauses)]
    assert [samples[0] for samples in found[1:]] == firsts[1:]
    assert not codec.awaits_answer


def starts_of(clauses: list[str]) -> list[int]:
    return [sum(len(clause) + 1 for clause in clauses[:n]) for n in range(len(clauses))]


def message(chars: str, begin: int, end: int) -> Any:
    pcm = np.repeat(np.arange(begin, end, dtype="<i2"), 24).tobytes()
    times = tts._Alignment(list(chars[begin:end]), [float(i) for i in range(end - begin)])
    return tts._Message(audio=base64.b64encode(pcm).decode(), context_id="key", alignment=times)
