"""All workers of a server, as the routes of one worker see them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from voicepipe.clock import monotonic_ms
from voicepipe.errors import Overload
from voicepipe.server.sessions.live_sessions import Room
from voicepipe.server.sessions.resume import Found
from voicepipe.server.workers.link import WorkerLink
from voicepipe.server.workers.messages import HUNG, LOST, RelaySession, SessionClosed, SessionOpened
from voicepipe.telemetry.metrics.merge import merged

STATE_MS: Final = 900
"""How long figures of all workers are used again: the live streams of a worker read them every second each."""


class WorkerState(msgspec.Struct, frozen=True):
    """The figures of a worker that the live stream shows, beside turns."""

    open: dict[str, int]
    """Project -> open sessions."""

    storage: list[dict[str, Any]]
    """The stores that fail."""

    records_lost: int
    lag: dict[str, float] | None
    """The event loop's lag by quantile, in ms; None: not measured."""


class Reloaded(msgspec.Struct, frozen=True):
    """The outcome of a reload of the settings, in one worker or in all."""

    agents: tuple[str, ...] = ()
    """The names of the agents; empty: no worker took the settings."""

    why: str = ""
    """Why a worker refused them, the first one's reason; empty: none did."""

    n_workers: int = 0
    """How many workers took them."""


@dataclass(slots=True, eq=False)
class Workers:
    """The workers of a server, seen from one of them. Belongs to one event loop.

    Every request raises `Overload` when the supervisor does not answer. A worker that hangs is left out.
    """

    link: WorkerLink
    base_url: str
    """The server's own address: `http://HOST:PORT`."""

    _state: tuple[WorkerState, ...] = ()
    _state_ms: int | None = None
    _reading: asyncio.Lock = field(default_factory=asyncio.Lock)

    def opened(self, session: str) -> None:
        """Report a session that takes its place."""
        self.link.send(SessionOpened(session))

    def closed(self, session: str) -> None:
        """Report that a session has ended."""
        self.link.send(SessionClosed(session))

    async def rooms(self) -> tuple[Room, ...]:
        """Return what each worker has left for sessions."""
        return tuple(msgspec.json.decode(each, type=Room) for each in await self.link.query("head_room"))

    async def reload(self) -> Reloaded:
        """Have all workers read the settings again."""
        replies = [msgspec.json.decode(each, type=Reloaded) for each in await self.link.query("reload")]
        taken = [each for each in replies if not each.why]
        why = next((each.why for each in replies if each.why), "")
        agents = taken[0].agents if taken else ()
        return Reloaded(agents, why or ("" if taken else "no worker answers"), len(taken))

    async def sessions(self, project: str | None) -> list[dict[str, Any]]:
        """Return the open sessions of a project, or of all, newest first."""
        replies = await self.link.query("sessions", msgspec.json.encode(project))
        found: list[dict[str, Any]] = [row for each in replies for row in msgspec.json.decode(each)]
        return sorted(found, key=lambda row: str(row["started_at"]), reverse=True)

    async def find_session(self, session: str) -> Found:
        """Return whether a worker has this session, or had it and has died, or has it and does not answer."""
        replies = await self.link.query("session", session.encode(errors="replace"))
        if b"true" in replies:
            return "held"
        return "lost" if LOST in replies else "hung" if HUNG in replies else "unknown"

    def relay(self, session: str) -> socket.socket | None:
        """Return a socket to the worker that has the session, closed by the other side if none has; None: the
        supervisor is gone."""
        ours, its = socket.socketpair()
        if self.link.send(RelaySession(session), its):
            return ours
        ours.close()
        return None

    async def metrics(self) -> bytes:
        """Return the text of `/metrics` of all workers together."""
        return await asyncio.to_thread(merged, await self.link.query("metrics"))

    async def providers(self) -> list[list[dict[str, Any]]]:
        """Return the status of the providers, for each worker."""
        return [msgspec.json.decode(each) for each in await self.link.query("providers")]

    async def delete_session(self, project: str, session: str) -> None:
        """Delete the events of a session that workers hold in memory."""
        await self.link.query("delete_session", msgspec.json.encode((project, session)))

    async def state(self) -> Sequence[WorkerState]:
        """Return the live figures of all workers, at most `STATE_MS` old; the last known while no answer comes."""
        async with self._reading:
            if self._state_ms is None or monotonic_ms() - self._state_ms >= STATE_MS:
                try:
                    replies = await self.link.query("state")
                    self._state = tuple(msgspec.json.decode(each, type=WorkerState) for each in replies)
                except Overload:
                    pass
                self._state_ms = monotonic_ms()
        return self._state
