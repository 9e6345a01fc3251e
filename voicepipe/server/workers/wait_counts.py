"""Count what waits in all workers against the limits of the server: connections, and request bodies in transit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from voicepipe.server.body_limits import BodyLimits, CountedBody
from voicepipe.server.wait_limits import WaitCaps, WaitingConnection, WaitLimits
from voicepipe.server.workers.messages import BeginWait, DropWait, WaitKind

SendDrop = Callable[[DropWait], object]
"""Send a worker a message."""


@dataclass(slots=True, eq=False)
class WorkerWaits:
    """Connections that wait and bodies in transit, in one worker."""

    send: SendDrop
    waits: dict[int, tuple[WaitLimits, WaitingConnection]] = field(default_factory=dict)
    """Number -> a connection, and the limits that count it; bounded by those limits."""

    bodies: dict[int, CountedBody] = field(default_factory=dict)
    """Number -> a body in transit; bounded likewise."""

    def drop(self, number: int) -> None:
        """Have the worker end it."""
        self.waits.pop(number, None)
        self.bodies.pop(number, None)
        self.send(DropWait(number))


class WaitCounts:
    """The same in all workers, counted. Belongs to the supervisor's event loop."""

    def __init__(self, caps: Mapping[WaitKind, WaitCaps]) -> None:
        """`caps`: the limits of connections, by kind."""
        self._limits: dict[WaitKind, WaitLimits] = {what: WaitLimits(each) for what, each in caps.items()}
        self._bodies = BodyLimits()

    def begin(self, worker: WorkerWaits, message: BeginWait) -> None:
        """Count one more; what must make room for it, in whichever worker, is dropped."""
        drop = partial(worker.drop, message.number)
        if message.what == "body":
            worker.bodies[message.number] = self._bodies.begin(message.group[1], drop)
        else:
            limits = self._limits[message.what]
            worker.waits[message.number] = (limits, limits.begin(message.group, drop))

    def grow(self, worker: WorkerWaits, number: int, n_bytes: int) -> None:
        """Count the bytes of a body."""
        body = worker.bodies.get(number)
        if body is not None:
            self._bodies.grow(body, n_bytes - body.n_bytes)

    def end(self, worker: WorkerWaits, number: int) -> None:
        """Count it no more; what was dropped does not count already."""
        if number in worker.waits:
            limits, wait = worker.waits.pop(number)
            limits.end(wait)
        if number in worker.bodies:
            self._bodies.end(worker.bodies.pop(number))

    def end_all(self, worker: WorkerWaits) -> None:
        """Count nothing of a worker that has ended."""
        for number in (*worker.waits, *worker.bodies):
            self.end(worker, number)
