"""Replies that another process had begun or was requested to make: they are made here, one after the other."""

from __future__ import annotations

from voicepipe.testing.scenario import Scenario
from voicepipe.turn import events as e
from voicepipe.turn import notifications as a
from voicepipe.turn.conversation import InputText, Item, Message
from voicepipe.turn.settings import ReplySettings


def typed(item_id: str) -> Message:
    return Message(item_id, "user", (InputText(f"{item_id}?"),))


def restored(*items: Item, requests: tuple[str, ...] = ()) -> Scenario:
    scenario = Scenario()
    scenario._post(e.ConversationRestored(items, (("item", 1_004),), skipped=1_000, requests=requests))
    return scenario


def restore(scenario: Scenario, *later: str, words: str = "", event_id: str | None = None) -> None:
    scenario._post(e.ReplyRestored(ReplySettings(), words, later_items=later, event_id=event_id))


def read(scenario: Scenario) -> list[list[str]]:
    """Return the ids of the items that each request to the LLM has read."""
    return [[item.id for item in started.items] for started in scenario.started()]


def order(scenario: Scenario) -> list[str]:
    return [item.id for item in scenario.driver.core.context.conversation.items]


def refusals(scenario: Scenario) -> list[str]:
    return [each.code for each in scenario.notified(a.Refused)]


def test_each_is_made_once_the_one_before_it_is_complete() -> None:
    """It reads the answer before it, and no question behind its own; its output stands before that question."""
    scenario = restored(typed("q1"), typed("q2"))
    restore(scenario, "q2")
    restore(scenario)
    assert read(scenario) == [["q1"]]
    scenario.answers("One.")
    first = next(item_id for item_id in order(scenario) if item_id not in ("q1", "q2"))
    assert read(scenario)[1:] == [["q1", first, "q2"]]
    scenario.answers("Two.")
    assert order(scenario)[:3] == ["q1", first, "q2"]
    assert len(order(scenario)) == 4


def test_an_id_is_not_given_again_that_the_other_process_may_have_given() -> None:
    """After the latest write, also where it had given none of the kind until then: a record would replace another."""
    scenario = restored(typed("q1"))
    restore(scenario)
    scenario.answers("One.")
    counts = scenario.driver.core.context.counts
    assert (counts["item"], counts["turn"]) == (1_005, 1_001)
    assert order(scenario)[-1].endswith("_1005")


def test_a_question_that_comes_meanwhile_is_not_read() -> None:
    scenario = restored(typed("q1"), typed("q2"))
    restore(scenario, "q2")
    restore(scenario)
    scenario.creates_item(typed("q3"))
    scenario.answers("One.")
    assert "q3" not in read(scenario)[-1]
    scenario.answers("Two.")
    assert order(scenario)[-1] == "q3"


def test_a_client_that_requests_a_reply_meanwhile_is_refused() -> None:
    """Else the same question would be answered twice, or out of order."""
    scenario = restored(typed("q1"), typed("q2"))
    restore(scenario, "q2")
    restore(scenario)
    scenario.creates()
    assert refusals(scenario) == ["conversation_already_has_active_response"]
    assert len(read(scenario)) == 1


def test_the_user_who_speaks_is_answered_instead() -> None:
    scenario = restored(typed("q1"), typed("q2"))
    restore(scenario, "q2")
    restore(scenario)
    scenario.utters("Never mind.")
    scenario.answers("Fine.")
    scenario.passes(2_000)
    assert len(read(scenario)) == 2, "a restored reply is made although the user has spoken"
    assert {"q1", "q2"} <= set(read(scenario)[-1])


def test_restored_replies_are_queued_and_their_requests_are_known() -> None:
    """A process that goes on with this session gives these answers, and not those of the requests that it knows."""
    scenario = restored(typed("q1"), typed("q2"), requests=("r0",))
    restore(scenario, "q2", event_id="r1")
    restore(scenario, event_id="r2")
    core = scenario.driver.core
    assert [tuple(turn.reply.later_items) for turn in core.queued] == [()]
    assert list(core.context.requests) == ["r0", "r1", "r2"]


def test_a_session_that_ends_closes_the_turns_of_restored_replies() -> None:
    scenario = restored(typed("q1"), typed("q2"))
    restore(scenario, "q2")
    restore(scenario)
    scenario._post(e.UserLeft("gone"))
    assert [record.outcome for record in scenario.driver.records.values()] == ["abandoned", "abandoned"]


def test_the_request_of_a_client_is_remembered() -> None:
    scenario = Scenario()
    scenario.creates_item(typed("q1"))
    scenario._post(e.ReplyRequested("r1", ReplySettings()))
    scenario._post(e.ReplyRequested("r2", ReplySettings()))
    assert list(scenario.driver.core.context.requests) == ["r1"], "the second one was refused"


def test_a_question_behind_a_running_answer_is_queued_once_its_words_are_known() -> None:
    """A process that goes on with this session could not answer it before."""
    scenario = Scenario(interrupt_response=False)
    scenario.creates()
    scenario.token("Hello there.")
    scenario.speaks()
    scenario.pauses()
    scenario.stops()
    assert not scenario.driver.core.queued
    scenario.transcribes("Where is it?")
    assert [turn.question.text for turn in scenario.driver.core.queued] == ["Where is it?"]
