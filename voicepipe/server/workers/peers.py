"""All workers of a server, as the routes of one worker see them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from voicepipe.clock import monotonic_ms
from voicepipe.errors import Overload
from voicepipe.server.gateway.slot_counts import FULL_WAIT_MS
from voicepipe.server.sessions.listed_sessions import ListedSessions
from voicepipe.server.sessions.live_sessions import ProcessLoad
from voicepipe.server.sessions.resume import Found
from voicepipe.server.stage_latency import ProcessTurns, StageVerdict
from voicepipe.server.webrtc.calls import RtcCallLookup
from voicepipe.server.workers.hints import WorkerHints
from voicepipe.server.workers.link import WorkerLink
from voicepipe.server.workers.messages import HUNG, LOST, RelaySession, SessionClosed, SessionOpened
from voicepipe.telemetry.metrics.merge import merged

STATE_MS: Final = 900
"""How long figures of all workers are used again: the live streams of a worker read them every second each."""

TURNS: Final = "latest turns"
VERDICT: Final = "stage latency"
"""The kinds of what workers share of their turns."""

SHARED_S: Final = 10
"""How long that counts: it is shared every 4 s."""


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
    _fetching: asyncio.Lock = field(default_factory=asyncio.Lock)

    def opened(self, session: str) -> None:
        """Report a session that takes its slot."""
        self.link.send_reliably(SessionOpened(session))

    def closed(self, session: str) -> None:
        """Report that a session has ended."""
        self.link.send_reliably(SessionClosed(session))

    async def loads(self) -> tuple[ProcessLoad, ...]:
        """Return what each worker has left for sessions."""
        return tuple(
            msgspec.json.decode(each, type=ProcessLoad) for each in (await self.link.query("head_room")).replies
        )

    def model_slot(self, limit: int | None, reservation: str) -> AbstractAsyncContextManager[bool]:
        """Take a slot of the sessions that use the local models, as `ModelSlots.take` does."""
        return self.link.model_slot(limit, reservation)

    async def reserve_model_slot(self, limit: int, reservation: str, *, life_ms: int) -> bool:
        """Reserve such a slot."""
        return await self.link.reserve_model_slot(limit, reservation, life_ms=life_ms)

    async def share_turns(self, own: ProcessTurns) -> tuple[ProcessTurns, ...] | None:
        """Share the latest turns of this worker; return those of all, to the first worker alone: it measures for all.

        With those of each worker at each worker, the supervisor of 64 would have 4096 messages every 4 s.
        """
        await self._share(TURNS, own)
        if self.link.index:
            return None
        return tuple([msgspec.json.decode(each, type=ProcessTurns) for each in await self._shared(TURNS)])

    async def share_verdict(self, verdict: StageVerdict) -> None:
        """Share what this worker has measured for all."""
        await self._share(VERDICT, verdict)

    async def verdict(self) -> StageVerdict | None:
        """Return what the first worker has measured; None: nothing lately."""
        found = await self._shared(VERDICT)
        return msgspec.json.decode(found[0], type=StageVerdict) if found else None

    async def _share(self, kind: str, value: ProcessTurns | StageVerdict) -> None:
        await WorkerHints(self.link).store_hint(kind, str(self.link.index), msgspec.json.encode(value), life_s=SHARED_S)

    async def _shared(self, kind: str) -> list[bytes]:
        return [hint.body for hint in await WorkerHints(self.link).hints(kind)]

    async def reload(self) -> Reloaded:
        """Have all workers read the settings again."""
        replies = [msgspec.json.decode(each, type=Reloaded) for each in (await self.link.query("reload")).replies]
        taken = [each for each in replies if not each.why]
        why = next((each.why for each in replies if each.why), "")
        agents = taken[0].agents if taken else ()
        return Reloaded(agents, why or ("" if taken else "no worker answers"), len(taken))

    async def sessions(self, project: str | None) -> ListedSessions:
        """Return the open sessions of a project, or of all, newest first."""
        result = await self.link.query("sessions", msgspec.json.encode(project))
        rows: list[dict[str, Any]] = [row for each in result.replies for row in msgspec.json.decode(each)]
        rows.sort(key=lambda row: str(row["started_at"]), reverse=True)
        return ListedSessions(rows, "" if result.are_all else "a worker of this server does not answer")

    async def item_audio(self, project: str | None, session: str, item: str) -> bytes:
        """Return the audio of an item of an open session as a WAV file; nothing if no worker has it.

        One at a time, since a file has up to 5.8 MB.

        Raises:
            Overload: also where a worker that may have it does not answer, or has too many files to send.
        """
        async with self._fetching:
            result = await self.link.query("item_audio", msgspec.json.encode((project, session, item)))
        found = next(filter(None, result.replies), b"")
        if not found and not result.are_all:
            raise Overload("The process of this session does not send its audio now.", retry_after_ms=FULL_WAIT_MS)
        return found

    async def find_session(self, session: str) -> Found:
        """Return whether a worker has this session, or had it and has died, or has it and does not answer."""
        replies = (await self.link.query("session", session.encode(errors="replace"))).replies
        if b"true" in replies:
            return "held"
        return "lost" if LOST in replies else "hung" if HUNG in replies else "unknown"

    async def session_of_call(self, lookup: RtcCallLookup) -> str:
        """Return the ID of the session of a call over WebRTC; empty: no worker has the call.

        Raises:
            Overload: also where a worker that may have it does not answer.
        """
        result = await self.link.query("call", msgspec.json.encode(lookup))
        found = next(filter(None, result.replies), b"")
        if not found and not result.are_all:
            raise _silent()
        return found.decode()

    async def hang_up(self, lookup: RtcCallLookup) -> bool:
        """End a call over WebRTC; False: no worker has it.

        Raises:
            Overload: also where a worker that may have it does not answer.
        """
        result = await self.link.query("hang_up", msgspec.json.encode(lookup))
        found = b"true" in result.replies
        if not found and not result.are_all:
            raise _silent()
        return found

    def relay(self, session: str) -> socket.socket | None:
        """Return a socket to the worker that has the session, closed by the other side if none has; None: the
        supervisor is gone."""
        own_end, peer_end = socket.socketpair()
        if self.link.send(RelaySession(session), peer_end):
            return own_end
        own_end.close()
        return None

    async def metrics(self) -> bytes:
        """Return the text of `/metrics` of all workers together."""
        return await asyncio.to_thread(merged, (await self.link.query("metrics")).replies)

    async def providers(self) -> list[dict[str, Any]]:
        """Return the status of the providers and the counts of the response cache, for each worker."""
        return [msgspec.json.decode(each) for each in (await self.link.query("providers")).replies]

    async def delete_session(self, project: str, session: str) -> None:
        """Delete the events of a session that workers hold in memory.

        Raises:
            Overload: also where a worker does not answer, and may hold some.
        """
        if not (await self.link.query("delete_session", msgspec.json.encode((project, session)))).are_all:
            raise _silent()

    async def state(self) -> Sequence[WorkerState]:
        """Return the live figures of all workers, at most `STATE_MS` old; the last known while no answer comes."""
        async with self._reading:
            if self._state_ms is None or monotonic_ms() - self._state_ms >= STATE_MS:
                try:
                    replies = (await self.link.query("state")).replies
                    self._state = tuple(msgspec.json.decode(each, type=WorkerState) for each in replies)
                except Overload:
                    pass
                self._state_ms = monotonic_ms()
        return self._state


def _silent() -> Overload:
    return Overload("A worker of this server does not answer.", retry_after_ms=FULL_WAIT_MS)
