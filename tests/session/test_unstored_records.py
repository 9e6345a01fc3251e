"""The records that a process leaves in a session's snapshot, and what the process that goes on makes of them."""

from __future__ import annotations

import msgspec
import pytest

from voicepipe import clock
from voicepipe.protocol.extensions import Resume
from voicepipe.session.pending_replies import takeover_events
from voicepipe.session.snapshot import LEFT, MOVED, SessionSnapshot
from voicepipe.session.snapshot_writer import SnapshotWriter
from voicepipe.session.unstored_records import STORED_MS, UnstoredRecords, ended_records, unstored_records
from voicepipe.testing.scenario import Scenario
from voicepipe.turn import commands as c
from voicepipe.turn import events as e
from voicepipe.turn.conversation import FunctionOutput
from voicepipe.turn.core import Core
from voicepipe.turn.record.values import TurnElsewhere, TurnRecord
from voicepipe.turn.settings import CoreSettings, ReplySettings, TurnSettings
from voicepipe.values import replace

QUESTION, ANSWER = "What time is it?", "It is noon."


class Process:
    """A session of one process, whose text is written."""

    def __init__(self) -> None:
        self.scenario, self.text, self._n_followed = Scenario(), SnapshotWriter(), 0

    def state(self) -> SessionSnapshot:
        """Return the text as another process reads it."""
        driver = self.scenario.driver
        self.text._records.add(tuple(driver.commands[self._n_followed :]))
        self._n_followed = len(driver.commands)
        raw = msgspec.json.encode(self.text.state(driver.core, 0, driver.now_ms))
        return msgspec.json.decode(raw, type=SessionSnapshot)

    @property
    def records(self) -> list[TurnRecord]:
        """Return the latest records of its turns."""
        return list(self.scenario.driver.records.values())


def left(state: SessionSnapshot, **received: object) -> tuple[UnstoredRecords, tuple[e.Event, ...]]:
    """Return the records, and the events with which the other process goes on."""
    request = msgspec.convert({"session_id": "s", "secret": "x", **received}, Resume)
    events = takeover_events(state, request, ReplySettings())
    context = Core("s", TurnSettings(), CoreSettings()).context
    return unstored_records(state, request, events, context, clock.unix_ms()), events


def item_of(state: SessionSnapshot) -> str:
    assert state.reply is not None
    return state.reply.item_id


def test_an_answer_that_played_on_at_its_client_is_recorded_as_played() -> None:
    process = Process()
    process.scenario.utters(QUESTION)
    process.scenario.answers(ANSWER)
    process.scenario.sent(1_000)
    (running,) = process.records
    assert running.outcome is None, "the process records its end when it has been played"
    found, events = left(state := process.state(), received_item_id=item_of(state), received_ms=1_000)
    assert [type(event) for event in events] == [e.ConversationRestored]
    (record,) = found.open
    assert (record.id, record.cause, record.outcome, record.reason) == (running.id, "vad", "completed", MOVED)
    assert (record.user_text, record.agent_text, record.played_text) == (QUESTION, ANSWER, ANSWER)
    assert record.total_ms == running.total_ms is not None
    assert found.closed == ()


def test_marks_are_moved_to_the_clock_of_the_process_that_goes_on() -> None:
    """They count from the session's beginning, which was earlier in the other process."""
    process = Process()
    process.scenario.utters(QUESTION)
    process.scenario.answers(ANSWER)
    state = process.state()
    began_ms = state.began_unix_ms + 60_000
    (record,) = unstored_records(state, None, (), process.scenario.driver.core.context, began_ms).open
    (before,) = process.records
    assert dict(record.marks) == {name: at_ms - 60_000 for name, at_ms in before.marks}


@pytest.mark.parametrize("received_ms", [0, 500])
def test_a_turn_that_goes_on_has_its_record_where_it_does(received_ms: int) -> None:
    process = Process()
    process.scenario.utters(QUESTION)
    process.scenario.answers(ANSWER)
    found, events = left(state := process.state(), received_item_id=item_of(state), received_ms=received_ms)
    (*_, rest) = events
    assert isinstance(rest, e.ReplyRestored)
    assert rest.goes_on is not None
    assert (rest.goes_on.id, rest.goes_on.cause, rest.goes_on.user_text) == (process.records[0].id, "vad", QUESTION)
    assert f"{rest.goes_on.played_text} {rest.words}".strip() == ANSWER
    assert found == UnstoredRecords((), ())


def test_a_turn_whose_answer_was_due_goes_on_too() -> None:
    process = Process()
    process.scenario.utters(QUESTION)
    found, events = left(process.state())
    (*_, request) = events
    assert isinstance(request, e.ReplyRestored)
    assert request.goes_on is not None
    assert (request.goes_on.user_text, request.goes_on.played_text) == (QUESTION, "")
    assert found == UnstoredRecords((), ())


def test_an_answer_whose_client_does_not_come_back_is_interrupted() -> None:
    """Its record has all that its process knew, with its own marks."""
    process = Process()
    process.scenario.utters(QUESTION)
    process.scenario.answers(ANSWER)
    process.scenario.sent(500)
    found = ended_records(process.state())
    (record,), (running,) = found.open, process.records
    assert (record.id, record.outcome, record.reason) == (running.id, "interrupted", LEFT)
    assert (record.user_text, record.agent_text) == (QUESTION, ANSWER)
    assert (record.marks[:3], record.total_ms) == (running.marks[:3], running.total_ms)
    assert record.spoken_ms
    assert found.closed == ()


def test_a_question_whose_client_does_not_come_back_is_abandoned() -> None:
    """No word of an answer was sent."""
    process = Process()
    process.scenario.utters(QUESTION)
    (record,) = ended_records(process.state()).open
    assert (record.outcome, record.reason, record.user_text) == ("abandoned", LEFT, QUESTION)


def test_words_of_the_processes_before_are_its_words_too() -> None:
    """A turn that moves twice has all of its words."""
    elsewhere = TurnElsewhere(id="turn_s_0001", cause="create", user_text=QUESTION, played_text="Well,")
    process = Process()
    process.scenario._post(e.ReplyRestored(ReplySettings(), ANSWER, goes_on=elsewhere))
    process.scenario.answers(ANSWER)
    turn = process.state().turn
    assert turn is not None
    assert (turn.id, turn.cause, turn.user_text, turn.played_text) == ("turn_s_0001", "create", QUESTION, "Well,")


def test_an_answer_that_only_its_client_knows_is_recorded_as_the_client_has_it() -> None:
    """It came as a whole before the store had any word of it."""
    process = Process()
    process.scenario.utters(QUESTION)
    state = process.state()
    received = {"received_item_id": "item_s_0003", "received_text": ANSWER, "received_ms": 900, "received_done": True}
    found, events = left(state, **received)
    assert len(events) == 1
    (record,) = found.open
    (queued,) = state.queued
    assert queued.turn is not None
    assert (record.id, record.outcome, record.user_text) == (queued.turn.id, "completed", QUESTION)
    assert (record.agent_text, record.played_text, record.spoken_ms) == (ANSWER, ANSWER, 900)


def test_a_record_is_left_until_it_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process stores its records some time after the turn: one that dies before that has not stored it."""
    process = Process()
    process.scenario.utters(QUESTION)
    process.scenario.answers(ANSWER)
    process.scenario.passes(2_000)
    (record,) = process.records
    assert record.outcome == "completed"
    found, _ = left(state := process.state())
    assert found.open == ()
    assert [(each.id, each.outcome, each.reason) for each in found.closed] == [(record.id, "completed", "")]
    later_ms = clock.monotonic_ms() + STORED_MS + 1
    monkeypatch.setattr(clock, "monotonic_ms", lambda: later_ms)
    assert process.state().closed_records == ()
    assert len(state.closed_records) == 1


def test_a_turn_that_waits_for_the_clients_function_is_closed() -> None:
    """Its client sends the result to the other process, where that begins a turn."""
    process = Process()
    process.scenario.utters(QUESTION)
    process.scenario.call()
    process.scenario.model_done("tool_calls")
    process.scenario.voice_done()
    process.scenario.passes(1_000)
    found, events = left(process.state())
    assert len(events) == 1
    (record,) = found.open
    assert (record.id, record.outcome) == (process.records[0].id, "completed")
    process.scenario.creates_item(FunctionOutput("", "call_0", "sunny"))
    process.scenario.creates()
    found, events = left(process.state())
    assert isinstance(events[-1], e.ReplyRestored)
    assert found.open == ()


def test_a_record_of_a_newer_version_is_left_out() -> None:
    process = Process()
    process.scenario.utters(QUESTION)
    process.scenario.answers(ANSWER)
    process.scenario.passes(2_000)
    state = process.state()
    newer = msgspec.Raw(bytes(state.closed_records[0]).replace(b'"completed"', b'"teleported"'))
    found, _ = left(replace(state, closed_records=(newer, *state.closed_records)))
    assert len(found.closed) == 1


def test_only_records_with_an_outcome_are_left() -> None:
    process = Process()
    process.scenario.utters(QUESTION)
    process.scenario.answers(ANSWER)
    (running,) = process.records
    process.text._records.add((c.StoreRecord(running), c.StoreRecord(replace(running, id="x", outcome="failed"))))
    assert [msgspec.json.decode(raw)["id"] for raw in process.text._records.latest()] == ["x"]
