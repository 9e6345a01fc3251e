"""Where items stand that a client adds while an answer is made: behind the answer, which has not read them."""

from __future__ import annotations

from typing import Any

import pytest

from voicepipe.testing.scenario import Scenario
from voicepipe.turn import notifications as a
from voicepipe.turn.conversation import FunctionCall, FunctionOutput, InputText, Item, Message
from voicepipe.turn.settings import BudgetActionSettings, ReplySettings, ServerTool, Tool


def typed(item_id: str, words: str = "And tomorrow?") -> Message:
    return Message(item_id, "user", (InputText(words),))


def requested(**options: Any) -> Scenario:
    """The client asks, and the LLM's answer is awaited."""
    scenario = Scenario(**options)
    scenario.creates_item(typed("question", "What time is it?"))
    scenario.creates()
    scenario.model_requested()
    return scenario


def order(scenario: Scenario) -> list[str]:
    return [item.id for item in scenario.driver.core.context.conversation.items]


def order_at_client(scenario: Scenario) -> list[str]:
    """Return the order of the items as the client knows it, from the notifications alone."""
    known: list[str] = []
    for notification in scenario.notified(object):
        match notification:
            case a.ItemAdded(item, previous) | a.OutputStarted(_, item, previous):
                known.insert(0 if previous is None else known.index(previous) + 1, item.id)
            case a.ItemDeleted(item_id):
                known.remove(item_id)
    return known


def read_next(scenario: Scenario) -> tuple[Item, ...]:
    """Return what the LLM reads for the answer to the next request."""
    scenario.creates()
    return scenario.started()[-1].items


@pytest.mark.parametrize("begun", [False, True])
def test_a_message_stands_behind_the_answer_that_has_not_read_it(begun: bool) -> None:
    """Whether it comes before the answer's first word or after: the next request ends with it."""
    scenario = requested()
    if begun:
        scenario.begins_to_answer()
    scenario.creates_item(typed("later"))
    if begun:
        scenario.model_done()
        scenario.voice_done()
    else:
        scenario.answers()
    assert order(scenario) == order_at_client(scenario) == ["question", "item_s_0001", "later"]
    assert [item.id for item in read_next(scenario)] == ["question", "item_s_0001", "later"]


def test_several_stay_in_their_order() -> None:
    """Also one that names the one before it; one that is put elsewhere stays there."""
    scenario = requested()
    scenario.creates_item(typed("later_1"))
    scenario.creates_item(typed("later_3"))
    scenario.creates_item(typed("later_2"), after="later_1")
    scenario.creates_item(typed("first"), after="root")
    scenario.answers()
    assert (
        order(scenario)
        == order_at_client(scenario)
        == ["first", "question", "item_s_0001", "later_1", "later_2", "later_3"]
    )


def test_a_call_stands_with_its_message() -> None:
    scenario = requested()
    scenario.creates_item(typed("later_1"))
    scenario.begins_to_answer("One moment.")
    scenario.creates_item(typed("later_2"))
    scenario.call()
    scenario.model_done("tool_calls")
    scenario.voice_done()
    scenario.creates_item(FunctionOutput("result", "call_0", "noon"))
    assert order(scenario) == order_at_client(scenario)
    assert order(scenario) == ["question", "item_s_0001", "item_s_0001_call0", "later_1", "later_2", "result"]
    assert isinstance(scenario.driver.core.context.conversation.items[2], FunctionCall)


def test_a_filler_stands_before_it_too() -> None:
    actions = BudgetActionSettings(filler="One moment.", filler_over_ms=0)
    scenario = requested(budget_actions=actions)
    scenario.has_ready("One moment.")
    scenario.creates_item(typed("later"))
    scenario.passes(3_000)
    scenario.filler_sent()
    scenario.answers()
    assert order(scenario) == order_at_client(scenario) == ["question", "filler_s_0001", "item_s_0001", "later"]


def test_what_the_user_said_meanwhile_is_answered_behind_it() -> None:
    """A reply that began during a silence: the client's message came before the words that it answers."""
    scenario = Scenario(speculate=True)
    scenario.speaks()
    scenario.pauses()
    scenario.transcribes()
    scenario.model_requested()
    scenario.creates_item(typed("later"))
    scenario.stops()
    scenario.answers()
    assert order(scenario) == order_at_client(scenario) == ["later", "item_s_0001", "item_s_0002"]


def test_a_late_result_stands_behind_the_answer_that_has_not_read_it() -> None:
    """It comes before the first word of that answer; the agent tells it next."""
    tool = ServerTool(tool=Tool("look_up", "", "{}"), label="agent")
    scenario = Scenario(reply=ReplySettings(server_tools=(tool,)))
    scenario.utters()
    scenario.model_requested()
    scenario.call()
    scenario.model_done("tool_calls")
    scenario.voice_done()
    scenario.utters("How are you?")
    scenario.tool_ends()
    scenario.answers("Fine.")
    scenario.passes(5_000)
    late = read_next(scenario)[-1]
    assert isinstance(late, FunctionCall)
    assert (late.output, late.call_id) == ("sunny", "call_0_late")
    assert order(scenario) == order_at_client(scenario)


def test_one_that_is_gone_counts_no_more() -> None:
    """Its id may come back elsewhere, and the conversation may be too small for it."""
    scenario = requested()
    scenario.creates_item(typed("later"))
    scenario.deletes_item("later")
    scenario.creates_item(typed("later"), after="question")
    scenario.answers()
    assert order(scenario) == order_at_client(scenario) == ["question", "later", "item_s_0001"]


def test_one_under_the_answers_own_id_is_replaced() -> None:
    scenario = requested()
    scenario.creates_item(typed("item_s_0001"))
    scenario.creates_item(typed("later"))
    scenario.begins_to_answer("One moment.")
    scenario.call()
    scenario.model_done("tool_calls")
    scenario.voice_done()
    assert order(scenario) == order_at_client(scenario) == ["question", "item_s_0001", "item_s_0001_call0", "later"]


def test_a_greeting_that_is_being_made_is_the_first_item_that_the_client_learns_of() -> None:
    """Clients show an item without `previous_item_id` as the last: the greeting's begins before the client's own."""
    scenario = Scenario()
    scenario.is_greeted()
    scenario.creates_item(typed("later_1"))
    scenario.creates_item(typed("later_2"))
    scenario.begins_to_answer("Hello.")
    scenario.model_done()
    scenario.voice_done()
    added = (each for each in scenario.notified(object) if isinstance(each, a.ItemAdded | a.OutputStarted))
    placed = [(each.item.id, each.previous_item_id) for each in added]
    assert placed == [("item_s_0001", None), ("later_1", "item_s_0001"), ("later_2", "later_1")]
    assert order(scenario) == order_at_client(scenario) == ["item_s_0001", "later_1", "later_2"]


def test_a_greeting_that_gives_way_to_a_request_says_nothing_to_the_llm() -> None:
    scenario = Scenario()
    scenario.is_greeted()
    scenario.creates_item(typed("question"))
    scenario.creates()
    assert scenario.ended()[0] == ("cancelled", "client_cancelled")
    assert order(scenario) == order_at_client(scenario)
    read = [item for item in scenario.started()[-1].items if isinstance(item, Message)]
    assert [item.text() for item in read] == ["", "And tomorrow?"]
