"""What a client names to the node that goes on after another one has died, and what it sends again."""

from __future__ import annotations

from typing import Any

import pytest

from voicepipe.client import events as e
from voicepipe.client.delivery import ANSWERING, MAX_RECENT, Delivery

ITEM = {"type": "message", "role": "user", "content": []}
CREATE, REQUEST = "conversation.item.create", "response.create"


class Client:
    """A delivery, and what it sends."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.delivery = Delivery(self._send)
        self.n_responses = 0

    async def _send(self, event: dict[str, Any]) -> None:
        self.sent.append(event)

    async def put_question(self, *events: e.ServerEvent) -> str:
        """Ask a question whose item is confirmed, and have these events come; return the name of the request."""
        await self.delivery.add(dict(ITEM))
        await self.delivery.handle(e.ItemAdded(self.sent[-1]["item"]["id"]))
        await self.delivery.request()
        for event in events:
            await self.delivery.handle(event)
        return str(self.sent[-1]["event_id"])

    async def refused(self, request: str) -> None:
        """Have the server refuse a request, since it is at another answer."""
        assert await self.delivery.handle(e.ServerError(ANSWERING, "?", request))

    async def sends_again(self) -> list[str]:
        """Return what is sent again on a resumed connection, once all that was missed has come."""
        self.sent.clear()
        for probe in self.delivery.probe():
            await self.delivery.handle(e.ServerError("x", "no such item", probe["event_id"]))
        return [event["type"] for event in self.sent]

    def recent_events(self) -> list[str]:
        """Return the types of the events that another node gets."""
        return [event["type"] for event in self.delivery.recent_events()]


STARTED = e.ReplyStarted("r", "t")


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        ((), [CREATE, REQUEST]),
        ((STARTED,), [CREATE, REQUEST]),
        ((STARTED, e.ReplyEnded("r", "completed", "")), [CREATE]),
        ((STARTED, e.ItemDone("i", "Yes.")), [CREATE]),
    ],
    ids=["it was sent", "its answer has begun", "it was over", "all of the answer came"],
)
async def test_what_a_node_may_not_know_is_named(last: tuple[e.ServerEvent, ...], expected: list[str]) -> None:
    client = Client()
    await client.put_question(*last)
    assert client.recent_events() == expected


async def test_a_question_behind_an_answer_is_named_in_its_order() -> None:
    """Its request waits at the client, or is on its way."""
    client = Client()
    first = await client.put_question(STARTED)
    second = await client.put_question()
    names = [event["event_id"] for event in client.delivery.recent_events()]
    assert (client.recent_events(), [names[1], names[3]]) == ([CREATE, REQUEST] * 2, [first, second])
    await client.refused(second)
    assert [event["event_id"] for event in client.delivery.recent_events()] == names


async def test_a_request_that_waits_is_not_sent_again_once_another_node_has_it() -> None:
    """That node answers both, so the end of the first answer must not have the second one requested."""
    client = Client()
    await client.put_question(STARTED)
    await client.refused(await client.put_question())
    client.delivery.moved(2)
    assert await client.sends_again() == []
    for event in (e.ReplyEnded("r", "cancelled", ""), e.ReplyStarted("r2", "t"), e.ReplyEnded("r2", "completed", "")):
        await client.delivery.handle(event)
    assert client.sent == []
    assert client.recent_events() == [CREATE, CREATE, REQUEST], "the second one is still to be answered"
    for event in (e.ReplyStarted("r3", "t"), e.ReplyEnded("r3", "completed", "")):
        await client.delivery.handle(event)
    assert client.recent_events() == [CREATE, CREATE]


async def test_a_node_with_fewer_queued_replies_has_answered_the_earlier_requests() -> None:
    client = Client()
    await client.put_question(STARTED)
    second = await client.put_question()
    client.delivery.moved(1)
    requests = [event["event_id"] for event in client.delivery.recent_events() if event["type"] == REQUEST]
    assert requests == [second]


async def test_what_the_same_node_may_have_missed_is_sent_again() -> None:
    client = Client()
    await client.put_question()
    assert await client.sends_again() == [REQUEST]
    await client.delivery.handle(STARTED)
    assert await client.sends_again() == []


async def test_an_answer_to_several_questions_is_requested_once() -> None:
    """Two requests wait for the end of another answer: the later one is for both."""
    client = Client()
    await client.put_question(STARTED)
    await client.refused(await client.put_question())
    last = await client.put_question()
    await client.refused(last)
    client.sent.clear()
    await client.delivery.handle(e.ReplyEnded("r", "completed", ""))
    assert [event["event_id"] for event in client.sent] == [last]


async def test_a_request_is_refused_whose_answer_seemed_to_have_begun() -> None:
    """The answer that began was another one: the request is sent again behind it."""
    client = Client()
    request = await client.put_question(STARTED)
    await client.refused(request)
    client.sent.clear()
    await client.delivery.handle(e.ReplyEnded("r", "completed", ""))
    assert [event["event_id"] for event in client.sent] == [request]


async def test_only_the_latest_events_are_named() -> None:
    client = Client()
    for _ in range(MAX_RECENT + 2):
        await client.put_question(STARTED, e.ReplyEnded("r", "completed", ""))
    assert client.recent_events() == [CREATE] * (MAX_RECENT - 1), "the last request had the place of one more"
