"""How the evidence of a pause moves the end of a turn."""

from __future__ import annotations

import pytest

from voicepipe.testing.playbook import Playbook
from voicepipe.turn import events as e
from voicepipe.turn.conversation import Message, OutputText
from voicepipe.turn.settings import TurnSettings
from voicepipe.turn.states import Caller

ADAPTIVE = TurnSettings(silence_ms=720, end_of_turn="adaptive", create_response=False)


def silence_that_ends_it(book: Playbook, began_ms: int) -> int:
    """Let silence grow in steps of 20 ms until the turn is over."""
    for silence_ms in range(200, 4_000, 20):
        book.at(began_ms + silence_ms, e.SilenceGrew(silence_ms))
        if book.core.caller.state is not Caller.HOLDING:
            return silence_ms
    raise AssertionError("the turn did not end within 4 s")


def spoken(book: Playbook, pitch_st: float | None = None, words: str | None = None, *, at_ms: int = 1_000) -> int:
    """A second of speech and the silence that ended its turn."""
    ended_ms = at_ms + 1_000
    book.at(at_ms, e.SpeechStarted(at_ms - 60, at_ms - 360))
    book.at(ended_ms + 80, e.SpeechPaused(ended_ms, ended_ms, pitch_st))
    if words is not None:
        book.at(ended_ms + 150, e.TranscriptFinished(1, 1, words))
    return silence_that_ends_it(book, ended_ms)


@pytest.mark.parametrize(
    ("pitch_st", "words", "silence_ms"),
    [
        (None, None, 720),
        (-6.0, None, 680),
        (0.0, None, 1_040),
        (None, "I would like the", 1_300),
        (None, "That is all.", 680),
        (-6.0, "That is all.", 640),
    ],
)
def test_a_turn_ends_as_late_as_it_sounds_unfinished(
    pitch_st: float | None, words: str | None, silence_ms: int
) -> None:
    """By the voice's end, by the words, by both."""
    assert spoken(Playbook(ADAPTIVE), pitch_st, words) == silence_ms


def test_an_exact_silence_is_kept() -> None:
    """Whatever the caller sounds like."""
    exact = TurnSettings(silence_ms=500, create_response=False)
    assert spoken(Playbook(exact), 0.0, "I would like the") == 500


def test_a_question_makes_a_short_answer_whole() -> None:
    """ "Yes" alone waits; after "Shall I?" it hardly does."""
    plain, asked = Playbook(ADAPTIVE), Playbook(ADAPTIVE)
    asked.core.floor.conversation.add(Message("said", "assistant", (OutputText("Shall I book it?"),)))
    assert spoken(plain, None, "yes") == 720
    assert spoken(asked, None, "yes") == 580


def test_a_caller_who_went_on_after_a_long_pause_is_waited_for_as_long() -> None:
    """The same turn again, after 860 ms of silence that the first wait had taken for the end."""
    book = Playbook(ADAPTIVE)
    assert spoken(book) == 720
    assert spoken(book, at_ms=2_920) == 860


def test_a_caller_who_never_stops_pausing_is_not_waited_for_for_ever() -> None:
    """The deadline lies behind the longest wait, so it ends only what the ear has left alone."""
    book = Playbook(ADAPTIVE)
    book.at(1_000, e.SpeechStarted(940, 640))
    book.at(2_080, e.SpeechPaused(2_000, 2_000, 0.0))
    book.at(2_150, e.TranscriptFinished(1, 1, "and then the"))
    book.at(3_800)
    assert book.core.caller.state is Caller.HOLDING
    book.at(6_000)
    assert book.core.caller.state is not Caller.HOLDING


def test_what_was_cleared_says_nothing_of_the_next_turn() -> None:
    """Its text comes late, or its time is up, when the caller has said something else and is done."""

    def ends_after(*late: e.Fact) -> int:
        book = Playbook(ADAPTIVE)
        book.at(100, e.SpeechStarted(0, 0))
        book.at(500, e.TranscriptGrew(1, "I want to go to the"))
        book.at(700, e.SpeechPaused(600, 600))
        book.at(710, e.ClearRequested(None))
        book.at(820, e.SpeechStarted(800, 800))
        book.at(1_300, e.SpeechPaused(1_200, 1_200))
        book.at(1_310, e.TranscriptFinished(2, 1, "Yes."), *late)
        return silence_that_ends_it(book, 1_200)

    assert ends_after(e.TranscriptFinished(1, 1, "I want to go to the")) == ends_after()
    assert ends_after() < ADAPTIVE.silence_ms
