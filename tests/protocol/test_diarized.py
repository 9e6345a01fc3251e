"""The division of a transcript among its speakers."""

from __future__ import annotations

import pytest

from voicepipe.audio.timed_words import TimedWord
from voicepipe.protocol.audio_rest_diarized import Speakers, label


def words(text: str, speakers: str) -> list[TimedWord]:
    """One word a second; a space names nobody."""
    named = [speaker if speaker != " " else None for speaker in speakers]
    return [TimedWord(n, n + 0.5, word, named[n]) for n, word in enumerate(text.split())]


def test_speakers_are_labelled_by_their_first_words() -> None:
    speakers = Speakers()
    first = list(speakers.segments(words("one two three", "775")))
    second = list(speakers.segments(words("four five", "57")))
    assert [(segment.speaker, segment.text, segment.start_s, segment.end_s) for segment in first] == [
        ("A", "one two", 0, 1.5),
        ("B", "three", 2, 2.5),
    ]
    assert [(segment.id, segment.speaker) for segment in second] == [("seg_003", "B"), ("seg_004", "A")]


def test_a_word_without_a_speaker_has_that_of_its_neighbour() -> None:
    assert [segment.text for segment in Speakers().segments(words("a b c d e", " 1 2 "))] == ["a b c", "d e"]
    (segment,) = Speakers().segments(words("a b", "  "))
    assert (segment.speaker, segment.text) == ("A", "a b")
    assert list(Speakers().segments([])) == []


@pytest.mark.parametrize(("n", "expected"), [(0, "A"), (25, "Z"), (26, "AA"), (51, "AZ"), (52, "BA")])
def test_labels(n: int, expected: str) -> None:
    assert label(n) == expected


def test_a_word_before_the_beginning_begins_there() -> None:
    assert TimedWord(-0.2, 0.3, "a").later(0) == TimedWord(0.0, 0.3, "a")
    assert TimedWord(-0.2, 0.3, "a", "1").later(2) == TimedWord(1.8, 2.3, "a", "1")
