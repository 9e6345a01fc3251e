"""What the voice at Rime sends, and how it reads the answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from voicepipe.errors import StageBroken
from voicepipe.ports.synthesizer import Synthesizer, Voice, audio_of
from voicepipe.providers.net import connection_pool
from voicepipe.providers.rime import tts
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.testing.conformance.synthesizer import sound_of, speak
from voicepipe.testing.conformance.waits import LONG_TIMEOUT_MS, promptly
from voicepipe.testing.fakes.cues import Hold, TtsCue
from voicepipe.testing.fakes.rime_tts import KEY, FakeRime
from voicepipe.testing.fakes.tone import tone
from voicepipe.testing.fakes.ws_tts import TtsContext
from voicepipe.testing.waiting import WAIT_S

VOICE = Voice(model="coda")


@pytest.fixture
async def vendor() -> AsyncIterator[FakeRime]:
    async with FakeRime() as vendor:
        yield vendor


def voice_at(vendor: FakeRime, model: str = "coda", **options: str) -> Synthesizer:
    settings = ProviderSettings(
        kind="rime",
        base_url=vendor.base_url,
        api_key=KEY,
        idle_timeout_ms=LONG_TIMEOUT_MS,
        options=tuple(options.items()),
    )
    return tts.open_synthesizer(Spec("rime", model), settings)


async def test_clauses_have_names(vendor: FakeRime) -> None:
    """Each is flushed under its own; nothing ends the socket, which serves the next turn."""
    async with connection_pool.lifetime():
        synthesizer = voice_at(vendor)
        await speak(synthesizer, VOICE, "One.", "Two.")
        await speak(synthesizer, VOICE, "Three.")
    messages = vendor.calls[0].messages[:-1]  # its farewell clears what may wait
    assert [m.get("text", m.get("operation")) for m in messages] == [
        "One. ",
        "flush",
        "Two. ",
        "flush",
        "Three. ",
        "flush",
    ]
    names = [m["contextId"] for m in messages if "text" in m]
    assert [name.partition(".")[2] for name in names] == ["0", "1", "0"]
    assert len({name.partition(".")[0] for name in names}) == 2


@pytest.mark.parametrize(
    ("voice", "options", "expected"),
    [
        (VOICE, {}, {"speaker": "astra", "modelId": "coda", "segment": "never"}),
        (Voice(model="mistv2"), {}, {"speaker": "cove"}),
        (Voice(model="coda", voice="luna"), {"tts_voice": "lyra"}, {"speaker": "luna"}),
        (VOICE, {"tts_voice": "lyra", "tts_extra": '{"repetition_penalty": "1.5"}'}, {"repetition_penalty": "1.5"}),
        (Voice(model="arcana", speed=1.25, language="es-MX"), {}, {"speedAlpha": "1.25", "lang": "spa"}),
        (Voice(model="mistv2", speed=1.25), {}, {"speedAlpha": "0.8"}),
    ],
)
async def test_query(vendor: FakeRime, voice: Voice, options: dict[str, str], expected: dict[str, str]) -> None:
    """The speaker of the model, languages by their three letters, and a speed that means what it says."""
    await speak(voice_at(vendor, voice.model, **options), voice, "Hello.")
    query = vendor.calls[0].query
    assert {name: query[name] for name in expected} == expected
    assert ("lang" in query) is ("lang" in expected)


async def test_turn_that_is_cut_takes_its_socket_with_it(vendor: FakeRime) -> None:
    """The service does not confirm a `clear`; the socket of a turn that was played to its end stays."""
    async with connection_pool.lifetime():
        synthesizer = voice_at(vendor)
        await speak(synthesizer, VOICE, "Hello.")
        vendor.script.cue(TtsCue(hold=Hold(after=4_800)))
        async with synthesizer.open(VOICE) as speech:
            speech.push("A clause of some length.")
            await anext(audio_of(speech))
        assert len(vendor.calls) == 1
        async with promptly():
            await vendor.calls[0].closed.wait()
    assert vendor.calls[0].messages[-1] == {"operation": "clear"}


async def test_one_done_for_several_clauses(vendor: FakeRime) -> None:
    """One message may confirm flushes that waited for one another: the last one's name gives the position."""
    n_over = 0

    def only_the_last(tts_context: TtsContext) -> list[str]:
        nonlocal n_over
        n_over += 1
        return [] if n_over < 3 else [json.dumps({"type": "done", "contextId": tts_context.context})]

    vendor.context_over = only_the_last  # type: ignore[method-assign]
    spoken_audio = await speak(voice_at(vendor), VOICE, "One.", "Two.", "Three.")
    assert [len(sound_of(spoken_audio, n)) for n in range(3)] == [
        len(tone(text)) for text in ("One.", "Two.", "Three.")
    ]


async def test_sound_without_a_name_is_of_the_clause_that_sounds(vendor: FakeRime) -> None:
    """So the docs show it for text that was given none."""
    hold = Hold()
    vendor.script.cue(TtsCue(hold=hold))
    async with voice_at(vendor).open(VOICE) as speech, asyncio.timeout(WAIT_S):
        speech.push("Hello.")
        speech.finish()
        await vendor.script.nth(0)
        await vendor.calls[0].send(json.dumps({"type": "chunk", "data": "AAAA", "contextId": None}))
        assert len((await anext(audio_of(speech))).samples) == 1
        hold.release.set()
        assert len(sound_of([spoken async for spoken in audio_of(speech)], 0)) == len(tone("Hello."))


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ('{"type": "error", "message": "Speaker not found."}', r"\(Speaker not found\.\)"),
        ('{"type": "chunk", "data": "!!!"}', "expected base64"),
    ],
)
async def test_message_that_breaks(vendor: FakeRime, message: str, why: str) -> None:
    vendor.script.cue(TtsCue(hold=Hold()))
    async with voice_at(vendor).open(VOICE) as speech:
        speech.push("Hello.")
        await vendor.script.nth(0)
        await vendor.calls[0].send(message)
        with pytest.raises(StageBroken, match=why):
            await anext(audio_of(speech))
