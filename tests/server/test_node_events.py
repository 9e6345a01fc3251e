"""What a node shows of the others: the events of their turns, and their open sessions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from tests.server.test_presence import Announced, facts
from voicepipe.errors import StoreUnavailable
from voicepipe.server.node_events import AT_ONCE, MAX_UNSENT, NodeFeed
from voicepipe.server.presence import Announcer
from voicepipe.server.sessions.listed_sessions import ListedSessions
from voicepipe.telemetry.live_feed import Feed, FeedEvent, Kind
from voicepipe.testing.waiting import WAIT_S, eventually


class Events:
    """A store that nodes share, in memory."""

    def __init__(self) -> None:
        self.stored: list[bytes] = []
        self.is_requested = self.is_away = False
        self.n_refused = 0

    def _check(self) -> None:
        if self.is_away:
            self.n_refused += 1
            raise StoreUnavailable

    async def send_events(self, events: Sequence[bytes]) -> None:
        self._check()
        self.stored += events

    async def events_after(self, last_id: str, *, limit: int, requested_s: int) -> tuple[str, list[bytes]]:
        self._check()
        self.is_requested = True
        begin = int(last_id) if last_id else len(self.stored)
        found = self.stored[begin : begin + limit]
        return str(begin + len(found)), found

    async def are_events_requested(self) -> bool:
        self._check()
        return self.is_requested


def all_of(event: FeedEvent) -> bool:
    return True


def published(feed: Feed, number: int = 0) -> None:
    feed.publish_live("acme", "s", lambda: {"number": number})


async def test_a_reader_gets_the_events_of_another_node() -> None:
    """Each names its node. Without readers nothing is sent, and what a node has sent does not come back to it."""
    store, feeds = Events(), [Feed(), Feed()]
    one, other = (NodeFeed(feed, store, name) for feed, name in zip(feeds, ("one", "other"), strict=True))
    published(feeds[1])
    await other.send()
    assert not store.stored
    with feeds[0].reading(all_of) as reader:
        await one.read()
        feeds[1].watch_by_nodes(await store.are_events_requested())
        feeds[0].watch_by_nodes(True)
        published(feeds[1], 1)
        published(feeds[0], 2)
        for each in (one, other):
            await each.send()
        assert len(store.stored) == 2
        await one.read()
        found = [await reader.next(0) for _ in range(2)]
        assert await reader.next(0) is None
        assert [json.loads(event.data) for event in found if event] == [
            {"number": 2, "node": "one"},
            {"number": 1, "node": "other"},
        ]
    await one.read()
    assert not feeds[0].is_watched_here


class Hub:
    """The supervisor of several workers: it counts what it gets."""

    epoch, number = "e", 0

    def __init__(self) -> None:
        self.got: list[bytes] = []

    def publish(self, kind: Kind, project: str, session: str, data: bytes, redacted_data: bytes) -> bool:
        self.got.append(data)
        return True

    def watch(self, watching: bool) -> None:
        """Note nothing."""


async def test_the_supervisor_numbers_the_events_of_other_nodes() -> None:
    """All workers deliver them, also those that do not read the store."""
    store, hub = Events(), Hub()
    workers, other = Feed(hub=hub), Feed()
    reading, silent = NodeFeed(workers, store, "one"), NodeFeed(Feed(), store, "one", reads=False)
    sending = NodeFeed(other, store, "other")
    workers.watch_elsewhere(True)
    await silent.read()
    assert not store.is_requested
    await reading.read()
    other.watch_by_nodes(True)
    published(other)
    await sending.send()
    await reading.read()
    assert hub.got == [b'{"number":0,"node":"other"}']
    assert workers.dropped == 0


async def test_many_events_are_read_in_parts_and_foreign_ones_left_out() -> None:
    store, feed, other = Events(), Feed(), Feed()
    reading, sending = NodeFeed(feed, store, "one"), NodeFeed(other, store, "other")
    with feed.reading(all_of) as reader:
        await reading.read()
        other.watch_by_nodes(True)
        store.stored.append(b"of a newer version")
        store.stored.append(msgspec.msgpack.encode(["?node", "turn", "p", "s", b"", b""]).replace(b"?", b"\xff"))
        for number in range(MAX_UNSENT + 1):
            published(other, number)
        await sending.send()
        assert len(store.stored) == 2 + MAX_UNSENT
        await reading.read()
        first = await reader.next(0)
        assert first is not None
        assert json.loads(first.data)["number"] == 1, "the oldest is dropped"
    assert MAX_UNSENT > AT_ONCE


async def test_other_nodes_sessions_are_listed(serve: Any) -> None:
    """Each with its node, to those who may read them; the node is a filter."""
    row = {"id": "sess_b", "project": "acme", "agent": "default", "user": "", "started_at": "2026-01-01T00:00:00Z"}
    there = msgspec.json.decode(facts("b", 1)) | {"open": {"acme": 1}, "newest": [row]}
    async with serve() as server:
        announcer = Announcer(server.context, Announced(facts("", 9), json.dumps(there).encode()), "")
        assert await announcer.sessions_elsewhere("other") == ListedSessions([], "")
        assert (await announcer.open_elsewhere(None), await announcer.open_elsewhere("other")) == (1, 0)
        assert [each["node"] for each in (await announcer.sessions_elsewhere("acme")).rows] == ["b"]


async def test_a_node_is_a_filter_of_open_sessions_alone(serve: Any) -> None:
    async with serve() as server:
        line = await server.http.ws_connect(f"{server.base}/v1/realtime")
        _, all_nodes = await server.get("/v1/sessions?live=true")
        _, of_another = await server.get("/v1/sessions?live=true&node=b")
        status, refused = await server.get("/v1/sessions?node=b")
        await line.close()
    assert [each["node"] for each in all_nodes["data"]] == [""]
    assert of_another["data"] == []
    assert (status, refused["error"]["param"]) == (400, "node")


async def test_a_store_that_is_away_shows_this_node_alone(serve: Any) -> None:
    class Away(Announced):
        async def announced(self) -> list[bytes]:
            raise StoreUnavailable

    async with serve() as server:
        assert await Announcer(server.context, Away(), "a").open_elsewhere(None) == 0


async def test_events_come_by_themselves_and_a_store_that_is_away_costs_only_events() -> None:
    """Each node sends, reads and checks whether any reads; it goes on when the store is back."""
    store, feeds = Events(), [Feed(), Feed()]
    store.is_away = True
    running = [asyncio.create_task(NodeFeed(feed, store, name).run()) for feed, name in zip(feeds, "ab", strict=True)]

    async def reached(condition: Callable[[], bool]) -> None:
        await eventually(lambda: _true_or_none(condition))

    with feeds[0].reading(all_of) as reader:
        await reached(lambda: store.n_refused > 3)
        store.is_away = False
        await reached(lambda: feeds[1].is_watched)
        published(feeds[1], 5)
        event = await reader.next(WAIT_S)
    assert event is not None
    assert json.loads(event.data) == {"number": 5, "node": "b"}
    for task in running:
        task.cancel()
    await asyncio.wait(running)


async def _true_or_none(condition: Callable[[], bool]) -> bool | None:
    return condition() or None
