"""The user's speech is cut to its voice, and its last voiced sample is where the labels have it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from voicepipe.audio.files import read_sound
from voicepipe.audio.samples import silence
from voicepipe.client import RATE_HZ
from voicepipe.errors import ConfigError, StageError
from voicepipe.evals.scenario import Part
from voicepipe.evals.speech import MARGIN_MS, UserSpeech, UserTts, voice_bounds_ms, voiced_part
from voicepipe.ports.synthesizer import Voice
from voicepipe.testing.fakes.cues import Status, TtsCue
from voicepipe.testing.fakes.synthesizer import FakeSynthesizer

DATA = Path(__file__).parents[1] / "data"
LABELS = [json.loads(line) for line in (DATA / "manifest.jsonl").read_text().splitlines()]
SPOKEN = [label for label in LABELS if label["speech_end_ms"] is not None]


def no_tts(spec: str, voice: str | None) -> UserTts:
    raise AssertionError(spec)


@pytest.mark.parametrize("label", SPOKEN, ids=lambda label: label["id"])
def test_the_voice_ends_where_the_label_has_it(label: dict[str, int]) -> None:
    bounds = voice_bounds_ms(read_sound(DATA / str(label["path"]), RATE_HZ))
    assert bounds is not None
    assert -20 <= bounds[1] - label["speech_end_ms"] <= 50
    assert -120 <= bounds[0] - label["speech_start_ms"] <= 150


def test_no_voice_is_refused() -> None:
    for nothing in (silence(0), silence(RATE_HZ)):
        with pytest.raises(ConfigError, match=r"got audio without a voice: a\.wav"):
            voiced_part(nothing, "a.wav")


async def test_pieces_and_pauses_become_one_utterance() -> None:
    parts = (
        Part(audio="clean/cv_22058264.flac", text="no"),
        Part(pause_ms=300),
        Part(audio="clean/vctk_p287_001.flac", text="Please call Stella."),
    )
    said = await UserSpeech(no_tts).utterance(parts, DATA, "", None)
    no, please = said.words
    assert (no.text, please.text, no.start_ms) == ("no", "Please call Stella.", 0)
    assert please.start_ms == no.end_ms + 300
    assert abs(no.end_ms - 2 * MARGIN_MS - 440) <= 40
    assert abs(please.end_ms - please.start_ms - 2 * MARGIN_MS - 1_270) <= 40
    assert said.voiced_until_ms == please.end_ms - MARGIN_MS
    assert abs(said.duration_ms - please.end_ms) <= 1


async def test_a_text_is_synthesized_once() -> None:
    fake = FakeSynthesizer(TtsCue(ms_per_char=60))
    speech = UserSpeech(lambda spec, voice: UserTts(fake, Voice(model=spec, voice=voice)))
    for _ in range(2):
        said = await speech.utterance((Part(text="A table."),), DATA, "x/y", "ann")
        assert abs(said.voiced_until_ms - MARGIN_MS - 480) <= 30
    (only,) = fake.speeches
    assert only.clauses == ["A table."]
    assert np.abs(said.samples).max() > 1_000


async def test_a_tts_that_fails_is_named() -> None:
    fake = FakeSynthesizer(TtsCue(fault=Status(500, "out of order")), name="x/y")
    speech = UserSpeech(lambda spec, voice: UserTts(fake, Voice(model=spec, voice=voice)))
    with pytest.raises(
        ConfigError, match=r"user\.tts: expected a voice that can speak 'A table\.', got tts by x/y"
    ) as error:
        await speech.utterance((Part(text="A table."),), DATA, "x/y", None)
    assert isinstance(error.value.__cause__, StageError)
