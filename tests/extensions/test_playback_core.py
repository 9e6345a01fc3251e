"""What the core makes of a client's word about its loudspeaker, true or not."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voicepipe.testing.story import Story
from voicepipe.turn import budget
from voicepipe.turn.conversation import Message
from voicepipe.turn.record import TurnRecord
from voicepipe.turn.settings import Deadlines
from voicepipe.turn.states import Agent

TEXT = "One two three four five six seven eight nine ten."
SOUND_MS = 4_000


def answered(deadlines: Deadlines | None = None) -> Story:
    """A spoken question, and an answer of four seconds that has left for the client at once."""
    story = Story(announce="immediate", deadlines=deadlines)
    story.says()
    story.answers(TEXT, SOUND_MS)
    return story


def record(story: Story, turn: int = 1) -> TurnRecord:
    return next(each for each in story.book.records.values() if each.turn == turn)


def marks(story: Story) -> dict[str, int]:
    return dict(record(story).marks)


def last_words(story: Story) -> str:
    """What the history holds of the agent's latest message."""
    messages = (item for item in story.book.core.floor.conversation.items if isinstance(item, Message))
    return [message.text() for message in messages if message.role == "assistant"][-1]


def t0_audio_ms(story: Story) -> int:
    turn = story.book.core.agent.turn
    assert turn is not None
    assert turn.question.t0_audio_ms is not None
    return turn.question.t0_audio_ms


# --- when it was heard ----------------------------------------------------------------------------


def test_heard_latency_is_counted_on_the_clients_own_clock() -> None:
    """From t0 in the caller's audio to the audio captured when the first audible sample played."""
    story = answered()
    heard_at_ms = t0_audio_ms(story) + 830
    story.reports(120, input_ms=heard_at_ms + 100, after_ms=400)  # 100 ms of it since the first audible sample, at 20
    story.passes(10_000)
    told = record(story)
    assert (told.total_ms, told.heard_by, told.outcome) == (830, "reported", "completed")
    assert told.unattributed_ms == 0
    assert {span.stage: span.owner for span in told.stages}["playback"] == "client"


def test_without_a_report_it_is_an_estimate() -> None:
    story = answered()
    story.passes(10_000)
    assert record(story).heard_by == "estimated"


def test_a_report_of_silence_says_nothing_yet() -> None:
    """The first audible sample lies 20 ms into the sound."""
    story = answered()
    story.reports(19, input_ms=50_000)
    story.passes(10_000)
    assert record(story).heard_by == "estimated"


def test_only_the_first_word_counts() -> None:
    story = answered()
    first_ms = t0_audio_ms(story) + 850
    story.reports(20, input_ms=first_ms, after_ms=300)
    story.reports(320, input_ms=first_ms + 900, after_ms=300)  # it stuttered since
    story.passes(10_000)
    assert record(story).total_ms == 850


def test_a_turn_that_nobody_spoke_is_told_by_the_arrival_of_the_report() -> None:
    story = Story()
    story.creates()
    story.answers(TEXT, SOUND_MS)
    story.reports(70, after_ms=200)
    heard_ms = story.book.now_ms - 50
    story.passes(10_000)
    assert marks(story)[budget.HEARD] == heard_ms
    assert record(story).heard_by == "reported"


def test_push_to_talk_counts_from_the_last_voiced_sample_too() -> None:
    story = Story()
    story.changes(detection="none")
    story.commits(last_voiced_ms=1_020, last_voiced_audio_ms=400)
    story.hears()
    story.creates()
    story.answers(TEXT, SOUND_MS)
    story.reports(20, input_ms=400 + 600, after_ms=500)
    story.passes(10_000)
    assert record(story).total_ms == 600


@pytest.mark.parametrize(("claimed_ms", "mark"), [(-(10**9), budget.FIRST_SENT), (10**9, None)])
def test_nothing_is_heard_before_it_was_sent_or_after_it_was_reported(claimed_ms: int, mark: str | None) -> None:
    story = answered()
    story.reports(20, input_ms=claimed_ms, after_ms=250)
    reported_ms = story.book.now_ms
    story.passes(10_000)
    assert marks(story)[budget.HEARD] == (marks(story)[mark] if mark else reported_ms)


# --- how long it speaks ---------------------------------------------------------------------------


def test_the_agent_speaks_until_the_client_has_played_it_all() -> None:
    """A client with a long buffer: 1500 ms later than thought."""
    story = answered()
    story.reports(0, after_ms=1_400)
    story.passes(SOUND_MS - 100)
    assert story.book.agent_state() is Agent.SPEAKING
    story.passes(200)
    assert story.book.agent_state() is Agent.IDLE
    assert story.outcomes() == [("completed", "")]


def test_all_played_ends_the_turn_at_once() -> None:
    story = answered()
    story.reports(SOUND_MS)
    assert story.book.core.agent.state is Agent.IDLE
    assert story.outcomes() == [("completed", "")]


def test_a_report_moves_what_plays_behind_it_too() -> None:
    """Two answers wait in the loudspeaker; the first turns out to be late."""
    story = Story(interrupt_response=False)
    story.creates()
    story.answers(TEXT, SOUND_MS)
    story.creates()
    story.answers(TEXT, SOUND_MS)
    story.reports(0, of=0, after_ms=1_000)
    first, second = story.book.core.agent._running()
    assert first.audio.plays_until_ms == story.book.now_ms + SOUND_MS
    assert second.audio.plays_until_ms == story.book.now_ms + 2 * SOUND_MS


def test_a_client_that_never_plays_holds_the_floor_no_longer_than_a_deadline() -> None:
    story = answered(deadlines=Deadlines(progress_ms=2_000))
    began_ms = story.book.now_ms
    while story.book.core.agent.state is Agent.SPEAKING:
        story.reports(0, after_ms=250)
    assert story.book.now_ms <= began_ms + SOUND_MS + 2_000 + 250


# --- where it was cut -----------------------------------------------------------------------------


def test_a_cut_is_where_the_client_has_played_to() -> None:
    """Reported a second behind what the clock here says, and interrupted 250 ms later."""
    story = answered()
    story.reports(500, after_ms=1_500)
    story.passes(200)
    story.speaks()
    assert story.outcomes()[0] == ("interrupted", "turn_detected")
    assert last_words(story) == "One two three"  # "three" begins 640 ms into it, "four" 1120 ms


def test_the_last_word_after_the_cut_is_the_exact_one() -> None:
    story = answered()
    story.reports(500, after_ms=550)
    story.speaks()
    story.reports(1_150)
    assert last_words(story) == "One two three four"
    assert record(story).heard_text == "One two three four"
    story.reports(1_100)
    assert last_words(story) == "One two three"


def test_a_truncation_by_the_client_stands() -> None:
    story = answered()
    story.speaks()
    story.truncates(story.started()[0].item_id, 1_150)
    story.reports(300)
    assert last_words(story) == "One two three four"


def test_a_report_of_what_nobody_knows_changes_nothing() -> None:
    story = answered()
    before = story.book.records
    story.speaks()
    orders = story.reports(100, of=0)
    other = Story()
    other.creates()
    assert other.reports(100) == []  # nothing was sent yet
    assert before.keys() == story.book.records.keys()
    assert story.book.core.unlawful == other.book.core.unlawful == []
    assert orders  # the first of the two was cut, and is kept anew


# --- lies -----------------------------------------------------------------------------------------

claims = st.lists(
    st.tuples(st.integers(0, 900), st.integers(-(10**6), 10**6), st.integers(-(10**6), 10**6)), max_size=8
)


@settings(max_examples=150, deadline=None)
@given(first=claims, second=claims)
def test_a_lying_client_harms_only_its_own_record(
    first: list[tuple[int, int, int]], second: list[tuple[int, int, int]]
) -> None:
    """Whatever it says of one turn, the next one begins, is sent, and ends as if it had said nothing."""
    deadlines = Deadlines(progress_ms=3_000)
    story = answered(deadlines=deadlines)
    for after_ms, played_ms, input_ms in first:
        story.reports(played_ms, input_ms=input_ms, after_ms=after_ms)
    story.passes(SOUND_MS + deadlines.progress_ms)
    story.says()
    story.answers(TEXT, SOUND_MS)
    for after_ms, played_ms, input_ms in second:
        story.reports(played_ms, input_ms=input_ms, of=0, after_ms=after_ms)
    story.passes(SOUND_MS + 500)

    liar, other = record(story, 1), record(story, 2)
    for told in (liar, other):
        marks = dict(told.marks)
        assert marks[budget.FIRST_SENT] <= marks[budget.HEARD] <= story.book.now_ms
        assert told.spoken_ms == SOUND_MS
        assert told.unattributed_ms == 0
        assert TEXT.startswith(told.heard_text)
    assert other.outcome == "completed"
    assert other.heard_by == "estimated"
    assert other.heard_text == TEXT
    assert story.book.core.unlawful == []


@settings(max_examples=150, deadline=None)
@given(claims=claims, then=claims)
def test_history_never_holds_more_than_was_reported(
    claims: list[tuple[int, int, int]], then: list[tuple[int, int, int]]
) -> None:
    """Nor a word beyond the position plus the one that was being spoken."""
    story = answered()
    for after_ms, played_ms, input_ms in claims:
        story.reports(played_ms, input_ms=input_ms, after_ms=after_ms)
    if story.book.core.agent.state is Agent.IDLE:
        return
    story.speaks()
    for after_ms, played_ms, input_ms in then:
        story.reports(played_ms, input_ms=input_ms, after_ms=after_ms)
        reached = min(max(0, played_ms), SOUND_MS) * len(TEXT) / SOUND_MS
        held = last_words(story)
        assert TEXT.startswith(held)
        assert len(held) <= reached + len(" seven") or (held == TEXT and reached == len(TEXT))
