"""Announce this process to the other nodes, with its load."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from voicepipe import __version__
from voicepipe.clock import monotonic_ms, unix_ms
from voicepipe.cluster.port import NodePresence
from voicepipe.errors import Overload
from voicepipe.server.context import ServerContext
from voicepipe.server.sessions.listed_sessions import ListedSessions
from voicepipe.server.sessions.live_sessions import iso
from voicepipe.telemetry.log import log_event

ANNOUNCE_S: Final = 2.0
"""Time between two announcements."""

LIFE_S: Final = 10
"""How long an announcement counts: a process that has died stays listed until then."""


MAX_LISTED: Final = 200
"""Sessions that a process announces, each of about 250 bytes."""

FRESH_MS: Final = 900
"""How long the announcements of others are used again: each live stream reads them every second."""


class ProcessFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The announcement of one process."""

    node: str
    version: str
    started_at: str
    sessions: int
    max_sessions: int
    """The limit of its node."""

    loop_lag_ms: float
    """The 99th percentile of the event loop's lag."""

    cpu_share: float | None
    """The share of one core that its event loop used in the last seconds; None: not known yet."""

    draining: bool
    open: dict[str, int] = {}
    """Project -> open sessions."""

    newest: list[dict[str, Any]] = []
    """Its newest open sessions as `GET /v1/sessions` shows them, at most `MAX_LISTED`."""

    def rows(self, project: str | None) -> list[dict[str, Any]]:
        """Return those of a project, or all."""
        return [row for row in self.newest if project in (None, row["project"])]

    def n_open(self, project: str | None) -> int:
        """Return the number of all open sessions of a project, or of all."""
        return sum(self.open.values()) if project is None else self.open.get(project, 0)

    def why_more(self, project: str | None) -> str:
        """Return why `rows` lacks sessions; an empty text: it has all."""
        n_listed, n_open = len(self.rows(project)), self.n_open(project)
        return "" if n_listed >= n_open else f"node {self.node!r} lists the newest {n_listed} of {n_open}"


class Announcer:
    """Announces this process to the other nodes, and lists them."""

    def __init__(self, context: ServerContext, presence: NodePresence | None, node: str) -> None:
        """`presence` None: no store is shared, and only this process is listed."""
        self._context, self._presence, self._node = context, presence, node
        self._started_at = iso(unix_ms())
        self._epoch = ""
        self._others: tuple[ProcessFacts, ...] = ()
        self._others_ms: int | None = None
        self._has_unreadable = False
        """Whether a process has announced what this version can't read."""

        self._away_ms: int | None = None
        """When the store was last found away."""

        self._reading = asyncio.Lock()

    def facts(self) -> ProcessFacts:
        """Return the announcement of this process."""
        sessions, loop = self._context.live_sessions, self._context.loop
        return ProcessFacts(
            node=self._node,
            version=__version__,
            started_at=self._started_at,
            sessions=len(sessions),
            max_sessions=sessions.max_sessions,
            loop_lag_ms=0.0 if loop is None else round(loop.figures().lag_p99_ms, 1),
            cpu_share=None if loop is None else loop.cpu_share(),
            draining=sessions.closing,
            open=Counter(each.grant.project for each in sessions.of(None)),
            newest=[each.plain() for each in sessions.of(None)[:MAX_LISTED]],
        )

    async def run(self) -> None:
        """Announce this process until cancelled. While the store is away nothing is announced: the failing store is
        reported once, for all of its uses."""
        while self._presence is not None:
            try:
                owner = self._context.live_sessions.slots.owner
                self._check_epoch(
                    await self._presence.announce(owner, msgspec.json.encode(self.facts()), life_s=LIFE_S)
                )
            except Overload:
                self._away_ms = monotonic_ms()
            await asyncio.sleep(ANNOUNCE_S)

    def _check_epoch(self, epoch: str) -> None:
        """Report once that the store has lost its data."""
        if self._epoch not in ("", epoch):
            log_event("store_lost_data", level=logging.ERROR)
            self._away_ms = monotonic_ms()
        self._epoch = epoch

    async def nodes(self) -> tuple[list[dict[str, Any]], bool]:
        """Return the nodes by name, and whether these are all; with a store that is away only this process is known."""
        if self._presence is None:
            return _by_node((self.facts(),)), True
        try:
            found = await self._presence.announced()
        except Overload:
            return _by_node((self.facts(),)), False
        return _by_node(facts for each in found if (facts := _read(each)) is not None), True

    async def others(self) -> tuple[ProcessFacts, ...]:
        """Return the processes of the other nodes, at most `FRESH_MS` old; none while the store is away."""
        async with self._reading:
            if self._presence is not None and (self._others_ms is None or monotonic_ms() - self._others_ms >= FRESH_MS):
                try:
                    found = [_read(each) for each in await self._presence.announced()]
                except Overload:
                    found, self._away_ms = [], monotonic_ms()
                self._has_unreadable = None in found
                self._others = tuple(each for each in found if each is not None and each.node != self._node)
                self._others_ms = monotonic_ms()
        return self._others

    async def open_elsewhere(self, project: str | None) -> int:
        """Return the number of open sessions of a project, or of all, at the other nodes."""
        return sum(each.n_open(project) for each in await self.others())

    async def sessions_elsewhere(self, project: str | None) -> ListedSessions:
        """Return the open sessions of a project, or of all, at the other nodes, each with its node."""
        others = await self.others()
        return ListedSessions(
            [row | {"node": each.node} for each in others for row in each.rows(project)],
            self._why_unknown() or next((why for each in others if (why := each.why_more(project))), ""),
        )

    def _why_unknown(self) -> str:
        """Return why other processes may be missing."""
        # The announcements of an outage have expired: each process announces itself again when it finds the store.
        if self._away_ms is not None and monotonic_ms() - self._away_ms < 1_000 * LIFE_S:
            return "the store that the nodes share is away, or has only just come back"
        return "a node of another version announces its sessions in another form" if self._has_unreadable else ""


def _read(facts: bytes) -> ProcessFacts | None:
    """Return what a process has announced; None: another version of voicepipe announced something else."""
    try:
        return msgspec.json.decode(facts, type=ProcessFacts)
    except msgspec.ValidationError:
        return None


def _by_node(processes: Iterable[ProcessFacts]) -> list[dict[str, Any]]:
    nodes: dict[str, list[ProcessFacts]] = {}
    for each in processes:
        nodes.setdefault(each.node, []).append(each)
    return [_node(name, facts) for name, facts in sorted(nodes.items())]


def _node(name: str, processes: list[ProcessFacts]) -> dict[str, Any]:
    shares = [each.cpu_share for each in processes if each.cpu_share is not None]
    return {
        "object": "voicepipe.node",
        "node": name,
        "versions": sorted({each.version for each in processes}),
        "started_at": min(each.started_at for each in processes),
        "processes": len(processes),
        "sessions": sum(each.sessions for each in processes),
        "max_sessions": max(each.max_sessions for each in processes),
        "loop_lag_ms": max(each.loop_lag_ms for each in processes),
        "cpu_share": round(max(shares), 3) if shares else None,
        "draining": any(each.draining for each in processes),
    }
