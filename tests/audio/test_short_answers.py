"""Short answers on a telephone are detected."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.measure import short_answers
from tests.measure.short_answers import PHONE_HZ, answers, by_phone, is_detected
from voicepipe.audio.samples import silence
from voicepipe.bench.endpointing.speech_set import CLEAN, SpeechSet

DATA = Path(__file__).parents[1] / "data"
WORDS = SpeechSet(DATA / "short_answer")


def test_one_word_is_detected() -> None:
    """ "Okay", "bye-bye", "mhm", "six", at 8 kHz with mu-law."""
    found = {id: is_detected(by_phone(WORDS.sound(clip, CLEAN))) for id, clip in WORDS.clips.items()}
    assert len(found) == 8
    assert [id for id, detected in found.items() if not detected] == []


def test_silence_is_no_answer() -> None:
    """Nor is the room tone before the word."""
    assert not is_detected(silence(2 * PHONE_HZ))
    tone = by_phone(WORDS.sound(WORDS.clips["ami_trn00_10454"], CLEAN))[: PHONE_HZ // 2]
    assert not is_detected(tone)


def test_answers_are_whole_clips_first_words_and_beginnings() -> None:
    """Of a long clip its first words, if a pause follows them; of each clip a quarter of a second."""
    found = [each for folder in (DATA, DATA / "short_answer") for each in answers(SpeechSet(folder))]
    kinds = {each.clip: {other.kind for other in found if other.clip == each.clip} for each in found}
    assert kinds["cv_22058267_six"] == {"whole", "cut"}
    assert kinds["clean/LJ001-0004"] == {"first words", "cut"}
    assert {len(each.samples) for each in found if each.kind == "cut"} == {PHONE_HZ * 9 // 4}


def test_the_command_counts_what_is_missed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """And names it."""
    one = next(answers(WORDS))
    monkeypatch.setattr(short_answers, "answers", lambda speech: iter([one]))
    assert short_answers.main([str(DATA)]) == 0
    monkeypatch.setattr(short_answers, "is_detected", lambda samples, vad: False)
    assert short_answers.main([str(DATA)]) == 0
    assert capsys.readouterr().out.splitlines() == ["whole: 0 of 1 missed", f"whole: 1 of 1 missed {one.clip}"]
