"""What the voice at Cartesia sends, and how it reads the answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from voicepipe.errors import ConfigError, StageRefused
from voicepipe.ports.synthesizer import Synthesizer, Voice, audio_of
from voicepipe.providers.cartesia import tts
from voicepipe.providers.net import connection_pool
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.testing.conformance.synthesizer import outcome, sound_of, speak
from voicepipe.testing.conformance.waits import LONG_TIMEOUT_MS
from voicepipe.testing.fakes.cartesia_tts import KEY, FakeCartesia
from voicepipe.testing.fakes.cues import Hold, InBandError, TtsCue
from voicepipe.testing.fakes.tone import tone
from voicepipe.testing.waiting import WAIT_S

SPEC = Spec("cartesia", "sonic-3")
VOICE = Voice(model="sonic-3")
VOICE_ID = "f786b574-daa5-4673-aa0c-cbe3e8534c02"


@pytest.fixture
async def vendor() -> AsyncIterator[FakeCartesia]:
    async with FakeCartesia() as vendor:
        yield vendor


def voice_at(vendor: FakeCartesia, **options: str) -> Synthesizer:
    settings = ProviderSettings(
        kind="cartesia",
        base_url=vendor.base_url,
        api_key=KEY,
        idle_timeout_ms=LONG_TIMEOUT_MS,
        options=tuple(options.items()),
    )
    return tts.open_synthesizer(SPEC, settings)


async def sent(vendor: FakeCartesia, voice: Voice, **options: str) -> list[dict[str, Any]]:
    """The messages of a turn with two clauses."""
    await speak(voice_at(vendor, **options), voice, "One.", "Two.")
    return vendor.calls[-1].messages


async def test_turn_is_a_context(vendor: FakeCartesia) -> None:
    """Each clause ends with a space and is flushed; the end is a message of its own; the constant fields stay
    constant.
    """
    messages = await sent(vendor, VOICE)
    reported = [(m["transcript"], m["continue"], m.get("flush", False)) for m in messages]
    assert reported == [
        ("One. ", True, False),
        ("", True, True),
        ("Two. ", True, False),
        ("", True, True),
        ("", False, False),
    ]
    assert len({m["context_id"] for m in messages}) == 1
    assert messages[0]["model_id"] == "sonic-3"
    assert messages[0]["add_timestamps"] is True
    assert messages[0]["voice"] == {"mode": "id", "id": tts.VOICE}
    assert messages[0]["output_format"] == {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24_000}
    assert not {"language", "generation_config"} & messages[0].keys()
    assert vendor.calls[0].headers["Cartesia-Version"] == tts.VERSION


@pytest.mark.parametrize(
    ("voice", "options", "expected"),
    [
        (Voice(model="m", voice=VOICE_ID), {}, {"voice": {"mode": "id", "id": VOICE_ID}}),
        (Voice(model="m", voice="alloy"), {"tts_voice": VOICE_ID}, {"voice": {"mode": "id", "id": VOICE_ID}}),
        (Voice(model="m", language="pt-BR", speed=1.2), {}, {"language": "pt", "generation_config": {"speed": 1.2}}),
        (VOICE, {"tts_extra": '{"pronunciation_dict_id": "p"}', "stt_x": "1"}, {"pronunciation_dict_id": "p"}),
    ],
)
async def test_request(vendor: FakeCartesia, voice: Voice, options: dict[str, str], expected: dict[str, Any]) -> None:
    """The request has the voice's id and ignores another vendor's voice name; it has language and speed where they are
    set.
    """
    for message in await sent(vendor, voice, **options):
        assert {name: message[name] for name in expected} == expected


def test_wrong_option(vendor: FakeCartesia) -> None:
    with pytest.raises(ConfigError, match=r"cartesia\.tts_vioce: unknown for kind cartesia"):
        tts.open_synthesizer(SPEC, ProviderSettings(kind="cartesia", base_url="ws://x", options=(("tts_vioce", "v"),)))


async def test_silent_context_is_not_gone_on_with(vendor: FakeCartesia, monkeypatch: pytest.MonkeyPatch) -> None:
    """It expires after a second: a clause that comes late begins another one, and `done` of the first ends nothing."""
    monkeypatch.setattr(tts, "SILENT_S", -1.0)
    async with voice_at(vendor).open(VOICE) as speech, asyncio.timeout(WAIT_S):
        speech.push("First.")
        sound, n_samples = audio_of(speech), 0
        while n_samples < len(tone("First.")):
            n_samples += len((await anext(sound)).samples)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await anext(sound)  # only that the clause is over
        call = vendor.calls[0]
        await call.send_all(vendor.expire(call, call.messages[0]["context_id"]))
        speech.push("Second.")
        speech.finish()
        rest = [spoken async for spoken in sound]
    assert len(sound_of(rest, 1)) == len(tone("Second."))
    assert len({m["context_id"] for m in call.messages}) == 2


async def test_cancel_names_the_context(vendor: FakeCartesia) -> None:
    vendor.script.cue(TtsCue(hold=Hold(after=4_800)))
    async with connection_pool.lifetime():
        async with voice_at(vendor).open(VOICE) as speech:
            speech.push("A clause of some length.")
            await anext(audio_of(speech))
        call = vendor.calls[0]
        await call.until(lambda: len(call.messages) == 3)
    assert call.messages[-1] == {"context_id": call.messages[0]["context_id"], "cancel": True}


@pytest.mark.parametrize(("status", "retryable"), [(400, False), (402, False), (429, True), (500, True)])
async def test_error_of_a_context(vendor: FakeCartesia, status: int, retryable: bool) -> None:
    """The error's status decides whether a retry may help; the concurrency limit is one."""
    vendor.script.cue(TtsCue(fault=InBandError(message="Too many requests", code=status)))
    _, error = await outcome(voice_at(vendor), VOICE, "Hello.")
    assert isinstance(error, StageRefused)
    assert (error.status, error.retryable) == (status, retryable)
    assert "Too many requests" in error.why


async def test_error_of_no_context(vendor: FakeCartesia) -> None:
    """It ends whatever is spoken on the socket. Older versions have its words in `error`."""
    vendor.script.cue(TtsCue(hold=Hold()))
    async with voice_at(vendor).open(VOICE) as speech:
        speech.push("Hello.")
        await vendor.script.nth(0)
        await vendor.calls[0].send(json.dumps({"type": "error", "done": True, "error": "Bad.", "status_code": 400}))
        with pytest.raises(StageRefused, match=r"HTTP 400: refused \(Bad\.\)"):
            await anext(audio_of(speech))


async def test_message_that_says_nothing_to_us(vendor: FakeCartesia) -> None:
    """A type that is not known is passed over."""
    hold = Hold()
    vendor.script.cue(TtsCue(hold=hold))
    async with voice_at(vendor).open(VOICE) as speech, asyncio.timeout(WAIT_S):
        speech.push("Hello.")
        speech.finish()
        context = (await vendor.script.nth(0)).question["context"]
        await vendor.calls[0].send(json.dumps({"type": "phoneme_timestamps", "context_id": context, "done": False}))
        hold.release.set()
        assert len(sound_of([spoken async for spoken in audio_of(speech)], 0)) == len(tone("Hello."))
