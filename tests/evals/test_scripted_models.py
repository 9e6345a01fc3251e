"""The scripted models of an eval: an STT that knows what the user says, and an LLM that answers from a script."""

from __future__ import annotations

import io
import wave
from pathlib import Path

import aiohttp
import numpy as np
import pytest

from voicepipe import clock
from voicepipe.audio.files import read_sound
from voicepipe.audio.samples import Samples, silence
from voicepipe.evals.scenario import Scripted, ScriptedAnswer
from voicepipe.evals.scripted_models import MAX_LATE_MS, ScriptedModels, late_ms, levels_of
from voicepipe.evals.speech import StepSpeech, Words

DATA = Path(__file__).parents[1] / "data" / "clean"
CLIP = DATA / "vctk_p287_001.flac"
TEXT = "Please call Stella."
RATE_HZ, STT_HZ = 24_000, 16_000
PAD_MS = 300


def utterance() -> StepSpeech:
    samples = read_sound(CLIP, RATE_HZ)
    duration_ms = len(samples) * 1_000 // RATE_HZ
    return StepSpeech(samples, duration_ms, (Words(TEXT, 0, duration_ms),))


def wav(samples: Samples) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setparams((1, 2, STT_HZ, 0, "NONE", ""))
        writer.writeframes(samples.astype("<i2").tobytes())
    return file.getvalue()


@pytest.mark.parametrize("late", [0, 900, 3_000])
async def test_a_request_that_comes_late_gets_all_words(late: int) -> None:
    """The first word fell out where a busy server asked more than 400 ms behind the voice."""
    said, models = utterance(), ScriptedModels()
    sound = np.concatenate((silence(PAD_MS * STT_HZ // 1_000), read_sound(CLIP, STT_HZ)))
    form = aiohttp.FormData()
    form.add_field("file", wav(sound), filename="a.wav", content_type="audio/wav")
    async with models.serving(), aiohttp.ClientSession() as http:
        models.record(said, clock.monotonic_ms() - said.duration_ms - late)
        async with http.post(f"{models.base_url}/audio/transcriptions", data=form) as response:
            assert (await response.json())["text"] == TEXT


@pytest.mark.parametrize("late", [0, 40, 900, MAX_LATE_MS])
def test_how_late_it_is_follows_from_the_levels(late: int) -> None:
    voice = levels_of(utterance().samples, RATE_HZ)
    found = late_ms(levels_of(read_sound(CLIP, STT_HZ), STT_HZ), [(10_000, voice)], 10_000 + len(voice) * 10 + late)
    assert abs(found - late) <= 40, "the levels of neighbours are alike: nothing is moved for so little"


@pytest.mark.parametrize("samples", [silence(8_000), np.full(8_000, 50, np.int16), silence(0)])
def test_a_sound_that_fits_nowhere_is_taken_as_it_comes(samples: Samples) -> None:
    assert late_ms(levels_of(samples, STT_HZ), [], 10_000) == 0


async def test_what_a_hook_adds_behind_the_conversation_is_not_what_the_user_said() -> None:
    models = ScriptedModels(Scripted(answers=[ScriptedAnswer(pattern="open", text="At nine.")]))
    messages = [{"role": "user", "content": "When are you open?"}, {"role": "system", "content": "It is Monday."}]
    async with models.serving(), aiohttp.ClientSession() as http:
        response = await http.post(f"{models.base_url}/chat/completions", json={"messages": messages})
        assert response.status == 200
        assert "nine" in await response.text()
