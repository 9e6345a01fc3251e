"""What the core makes of a client's word about its loudspeaker, true or not."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voicepipe.testing.scenario import Scenario
from voicepipe.turn.conversation import Message
from voicepipe.turn.record import attribution
from voicepipe.turn.record.values import TurnRecord
from voicepipe.turn.settings import Deadlines
from voicepipe.turn.states import AgentState

TEXT = "One two three four five six seven eight nine ten."
SOUND_MS = 4_000


def answered(deadlines: Deadlines | None = None) -> Scenario:
    """A spoken question, and an answer of four seconds that has left for the client at once."""
    scenario = Scenario(interruption="immediate", deadlines=deadlines)
    scenario.utters()
    scenario.answers(TEXT, SOUND_MS)
    return scenario


def record(scenario: Scenario, turn: int = 1) -> TurnRecord:
    return next(each for each in scenario.driver.records.values() if each.turn == turn)


def marks(scenario: Scenario) -> dict[str, int]:
    return dict(record(scenario).marks)


def last_words(scenario: Scenario) -> str:
    """What the history holds of the agent's latest message."""
    messages = (item for item in scenario.driver.core.context.conversation.items if isinstance(item, Message))
    return [message.text() for message in messages if message.role == "assistant"][-1]


def t0_audio_ms(scenario: Scenario) -> int:
    turn = scenario.driver.core.agent.turn
    assert turn is not None
    assert turn.question.t0_audio_ms is not None
    return turn.question.t0_audio_ms


# --- when it was played ---------------------------------------------------------------------------


def test_turn_latency_uses_the_clients_clock() -> None:
    """From t0 in the user's audio to the audio captured when the first audible sample played."""
    scenario = answered()
    played_at_ms = t0_audio_ms(scenario) + 830
    scenario.reports(
        120, input_ms=played_at_ms + 100, after_ms=400
    )  # 100 ms of it since the first audible sample, at 20
    scenario.passes(10_000)
    turn_record = record(scenario)
    assert (turn_record.total_ms, turn_record.latency_source, turn_record.outcome) == (830, "reported", "completed")
    assert turn_record.unattributed_ms == 0
    assert {span.stage: span.owner for span in turn_record.stages}["playback"] == "client"


def test_without_a_report_it_is_an_estimate() -> None:
    scenario = answered()
    scenario.passes(10_000)
    assert record(scenario).latency_source == "estimated"


def test_a_report_of_silence_says_nothing_yet() -> None:
    """The first audible sample lies 20 ms into the sound."""
    scenario = answered()
    scenario.reports(19, input_ms=50_000)
    scenario.passes(10_000)
    assert record(scenario).latency_source == "estimated"


def test_only_the_first_word_counts() -> None:
    scenario = answered()
    first_ms = t0_audio_ms(scenario) + 850
    scenario.reports(20, input_ms=first_ms, after_ms=300)
    scenario.reports(320, input_ms=first_ms + 900, after_ms=300)  # it stuttered since
    scenario.passes(10_000)
    assert record(scenario).total_ms == 850


def test_unspoken_turn_is_timed_by_the_reports_arrival() -> None:
    scenario = Scenario()
    scenario.creates()
    scenario.answers(TEXT, SOUND_MS)
    scenario.reports(70, after_ms=200)
    played_at_ms = scenario.driver.now_ms - 50
    scenario.passes(10_000)
    assert marks(scenario)[attribution.FIRST_AUDIBLE] == played_at_ms
    assert record(scenario).latency_source == "reported"


def test_push_to_talk_counts_from_the_last_voiced_sample_too() -> None:
    scenario = Scenario()
    scenario.changes(detection="none")
    scenario.commits(last_voiced_ms=1_020, last_voiced_audio_ms=400)
    scenario.transcribes()
    scenario.creates()
    scenario.answers(TEXT, SOUND_MS)
    scenario.reports(20, input_ms=400 + 600, after_ms=500)
    scenario.passes(10_000)
    assert record(scenario).total_ms == 600


@pytest.mark.parametrize(("claimed_ms", "mark"), [(-(10**9), attribution.FIRST_SENT), (10**9, None)])
def test_playback_lies_between_sending_and_report(claimed_ms: int, mark: str | None) -> None:
    scenario = answered()
    scenario.reports(20, input_ms=claimed_ms, after_ms=250)
    reported_ms = scenario.driver.now_ms
    scenario.passes(10_000)
    assert marks(scenario)[attribution.FIRST_AUDIBLE] == (marks(scenario)[mark] if mark else reported_ms)


# --- how long it speaks ---------------------------------------------------------------------------


def test_the_agent_speaks_until_the_client_has_played_it_all() -> None:
    """A client with a long buffer: 1500 ms later than thought."""
    scenario = answered()
    scenario.reports(0, after_ms=1_400)
    scenario.passes(SOUND_MS - 100)
    assert scenario.driver.agent_state() is AgentState.SPEAKING
    scenario.passes(200)
    assert scenario.driver.agent_state() is AgentState.IDLE
    assert scenario.outcomes() == [("completed", "")]


def test_all_played_ends_the_turn_at_once() -> None:
    scenario = answered()
    scenario.reports(SOUND_MS)
    assert scenario.driver.core.agent.state is AgentState.IDLE
    assert scenario.outcomes() == [("completed", "")]


def test_a_report_moves_what_plays_behind_it_too() -> None:
    """Two answers wait in the loudspeaker; the first turns out to be late."""
    scenario = Scenario(interrupt_response=False)
    scenario.creates()
    scenario.answers(TEXT, SOUND_MS)
    scenario.creates()
    scenario.answers(TEXT, SOUND_MS)
    scenario.reports(0, of=0, after_ms=1_000)
    first, second = scenario.driver.core.context.replies.all
    assert first.audio.plays_until_ms == scenario.driver.now_ms + SOUND_MS
    assert second.audio.plays_until_ms == scenario.driver.now_ms + 2 * SOUND_MS


def test_client_that_never_plays_is_timed_out() -> None:
    scenario = answered(deadlines=Deadlines(progress_ms=2_000))
    began_ms = scenario.driver.now_ms
    while scenario.driver.core.agent.state is AgentState.SPEAKING:
        scenario.reports(0, after_ms=250)
    assert scenario.driver.now_ms <= began_ms + SOUND_MS + 2_000 + 250


# --- where it was cut -----------------------------------------------------------------------------


def test_a_cut_is_where_the_client_has_played_to() -> None:
    """Reported a second behind what the clock here says, and interrupted 250 ms later."""
    scenario = answered()
    scenario.reports(500, after_ms=1_500)
    scenario.passes(200)
    scenario.speaks()
    assert scenario.outcomes()[0] == ("interrupted", "turn_detected")
    assert last_words(scenario) == "One two three"  # "three" begins 640 ms into it, "four" 1120 ms


def test_the_last_word_after_the_cut_is_the_exact_one() -> None:
    scenario = answered()
    scenario.reports(500, after_ms=550)
    scenario.speaks()
    scenario.reports(1_150)
    assert last_words(scenario) == "One two three four"
    assert record(scenario).played_text == "One two three four"
    scenario.reports(1_100)
    assert last_words(scenario) == "One two three"


def test_a_truncation_by_the_client_stands() -> None:
    scenario = answered()
    scenario.speaks()
    scenario.truncates(scenario.started()[0].item_id, 1_150)
    scenario.reports(300)
    assert last_words(scenario) == "One two three four"


def test_report_of_an_unknown_item_is_ignored() -> None:
    scenario = answered()
    before = scenario.driver.records
    scenario.speaks()
    commands = scenario.reports(100, of=0)
    other = Scenario()
    other.creates()
    assert other.reports(100) == []  # nothing was sent yet
    assert before.keys() == scenario.driver.records.keys()
    assert scenario.driver.illegal_moves == other.driver.illegal_moves == []
    assert commands  # the first of the two was cut, and is stored anew


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
    scenario = answered(deadlines=deadlines)
    for after_ms, played_ms, input_ms in first:
        scenario.reports(played_ms, input_ms=input_ms, after_ms=after_ms)
    scenario.passes(SOUND_MS + deadlines.progress_ms)
    scenario.utters()
    scenario.answers(TEXT, SOUND_MS)
    for after_ms, played_ms, input_ms in second:
        scenario.reports(played_ms, input_ms=input_ms, of=0, after_ms=after_ms)
    scenario.passes(SOUND_MS + 500)

    liar, other = record(scenario, 1), record(scenario, 2)
    for turn_record in (liar, other):
        marks = dict(turn_record.marks)
        assert marks[attribution.FIRST_SENT] <= marks[attribution.FIRST_AUDIBLE] <= scenario.driver.now_ms
        assert turn_record.spoken_ms == SOUND_MS
        assert turn_record.unattributed_ms == 0
        assert TEXT.startswith(turn_record.played_text)
    assert other.outcome == "completed"
    assert other.latency_source == "estimated"
    assert other.played_text == TEXT
    assert scenario.driver.illegal_moves == []


@settings(max_examples=150, deadline=None)
@given(claims=claims, then=claims)
def test_history_never_holds_more_than_was_reported(
    claims: list[tuple[int, int, int]], then: list[tuple[int, int, int]]
) -> None:
    """Nor a word beyond the position plus the one that was being spoken."""
    scenario = answered()
    for after_ms, played_ms, input_ms in claims:
        scenario.reports(played_ms, input_ms=input_ms, after_ms=after_ms)
    if scenario.driver.core.agent.state is AgentState.IDLE:
        return
    scenario.speaks()
    for after_ms, played_ms, input_ms in then:
        scenario.reports(played_ms, input_ms=input_ms, after_ms=after_ms)
        reached = min(max(0, played_ms), SOUND_MS) * len(TEXT) / SOUND_MS
        held = last_words(scenario)
        assert TEXT.startswith(held)
        assert len(held) <= reached + len(" seven") or (held == TEXT and reached == len(TEXT))
