"""How the evidence of a pause moves the end of a turn."""

from __future__ import annotations

import pytest

from voicepipe.testing.core_driver import CoreDriver
from voicepipe.turn import events as e
from voicepipe.turn.conversation import Message, OutputText
from voicepipe.turn.settings import TurnSettings
from voicepipe.turn.states import UserState

ADAPTIVE = TurnSettings(silence_ms=720, end_of_turn="adaptive", create_response=False)


def silence_that_ends_it(driver: CoreDriver, began_ms: int) -> int:
    """Let silence grow in steps of 20 ms until the turn is over."""
    for silence_ms in range(200, 4_000, 20):
        driver.at(began_ms + silence_ms, e.SilenceGrew(silence_ms))
        if driver.core.user.state is not UserState.HOLDING:
            return silence_ms
    raise AssertionError("the turn did not end within 4 s")


def spoken(driver: CoreDriver, words: str | None = None, *, at_ms: int = 1_000) -> int:
    """A second of speech and the silence that ended its turn."""
    ended_ms = at_ms + 1_000
    driver.at(at_ms, e.SpeechStarted(at_ms - 60, at_ms - 360))
    driver.at(ended_ms + 80, e.SpeechPaused(ended_ms, ended_ms))
    if words is not None:
        driver.at(ended_ms + 150, e.TranscriptFinished(1, 1, words))
    return silence_that_ends_it(driver, ended_ms)


@pytest.mark.parametrize(
    ("words", "silence_ms"),
    [
        (None, 720),
        ("I live in Rome", 720),
        ("I would like the", 1_300),
        ("I would like to,", 1_000),
        ("That is all.", 900),
        ("That is all that I would like to know.", 500),
    ],
)
def test_a_turn_ends_the_later_the_less_likely_its_end_is(words: str | None, silence_ms: int) -> None:
    """By punctuation, number of words and missing ones; without any of them as is set."""
    assert spoken(CoreDriver(ADAPTIVE), words) == silence_ms


def test_exact_silence_is_used() -> None:
    """Whatever the user sounds like."""
    exact = TurnSettings(silence_ms=500, create_response=False)
    assert spoken(CoreDriver(exact), "I would like the") == 500


def test_a_question_makes_a_short_answer_whole() -> None:
    """ "Yes" alone waits; after "Shall I?" it hardly does."""
    plain, after_question = CoreDriver(ADAPTIVE), CoreDriver(ADAPTIVE)
    after_question.core.context.conversation.add(Message("said", "assistant", (OutputText("Shall I book it?"),)))
    assert spoken(plain, "yes") == 720
    assert spoken(after_question, "yes") == 500


def test_wait_does_not_follow_an_earlier_long_pause() -> None:
    """The same turn again, after 860 ms of silence that the first wait had taken for the end."""
    driver = CoreDriver(ADAPTIVE)
    assert spoken(driver) == 720
    assert spoken(driver, at_ms=2_920) == 720


def test_wait_is_limited() -> None:
    """The deadline lies behind the longest wait, so it ends only pauses that the VAD has left without an event."""
    driver = CoreDriver(ADAPTIVE)
    driver.at(1_000, e.SpeechStarted(940, 640))
    driver.at(2_080, e.SpeechPaused(2_000, 2_000))
    driver.at(2_150, e.TranscriptFinished(1, 1, "and then the"))
    driver.at(3_400)
    assert driver.core.user.state is UserState.HOLDING
    driver.at(6_000)
    assert driver.core.user.state is not UserState.HOLDING


def test_what_was_cleared_says_nothing_of_the_next_turn() -> None:
    """Its text comes late, or its time is up, when the user has said something else and is done."""

    def ends_after(*late: e.Event) -> int:
        driver = CoreDriver(ADAPTIVE)
        driver.at(100, e.SpeechStarted(0, 0))
        driver.at(500, e.TranscriptGrew(1, "I want to go to the"))
        driver.at(700, e.SpeechPaused(600, 600))
        driver.at(710, e.ClearRequested(None))
        driver.at(820, e.SpeechStarted(800, 800))
        driver.at(1_300, e.SpeechPaused(1_200, 1_200))
        driver.at(1_310, e.TranscriptFinished(2, 1, "That is all that I want."), *late)
        return silence_that_ends_it(driver, 1_200)

    assert ends_after(e.TranscriptFinished(1, 1, "I want to go to the")) == ends_after()
    assert ends_after() < ADAPTIVE.silence_ms
