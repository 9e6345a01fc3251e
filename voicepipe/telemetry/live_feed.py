"""A live feed of closed turns and marks of running turns, to many readers, never waiting."""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

import msgspec

from voicepipe.telemetry.store.port import StoredTurn, redacted_turn, turn_plain

Kind = Literal["turn", "live"]

RESUMABLE_EVENTS: Final = 500
"""Number of events stored for readers that reconnect; mostly closed turns, of about 3 kB each."""

MAX_WAITING: Final = 1_000
"""Maximum of events that wait for one reader."""


@dataclass(slots=True)
class FeedEvent:
    """An event of the feed."""

    id: str
    """The id for a reader that reconnects (`Last-Event-ID`)."""

    number: int
    kind: Kind
    project: str
    session: str
    _make: Callable[[], object] = field(repr=False)
    _make_redacted: Callable[[], object] = field(repr=False)
    _data: bytes | None = field(default=None, repr=False)
    _redacted_data: bytes | None = field(default=None, repr=False)

    @property
    def data(self) -> bytes:
        """Return it as JSON, in one line; made for the first reader, once for all readers."""
        if self._data is None:
            self._data = msgspec.json.encode(self._make())
        return self._data

    @property
    def redacted_data(self) -> bytes:
        """Return the same for the holder of a client secret: without providers' error texts."""
        if self._redacted_data is None:
            self._redacted_data = msgspec.json.encode(self._make_redacted())
        return self._redacted_data

    def set_data(self, data: bytes, redacted_data: bytes) -> None:
        """Set both texts, which another process has made."""
        self._data, self._redacted_data = data, redacted_data


def _not_forwarded(kind: Kind, project: str, session: str, data: bytes, redacted_data: bytes) -> None:
    """Drop an event: there are no other nodes."""


def _no_data() -> object:
    raise AssertionError("the data of a delivered event is set")


EventFilter = Callable[[FeedEvent], bool]


class Reader:
    """The events of one reader, oldest first."""

    def __init__(self, accepts: EventFilter, *, has_gap: bool = False, max_waiting: int = MAX_WAITING) -> None:
        self._accepts, self._max_waiting = accepts, max_waiting
        # Full means that the reader is too slow: the oldest event is dropped and counted, since a live reader shows the
        # newest.
        self._waiting: deque[FeedEvent] = deque()
        self._has_events = asyncio.Event()
        self.lost = 0
        """Events that were dropped."""
        self.has_gap = has_gap
        """Whether the reader reconnected too late: the number of missed events is unknown."""

    def offer(self, event: FeedEvent) -> None:
        """Queue an event, if this reader's filter accepts it; never waits."""
        if not self._accepts(event):
            return
        if len(self._waiting) >= self._max_waiting:
            self._waiting.popleft()
            self.lost += 1
        self._waiting.append(event)
        self._has_events.set()

    async def next(self, within_s: float) -> FeedEvent | None:
        """Return the next event; None when there is none within this time."""
        try:
            async with asyncio.timeout(within_s):
                await self._has_events.wait()
        except TimeoutError:
            return None
        event = self._waiting.popleft()
        if not self._waiting:
            self._has_events.clear()
        return event


Forward = Callable[[Kind, str, str, bytes, bytes], None]
"""Takes an event of this process for the other nodes: kind, project, session, data, redacted data; returns at once."""


class FeedHub(Protocol):
    """Numbers the events of several processes, and has each process deliver all of them, its own too."""

    @property
    def epoch(self) -> str:
        """Return the first part of the events' ids."""
        ...

    @property
    def number(self) -> int:
        """Return the number of the latest event when the process began."""
        ...

    def publish(self, kind: Kind, project: str, session: str, data: bytes, redacted_data: bytes) -> bool:
        """Send an event to all processes; False: it is dropped. Never waits."""
        ...

    def watch(self, watching: bool) -> None:
        """Report whether this process has readers."""
        ...


class Feed:
    """The feed of one event loop. Events only for live readers cost nothing while there are no readers."""

    def __init__(
        self, *, recent: int = RESUMABLE_EVENTS, max_waiting: int = MAX_WAITING, hub: FeedHub | None = None
    ) -> None:
        """`hub` None: this process serves alone."""
        self._hub = hub
        # Numbers begin again with each start of the server.
        self._epoch = secrets.token_hex(4) if hub is None else hub.epoch
        self._number = 0 if hub is None else hub.number
        self._dropped = 0
        self._watched_elsewhere = self._watched_by_nodes = False
        self._node = ""
        self._forward: Forward = _not_forwarded
        self._recent: deque[FeedEvent] = deque(maxlen=recent)  # full: the oldest is dropped
        self._max_waiting = max_waiting
        self._readers: set[Reader] = set()  # bounded: by the slots of live streams
        self.is_watched = False
        """Whether there are readers, in any process: an attribute, since each event of each session reads it."""

    @property
    def n_readers(self) -> int:
        """Return the number of readers."""
        return len(self._readers)

    @property
    def dropped(self) -> int:
        """Return the number of events that readers were too slow for, since the start."""
        return self._dropped + sum(reader.lost for reader in self._readers)

    def on_record(self, turn: StoredTurn) -> None:
        """Send a closed turn, new or renewed; a running turn has its marks sent instead."""
        if turn.record.outcome is not None:
            whose = (turn.project, turn.record.session)
            self._publish("turn", *whose, lambda: turn_plain(turn), lambda: turn_plain(redacted_turn(turn)))

    def publish_live(self, project: str, session: str, make: Callable[[], object]) -> None:
        """Send an event of a running turn, if there are readers; `make` returns it as plain values."""
        if self.is_watched:
            self._publish("live", project, session, make, make)  # marks, verdicts and actions: no provider's words

    def delete_session(self, project: str, session: str) -> None:
        """Delete the stored events of a session."""
        recent = [event for event in self._recent if (event.project, event.session) != (project, session)]
        self._recent = deque(recent, maxlen=self._recent.maxlen)

    @contextmanager
    def reading(self, accepts: EventFilter, *, after: str = "") -> Iterator[Reader]:
        """Read live events while the block runs, and first the events after that of the id `after`."""
        missed, has_gap = self._after(after)
        reader = Reader(accepts, has_gap=has_gap, max_waiting=self._max_waiting)
        for event in missed:
            reader.offer(event)
        self._readers.add(reader)
        self._update_readers()
        try:
            yield reader
        finally:
            self._readers.discard(reader)
            self._update_readers()
            self._dropped += reader.lost

    @property
    def is_watched_here(self) -> bool:
        """Return whether any process of this node has readers."""
        return self._watched_elsewhere or bool(self._readers)

    def watch_elsewhere(self, watched: bool) -> None:
        """Record whether any process has readers."""
        self._watched_elsewhere = watched
        self._update_watched()

    def connect_nodes(self, node: str, forward: Forward) -> None:
        """Name this node in each event, and forward the events while other nodes have readers."""
        self._node, self._forward = node, forward

    def watch_by_nodes(self, watched: bool) -> None:
        """Record whether any node has readers."""
        self._watched_by_nodes = watched
        self._update_watched()

    def receive(self, kind: Kind, project: str, session: str, data: bytes, redacted_data: bytes) -> None:
        """Give the readers of this node an event of another one."""
        if self._hub is not None:
            self._dropped += not self._hub.publish(kind, project, session, data, redacted_data)
        else:
            self.deliver(self._number + 1, kind, project, session, data, redacted_data)

    def deliver(self, number: int, kind: Kind, project: str, session: str, data: bytes, redacted_data: bytes) -> None:
        """Give readers an event that the hub has numbered."""
        self._number = number
        event = FeedEvent(f"{self._epoch}-{number}", number, kind, project, session, _no_data, _no_data)
        event.set_data(data, redacted_data)
        self._give(event)

    def _update_readers(self) -> None:
        self._update_watched()
        if self._hub is not None:
            self._hub.watch(bool(self._readers))

    def _update_watched(self) -> None:
        self.is_watched = self.is_watched_here or self._watched_by_nodes

    def _publish(
        self, kind: Kind, project: str, session: str, make: Callable[[], object], make_redacted: Callable[[], object]
    ) -> None:
        if self._hub is not None or self._node:
            data, redacted_data = self._encoded(make), self._encoded(make_redacted)
            if self._watched_by_nodes:
                self._forward(kind, project, session, data, redacted_data)
            if self._hub is None:
                self.deliver(self._number + 1, kind, project, session, data, redacted_data)
                return
            self._dropped += not self._hub.publish(kind, project, session, data, redacted_data)
            return
        self._number += 1
        self._give(
            FeedEvent(f"{self._epoch}-{self._number}", self._number, kind, project, session, make, make_redacted)
        )

    def _encoded(self, make: Callable[[], object]) -> bytes:
        data = msgspec.json.encode(make())
        return data if not self._node else data[:-1] + b',"node":' + msgspec.json.encode(self._node) + b"}"

    def _give(self, event: FeedEvent) -> None:
        self._recent.append(event)
        for reader in self._readers:
            reader.offer(event)

    def _after(self, id: str) -> tuple[list[FeedEvent], bool]:
        """Return the stored events after an event, and whether some are missing."""
        if not id:
            return [], False
        epoch, _, number = id.partition("-")
        if epoch != self._epoch or not (number.isascii() and number.isdigit() and len(number) < 16):
            return list(self._recent), True
        oldest = self._recent[0].number if self._recent else self._number + 1
        return [event for event in self._recent if event.number > int(number)], int(number) + 1 < oldest
