"""Pass the events of the live feed between nodes, over the store that they share: a page shows all nodes."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

import msgspec

from voicepipe.cluster.port import NodeEvents
from voicepipe.errors import Overload
from voicepipe.telemetry.live_feed import Feed, Kind

POLL_S: Final = 0.2
"""Interval in which a node reads and sends events: too short for a person to see."""

REQUESTED_S: Final = 10
"""How long a read requests events of the other nodes."""

CHECK_S: Final = 2.0
"""How often a process checks whether events are requested."""

AT_ONCE: Final = 200
"""Maximum of events that are sent or read in one request."""

MAX_UNSENT: Final = 1_000
"""Maximum of events that wait to be sent. Full: the oldest is dropped, since a live reader needs the newest."""


class NodeEvent(msgspec.Struct, frozen=True, array_like=True):
    """An event, as the store has it."""

    node: str
    kind: Kind
    project: str
    session: str
    data: bytes
    redacted_data: bytes


class NodeFeed:
    """The events of one process to the other nodes, and those of other nodes to the readers of this one."""

    def __init__(self, feed: Feed, events: NodeEvents, node: str, *, reads: bool = True) -> None:
        """`reads`: of several workers of a node one reads, for all of them."""
        self._feed, self._events, self._node, self._reads = feed, events, node, reads
        # Full: the oldest is dropped.
        self._unsent: deque[bytes] = deque(maxlen=MAX_UNSENT)
        self._last_id = ""
        feed.connect_nodes(node, self._forward)

    async def run(self) -> None:
        """Send and read until cancelled. While the store is away the events of other nodes are missing."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._check(), name="node-events-check")
            group.create_task(self._exchange(), name="node-events")

    async def _check(self) -> None:
        while True:
            try:
                self._feed.watch_by_nodes(await self._events.are_events_requested())
            except Overload:
                self._feed.watch_by_nodes(False)
            await asyncio.sleep(CHECK_S)

    async def _exchange(self) -> None:
        while True:
            try:
                await self.send()
                await self.read()
            except Overload:
                self._last_id = ""
            await asyncio.sleep(POLL_S)

    async def send(self) -> None:
        """Send the events that wait.

        Raises:
            Overload: the store is away; they are dropped.
        """
        while self._unsent:
            await self._events.send_events([self._unsent.popleft() for _ in range(min(AT_ONCE, len(self._unsent)))])

    async def read(self) -> None:
        """Give the readers of this node the events of the others since the last time.

        Raises:
            Overload: the store is away.
        """
        if not (self._reads and self._feed.is_watched_here):
            self._last_id = ""
            return
        is_more = True
        while is_more:
            self._last_id, found = await self._events.events_after(
                self._last_id, limit=AT_ONCE, requested_s=REQUESTED_S
            )
            is_more = len(found) == AT_ONCE
            for each in found:
                self._receive(each)

    def _receive(self, raw: bytes) -> None:
        try:
            event = _decoder.decode(raw)
        except ValueError:  # a node of another version; also msgspec's errors, and bytes that are no UTF-8
            return
        if event.node != self._node:
            self._feed.receive(event.kind, event.project, event.session, event.data, event.redacted_data)

    def _forward(self, kind: Kind, project: str, session: str, data: bytes, redacted_data: bytes) -> None:
        self._unsent.append(msgspec.msgpack.encode(NodeEvent(self._node, kind, project, session, data, redacted_data)))


_decoder: Final = msgspec.msgpack.Decoder(NodeEvent)
