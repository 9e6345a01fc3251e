"""Count what waits in this worker among that of all workers: connections, and request bodies in transit.

Each worker holds the limits by itself at once. The supervisor holds them for all workers: it learns of what still waits
after `REPORT_S`, and of each larger body. Most requests and connections end sooner, and cost it nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, Generic, TypeVar

from voicepipe.server.body_limits import BodyLimits, CountedBody
from voicepipe.server.wait_limits import Drop, Group, WaitCaps, WaitingConnection, WaitLimits
from voicepipe.server.workers.link import WorkerLink
from voicepipe.server.workers.messages import GrowBody, WaitKind

REPORT_S: Final = 0.1
"""The supervisor learns of what has waited for this time, and for at most twice as long."""

REPORT_BYTES: Final = 16 << 10
"""Bytes after which a body reports its size at once; smaller changes after `REPORT_S`. So a client that sends single
bytes costs the supervisor little."""

T = TypeVar("T", WaitingConnection, CountedBody)


class _Unreported(Generic[T]):
    """Connections or bodies of which the supervisor has no report yet."""

    def __init__(self, report: Callable[[T], object]) -> None:
        self._report: Callable[[T], object] = report
        self._new: dict[T, None] = {}  # bounded: by connections, which are bounded by descriptors
        self._older: dict[T, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._new) + len(self._older)

    def add(self, item: T) -> None:
        """Report it later, unless it is discarded."""
        if item not in self._older:
            self._new[item] = None
        if self._timer is None:
            self._start()

    def discard(self, item: T) -> bool:
        """Report it no more; False: it is reported already."""
        n_before = len(self)
        self._new.pop(item, None)
        self._older.pop(item, None)
        return len(self) < n_before

    def _start(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(REPORT_S, self._report_older)

    def _report_older(self) -> None:
        self._timer = None
        older, self._older, self._new = self._older, self._new, {}
        if self:
            self._start()
        for item in older:
            self._report(item)


class SharedWaits:
    """Implements `Waits` for a worker. Belongs to its event loop."""

    def __init__(self, link: WorkerLink, what: WaitKind, caps: WaitCaps) -> None:
        self._link, self._what, self._own = link, what, WaitLimits(caps)
        self.unreported: _Unreported[WaitingConnection] = _Unreported(self._report)

    def begin(self, group: Group, drop: Drop) -> WaitingConnection:
        """Count a connection that waits from now on."""
        connection = self._own.begin(group, drop)
        self.unreported.add(connection)
        return connection

    def end(self, connection: WaitingConnection) -> None:
        """Free the slot of a connection."""
        self._own.end(connection)
        if not self.unreported.discard(connection):
            self._link.end_wait(connection.number)

    def _report(self, connection: WaitingConnection) -> None:
        connection.number = self._link.begin_wait(self._what, connection.group, connection.drop)


class SharedBodies:
    """Implements `BodyCounts` likewise."""

    def __init__(self, link: WorkerLink) -> None:
        self._link, self._own = link, BodyLimits()
        self.unreported: _Unreported[CountedBody] = _Unreported(self._report)
        self.grown: _Unreported[CountedBody] = _Unreported(self._report_size)
        """Bodies that have grown by less than `REPORT_BYTES` since their last report."""

    def begin(self, address: str, cut: Callable[[], object]) -> CountedBody:
        """Count a body from now on."""
        body = self._own.begin(address, cut)
        self.unreported.add(body)
        return body

    def grow(self, body: CountedBody, n_bytes: int) -> None:
        """Count this number of its bytes."""
        before = body.n_bytes
        self._own.grow(body, n_bytes)
        if before // REPORT_BYTES != body.n_bytes // REPORT_BYTES:
            if self.unreported.discard(body):
                self._report(body)
            else:
                self.grown.discard(body)
                self._report_size(body)
        elif body.number:
            self.grown.add(body)

    def end(self, body: CountedBody) -> None:
        """Count the body no more."""
        self._own.end(body)
        self.grown.discard(body)
        if not self.unreported.discard(body):
            self._link.end_wait(body.number)

    def _report(self, body: CountedBody) -> None:
        body.number = self._link.begin_wait("body", ("address", body.address), partial(self._own.evict, body))
        self._report_size(body)

    def _report_size(self, body: CountedBody) -> None:
        self._link.send(GrowBody(body.number, body.n_bytes))
