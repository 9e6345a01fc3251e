"""The sessions that run in this process: their slots, their list, and how they end when the server stops."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, Final, Literal, Protocol

import msgspec

from voicepipe.clock import monotonic_ms, unix_ms
from voicepipe.cluster.port import Cluster
from voicepipe.cluster.revocation import Revocation
from voicepipe.errors import Overload
from voicepipe.server.head_room import LOCAL_MODELS, MEASURE_S, HeadRoom, NoHeadRoom, no_head_room
from voicepipe.server.quota_usage import QuotaExceeded, QuotaUsage
from voicepipe.server.revocations import REVOKED
from voicepipe.server.sessions.running_session import RunningSession
from voicepipe.server.sessions.session_usage import SessionUsage
from voicepipe.server.sessions.slots import FULL_WAIT_MS, RESERVED_S, Full, Slots, reservation
from voicepipe.server.stage_latency import ProcessTurns, SlowStage, StageVerdict
from voicepipe.session.grant import SessionGrant
from voicepipe.session.shutdown import MOVE, STOPPING
from voicepipe.session.socket import ClientSocket
from voicepipe.turn.record.values import TurnRecord

CLOSE_WAIT_MS: Final = 2_000
"""Time for a client to answer the close frame before its connection is dropped."""

RefusalReason = Literal["full", "head_room", "stage_latency", "quota"]
REFUSAL_REASONS: Final[tuple[RefusalReason, ...]] = ("full", "head_room", "stage_latency", "quota")
"""The reasons for which a session is refused although its credential is good."""

TURNS_KNOWN: Final = 64
"""Turns whose records may still be renewed."""


class _TurnFigures(msgspec.Struct, frozen=True):
    """Figures of one turn that are added up."""

    over: bool
    failed: bool
    total_ms: int | None


class LiveSession:
    """One session: its user, its start, its connection, its usage, and figures of its closed turns."""

    def __init__(self, grant: SessionGrant, usage: SessionUsage, *, is_taken_over: bool = False) -> None:
        """`is_taken_over`: another node began it, and counted it."""
        self.is_taken_over = is_taken_over
        self.grant, self.usage, self.began_unix_ms = grant, usage, unix_ms()

        self.session: RunningSession | None = None
        """None until it is made, and after its end."""

        self.socket: ClientSocket | None = None
        """The latest connection; None before the handshake, and after the session's end."""

        self.admitted = False
        """Whether nothing can refuse the session any more. From then to its end it is listed, and may be resumed."""

        self.turns = self.over = self.failed = 0
        self.slowest_ms: int | None = None
        self.cost_usd = 0.0
        self._known: OrderedDict[str, _TurnFigures] = OrderedDict()  # full: the oldest can no longer be renewed

    def count_turn(self, record: TurnRecord) -> None:
        """Count a turn's record, new or renewed; a turn whose reply is still playing is not counted yet."""
        self.usage.count_turn(record)
        if record.outcome is None:
            return
        before = self._known.pop(record.id, None)
        now = _TurnFigures(record.total_verdict == "over", record.outcome == "failed", record.total_ms)
        self._known[record.id] = now
        if len(self._known) > TURNS_KNOWN:
            self._known.popitem(last=False)
        self.turns += before is None
        self.over += now.over - (before is not None and before.over)
        self.failed += now.failed - (before is not None and before.failed)
        if now.total_ms is not None:
            self.slowest_ms = max(self.slowest_ms or 0, now.total_ms)
        self.cost_usd = max(self.cost_usd, record.session_cost.usd)

    def plain(self) -> dict[str, Any]:
        """Return the session as the API and webhooks show it."""
        return {
            "object": "voicepipe.session",
            "id": self.grant.session_id,
            "project": self.grant.project,
            "agent": self.grant.agent,
            "user": self.grant.identity or "",
            "started_at": iso(self.began_unix_ms),
            "turns": self.turns,
            "over": self.over,
            "failed": self.failed,
            "slowest_ms": self.slowest_ms,
            "cost_usd": self.cost_usd,
        }


class ProcessLoad(msgspec.Struct, frozen=True):
    """The sessions of a process, and whether it can take more."""

    sessions: int
    """Number of sessions that run."""

    has_head_room: bool
    """Whether it has CPU time for one more, and does not stop."""


class OtherProcesses(Protocol):
    """The processes that serve the same port, this one among them."""

    def opened(self, session: str) -> None:
        """Add a session of this process that takes its slot."""
        ...

    def closed(self, session: str) -> None:
        """Remove a session of this process that has ended."""
        ...

    async def loads(self) -> Sequence[ProcessLoad]:
        """Return the load of each process."""
        ...

    def model_slot(self, limit: int | None, reservation: str) -> AbstractAsyncContextManager[bool]:
        """Take a slot of the sessions that use the local models while the block runs, if fewer than `limit` are taken
        or reserved in all processes; None: whatever is taken. Yield whether that is so. The slot of this reservation
        is no longer reserved then."""
        ...

    async def reserve_model_slot(self, limit: int, reservation: str, *, life_ms: int) -> bool:
        """Reserve such a slot; False: `limit` are taken or reserved."""
        ...

    async def share_turns(self, own: ProcessTurns) -> Sequence[ProcessTurns] | None:
        """Share the latest turns of this process. Return those of all, if this process measures for all."""
        ...

    async def share_verdict(self, verdict: StageVerdict) -> None:
        """Share what this process has measured for all."""
        ...

    async def verdict(self) -> StageVerdict | None:
        """Return what another process has measured for all; None: nothing lately."""
        ...


class LiveSessions:
    """The sessions of this process, one entry each, from the check of the capacity to the end. Belongs to one event
    loop."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        max_sessions: int,
        node: str = "",
        head_room: HeadRoom | None = None,
        others: OtherProcesses | None = None,
    ) -> None:
        """`node`: the machine's name, of several that share the store. `head_room` None: only the number of sessions is
        limited. `others` None: this process serves alone."""
        self.max_sessions, self._others = max_sessions, others
        self.slots = Slots(cluster, max_sessions=max_sessions, node=node)
        self._head_room = head_room
        self._reserved_ms: deque[int] = deque()
        """When slots were reserved that no session has taken yet; the oldest first."""

        self.n_accepted = 0
        """Number of sessions accepted so far."""

        self.n_refused: dict[RefusalReason, int] = dict.fromkeys(REFUSAL_REASONS, 0)
        """Number of sessions and reservations refused so far."""
        # Full: the next session is refused, never queued: a user who waits in silence hangs up.
        self._sessions: dict[str, LiveSession] = {}
        self._all_left = asyncio.Event()
        self._all_left.set()
        self.closing = False

    def __len__(self) -> int:
        return len(self._sessions)

    async def check(self, live: LiveSession) -> None:
        """Check that the session could start now; nothing is taken.

        Raises:
            Overload: all slots are taken, the server has no head-room, or it is stopping.
            AuthError: 401 or 403: nothing is left of its client secret.
            QuotaExceeded: nothing is left of a quota.
        """
        await self.check_capacity()
        self.check_stages(live.grant.agent)
        await live.usage.limits.check()

    @asynccontextmanager
    async def slot(self, live: LiveSession) -> AsyncIterator[None]:
        """Take a slot in this process and a shared one while the block runs.

        Raises:
            AuthError, Overload, QuotaExceeded: as in `check`; the machine, the API key, the project or the user has no
                more; or the shared store cannot be reached.
        """
        with self._counting_refusals():
            self._check_open()
        session_id = live.grant.session_id
        self._sessions[session_id] = live
        self._all_left.clear()
        if self._others is not None:
            self._others.opened(session_id)
        try:
            async with AsyncExitStack() as stack:
                with self._counting_refusals():
                    await self._take_slot(live, stack)
                self.n_accepted += 1
                yield
        finally:
            del self._sessions[session_id]
            if self._others is not None:
                self._others.closed(session_id)
            if self._head_room is not None:
                self._head_room.stages.drop_session(session_id)
            # The session holds its entry, to count its turns: without this circle both are freed at once.
            live.session = live.socket = None
            if not self._sessions:
                self._all_left.set()

    async def _take_slot(self, live: LiveSession, stack: AsyncExitStack) -> None:
        limits = live.usage.limits
        if not live.is_taken_over:
            await limits.check()
        reserved = await self.slots.use_reservation(limits.claims)
        if reserved is None:
            self._check_head_room(len(self._sessions) - 1)
        elif self._reserved_ms:
            self._reserved_ms.popleft()
        is_limited = reserved is None and not live.is_taken_over
        if is_limited and self._head_room is not None:
            self._head_room.stages.check(live.grant.agent)
        await self._take_local_models(stack, reserved, n_before=len(self._sessions) - 1, is_limited=is_limited)
        await stack.enter_async_context(self.slots.slot(reserved or live.grant.session_id, limits.quotas))

    @contextmanager
    def _counting_refusals(self) -> Iterator[None]:
        try:
            yield
        except NoHeadRoom:
            self.n_refused["head_room"] += 1
            raise
        except SlowStage:
            self.n_refused["stage_latency"] += 1
            raise
        except QuotaExceeded:
            self.n_refused["quota"] += 1
            raise
        except Full:
            self.n_refused["full"] += 1
            raise

    def count_turn(self, live: LiveSession, record: TurnRecord) -> None:
        """Count a turn's record, new or renewed, for its session and for head-room."""
        live.count_turn(record)
        if self._head_room is not None:
            self._head_room.stages.count_turn(record, live.grant.agent)

    def find(self, session_id: str) -> LiveSession | None:
        """Return the session of that ID, if it is listed."""
        found = self._sessions.get(session_id)
        return found if found is not None and found.admitted else None

    def of(self, project: str | None) -> list[LiveSession]:
        """Return the sessions of a project, or of all projects, newest first."""
        sessions = (each for each in self._sessions.values() if each.admitted and project in (None, each.grant.project))
        return sorted(sessions, key=lambda each: each.began_unix_ms, reverse=True)

    def end_revoked(self, revocation: Revocation) -> None:
        """End the sessions whose client secret is revoked."""
        for live in self._sessions.values():
            claims = live.usage.limits.claims
            if live.session is not None and claims is not None and revocation.covers(claims):
                live.session.end_now(REVOKED)

    async def drain(self, within_ms: int) -> None:
        """Refuse new sessions, and have the running ones end or move to another node within `within_ms`.

        In the first half turns end: clients that can resume at another node get `voicepipe.going_away`, when no turn
        runs. In the second half they get it at once, and other sessions end with their turn. Then the sessions are
        closed, and then their connections dropped."""
        self.closing = True
        self._drain_sessions(within_ms, at_once=False)
        if await self.left(within_ms // 2):
            return
        within_ms -= within_ms // 2
        self._drain_sessions(within_ms, at_once=True)
        if await self.left(within_ms):
            return
        self._end()
        if await self.left(CLOSE_WAIT_MS):
            return
        sockets = [live.socket for live in self._sessions.values() if live.socket is not None]
        async with asyncio.TaskGroup() as group:
            for socket in sockets:
                group.create_task(socket.close(STOPPING.close_code, STOPPING.why), name="close-session")
        if not await self.left(CLOSE_WAIT_MS):
            for live in self._sessions.values():
                if live.socket is not None:
                    live.socket.abort()

    def _drain_sessions(self, within_ms: int, *, at_once: bool) -> None:
        for live in self._sessions.values():
            if live.session is None:
                continue
            if not live.session.takeover.drain(within_ms, at_once=at_once):
                live.session.resumption.forbid()
                if at_once:
                    live.session.end_after_turn(STOPPING)

    def _end(self) -> None:
        for live in self._sessions.values():
            if live.session is not None:
                can_move = live.session.takeover.drain(0, at_once=True)
                live.session.end_now(MOVE if can_move else STOPPING)

    async def left(self, within_ms: int) -> bool:
        """Wait at most `within_ms` until no session is left; return whether that is so."""
        try:
            async with asyncio.timeout(within_ms / 1_000):
                await self._all_left.wait()
        except TimeoutError:
            return False
        return True

    async def reserve(self, project: str, token_id: str, quotas: QuotaUsage) -> None:
        """Reserve the slot of a client secret's first session for `slots.RESERVED_S`.

        Raises:
            Overload, QuotaExceeded: as in `slot`.
        """
        with self._counting_refusals():
            self._check_open()
            await quotas.check()
            await self._check_process_limits()
            holder = reservation(project, token_id)
            await self._reserve_local_models(holder)
            self._reserved_ms.append(monotonic_ms())
            await self.slots.reserve(holder, quotas)

    async def check_capacity(self) -> None:
        """Check that one more session could start now, in any process that serves the port. For its agent there is
        `check_stages`.

        Raises:
            Overload: all slots are taken, no process has head-room, or the server is stopping.
        """
        with self._counting_refusals():
            await self._check_limits()

    def load(self) -> ProcessLoad:
        """Return the load of this process."""
        try:
            self._check_head_room(len(self._sessions))
        except NoHeadRoom:
            return ProcessLoad(len(self._sessions), has_head_room=False)
        return ProcessLoad(len(self._sessions), has_head_room=not self.closing)

    def check_stages(self, agent: str) -> None:
        """Check that no stage of this agent's sessions is slower for their number.

        Raises:
            SlowStage: one is; it is counted as a refusal.
        """
        if self._head_room is not None:
            with self._counting_refusals():
                self._head_room.stages.check(agent)

    async def _check_limits(self) -> None:
        await self._check_process_limits()
        async with AsyncExitStack() as stack:
            await self._take_local_models(stack, None, n_before=len(self._sessions), is_limited=True)

    async def _check_process_limits(self) -> None:
        self._check_open()
        loads = await self._others.loads() if self._others is not None else ()
        if loads and sum(each.sessions for each in loads) >= self.max_sessions:
            raise self._full()
        if not any(each.has_head_room for each in loads):
            self._check_head_room(len(self._sessions))

    async def _take_local_models(
        self, stack: AsyncExitStack, reserved: str | None, *, n_before: int, is_limited: bool
    ) -> None:
        """Check that the local models, which all processes use, have time for a session beside the `n_before` of this
        process, and count it."""
        capacity = None if self._head_room is None else self._head_room.local_capacity
        if capacity is None:
            return
        if self._others is not None:
            slot = self._others.model_slot(capacity if is_limited else None, reserved or "")
            is_free = await stack.enter_async_context(slot)
        else:
            is_free = not is_limited or n_before + self._n_reserved() < capacity
        if not is_free:
            raise no_head_room(LOCAL_MODELS, capacity)

    async def _reserve_local_models(self, holder: str) -> None:
        capacity = None if self._head_room is None else self._head_room.local_capacity
        if capacity is None:
            return
        if self._others is not None:
            is_free = await self._others.reserve_model_slot(capacity, holder, life_ms=1_000 * RESERVED_S)
        else:
            is_free = len(self._sessions) + self._n_reserved() < capacity
        if not is_free:
            raise no_head_room(LOCAL_MODELS, capacity)

    async def measure(self) -> None:
        """Measure what sessions use until cancelled."""
        while self._head_room is not None:
            await asyncio.sleep(MEASURE_S)
            self._head_room.measure(len(self._sessions))
            with suppress(Overload):  # the supervisor does not answer
                await self._measure_shared(self._head_room)

    async def _measure_shared(self, head_room: HeadRoom) -> None:
        """Measure what the sessions of all processes use, or take what another process has measured."""
        own = ProcessTurns(len(self._sessions), head_room.stages.latest_turns())
        if self._others is None:
            head_room.measure_shared([own])
            return
        processes = await self._others.share_turns(own)
        if processes is not None:
            head_room.measure_shared(processes)
            await self._others.share_verdict(head_room.stages.verdict)
        else:
            head_room.adopt(await self._others.verdict())

    def _n_reserved(self) -> int:
        """Return the number of slots that this process has reserved, and no session has taken."""
        oldest_ms = monotonic_ms() - 1_000 * RESERVED_S
        while self._reserved_ms and self._reserved_ms[0] <= oldest_ms:
            self._reserved_ms.popleft()
        return len(self._reserved_ms)

    def _check_head_room(self, n_sessions: int) -> None:
        if self._head_room is not None:
            self._head_room.check(n_sessions + self._n_reserved())

    def _check_open(self) -> None:
        if self.closing:
            raise Overload("The server is stopping.", retry_after_ms=FULL_WAIT_MS)
        if len(self._sessions) >= self.max_sessions:
            raise self._full()

    def _full(self) -> Full:
        return Full(f"Too many sessions on this server (limit {self.max_sessions}).", retry_after_ms=FULL_WAIT_MS)


def iso(unix_ms: int) -> str:
    """Return an instant as ISO 8601 in UTC, with ms."""
    return datetime.fromtimestamp(unix_ms / 1_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
