"""What the voice at Together sends, and how it reads the answers."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from voicepipe.errors import StageBroken, StageRefused
from voicepipe.ports.synthesizer import Synthesizer, Voice, audio_of
from voicepipe.providers.net import connection_pool
from voicepipe.providers.together.tts import open_synthesizer
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.testing.conformance.synthesizer import outcome, sound_of, speak
from voicepipe.testing.conformance.waits import LONG_TIMEOUT_MS, promptly
from voicepipe.testing.fakes.cues import Hold, TtsCue
from voicepipe.testing.fakes.together_tts import KEY, FakeTogetherTts
from voicepipe.testing.fakes.tone import tone

KOKORO = Voice(model="hexgrad/Kokoro-82M")


@pytest.fixture
async def vendor() -> AsyncIterator[FakeTogetherTts]:
    async with FakeTogetherTts() as vendor:
        yield vendor


def voice_at(vendor: FakeTogetherTts, model: str = "hexgrad/Kokoro-82M", **options: str) -> Synthesizer:
    settings = ProviderSettings(
        kind="together",
        base_url=vendor.base_url,
        api_key=KEY,
        idle_timeout_ms=LONG_TIMEOUT_MS,
        options=tuple(options.items()),
    )
    return open_synthesizer(Spec("together", model), settings)


async def test_each_clause_is_committed(vendor: FakeTogetherTts) -> None:
    """Nothing ends the socket, which serves the next turn."""
    async with connection_pool.lifetime():
        synthesizer = voice_at(vendor)
        await speak(synthesizer, KOKORO, "One.", "Two.")
        spoken_audio = await speak(synthesizer, KOKORO, "Three.")
    assert len(vendor.calls) == 1
    kinds = [message["type"].removeprefix("input_text_buffer.") for message in vendor.calls[0].messages]
    assert kinds == ["append", "commit"] * 3 + ["clear"]  # the farewell clears what may wait
    assert len(sound_of(spoken_audio, 0)) == len(tone("Three. "))


@pytest.mark.parametrize(
    ("voice", "options", "expected"),
    [
        (KOKORO, {}, {"voice": "af_heart", "alignment": "word", "response_format": "pcm"}),
        (Voice(model="canopylabs/orpheus-3b-0.1-ft"), {"stt_extra": "{}"}, {"voice": "tara"}),
        (Voice(model="hexgrad/Kokoro-82M", voice="bf_lily"), {"tts_voice": "am_puck"}, {"voice": "bf_lily"}),
        (KOKORO, {"tts_voice": "am_puck", "tts_extra": '{"language": "en"}'}, {"voice": "am_puck", "language": "en"}),
        (Voice(model="hexgrad/Kokoro-82M", speed=1.25), {}, {"speed": "1.25"}),
    ],
)
async def test_query(vendor: FakeTogetherTts, voice: Voice, options: dict[str, str], expected: dict[str, str]) -> None:
    await speak(voice_at(vendor, voice.model, **options), voice, "Hello.")
    query = vendor.calls[0].query
    assert query["model"] == voice.model
    assert {name: query[name] for name in expected} == expected
    assert ("speed" in query) is ("speed" in expected)


async def test_model_without_a_usual_voice_names_none(vendor: FakeTogetherTts) -> None:
    """The vendor refuses it, in its own words."""
    model = "rime-labs/rime-mist-v3"
    _, error = await outcome(voice_at(vendor, model), Voice(model=model), "Hello.")
    assert isinstance(error, StageRefused)
    assert error.status == 400


async def test_turn_that_is_cut_takes_its_socket_with_it(vendor: FakeTogetherTts) -> None:
    """The service does not confirm a `clear`."""
    async with connection_pool.lifetime():
        synthesizer = voice_at(vendor)
        vendor.script.cue(TtsCue(hold=Hold(after=4_800)))
        async with synthesizer.open(KOKORO) as speech:
            speech.push("A clause of some length.")
            await anext(audio_of(speech))
        async with promptly():
            await vendor.calls[0].closed.wait()
    assert vendor.calls[0].messages[-1] == {"type": "input_text_buffer.clear"}


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ('{"type": "error", "error": {"message": "Voice not found."}}', r"\(Voice not found\.\)"),
        ('{"type": "conversation.item.tts.failed", "error": {"message": "No."}}', r"\(No\.\)"),
        ('{"type": "conversation.item.audio_output.delta", "delta": "!!!"}', "expected base64"),
    ],
)
async def test_message_that_breaks(vendor: FakeTogetherTts, message: str, why: str) -> None:
    vendor.script.cue(TtsCue(hold=Hold()))
    async with voice_at(vendor).open(KOKORO) as speech:
        speech.push("Hello.")
        await vendor.script.nth(0)
        await vendor.calls[0].send(message)
        with pytest.raises(StageBroken, match=why):
            await anext(audio_of(speech))
