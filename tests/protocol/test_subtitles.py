"""Subtitles of any words: a reader shows all of them, in their cue."""

from __future__ import annotations

import pytest

from voicepipe.protocol.audio_rest_transcript import Transcript, TranscriptFormat, TranscriptPiece, whole_answer

TIMES = {"srt": "1\n00:00:00,000 --> 00:00:02,000\n", "vtt": "WEBVTT\n\n00:00:00.000 --> 00:00:02.000\n"}


@pytest.mark.parametrize(
    ("words", "srt", "vtt"),
    [
        ("One.\n\n2\nTwo.", "One.\n2\nTwo.", "One.\n2\nTwo."),
        ("One.\r\n \r\nTwo.\u2028\u2028Three.\n", "One.\nTwo.\nThree.", "One.\nTwo.\nThree."),
        ("So --> there.", "So -> there.", "So -> there."),
        ("A < B & C", "A < B & C", "A &lt; B &amp; C"),
    ],
    ids=["an empty line would end the cue", "of any kind", "an arrow would be a time", "a tag would hide the words"],
)
@pytest.mark.parametrize("form", ["srt", "vtt"])
def test_no_words_are_lost(form: TranscriptFormat, words: str, srt: str, vtt: str) -> None:
    transcript = Transcript(pieces=[TranscriptPiece(0.0, 2.0, words)], duration_s=2.0, language=None)
    _, body = whole_answer(transcript, form, {})
    assert body.decode() == f"{TIMES[form]}{srt if form == 'srt' else vtt}\n"
