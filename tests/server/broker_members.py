"""A broker and its workers in one process, over their channels."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass

import msgspec

from voicepipe.cluster.channel import Channel
from voicepipe.server.gateway.slot_counts import SlotCaps, SlotCounts
from voicepipe.server.wait_limits import WaitCaps
from voicepipe.server.workers.broker import Broker, ConnectedWorker
from voicepipe.server.workers.link import WorkerLink
from voicepipe.server.workers.messages import (
    FROM_WORKER,
    QueryKind,
    WaitKind,
)
from voicepipe.server.workers.peers import Workers
from voicepipe.server.workers.wait_counts import WaitCounts
from voicepipe.tasks import BackgroundTasks


@dataclass
class Member:
    """A worker, seen from both ends of its channel."""

    seen: ConnectedWorker
    link: WorkerLink

    @property
    def workers(self) -> Workers:
        return Workers(self.link, "http://127.0.0.1:1")

    def answers(self, kind: QueryKind, answer: object) -> None:
        """Answer a query with this value, or never."""

        async def reply(data: bytes) -> bytes:
            if answer is NEVER:
                await asyncio.Event().wait()
            if isinstance(answer, Exception):
                raise answer
            return msgspec.json.encode(answer)

        self.link.answers[kind] = reply


NEVER = object()

CAPS: dict[WaitKind, WaitCaps] = {
    "connection": WaitCaps(per_address=3),
    "resume": WaitCaps(per_address=2, per_session=1, all_addresses=4),
}


class Members:
    """A broker and the workers that have joined."""

    def __init__(self, tasks: BackgroundTasks) -> None:
        self.broker = Broker({"chat": SlotCounts(SlotCaps(3, 2))}, WaitCounts(CAPS))
        self.members: list[Member] = []
        self._tasks = tasks

    def join(self, *, owner: str = "pid") -> Member:
        """Start a worker; without an owner it does not listen yet."""
        ours, remote = socket.socketpair()
        index = len(self.members)

        def on_message(data: bytes, passed: socket.socket | None) -> None:
            self.broker.handle(seen, FROM_WORKER.decode(data), passed)

        seen = ConnectedWorker(index, Channel(ours, on_message, lambda: None))
        seen.owner, seen.accepts = owner and f"{owner}{index}", bool(owner)
        self.broker.attach(seen)
        self.members.append(Member(seen, WorkerLink(remote, index, 2, self._tasks)))
        return self.members[-1]

    async def handled(self) -> None:
        """Wait until the broker has handled what the workers sent, and they what it sent then: each has an answer that
        came after that."""
        for member in (*self.members, *self.members):
            await member.link.request_hints("none")

    def close(self) -> None:
        for member in self.members:
            member.link.close()
            member.seen.channel.close()
