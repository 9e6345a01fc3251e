"""Words go to the utterance in which they were said, and flushes are answered once all before them is known."""

from __future__ import annotations

from typing import TypedDict, Unpack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicepipe.audio.timed_words import TimedWord
from voicepipe.ports.transcriber import Final, Interim
from voicepipe.providers.stt.segment_assembler import Margins, Segment, SegmentAssembler, Word

MARGINS = Margins(lead=500, trailing=200, too_short=500)
"""One sample a millisecond, to be read easily."""


class Marks(TypedDict, total=False):
    final: bool
    speech_ended: bool
    requested: bool
    complete: bool
    language: str | None


def said(text: str, start: int, end: int, **marks: Unpack[Marks]) -> Segment:
    """A segment whose words share it evenly."""
    texts = text.split()
    step = (end - start) // max(1, len(texts))
    words = tuple(Word(start + i * step, start + (i + 1) * step, word) for i, word in enumerate(texts))
    return Segment(start=start, end=end, text=text, words=words, **marks)


@pytest.fixture
def segments() -> SegmentAssembler:
    """The first utterance begins at 1000."""
    segments = SegmentAssembler(MARGINS)
    segments.begin(1, 1_000)
    return segments


def test_text_is_of_all_since_begin(segments: SegmentAssembler) -> None:
    """Finals are joined, the interim text follows them, and nothing is said twice."""
    assert segments.take(said("book", 900, 1_500)) == [Interim(1, "book")]
    assert segments.take(said("Book a", 900, 2_000)) == [Interim(1, "Book a")]
    assert segments.take(said("Book a", 900, 2_000)) == []
    assert segments.take(said("Book a table", 900, 2_500, final=True)) == [Interim(1, "Book a table")]
    assert segments.take(said("for two", 2_500, 3_000)) == [Interim(1, "Book a table for two")]
    assert segments.take(said("for two.", 2_500, 3_100, final=True, speech_ended=True)) == [
        Final(1, 0, "Book a table for two.")
    ]


def test_vendors_end_is_reported_though_its_words_were(segments: SegmentAssembler) -> None:
    """A final that only confirms the interim is news: it is final."""
    segments.take(said("yes", 900, 1_400))
    assert segments.take(said("yes", 900, 1_400, final=True, speech_ended=True)) == [Final(1, 0, "yes")]
    assert segments.take(said("", 1_400, 4_000, final=True, speech_ended=True)) == []


def test_flush_is_answered_by_its_request(segments: SegmentAssembler) -> None:
    assert segments.flush(1, 2_000) is None
    assert segments.take(said("yes", 900, 1_800)) == [Interim(1, "yes")]
    assert segments.waiting
    assert segments.take(said("Yes.", 900, 2_000, final=True, requested=True)) == [Final(1, 1, "Yes.")]
    assert not segments.waiting


def test_flush_is_answered_by_any_final_that_covers_it(segments: SegmentAssembler) -> None:
    """A vendor that leaves the request unanswered still makes final what comes later."""
    segments.flush(1, 2_000)
    assert segments.take(said("Yes.", 900, 1_999, final=True)) == [Interim(1, "Yes.")]
    assert segments.take(said("", 1_999, 4_000, final=True)) == [Final(1, 1, "Yes.")]


def test_flush_after_the_vendors_own_end_is_answered_at_once(segments: SegmentAssembler) -> None:
    """The pause was noticed here a little later than there."""
    segments.take(said("Yes.", 900, 1_800, final=True, speech_ended=True))
    assert segments.flush(1, 2_000) == Final(1, 1, "Yes.")


@pytest.mark.parametrize(
    "after",
    [
        pytest.param(said("and", 1_800, 1_900), id="more-words"),
        pytest.param(said("Yes.", 900, 1_800, final=True), id="final-in-speech"),
    ],
)
def test_flush_is_not_answered_while_words_may_come(segments: SegmentAssembler, after: Segment) -> None:
    segments.take(said("Yes.", 900, 1_800, final=True, speech_ended=True))
    segments.take(after)
    assert segments.flush(1, 2_000) is None


def test_flush_long_after_the_vendors_end_is_requested(segments: SegmentAssembler) -> None:
    """Words may have been said since."""
    segments.take(said("Yes.", 900, 1_800, final=True, speech_ended=True))
    assert segments.flush(1, 2_001) is None


def test_vendors_end_answers_a_flush_that_waits(segments: SegmentAssembler) -> None:
    """The vendor and the VAD noticed the same pause; the vendor's answer to the flush may then bring more text, or
    none.
    """
    segments.flush(1, 2_000)
    assert segments.take(said("Yes.", 900, 1_850, final=True, speech_ended=True)) == [Final(1, 1, "Yes.")]
    assert segments.take(said("", 1_850, 2_000, final=True, requested=True)) == []
    assert segments.take(said("And no.", 1_850, 2_000, final=True, requested=True)) == [Final(1, 0, "Yes. And no.")]


def test_requested_final_that_ends_early_answers_the_oldest(segments: SegmentAssembler) -> None:
    """A vendor may name only the stretch with speech."""
    segments.flush(1, 3_000)
    assert segments.take(said("Yes.", 900, 1_500, final=True, requested=True)) == [Final(1, 1, "Yes.")]


def test_later_flush_takes_over(segments: SegmentAssembler) -> None:
    """The answer to a flush that a later one has replaced answers nothing, and does not answer the later one."""
    segments.flush(1, 2_000)
    segments.flush(2, 3_000)
    assert segments.take(said("Yes.", 900, 1_900, final=True, requested=True)) == [Final(1, 0, "Yes.")]
    assert segments.take(said("Please.", 2_000, 3_000, final=True, requested=True)) == [Final(1, 2, "Yes. Please.")]


def test_late_final_belongs_to_the_older_utterance(segments: SegmentAssembler) -> None:
    """The next utterance began before the vendor was done with the last."""
    segments.flush(1, 2_000)
    segments.begin(2, 2_200)
    assert segments.take(said("no", 2_000, 2_400)) == [Interim(2, "no")]
    assert segments.take(said("Yes.", 900, 2_000, final=True, requested=True)) == [Final(1, 1, "Yes.")]
    assert segments.take(said("No.", 2_000, 2_500, final=True, speech_ended=True)) == [Final(2, 0, "No.")]


def test_segment_across_two_utterances_is_split_by_word(segments: SegmentAssembler) -> None:
    segments.take(said("yes", 1_000, 1_900))
    segments.flush(1, 2_000)
    segments.begin(2, 2_600)
    both = said("Yes. But no!", 1_000, 4_000, final=True, requested=True)
    assert segments.take(both) == [Final(1, 1, "Yes."), Final(2, 0, "But no!")]


def test_first_word_was_said_before_the_voice_was_noticed(segments: SegmentAssembler) -> None:
    """Down to the lead, and never into what was flushed for the utterance before."""
    segments.flush(1, 2_000)
    segments.begin(2, 5_000)
    assert segments.take(said("hum", 3_800, 4_400, final=True)) == [Final(1, 1, "hum")]
    assert segments.take(said("Hello", 4_450, 4_900)) == [Interim(2, "Hello")]


def test_words_before_the_first_begin_are_nobodys() -> None:
    segments = SegmentAssembler(MARGINS)
    assert segments.take(said("radio", 0, 900, final=True, speech_ended=True)) == []
    segments.begin(1, 2_000)
    assert segments.take(said("Hello", 1_600, 2_400)) == [Interim(1, "Hello")]


def test_interim_words_that_moved_are_not_reported_twice(segments: SegmentAssembler) -> None:
    """They were transcribed first as the end of one utterance, then as the beginning of the next."""
    segments.take(said("but", 1_000, 2_100))
    segments.flush(1, 2_000)
    segments.begin(2, 2_100)
    moved = Segment(
        start=1_000, end=3_000, text="But no.", words=(Word(2_050, 2_500, "But"), Word(2_500, 3_000, "no."))
    )
    assert segments.take(moved) == [Interim(2, "But no.")]
    assert segments.give_up() == Final(1, 1, "")


def test_interim_words_stay_while_the_vendor_speaks_of_others(segments: SegmentAssembler) -> None:
    segments.take(said("yes", 1_000, 1_900))
    segments.flush(1, 2_000)
    segments.begin(2, 2_100)
    segments.take(said("no", 2_000, 2_500))
    assert segments.give_up() == Final(1, 1, "yes")


def test_final_may_be_said_again_otherwise(segments: SegmentAssembler) -> None:
    """A vendor that repeats a stretch means it otherwise."""
    segments.take(said("for tea", 1_000, 1_500, final=True))
    segments.take(said("please", 1_500, 1_800, final=True))
    assert segments.take(said("Forty", 1_000, 1_500, final=True)) == [Interim(1, "Forty please")]


def test_nothing_more_is_not_taken_for_nothing_at_all(segments: SegmentAssembler) -> None:
    """ReceivedRequest for the rest when there is none, a vendor may name the stretch that it said already."""
    segments.take(said("for tea", 1_000, 1_500, final=True, speech_ended=True))
    assert segments.flush(1, 1_800) is None
    assert segments.take(said("", 1_000, 1_500, final=True, requested=True)) == [Final(1, 1, "for tea")]


def test_segment_without_words_goes_by_its_end(segments: SegmentAssembler) -> None:
    segments.flush(1, 2_000)
    segments.begin(2, 2_100)
    old = Segment(start=900, end=1_990, text="Yes.", final=True, requested=True)
    assert segments.take(old) == [Final(1, 1, "Yes.")]


def test_language_is_the_vendors(segments: SegmentAssembler) -> None:
    segments.flush(1, 2_000)
    text = segments.take(said("Sí.", 900, 2_000, final=True, requested=True, language="es"))
    assert text == [Final(1, 1, "Sí.", "es")]


def test_timeout_applies_to_too_short_audio(segments: SegmentAssembler) -> None:
    """Little left to make final: the vendor may say nothing. Much left: it must."""
    segments.take(said("Yes.", 900, 1_800, final=True))
    segments.flush(1, 2_300)
    assert segments.too_short
    assert segments.known
    assert segments.give_up() == Final(1, 1, "Yes.")
    assert not segments.waiting
    segments.flush(2, 2_301)
    assert not segments.too_short


def test_answer_to_a_flush_given_up_is_not_the_next_ones(segments: SegmentAssembler) -> None:
    segments.flush(1, 1_200)
    assert not segments.known
    assert segments.give_up() == Final(1, 1, "")
    segments.flush(2, 3_000)
    assert segments.take(said("Well", 900, 1_150, final=True, requested=True)) == [Final(1, 0, "Well")]
    assert segments.take(said("yes.", 1_200, 3_000, final=True, requested=True)) == [Final(1, 2, "Well yes.")]


def test_nothing_pushed_is_known_at_once() -> None:
    segments = SegmentAssembler(MARGINS)
    segments.begin(1, 0)
    assert segments.flush(1, 0) == Final(1, 1, "")
    assert segments.flush(2, 0, must_request=True) is None


def test_flush_before_any_begin_has_nothing() -> None:
    assert SegmentAssembler(MARGINS).flush(1, 100) == Final(0, 1, "")


@given(
    cuts=st.lists(st.integers(10, 400), min_size=1, max_size=12),
    begins=st.lists(st.integers(1, 40), min_size=1, max_size=4, unique=True),
    requested=st.lists(st.booleans(), min_size=12, max_size=12),
)
def test_every_word_is_reported_once(cuts: list[int], begins: list[int], requested: list[bool]) -> None:
    """No word is lost after the first `begin` or reported for two utterances, and every flush is answered.

    This holds however the vendor cuts the call, and wherever utterances begin.
    """
    segments = SegmentAssembler(MARGINS)
    for utterance, at in enumerate(sorted(begins)):
        segments.begin(utterance, at * 100)
        segments.flush(1, at * 100 + 50)
    texts, flushed, at, n = {}, set(), 0, 0
    for cut, is_requested in zip(cuts, requested, strict=False):
        words = " ".join(f"w{n + i}" for i in range(cut // 10))
        n += cut // 10
        for text in segments.take(
            said(words, at, at + cut * 10, final=True, speech_ended=True, requested=is_requested)
        ):
            assert isinstance(text, Final)
            texts[text.utterance] = text.text.split()
            if text.flush:
                flushed.add(text.utterance)
        at += cut * 10
    while segments.waiting:
        flushed.add(segments.give_up().utterance)
    reported = [word for utterance in sorted(texts) for word in texts[utterance]]
    assert reported == [f"w{i}" for i in range(n - len(reported), n)]
    assert flushed == set(range(len(begins)))


# --- vendors that count turns -----------------------------------------------------------------


def test_complete_text_answers_though_it_is_not_final(segments: SegmentAssembler) -> None:
    """A guess at all that was said is an answer; what is said otherwise later revises it."""
    assert segments.flush(1, 2_000) is None
    assert segments.take(said("book a", 900, 1_900, complete=True)) == [Interim(1, "book a")]
    assert segments.take(said("book a table", 900, 2_100, complete=True)) == [Final(1, 1, "book a table")]
    assert not segments.waiting
    assert segments.take(said("Book a cable.", 900, 2_400, final=True, speech_ended=True)) == [
        Final(1, 0, "Book a cable.")
    ]


def test_end_that_is_taken_back(segments: SegmentAssembler) -> None:
    """The whole turn is said again, longer: no word of it stands twice."""
    assert segments.take(said("book a table", 900, 2_000, final=True, speech_ended=True)) == [
        Final(1, 0, "book a table")
    ]
    assert segments.take(said("book a table for", 900, 2_500)) == [Interim(1, "book a table for")]
    assert segments.take(said("book a table for two", 900, 3_000, final=True, speech_ended=True)) == [
        Final(1, 0, "book a table for two")
    ]


def untimed(text: str, start: int, end: int, *, final: bool = False) -> Segment:
    return Segment(start=start, end=end, text=text, final=final, speech_ended=final)


def test_words_without_places(segments: SegmentAssembler) -> None:
    """A vendor's turn goes on into the next utterance: an earlier one keeps as many words as it has."""
    segments.take(untimed("book a table", 0, 2_000))
    assert segments.flush(1, 2_000) is None
    assert segments.give_up() == Final(1, 1, "book a table")
    segments.begin(2, 3_000)
    assert segments.take(untimed("book a table no", 0, 3_200)) == [Interim(2, "no")]
    assert segments.take(untimed("Book a table. No thanks.", 0, 3_500, final=True)) == [
        Final(1, 0, "Book a table."),
        Final(2, 0, "No thanks."),
    ]


def test_position_of_the_request(segments: SegmentAssembler) -> None:
    """The assembler knows the oldest open request, and the oldest whose flush still waits."""
    assert (segments.requested_at, segments.waited_at) == (None, None)
    for flush, at in ((1, 2_000), (2, 3_000)):
        assert segments.flush(flush, at) is None
    assert (segments.requested_at, segments.waited_at) == (2_000, 3_000)


def test_resting(segments: SegmentAssembler) -> None:
    """Not from a beginning until its words are known."""
    assert not segments.resting
    assert segments.flush(1, 2_000) is None
    assert not segments.resting
    segments.take(said("yes", 900, 2_000, final=True, requested=True))
    assert segments.resting
    segments.begin(2, 2_100)
    assert not segments.resting


def test_words_have_their_times_after_begin() -> None:
    """Where they are requested: each utterance has its own, those of the interim text too, and a revision replaces."""
    segments = SegmentAssembler(MARGINS, word_rate_hz=1_000)
    segments.begin(1, 1_000)
    segments.take(said("book a", 900, 1_900, final=True))
    segments.take(said("tablet", 1_900, 2_400))
    segments.flush(1, 2_400)
    segments.begin(2, 2_600)
    (first, _) = segments.take(said("table thanks", 1_900, 3_100, final=True, requested=True))
    assert first == Final(
        1,
        1,
        "book a table",
        words=(TimedWord(-0.1, 0.4, "book"), TimedWord(0.4, 0.9, "a"), TimedWord(0.9, 1.5, "table")),
    )
    assert segments.flush(2, 3_000) == Final(2, 2, "thanks", words=(TimedWord(-0.1, 0.5, "thanks"),))


def test_the_words_so_far_have_times_too() -> None:
    segments = SegmentAssembler(MARGINS, word_rate_hz=1_000)
    segments.begin(1, 1_000)
    segments.take(said("yes", 1_000, 1_500))
    assert segments.flush(1, 1_800) is None
    assert segments.give_up() == Final(1, 1, "yes", words=(TimedWord(0.0, 0.5, "yes"),))
