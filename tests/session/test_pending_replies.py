"""Answers that another process had begun or queued: each is given once, and in order."""

from __future__ import annotations

from typing import Any

import pytest

from voicepipe.protocol.extensions import ReceivedItem, Resume
from voicepipe.session.pending_replies import Sent, takeover_events
from voicepipe.session.snapshot import EarlierReply, ItemCodec, OpenReply, OpenTurn, QueuedReply, SessionSnapshot
from voicepipe.turn import events as e
from voicepipe.turn.conversation import ROOT, ClauseSound, FunctionOutput, InputText, Item, Message, OutputAudio
from voicepipe.turn.settings import ReplySettings

WORDS = "One two three."


def typed(number: int) -> Message:
    return Message(f"q{number}", "user", (InputText(f"Question {number}?"),))


def answer(number: int, words: str = WORDS) -> Message:
    return Message(f"a{number}", "assistant", (OutputAudio(words, (ClauseSound(words, 1_200, (0, 400, 800)),)),))


def begun(number: int, *, response: str = "") -> OpenReply:
    return OpenReply(item_id=f"a{number}", response_id=response, is_generated=True, is_synthesized=True)


def turn(number: int) -> OpenTurn:
    return OpenTurn(id=f"t{number}", cause="create", user_text=f"Question {number}?", played_text="")


def state_of(items: list[Item], **more: Any) -> SessionSnapshot:
    return SessionSnapshot(items=ItemCodec().encoded(items), counts={"item": 7}, **more)


def sent(*events: str) -> Sent:
    """Return events by name: `q2` adds an item, `r2` requests the answer to it."""
    found: list[e.ItemCreateRequested | e.ReplyRequested] = []
    for name in events:
        item = typed(int(name[1:]))
        is_item = name.startswith("q")
        found.append(e.ItemCreateRequested(name, item, None) if is_item else e.ReplyRequested(name, ReplySettings()))
    return tuple(found)


def gone_on(
    state: SessionSnapshot, named: Sent = (), **received: Any
) -> tuple[list[str], list[e.ReplyRestored], list[str]]:
    """Return the ids of the conversation in order, the restored replies, and the items that are cut or deleted."""
    request = Resume(session_id="s", secret="x", **received)
    conversation, *rest = takeover_events(state, request, ReplySettings(), named)
    assert isinstance(conversation, e.ConversationRestored)
    ids = [item.id for item in conversation.items]
    for event in rest:
        if isinstance(event, e.ItemCreateRequested):
            ids.insert(0 if event.after == ROOT else ids.index(event.after or "") + 1, event.item.id)
    changed = [each.item_id for each in rest if isinstance(each, e.ItemTruncateRequested | e.ItemDeleteRequested)]
    return ids, [each for each in rest if isinstance(each, e.ReplyRestored)], changed


TWO: list[Item] = [typed(1), answer(1), typed(2)]


def test_the_question_behind_an_answer_is_answered_behind_its_rest() -> None:
    """The first answer plays, and the second one is due: the rest of the first does not read the second question."""
    state = state_of(TWO, reply=begun(1), turn=turn(1), queued=(QueuedReply(turn=turn(2)),))
    _, (rest, second), cut = gone_on(state, received_item_id="a1", received_ms=500)
    assert (rest.words, rest.later_items, cut) == ("three.", ("q2",), ["a1"])
    assert (second.words, second.later_items) == ("", ())
    assert [each.goes_on and each.goes_on.id for each in (rest, second)] == ["t1", "t2"]


def test_an_answer_that_came_as_a_whole_is_not_said_again_before_the_next() -> None:
    state = state_of(TWO, reply=begun(1), turn=turn(1), queued=(QueuedReply(turn=turn(2)),))
    _, replies, cut = gone_on(state, received_item_id="a1", received_ms=60_000)
    assert [each.goes_on and each.goes_on.id for each in replies] == ["t2"]
    assert cut == []


@pytest.mark.parametrize(
    ("item", "ms", "expected", "changed"),
    [
        ("a1", 500, [("three.", ("q2", "a2")), (WORDS, ())], ["a1", "a2"]),
        ("a2", 500, [("three.", ())], ["a2"]),
        ("a2", 60_000, [], []),
    ],
)
def test_two_answers_that_play_go_on_where_the_client_is(
    item: str, ms: int, expected: list[tuple[str, tuple[str, ...]]], changed: list[str]
) -> None:
    earlier = (EarlierReply(reply=begun(1), turn=turn(1)),)
    state = state_of([*TWO, answer(2)], earlier=earlier, reply=begun(2), turn=turn(2))
    _, replies, found = gone_on(state, received_item_id=item, received_ms=ms)
    assert ([(each.words, each.later_items) for each in replies], found) == (expected, changed)


# --- what the client names --------------------------------------------------------------------


def test_a_request_that_the_process_had_accepted_is_not_made_again() -> None:
    state = state_of(TWO, requests=("r1", "r2"), queued=(QueuedReply(turn=turn(2)),))
    ids, replies, _ = gone_on(state, sent("q1", "r1", "q2", "r2"))
    assert ids == ["q1", "a1", "q2"]
    assert len(replies) == 1


def test_a_request_that_it_did_not_know_is_made_with_its_question() -> None:
    """The answer before it goes on first, and does not read the question."""
    state = state_of(TWO[:2], requests=("r1",), reply=begun(1), turn=turn(1))
    ids, (rest, second), _ = gone_on(state, sent("q2", "r2"), received_item_id="a1", received_ms=500)
    assert ids == ["q1", "a1", "q2"]
    assert (rest.words, rest.later_items) == ("three.", ("q2",))
    assert (second.event_id, second.user_text, second.later_items) == ("r2", "Question 2?", ())


def test_each_of_several_questions_is_answered_without_those_behind_it() -> None:
    _, replies, _ = gone_on(state_of([]), sent("q1", "r1", "q2", "r2"))
    assert [(each.event_id, each.user_text, each.later_items) for each in replies] == [
        ("r1", "Question 1?", ("q2",)),
        ("r2", "Question 2?", ()),
    ]


def test_a_question_that_the_process_knew_stays_behind_a_request_that_it_did_not() -> None:
    _, (first, _), _ = gone_on(state_of([typed(1), typed(2)]), sent("q1", "r1", "q2", "r2"))
    assert first.later_items == ("q2",)


def test_an_item_behind_an_answer_that_was_due_is_not_read_by_it() -> None:
    state = state_of([typed(1)], requests=("r1",), queued=(QueuedReply(turn=turn(1)),))
    _, (first, second), _ = gone_on(state, sent("q1", "r1", "q2", "r2"))
    assert (first.later_items, second.later_items) == (("q2",), ())


def test_the_result_of_a_call_that_is_not_there_is_left_out() -> None:
    lost = e.ItemCreateRequested("o1", FunctionOutput("o1", "call_1", "3"), None)
    ids, _, _ = gone_on(state_of([typed(1)]), (lost,))
    assert ids == ["q1"]


def test_the_question_of_an_answer_that_the_store_did_not_know_stands_before_it() -> None:
    """The store was slow: it has neither the question nor the answer that the client hears. The answer goes on, and is
    not given a second time."""
    state = state_of(TWO[:2], requests=("r1",))
    received = {"received_item_id": "item_s_0008", "received_ms": 500, "received_text": "One two"}
    ids, (rest,), cut = gone_on(state, sent("q2", "r2"), **received)
    assert (ids, cut) == (["q1", "a1", "q2", "item_s_0008"], ["item_s_0008"])
    assert "'One two'" in rest.reply.instructions


def test_answers_that_the_store_did_not_know_are_in_the_history_in_their_order() -> None:
    """Both came as a whole since it was written: nothing is queued any more."""
    state = state_of([typed(1)], requests=("r1",), queued=(QueuedReply(turn=turn(1)),))
    whole = (ReceivedItem("item_s_0008", WORDS, 1_200),)
    last: dict[str, Any] = {"received_item_id": "item_s_0009", "received_text": WORDS, "received_done": True}
    ids, replies, _ = gone_on(state, sent("q1", "q2"), received_items=whole, **last)
    assert (ids, replies) == (["q1", "item_s_0008", "q2", "item_s_0009"], [])


def test_the_whole_words_of_an_earlier_answer_are_in_the_history() -> None:
    """The store has half of the first answer, and the client has received some of the second one."""
    half: list[Item] = [typed(1), answer(1, "One two")]
    state = state_of(half, requests=("r1",), reply=begun(1, response="resp_1"), turn=turn(1))
    last: dict[str, Any] = {"received_item_id": "item_s_0008", "received_ms": 500, "received_text": "One two"}
    request = Resume(session_id="s", secret="x", received_items=(ReceivedItem("a1", WORDS, 1_200),), **last)
    conversation, *_ = takeover_events(state, request, ReplySettings(), sent("q2", "r2"))
    assert isinstance(conversation, e.ConversationRestored)
    texts = [(item.id, item.text()) for item in conversation.items if isinstance(item, Message)]
    assert texts == [("q1", "Question 1?"), ("a1", WORDS), ("item_s_0008", "One two")]
