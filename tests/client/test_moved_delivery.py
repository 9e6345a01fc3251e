"""What a client sends again to the node that goes on after another one has died."""

from __future__ import annotations

from typing import Any

import pytest

from voicepipe.client import events as e
from voicepipe.client.delivery import ANSWERING, MAX_RECENT, Delivery

ITEM = {"type": "message", "role": "user", "content": []}


class Sent(list[dict[str, Any]]):
    """What was sent."""

    async def send(self, event: dict[str, Any]) -> None:
        self.append(event)

    def kinds(self) -> list[str]:
        """Return the types, and forget them."""
        kinds = [event["type"] for event in self]
        self.clear()
        return kinds


async def answered(delivery: Delivery, sent: Sent, *last: e.ServerEvent) -> None:
    """Have a question and its request confirmed, and then these events come."""
    await delivery.add(dict(ITEM))
    await delivery.follow(e.ItemAdded(sent[-1]["item"]["id"]))
    await delivery.request()
    await delivery.follow(e.ReplyStarted("r", "t"))
    for event in last:
        await delivery.follow(event)
    sent.clear()


async def resumed(delivery: Delivery, sent: Sent, *, moved: bool, answer_follows: bool = False) -> None:
    """Have the connection resumed, and all that was missed come."""
    probe = delivery.probe(moved=moved, answer_follows=answer_follows)
    if probe:
        await delivery.follow(e.ServerError("x", "no such item", probe[0]["event_id"]))


CREATE, REQUEST = "conversation.item.create", "response.create"


@pytest.mark.parametrize(
    ("last", "moved", "follows", "expected"),
    [
        ((), True, False, [CREATE, REQUEST]),
        ((), True, True, [CREATE]),
        ((), False, False, []),
        ((e.ReplyEnded("r", "completed", ""),), True, False, [CREATE]),
        ((e.ItemDone("i", "Yes."),), True, False, [CREATE]),
    ],
    ids=["a response that came to nothing", "the node goes on", "the same node", "it was over", "all of it came"],
)
async def test_what_a_node_may_not_know_is_sent_again(
    last: tuple[e.ServerEvent, ...], moved: bool, follows: bool, expected: list[str]
) -> None:
    sent = Sent()
    delivery = Delivery(sent.send)
    await answered(delivery, sent, *last)
    await resumed(delivery, sent, moved=moved, answer_follows=follows)
    assert sent.kinds() == expected


async def test_a_node_that_has_an_item_refuses_it_silently() -> None:
    sent = Sent()
    delivery = Delivery(sent.send)
    await answered(delivery, sent)
    await resumed(delivery, sent, moved=True)
    create, request = sent
    assert await delivery.follow(e.ServerError("item_create_duplicate_item_id", "?", create["event_id"]))
    assert await delivery.follow(e.ServerError(ANSWERING, "?", request["event_id"])), "it answers by itself"
    sent.clear()
    await delivery.follow(e.ReplyEnded("r2", "completed", ""))
    assert sent.kinds() == [], "the answer would be given twice"


async def test_only_the_latest_items_are_sent_again() -> None:
    sent = Sent()
    delivery = Delivery(sent.send)
    for _ in range(MAX_RECENT + 2):
        await answered(delivery, sent, e.ReplyEnded("r", "completed", ""))
    await resumed(delivery, sent, moved=True)
    assert sent.kinds() == [CREATE] * MAX_RECENT
