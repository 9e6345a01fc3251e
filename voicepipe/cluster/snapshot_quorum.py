"""Store the snapshots of sessions on several servers at once, so that one of them may be away: a majority decides.

Each session has one owner at a time, which a fencing token names: each acquisition has a higher one, and a majority of
the servers must accept it. Any two majorities share a server. So of two processes with the same token at most one owns
the session, and a process that has lost it can't write any more. Each acquisition finds the latest write that a
majority has. Source: Gifford, Weighted voting for replicated data (1979), with the two phases of Lamport, The part-time
parliament (1998). One server is a majority of one.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

from msgspec import Struct

from voicepipe.clock import monotonic_ms
from voicepipe.cluster.port import LeftSnapshot
from voicepipe.cluster.redis_calls import RedisCalls
from voicepipe.cluster.snapshot_scripts import (
    ACQUIRE_SNAPSHOT,
    DELETE_LEFT_SNAPSHOT,
    DELETE_SNAPSHOT,
    LEASE_LEFT_SNAPSHOT,
    LEFT_SNAPSHOT,
    READ_OWNER,
    STORE_SNAPSHOT,
)
from voicepipe.errors import StoreUnavailable, StoreUndecided
from voicepipe.storage import StorageHealth
from voicepipe.tasks import BackgroundTasks, background_tasks

CONNECTIONS: Final = 64
"""Maximum of connections of one process to each server, made when needed. A slow server occupies them for long: each
session has one request at a time."""

FIRST_CONNECTIONS: Final = 8
"""Connections that are made at the start: a resume would wait for a new one, for which a slow server needs three
answers."""

MAX_WAITING: Final = 64
"""Maximum of requests that wait for a hanging server of several. Above it the server gets none, to bound the memory."""

HANGS_MS: Final = 500
"""A server that has requests counts as hanging when its latest answer is this much older than another's. A
limit of time alone would not do: a process that had no CPU time has read no answer of any server."""

MAX_FENCES: Final = 10_000
"""Maximum of sessions whose fencing token this process stores: many times the sessions of one process."""

UNDECIDED_LIFE_MS: Final = 2_000
"""Servers that disagree for longer store an acquisition by a process that died: a live process has written by then."""

MAX_KNOWN: Final = 256
"""Maximum of sessions whose owner is stored from a look-up: the acquisition follows at once."""

UNDECIDED_S: Final = 0.1
"""Further time for the last server to answer when the others disagree: it may hang."""

ATTEMPTS: Final = 3
"""Maximum of attempts at an acquisition: another process may acquire the same session at the same time."""

Decides = Callable[[Sequence[Any]], bool]
"""Returns whether these answers of servers are enough."""


@asynccontextmanager
async def open_snapshots(servers: Sequence[RedisCalls], health: StorageHealth | None) -> AsyncIterator[SnapshotQuorum]:
    """Connect to the servers that have the snapshots, an odd number of them, for the duration of the block.

    Raises:
        StoreUnavailable: a server refuses the connection, or no majority of them can be reached.
    """
    try:
        async with background_tasks() as tasks:
            quorum = SnapshotQuorum(servers, tasks, health)
            await quorum.connect()
            yield quorum
    finally:
        for server in servers:
            await server.close()


@dataclass(slots=True)
class _Server:
    """One server, and what is known of it."""

    calls: RedisCalls
    n_waiting: int = 0
    answered_ms: int = 0
    """When it last answered (monotonic)."""

    waits_since_ms: int = 0
    """When it last answered, or the first of its waiting requests began (monotonic)."""

    is_away: bool = False


class _Owner(Struct, frozen=True):
    """What a majority of the servers stores of a session's owner."""

    fence: int
    latest: tuple[int, int]
    digests: frozenset[str]
    has_snapshot: bool


class SnapshotQuorum:
    """The port `Snapshots` on one server or several."""

    def __init__(self, servers: Sequence[RedisCalls], tasks: BackgroundTasks, health: StorageHealth | None) -> None:
        """`health` is notified when a server of several is away; None: no notification."""
        self._servers = tuple(_Server(calls) for calls in servers)
        self._majority = len(self._servers) // 2 + 1
        self._tasks, self._health = tasks, health
        self._n_writes = 0
        self._fences: OrderedDict[tuple[str, str], int] = OrderedDict()  # bounded by MAX_FENCES, least used first
        # bounded: sessions of this process, until they are written
        self._undecided_ms: dict[tuple[str, str], float] = {}
        self._known: OrderedDict[str, _Owner] = OrderedDict()

    async def connect(self) -> None:
        """Make the first connections, and load the scripts that a call waits for."""
        failures = await asyncio.gather(*(self._connected(server) for server in self._servers))
        away = [failure for failure in failures if failure is not None]
        for failure in away:
            if failure.kind != "unreachable" or len(self._servers) - len(away) < self._majority:
                raise failure

    async def _connected(self, server: _Server) -> StoreUnavailable | None:
        try:
            await server.calls.connect(FIRST_CONNECTIONS)
            await server.calls.load(STORE_SNAPSHOT, READ_OWNER, ACQUIRE_SNAPSHOT, DELETE_SNAPSHOT)
        except StoreUnavailable as failure:
            self._report_health(server, failure)
            return failure
        return None

    # --- the port -----------------------------------------------------------------------------------

    async def has_snapshot(self, session_id: str) -> bool:
        owner = await self._owner(session_id)
        self._known.pop(session_id, None)
        if owner.has_snapshot:
            self._known_as(session_id, owner)
        return owner.has_snapshot

    async def store_snapshot(
        self, session_id: str, snapshot: bytes, *, digest: str, owner: str, life_s: int, previous_digest: str = ""
    ) -> bool:
        head = self._write(session_id, owner)
        return await self._written(STORE_SNAPSHOT, *head, digest, previous_digest, life_s, snapshot)

    async def acquire_snapshot(self, session_id: str, *, digest: str, owner: str, next_digest: str) -> bytes | None:
        for _ in range(ATTEMPTS):
            # A copy of this call, sent since it has no answer, has the same token: this one must not lose it.
            found = self._known.get(session_id) or self._known_as(session_id, await self._owner(session_id))
            if not found.has_snapshot or digest not in found.digests:
                self._drop_known(session_id, found)
                return None
            fence = found.fence + 1
            arguments = (session_id, owner, fence, digest, next_digest, *found.latest)
            answers = await self._answers(ACQUIRE_SNAPSHOT, *arguments, enough=self._decides(b"acquired"))
            self._drop_known(session_id, found)
            acquired = _answers_with(b"acquired", answers)
            if len(acquired) >= self._majority:
                self._set_fence(session_id, owner, max(fence, self._fences.get((session_id, owner), 0)))
                return _latest(acquired) or None
        raise StoreUndecided(f"other processes acquire it at the same time, {ATTEMPTS} times")

    async def delete_snapshot(self, session_id: str, *, owner: str) -> None:
        head = self._write(session_id, owner)
        await self._written(DELETE_SNAPSHOT, *head)
        self._fences.pop((session_id, owner), None)

    async def lease_left_snapshot(self, *, after_s: int, life_s: int, lease: str) -> LeftSnapshot | None:
        found = await self._answers(LEFT_SNAPSHOT, after_s, life_s, enough=self._is_majority)
        for name in sorted(set(found) - {b""}):
            session_id = name.decode()
            answers = await self._answers(
                LEASE_LEFT_SNAPSHOT, session_id, after_s, life_s, lease, enough=self._decides(b"leased")
            )
            leased = _answers_with(b"leased", answers)
            if len(leased) >= self._majority:
                return LeftSnapshot(session_id, _latest(leased))
            if len(_answers_with(b"gone", answers)) >= self._majority:  # a server that missed its deletion has it
                await self.delete_left_snapshot(session_id, lease=lease)
        return None

    async def delete_left_snapshot(self, session_id: str, *, lease: str) -> None:
        await self._answers(DELETE_LEFT_SNAPSHOT, session_id, lease, enough=self._is_majority)

    def _known_as(self, session_id: str, owner: _Owner) -> _Owner:
        known = self._known.setdefault(session_id, owner)
        while len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)
        return known

    def _drop_known(self, session_id: str, owner: _Owner) -> None:
        if self._known.get(session_id) is owner:
            del self._known[session_id]

    # --- majorities ---------------------------------------------------------------------------------

    def _write(self, session_id: str, owner: str) -> tuple[str, str, int, int]:
        """Return the head of a write: later ones have higher numbers, all of them even."""
        self._n_writes += 2
        if (session_id, owner) in self._fences:
            self._fences.move_to_end((session_id, owner))
        return session_id, owner, self._fences.get((session_id, owner), 0), self._n_writes

    def _set_fence(self, session_id: str, owner: str, fence: int) -> None:
        self._fences[session_id, owner] = fence
        self._fences.move_to_end((session_id, owner))
        while len(self._fences) > MAX_FENCES:
            self._fences.popitem(last=False)

    async def _written(
        self, script: str, session_id: str, owner: str, fence: int, *arguments: str | bytes | int
    ) -> bool:
        """Return whether the write counts; False: another process owns the session.

        Raises:
            StoreUndecided: the servers do not agree. One that has the acquisition of a process that died refuses all
                writes, until this process has a higher token.
            StoreUnavailable: no majority has answered.
        """
        answers = await self._answers(script, session_id, owner, fence, *arguments, enough=self._is_decided)
        if not self._is_decided(answers):
            await self._raise_fence(session_id, owner, fence)
            raise StoreUndecided("the servers for snapshots do not agree on a session, and one of them is away")
        self._undecided_ms.pop((session_id, owner), None)
        is_stored = answers.count(b"stored") >= self._majority
        if not is_stored:
            self._fences.pop((session_id, owner), None)
        return is_stored

    def _is_decided(self, answers: Sequence[Any]) -> bool:
        """Return whether a majority has stored a write, or has refused it for the same owner."""
        counts = Counter(answer if answer == b"stored" else tuple(answer) for answer in answers)
        return max(counts.values(), default=0) >= self._majority

    async def _raise_fence(self, session_id: str, owner: str, fence: int) -> None:
        """Give the session a higher token if the servers have disagreed for long, and no other process has written
        it."""
        now_ms = monotonic_ms()
        if now_ms - self._undecided_ms.setdefault((session_id, owner), now_ms) < UNDECIDED_LIFE_MS:
            return
        del self._undecided_ms[session_id, owner]
        found = await self._owner(session_id)
        if found.latest[0] == fence:
            self._set_fence(session_id, owner, found.fence + 1)

    async def _owner(self, session_id: str) -> _Owner:
        answers = await self._answers(READ_OWNER, session_id, enough=self._is_majority)
        fence = max(_fence_of(answer) for answer in answers)
        latest = max(answers, key=_state_of)
        # Perhaps no process has written with the highest token: one acquisition, or two, may have it without a
        # majority. Then the secrets of all of them count, and those of the latest write.
        is_written = _write_of(latest[1:])[0] == fence
        counting = [
            each
            for each in answers
            if _state_of(each) == _state_of(latest) or (_fence_of(each) == fence and not is_written)
        ]
        digests = {digest.decode() for answer in counting for digest in answer[3:5]} - {""}
        return _Owner(fence, _write_of(latest[1:]), frozenset(digests), has_snapshot=bool(latest[5]))

    def _is_majority(self, answers: Sequence[Any]) -> bool:
        return len(answers) >= self._majority

    def _decides(self, outcome: bytes) -> Decides:
        """Return a function that detects that a majority has this outcome, or that none can have it any more."""

        def decides(answers: Sequence[Any]) -> bool:
            n_with = len(_answers_with(outcome, answers))
            return n_with >= self._majority or len(answers) - n_with > len(self._servers) - self._majority

        return decides

    async def _answers(self, script: str, *arguments: str | bytes | int, enough: Decides) -> list[Any]:
        """Return the first answers that are enough; the other servers get the request too. Those of a majority that are
        not enough are returned after `UNDECIDED_S`.

        Raises:
            StoreUnavailable: no majority has answered.
        """
        if len(self._servers) == 1:  # no other server could answer: no task is needed
            return [await self._servers[0].calls.evaluate(script, *arguments)]
        outcomes: asyncio.Queue[Any] = asyncio.Queue()  # bounded: one outcome of each server
        for server in self._servers:
            self._tasks.start(self._request(server, script, arguments, outcomes), name="snapshot-server")
        answers: list[Any] = []
        failure = StoreUnavailable("unreachable", "no majority of the servers for snapshots")
        with suppress(TimeoutError):
            for _ in self._servers:
                async with asyncio.timeout(None if len(answers) < self._majority else UNDECIDED_S):
                    outcome = await outcomes.get()
                if isinstance(outcome, StoreUnavailable):
                    failure = outcome
                    continue
                answers.append(outcome)
                if enough(answers):
                    return answers
        if len(answers) < self._majority:
            raise failure
        return answers

    async def _request(
        self, server: _Server, script: str, arguments: Sequence[str | bytes | int], outcomes: asyncio.Queue[Any]
    ) -> None:
        if not server.n_waiting:
            server.waits_since_ms = monotonic_ms()
        if server.n_waiting >= MAX_WAITING and self._hangs(server):
            detail = f"{server.calls.address}: {MAX_WAITING} requests wait for it"
            outcomes.put_nowait(StoreUnavailable("unreachable", detail))
            return
        server.n_waiting += 1
        try:
            outcome = await server.calls.evaluate(script, *arguments)
        except StoreUnavailable as failure:
            self._report_health(server, failure)
            outcomes.put_nowait(failure)
        else:
            server.answered_ms = server.waits_since_ms = monotonic_ms()
            self._report_health(server, None)
            outcomes.put_nowait(outcome)
        finally:
            server.n_waiting -= 1

    def _hangs(self, server: _Server) -> bool:
        """Return whether another server has answered long after this one."""
        return max(other.answered_ms for other in self._servers) - server.waits_since_ms > HANGS_MS

    def _report_health(self, server: _Server, failure: StoreUnavailable | None) -> None:
        """Report when the first server is away, and when all are back."""
        was_away, server.is_away = server.is_away, failure is not None
        if self._health is None or len(self._servers) == 1:
            return
        if failure is not None:
            self._health.failed("snapshots", failure.kind, failure.detail)
        elif was_away and not any(other.is_away for other in self._servers):
            self._health.worked("snapshots")


def _answers_with(outcome: bytes, answers: Sequence[Any]) -> list[Any]:
    return [answer for answer in answers if answer[0] == outcome]


def _latest(answers: Sequence[Any]) -> bytes:
    """Return the snapshot of the latest write; empty: that one deleted it."""
    snapshot: bytes = max(answers, key=lambda answer: _write_of(answer[1:]))[3]
    return snapshot


def _write_of(answer: Sequence[bytes]) -> tuple[int, int]:
    """Return the fencing token and the number of the write that a server has."""
    return int(answer[0]), int(answer[1])


def _fence_of(answer: Sequence[Any]) -> int:
    return int(answer[0])


def _state_of(answer: Sequence[Any]) -> tuple[tuple[int, int], int]:
    """Return the latest write of an answer of `READ_OWNER`, and the token of the acquisition since."""
    return _write_of(answer[1:]), _fence_of(answer)
