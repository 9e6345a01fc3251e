"""What a user would have felt under other settings: what answers to what takes as long as it did."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voicepipe.bench.counterfactual.changes import AGENT_OPTIONS, Changes, option_named
from voicepipe.bench.counterfactual.recorded_session import NotReplayable, RecordedSession, read_session
from voicepipe.bench.counterfactual.report import plain, table, what_if
from voicepipe.bench.counterfactual.simulation import simulate
from voicepipe.config.agents import AgentSettings
from voicepipe.telemetry.journal.format import read_journal
from voicepipe.testing.journal_check import JournalCheck
from voicepipe.testing.scenario import Scenario
from voicepipe.testing.transitions import illegal_moves
from voicepipe.turn import events as e
from voicepipe.turn.conversation import FunctionOutput
from voicepipe.turn.record import attribution
from voicepipe.turn.record.marks import FIRST_ROUND
from voicepipe.turn.record.values import TurnRecord
from voicepipe.turn.settings import TurnSettings

NAMES = ("answer", "failure", "interruption", "reported", "revision", "tool")


def data(name: str) -> bytes:
    return (Path(__file__).parents[1] / "data" / "journals" / f"{name}.jsonl").read_bytes()


def session_of(name: str) -> RecordedSession:
    return read_session(read_journal(data(name)))


def waited_ms(record: TurnRecord) -> int:
    """From the last voiced sample to the end of the turn."""
    marks = dict(record.marks)
    return marks[attribution.ENDED] - marks[attribution.VOICED_LAST]


@pytest.mark.parametrize("name", NAMES)
def test_without_a_change_all_is_as_it_was(name: str) -> None:
    """Each turn has the marks that it had, so what a change moves is due to the change."""
    known = session_of(name)
    done = simulate(known)
    assert illegal_moves(done.moves) == []
    assert {turn: record.marks for turn, record in done.records.items()} == {
        turn: record.marks for turn, record in known.records.items()
    }
    assert what_if(known, Changes()).off_by_ms == 0


@pytest.mark.parametrize("silence_ms", [100, 300, 800, 1_500])
def test_the_turn_is_over_after_the_other_silence(silence_ms: int) -> None:
    """This holds beyond the recording's silence, too: its VAD stopped at the end of the turn."""
    changes = Changes({"silence_ms": silence_ms, "end_of_turn": "silence"})
    for record in simulate(session_of("answer"), changes).records.values():
        assert silence_ms <= waited_ms(record) <= silence_ms + 60


def test_playback_reports_are_applied() -> None:
    """It plays as long after the first sound came as it did, whenever that is."""
    known = session_of("reported")
    done = simulate(known, Changes({"silence_ms": 900}))
    for record in done.records.values():
        marks, before = dict(record.marks), dict(known.records[record.id].marks)
        assert record.latency_source == "reported"
        assert (
            marks[attribution.FIRST_AUDIBLE] - marks[attribution.FIRST_SENT]
            == before[attribution.FIRST_AUDIBLE] - before[attribution.FIRST_SENT]
        )
        assert marks[attribution.FIRST_AUDIBLE] > before[attribution.FIRST_AUDIBLE] + 200


def test_there_and_back() -> None:
    """With other settings and then the first ones again, each turn is audible when it was."""
    known = session_of("answer")
    sessions = JournalCheck()
    with sessions.watching():
        simulate(known, Changes({"speculate": False}))
    (other,) = [read_session(journal) for journal in sessions.journals()]
    slower = {record.turn: record.total_ms or 0 for record in other.records.values()}
    back = simulate(other, Changes({"speculate": True})).records.values()
    for record in back:
        was_ms = known.records[record.id].total_ms
        assert was_ms is not None
        assert abs((record.total_ms or 0) - was_ms) <= 25
        assert slower[record.turn] > was_ms + 100


def test_premature_end_of_turn_is_reported() -> None:
    """The user goes on, and what they had said so far would have been answered."""
    known, sessions = session_of("answer"), JournalCheck()
    with sessions.watching():
        simulate(known, Changes({"silence_ms": 6_000, "end_of_turn": "silence"}))
    (patient,) = [read_session(journal) for journal in sessions.journals()]
    answer = what_if(patient, Changes({"silence_ms": 300}))
    hasty, last = answer.rows
    assert (hasty.was, last.was is not None) == (None, True)
    assert "taken for the end of turn: the user goes on after" in hasty.why
    assert hasty.would_be is not None
    assert hasty.would_be.user_text == "what time is it"
    assert "cut off, before the user went on" in "\n".join(table(answer))


def test_merged_turns_are_reported() -> None:
    """With a silence longer than the pause between them."""
    known = session_of("answer")
    answer = what_if(known, Changes({"silence_ms": 6_000, "end_of_turn": "silence"}))
    assert answer.rows[0].would_be is None
    assert "goes on before this one is over" in answer.rows[0].why
    assert answer.rows[1].would_be is not None
    assert answer.rows[1].would_be.user_text == "what time is it what time is it"


def test_what_the_client_does_with_a_call_comes_after_the_call() -> None:
    """The client's action comes later if the call does: the client can't answer before it has the call."""
    known = session_of("tool")
    slow = simulate(known, Changes({"silence_ms": 1_500, "end_of_turn": "silence"})).records
    marks_ms = [
        dict(record.marks)[FIRST_ROUND.returned] for record in (*known.records.values(), *slow.values()) if record.tools
    ]
    assert marks_ms[1] > marks_ms[0] + 500


def test_a_filler_would_have_been_said() -> None:
    """Where the answer was late, and no sooner than its setting allows."""
    changes = Changes({"filler": "One moment.", "speculate": False, "silence_ms": 1_200})
    done = simulate(session_of("revision"), changes)
    assert any("filler" in record.actions for record in done.records.values())


def test_table_lists_all_turns_and_caveats() -> None:
    """For people, and the same for programs."""
    answer = what_if(session_of("answer"), Changes({"silence_ms": 300}))
    lines = list(table(answer))
    assert [line.split()[0] for line in lines[1:3]] == ["1", "2"]
    assert all(row.difference_ms is not None and row.difference_ms < -50 for row in answer.rows)
    assert "who is answered sooner may speak otherwise" in "\n".join(lines)
    assert [turn["change_ms"] for turn in plain(answer)["turns"]] == [row.difference_ms for row in answer.rows]


def test_an_answer_that_would_come_after_the_recorded_goodbye_is_explained() -> None:
    """The turn is abandoned, and the table says why: the user hung up as in the recording."""
    late = what_if(session_of("answer"), Changes({"silence_ms": 4_000, "end_of_turn": "silence"}))
    text = "\n".join(table(late))
    assert "abandoned instead of completed" in text
    assert "hung up at the time of the recording" in text
    assert "hung up" not in "\n".join(table(what_if(session_of("answer"), Changes())))


def test_a_journal_without_words_foretells_the_same() -> None:
    """The waiting times do not depend on the words."""
    known = session_of("interruption")
    sessions = JournalCheck()
    with sessions.watching():
        simulate(known)
    changes = Changes({"silence_ms": 300})
    with_words, without = (
        [row.difference_ms for row in what_if(read_session(next(sessions.journals(texts))), changes).rows]
        for texts in ("plain", "pseudonymized")
    )
    assert with_words == without


def recorded(name: str, changes: Changes) -> RecordedSession:
    """The session `name` as it is recorded where these are the settings."""
    known, sessions = session_of(name), JournalCheck()
    with sessions.watching():
        simulate(known, changes)
    return read_session(next(sessions.journals()))


def called(silence_ms: int) -> RecordedSession:
    """A session whose LLM calls a function before the turn is over; its client returns the result 300 ms later."""
    sessions = JournalCheck()
    with sessions.watching():
        scenario = Scenario(speculate=True, silence_ms=silence_ms)
        scenario.speaks()
        scenario.pauses()
        begun_ms = scenario.driver.now_ms - 80

        def silent(until_ms: int) -> None:
            while scenario.driver.now_ms < begun_ms + until_ms:
                scenario.driver.at(scenario.driver.now_ms + 20, e.SilenceGrew(scenario.driver.now_ms + 20 - begun_ms))

        silent(260)
        scenario.transcribes()
        silent(360)
        scenario.model_requested()
        silent(500)
        scenario.call()
        key = (scenario.started()[-1].turn, scenario.started()[-1].revision)
        for event in (e.ModelFinished(*key, "tool_calls"), e.SynthesisFinished(*key)):
            scenario.driver.at(scenario.driver.now_ms, event)
        silent(silence_ms)
        scenario.passes(300)
        scenario.creates_item(FunctionOutput("", "call_0", "sunny"))
        scenario.creates()
        scenario.answers()
        scenario.passes(5_000)
        scenario.leaves()
    return read_session(next(sessions.journals()))


AGREED_MS = 30
LIMIT_MS = 500
SILENCES_MS = (600, 900, 1_500, 2_500)


def agreed(known: RecordedSession) -> int:
    """Compare each record's word on its silence with a replay's; return how many could be compared."""
    n_compared = 0
    for row in what_if(known, Changes({"silence_ms": LIMIT_MS})).rows:
        was, would_be = row.was, row.would_be
        if was is None or would_be is None or row.difference_ms is None:
            continue
        if (was.outcome, was.latency_source) != (would_be.outcome, would_be.latency_source):
            continue  # one of them was cut off, and so was its playback
        silence = next(span for span in was.stages if span.stage == attribution.SILENCE)
        excess_ms = max(0, silence.critical_ms - LIMIT_MS)
        saves_ms = attribution.saved_ms(dict(was.marks), attribution.SILENCE, excess_ms, audible=True)
        assert abs(saves_ms + row.difference_ms) <= AGREED_MS
        if was.breach is not None and was.breach.stage == attribution.SILENCE:
            assert was.breach.saves_ms == saves_ms
        n_compared += 1
    return n_compared


@pytest.mark.parametrize("speculate", [True, False])
@pytest.mark.parametrize("name", ["answer", "reported", "revision"])
def test_what_a_record_says_of_its_silence_is_what_a_replay_says(name: str, speculate: bool) -> None:
    """How much sooner the answer would have been heard, had the silence kept its limit."""
    settings = ({"silence_ms": ms, "end_of_turn": "silence", "speculate": speculate} for ms in SILENCES_MS)
    assert sum(agreed(recorded(name, Changes(each))) for each in settings) >= 3


@pytest.mark.parametrize("silence_ms", SILENCES_MS)
def test_so_it_is_where_a_function_call_was_held_back(silence_ms: int) -> None:
    """A shorter silence makes no call come sooner that the LLM had not written by then."""
    assert agreed(called(silence_ms)) == 1


changed_settings = st.fixed_dictionaries(
    {},
    optional={
        "silence_ms": st.integers(20, 5_000),
        "end_of_turn": st.sampled_from(("soft", "adaptive", "silence")),
        "interruption": st.sampled_from(("confirmed", "immediate")),
        "speculate": st.booleans(),
        "speculate_max_starts": st.integers(0, 5),
        "filler": st.sampled_from(("", "One moment.")),
        "apology": st.sampled_from(("", "Sorry.", None)),
        "deadlines.first_output_ms": st.integers(50, 3_000),
        "deadlines.transcript_ms": st.integers(50, 3_000),
        "budget.total_ms": st.integers(100, 2_000),
    },
)


@pytest.mark.slow
@settings(max_examples=40)
@given(st.sampled_from(NAMES), changed_settings)
def test_any_settings_can_be_tried(name: str, values: dict[str, object]) -> None:
    """The core's law holds in every world, and each recorded turn has its row."""
    known, changes = session_of(name), Changes(values)
    assert illegal_moves(simulate(known, changes).moves) == []
    answer = what_if(known, changes)
    assert {row.was.turn for row in answer.rows if row.was is not None} == {r.turn for r in known.records.values()}


def test_an_incomplete_journal_says_so() -> None:
    """What there is of it is enacted all the same."""
    known = read_session(read_journal(data("answer")[:-3_000]))
    answer = what_if(known, Changes({"silence_ms": 300}))
    assert answer.rows[0].difference_ms is not None
    assert "incomplete (its last line was cut off)" in "\n".join(table(answer))


def test_journal_that_differs_is_refused() -> None:
    other = data("answer").replace(b'"is":"OpenGate","turn":1', b'"is":"OpenGate","turn":7')
    with pytest.raises(NotReplayable, match="event"):
        read_session(read_journal(other))


def test_settings_are_known_by_their_documented_names() -> None:
    """And by what clients and people call them."""
    assert option_named("agents.sales.silence_ms") == option_named("endpoint.min_silence_ms") == "silence_ms"
    assert option_named("turn_detection.silence_duration_ms") == "silence_ms"
    assert option_named("budget.total_ms") == "budget.total_ms"
    assert option_named("agents.sales.llm") is option_named("budget.nothing") is option_named("server.port") is None
    assert set(AGENT_OPTIONS) <= set(AgentSettings.__dataclass_fields__)


def test_an_adaptive_silence_is_the_shortest_one() -> None:
    """As in the settings: the wait when nothing is known is longer by what the server adds."""
    settings = TurnSettings(silence_ms=720, end_of_turn="adaptive")
    assert Changes({"silence_ms": 300}).of_turns(settings).silence_ms == 432
    assert Changes({"end_of_turn": "silence"}).of_turns(settings) == TurnSettings(silence_ms=500)
    assert Changes({}).of_turns(settings) == settings
