"""An answer that is cut ends at a sentence, and the user does not wait for that."""

from __future__ import annotations

from voicepipe.providers.local.whole_sentences import WholeSentences


def test_the_first_sentence_passes_as_it_comes() -> None:
    sentences = WholeSentences()
    assert [sentences.push(piece) for piece in ("A dog", " bar", "ks.")] == ["A dog", " bar", "ks."]
    assert not sentences.has_ended_one, "it may go on, as in 3.5"


def test_a_later_sentence_waits_until_it_is_complete() -> None:
    sentences = WholeSentences()
    pieces = ("It barks.", " It", " runs!", " And", " it")
    assert [sentences.push(piece) for piece in pieces] == ["It barks.", "", "", " It runs!", ""]
    assert sentences.has_ended_one
    assert sentences.rest() == " And it"


def test_a_piece_with_several_ends_passes_up_to_the_last() -> None:
    sentences = WholeSentences()
    assert sentences.push("One. Two? Thr") == "One. Two?"
    assert sentences.push('ee." Four') == ' Three."'


def test_a_number_is_no_end() -> None:
    sentences = WholeSentences()
    assert sentences.push("Pi is 3.14 or so, and e is 2.72") == "Pi is 3.14 or so, and e is 2.72"
    assert not sentences.has_ended_one
