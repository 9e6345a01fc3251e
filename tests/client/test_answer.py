"""From events to an answer: what counts, when it is complete, and what was waited."""

from __future__ import annotations

import numpy as np

from voicepipe.client import Answer
from voicepipe.client import events as e
from voicepipe.client.answer import Gathering

RATE_HZ = 24_000


def pcm(*, silent_ms: int = 0, loud_ms: int = 100) -> bytes:
    return bytes(2 * silent_ms * RATE_HZ // 1_000) + np.full(loud_ms * RATE_HZ // 1_000, 8_000, "<i2").tobytes()


def gathered(*timed: tuple[int, e.ServerEvent], written: bool = False) -> Gathering:
    """The events with the position of the caller's microphone at each."""
    gathering = Gathering(written=written)
    for position_ms, event in timed:
        gathering.take(event, position_ms)
    return gathering


def answer_of(gathering: Gathering) -> Answer:
    answer = gathering.answer()
    assert answer is not None
    return answer


ASKED = (
    (500, e.CallerStarted(450)),
    (2_600, e.CallerStopped(2_000)),
    (2_700, e.CallerUnderstood("What time is it?")),
)
SPOKEN = (
    (2_800, e.ReplyStarted("r1", "turn_1")),
    (2_850, e.ReplyWords("r1", "It is noon.")),
    (2_900, e.ReplySound("r1", pcm(silent_ms=30))),
)
DONE = (2_950, e.ReplyEnded("r1", "completed", ""))


def test_the_answer_holds_both_sides_and_the_wait_between_them() -> None:
    """From the last voiced sample to the first audible one: silence before it is waited for too."""
    gathering = gathered(*ASKED, *SPOKEN, DONE)
    assert gathering.complete
    answer = answer_of(gathering)
    assert (answer.turn_id, answer.status, answer.why, answer.earlier) == ("turn_1", "completed", "", 0)
    assert (answer.caller_text, answer.agent_text) == ("What time is it?", "It is noon.")
    assert (answer.t0_ms, answer.heard_ms, answer.latency_ms, answer.duration_ms) == (2_000, 2_930, 930, 130)


def test_sound_plays_behind_what_plays_already() -> None:
    """A second piece that came early is heard when the first one is over."""
    quiet = (2_900, e.ReplySound("r1", pcm(silent_ms=200, loud_ms=0)))
    loud = (2_910, e.ReplySound("r1", pcm()))
    assert answer_of(gathered(*ASKED, SPOKEN[0], quiet, loud, DONE)).heard_ms == 3_100


def test_samples_cut_in_two_by_the_wire_are_joined() -> None:
    whole = pcm()
    pieces = ((2_900, e.ReplySound("r1", whole[:7])), (2_901, e.ReplySound("r1", whole[7:])))
    answer = answer_of(gathered(*ASKED, SPOKEN[0], *pieces, DONE))
    assert answer.samples.tobytes() == whole


def test_a_written_answer_is_there_with_its_first_text() -> None:
    assert answer_of(gathered(*ASKED, *SPOKEN[:2], DONE, written=True)).latency_ms == 850
    assert answer_of(gathered(*ASKED, *SPOKEN[:2], DONE)).latency_ms is None


def test_nothing_is_complete_before_it_ended() -> None:
    events = (*ASKED, *SPOKEN, DONE)
    for n_events in range(len(events)):
        assert not gathered(*events[:n_events]).complete


def test_a_caller_who_goes_on_gets_another_answer() -> None:
    """The one that was cut stays behind, and what it would still have played is thrown away."""
    again = (
        (3_000, e.CallerStarted(2_950)),
        (3_010, e.ReplyEnded("r1", "cancelled", "turn_detected")),
    )
    gathering = gathered(*ASKED, *SPOKEN[:2], (2_900, e.ReplySound("r1", pcm(loud_ms=5_000))), *again)
    assert not gathering.complete
    rest = (
        (4_500, e.CallerStopped(4_000)),
        (4_600, e.CallerUnderstood("And the date?")),
        (4_700, e.ReplyStarted("r2", "turn_2")),
        (4_800, e.ReplySound("r2", pcm())),
        (4_900, e.ReplyEnded("r2", "completed", "")),
    )
    for position_ms, event in rest:
        gathering.take(event, position_ms)
    assert gathering.complete
    answer = answer_of(gathering)
    assert (answer.turn_id, answer.earlier, answer.latency_ms) == ("turn_2", 1, 800)
    assert answer.caller_text == "What time is it? And the date?"


def test_words_that_were_none_ask_for_no_answer() -> None:
    """A cough after the answer does not keep the caller waiting."""
    gathering = gathered(*ASKED, *SPOKEN, DONE, (5_000, e.CallerStarted(4_900)), (5_600, e.CallerStopped(5_000)))
    assert not gathering.complete
    gathering.take(e.CallerUnderstood(" "), 5_700)
    assert gathering.complete


def test_a_failed_answer_is_one_and_says_why() -> None:
    gathering = gathered(*ASKED, SPOKEN[0], (3_000, e.ReplyEnded("r1", "failed", "fake/mind: broke")))
    assert gathering.complete
    answer = answer_of(gathering)
    assert (answer.status, answer.why, len(answer.samples)) == ("failed", "fake/mind: broke", 0)


def test_whoever_waited_in_vain_is_told_how_far_it_came() -> None:
    assert gathered().how_far() == "the server heard no speech in it"
    assert gathered(ASKED[0]).how_far() == "the server hears the caller speak and no end of it"
    assert gathered(*ASKED).how_far() == "the server heard the caller and did not answer"
    assert gathered(*ASKED[:2], (1, e.CallerUnderstood(""))).how_far() == "the server heard speech and no words"
    assert gathered(*ASKED, *SPOKEN).how_far() == "an answer began and did not end"
    assert "fake/ear" in gathered(*ASKED[:2], (1, e.CallerLost("fake/ear: broke"))).how_far()
    assert gathered((1, e.ServerComplained("code", "Slow down."))).how_far() == "Slow down."
    assert gathered().answer() is None


def test_events_of_answers_that_never_began_change_nothing() -> None:
    stray = ((1, e.ReplySound("x", pcm())), (2, e.ReplyWords("x", "?")), (3, e.ReplyEnded("x", "completed", "")))
    gathering = gathered(*stray)
    assert not gathering.complete
    assert gathering.answer() is None


def test_an_apology_is_no_answer() -> None:
    """Whether it comes behind a failed one, or while the next is awaited."""
    apology = (
        (3_000, e.ReplyStarted("r2", "turn_2", apologises=True)),
        (3_100, e.ReplyWords("r2", "Sorry.")),
        (3_200, e.ReplySound("r2", pcm())),
        (3_300, e.ReplyEnded("r2", "completed", "")),
    )
    failed = gathered(*ASKED, SPOKEN[0], (2_950, e.ReplyEnded("r1", "failed", "llm_failed")), *apology)
    assert failed.complete
    assert answer_of(failed).status == "failed"
    assert not gathered(*apology, *ASKED).complete
