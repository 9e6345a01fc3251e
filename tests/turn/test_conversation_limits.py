"""How large a conversation grows: clients are refused more, spoken turns never; what a model reads of a long one."""

from __future__ import annotations

from typing import Any, Literal, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicepipe.errors import ProtocolError
from voicepipe.testing.core_driver import announced
from voicepipe.testing.scenario import Scenario
from voicepipe.turn import events as e
from voicepipe.turn import notifications as a
from voicepipe.turn.conversation import (
    PART_CHARS,
    Conversation,
    FunctionCall,
    FunctionOutput,
    InputImage,
    InputText,
    Item,
    Message,
    Role,
)
from voicepipe.turn.conversation_limits import NEWEST_ITEMS, ConversationLimits, ModelHistory
from voicepipe.turn.truncation import HistoryLimits

SMALL = ConversationLimits(max_items=40, max_chars=10_000, history_items=8, history_chars=1_000)
SMALL_HISTORY = HistoryLimits(n_items=SMALL.history_items, n_chars=SMALL.history_chars)


def says(item_id: str, text: str = "hello", role: Role = "user") -> Message:
    """A message."""
    return Message(item_id, role, (InputText(text),))


def shows(item_id: str, n_chars: int) -> Message:
    """A picture."""
    return Message(item_id, "user", (InputImage("data:", n_chars=n_chars),))


def refusal(got: list[Any]) -> a.Refused:
    """Return the only error that was sent."""
    (refused,) = [what for what in announced(got) if isinstance(what, a.Refused)]
    return refused


def ids(scenario: Scenario) -> list[str]:
    """The conversation's items."""
    return [item.id for item in scenario.driver.core.context.conversation.items]


def read(scenario: Scenario, n: int = -1) -> list[str]:
    """The items that a reply's model read."""
    return [item.id for item in scenario.started()[n].items]


# --- what clients add -----------------------------------------------------------------------------


def test_a_client_fills_the_conversation_with_items() -> None:
    """The next one is refused; room that it makes can be used."""
    scenario = Scenario(conversation=SMALL)
    for n in range(40):
        assert [type(what) for what in announced(scenario.creates_item(says(f"c{n}")))] == [a.ItemAdded]
    refused = refusal(scenario.creates_item(says("more")))
    assert (refused.event_id, refused.code, refused.field) == ("evt", "conversation_full", "item")
    assert "expected at most 40 items in the conversation, got one more" in refused.message
    scenario.driver.at(scenario.driver.now_ms, e.ItemDeleteRequested("evt", "c3"))
    scenario.creates_item(says("more"))
    assert ids(scenario)[-1] == "more"
    assert len(ids(scenario)) == 40


def test_a_client_fills_the_conversation_with_pictures() -> None:
    """The size of pictures counts, and the error states the size that was reached."""
    scenario = Scenario(conversation=SMALL)
    scenario.creates_item(shows("p1", 6_000))
    refused = refusal(scenario.creates_item(shows("p2", 6_000)))
    assert refused.code == "conversation_full"
    assert f"expected at most 10000 characters in all items of the conversation, got {12_000 + 2 * PART_CHARS}" in (
        refused.message
    )
    assert ids(scenario) == ["p1"]


def test_a_message_of_nothing_has_a_size_too() -> None:
    """Twenty thousand empty parts take memory."""
    scenario = Scenario(conversation=SMALL)
    refused = refusal(scenario.creates_item(Message("m", "user", (InputText(""),) * 1_000)))
    assert refused.code == "conversation_full"


def test_the_conversation_counts_what_it_holds() -> None:
    """Added, replaced and deleted."""
    conversation = Conversation([says("x", "12345"), shows("p", 100)])
    assert conversation.n_chars == 105 + 2 * PART_CHARS
    conversation.put(says("x", "1"))
    conversation.put(says("nobody", "1" * 50))
    assert conversation.n_chars == 101 + 2 * PART_CHARS
    conversation.delete("p")
    assert conversation.n_chars == 1 + PART_CHARS


def test_the_input_of_a_response_is_bounded() -> None:
    """A picture that is referred to a thousand times is sent a thousand times."""
    SMALL.refuse_input(None)
    SMALL.refuse_input((shows("p", 5_000),))
    with pytest.raises(ProtocolError, match=r"response\.input: expected at most 10000 characters") as error:
        SMALL.refuse_input((shows("p", 5_000),) * 2)
    assert (error.value.code, error.value.field) == ("conversation_full", "response.input")
    with pytest.raises(ProtocolError, match=r"expected at most 40 items, got 41"):
        SMALL.refuse_input((says("x", ""),) * 41)


def test_out_of_band_responses_read_no_more_than_a_conversation_together() -> None:
    """One always may; the next must fit beside it."""
    scenario = Scenario(conversation=SMALL)
    scenario.creates(in_conversation=False, context=(shows("p", 9_000),))
    refused = refusal(scenario.creates(in_conversation=False, context=(shows("q", 9_000),)))
    assert refused.code == "too_many_active_responses"
    assert "expected at most 10000 characters" in refused.message
    assert announced(scenario.creates(in_conversation=False, context=(says("q"),)))


# --- what spoken turns add ------------------------------------------------------------------------


def test_a_spoken_turn_finds_room_in_a_full_conversation() -> None:
    """The oldest items are deleted, and the client is notified; system messages stay."""
    scenario = Scenario(conversation=SMALL)
    scenario.creates_item(says("rule", "Be brief.", "system"))
    for n in range(39):
        scenario.creates_item(says(f"c{n}"))
    got = scenario.utters() + scenario.answers()
    gone = [what.item_id for what in announced(got) if isinstance(what, a.ItemDeleted)]
    assert gone == ["c0", "c1"]
    assert ids(scenario) == ["rule", *(f"c{n}" for n in range(2, 39)), "item_s_0001", "item_s_0002"]
    assert scenario.ended() == [("completed", "")]


def test_a_conversation_full_of_pictures_makes_room() -> None:
    """As many leave as it takes."""
    scenario = Scenario(conversation=SMALL)
    for n in range(20):
        scenario.creates_item(shows(f"p{n}", 480))
    scenario.creates_item(says("text", "x" * 60))
    scenario.utters("What is it?")
    assert scenario.notified(a.ItemDeleted) == [a.ItemDeleted("p0")]
    scenario.answers("It is " + "long " * 200)
    scenario.passes(5_000)
    scenario.utters("And now?")
    assert scenario.notified(a.ItemDeleted) == [a.ItemDeleted(f"p{n}") for n in range(3)]


def test_nothing_new_leaves() -> None:
    """A conversation of nothing but the newest items is as large as it is."""
    scenario = Scenario(conversation=ConversationLimits(max_items=4))
    for _ in range(NEWEST_ITEMS):
        scenario.utters()
        scenario.answers()
        scenario.passes(5_000)
    assert len(ids(scenario)) == NEWEST_ITEMS + 1
    assert {status for status, _ in scenario.ended()} == {"completed"}


def test_a_call_leaves_with_its_result() -> None:
    """Neither is any use without the other."""
    scenario = Scenario(conversation=SMALL)
    scenario.utters()
    scenario.call()
    scenario.model_done("tool_calls")
    scenario.voice_done()
    scenario.creates_item(FunctionOutput("out", "call_0", "12:00"))
    for n in range(37):
        scenario.creates_item(says(f"c{n}"))
    scenario.creates_item(says("x"))
    scenario.utters()
    assert scenario.notified(a.ItemDeleted) == [a.ItemDeleted("item_s_0001")]
    scenario.answers()
    deleted = [what.item_id for what in scenario.notified(a.ItemDeleted)]
    assert deleted == ["item_s_0001", "item_s_0002_call0", "out"]


def test_the_result_of_a_call_is_never_refused() -> None:
    """This holds once: a second result, or one without a pending call, is as any other item."""
    scenario = Scenario(conversation=SMALL)
    for n in range(38):
        scenario.creates_item(says(f"c{n}"))
    scenario.utters()
    scenario.call()
    scenario.model_done("tool_calls")
    scenario.voice_done()
    assert len(ids(scenario)) == 40
    scenario.creates_item(FunctionOutput("out", "call_0", "12:00"))
    assert ids(scenario)[-1] == "out"
    assert refusal(scenario.creates_item(FunctionOutput("again", "call_0", "12:00"))).code == "conversation_full"
    assert refusal(scenario.creates_item(FunctionOutput("other", "call_9", "12:00"))).code == "conversation_full"
    scenario.creates()
    scenario.answers()
    assert scenario.ended()[-1] == ("completed", "")


def test_an_item_under_our_id_leaves_before_ours_comes() -> None:
    """The client is notified that its own item is deleted."""
    scenario = Scenario()
    scenario.speaks()
    scenario.creates_item(says("item_s_0001"))
    scenario.pauses()
    scenario.transcribes()
    got = announced(scenario.stops())
    assert got.index(a.ItemDeleted("item_s_0001")) < next(
        i for i, what in enumerate(got) if isinstance(what, a.ItemAdded)
    )


# --- what the model reads -------------------------------------------------------------------------


def test_the_oldest_items_leave_the_models_history() -> None:
    """They stay in the conversation. Several leave at a time, so that the history's beginning changes rarely."""
    scenario = Scenario(conversation=SMALL)
    scenario.creates_item(says("rule", "Be brief.", "system"))
    began = []
    for _ in range(12):
        scenario.utters()
        scenario.answers()
        scenario.passes(5_000)
        assert read(scenario)[0] == "rule"
        assert len(read(scenario)) <= 8
        assert read(scenario)[1:] == ids(scenario)[:-1][1 - len(read(scenario)) :]
        began.append(read(scenario)[1])
    assert len(ids(scenario)) == 25
    assert scenario.notified(a.ItemDeleted) == []
    assert len(set(began)) <= 8


def test_a_long_history_is_cut_by_its_text() -> None:
    """Pictures are no text."""
    scenario = Scenario(conversation=SMALL)
    scenario.creates_item(shows("p", 5_000))
    scenario.creates_item(says("old", "x" * 800))
    scenario.creates_item(says("new", "x" * 100))
    scenario.utters("y" * 300)
    assert read(scenario) == ["new", "item_s_0001"]
    assert ids(scenario) == ["p", "old", "new", "item_s_0001"]


def test_the_latest_words_are_read_however_long() -> None:
    """An answer to nothing would be no answer."""
    scenario = Scenario(conversation=SMALL)
    scenario.creates_item(says("old"))
    scenario.utters("y" * 3_000)
    assert read(scenario) == ["item_s_0001"]


def test_a_late_result_of_a_call_that_left_is_not_read() -> None:
    """A vendor refuses a result without its call."""
    history = ModelHistory()
    items: list[Item] = [FunctionCall("call", "c", "look", "{}"), *(says(f"m{n}") for n in range(9))]
    conversation = Conversation(items)
    assert [item.id for item in history.of(conversation, SMALL_HISTORY)] == [f"m{n}" for n in range(3, 9)]
    conversation.add(FunctionOutput("out", "c", "12:00"))
    conversation.add(says("last"))
    assert [item.id for item in history.of(conversation, SMALL_HISTORY)] == [*(f"m{n}" for n in range(3, 9)), "last"]


Kind = Literal["system", "user", "assistant", "call", "output"]
KINDS = st.sampled_from(get_args(Kind))


def made(kinds: list[tuple[Kind, int, int]]) -> list[Item]:
    """Items in that order; results belong to any of a few calls."""
    items: list[Item] = []
    for n, (kind, number, length) in enumerate(kinds):
        text = "x" * length
        if kind == "call" and not any(isinstance(i, FunctionCall) and i.call_id == f"c{number}" for i in items):
            items.append(FunctionCall(f"i{n}", f"c{number}", "look", text))
        elif kind == "output" and any(isinstance(i, FunctionCall) and i.call_id == f"c{number}" for i in items):
            items.append(FunctionOutput(f"i{n}", f"c{number}", text))
        elif kind != "call" and kind != "output":
            items.append(says(f"i{n}", text, kind))
    return items


@given(kinds=st.lists(st.tuples(KINDS, st.integers(0, 3), st.integers(0, 400)), max_size=60))
def test_history_is_whole_and_bounded(kinds: list[tuple[Kind, int, int]]) -> None:
    """Every system message, no call without its results, the newest item, in order; however the conversation grows."""
    history, conversation = ModelHistory(), Conversation()
    for item in made(kinds):
        conversation.add(item)
        retained = history.of(conversation, SMALL_HISTORY)
        everything = conversation.items
        assert list(retained) == [each for each in everything if each in retained]
        systems = [each for each in everything if isinstance(each, Message) and each.role == "system"]
        assert all(each in retained for each in systems)
        others = [each for each in retained if each not in systems]
        called = {each.call_id for each in retained if isinstance(each, FunctionCall)}
        returned = {each.call_id for each in retained if isinstance(each, FunctionOutput)}
        assert returned <= called
        assert called - returned == {
            each.call_id for each in retained if isinstance(each, FunctionCall) and each.call_id not in returned
        }
        units = [each for each in retained if isinstance(each, FunctionCall | FunctionOutput)]
        n_unit = max((sum(each.call_id == call_id for each in units) for call_id in called), default=1)
        assert len(others) <= max(SMALL.history_items - len(systems), n_unit, 1)


def test_nothing_is_summarized_that_the_next_truncation_leaves() -> None:
    """The conversation is near its limit, and the newest items that stay are all of it."""
    limits = HistoryLimits(n_items=10, n_chars=10_000, retained_share=0.95)
    history, items = ModelHistory(), [says(f"i{n}") for n in range(10)]
    assert history.to_summarize(items, limits) is None
    due = history.to_summarize([*items, says("i10")], limits)
    assert due is not None
    assert [item.id for item in due[1]] == ["i0"]
