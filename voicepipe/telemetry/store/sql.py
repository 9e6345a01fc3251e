"""A `TurnStore` on any database that runs `Work`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from voicepipe.telemetry.rollups import maintenance
from voicepipe.telemetry.rollups import query as rollup_query
from voicepipe.telemetry.rollups.arms import ArmTurn
from voicepipe.telemetry.rollups.buckets import DAY_MS
from voicepipe.telemetry.rollups.stats import Stats
from voicepipe.telemetry.store import feedback, sessions, turns, write
from voicepipe.telemetry.store.port import (
    EVERYTHING,
    NEWEST,
    NEWEST_SESSIONS,
    SessionPage,
    SessionQuery,
    StatsQuery,
    StoredTurn,
    TurnFilter,
    TurnPage,
    TurnQuery,
)
from voicepipe.telemetry.store.statements import Work

T = TypeVar("T")


class Database(Protocol):
    """Runs work, each in a transaction of its own; the Python code between statements runs in a thread.

    Every method raises `StoreError` when the database fails, or when it is closed.
    """

    async def read(self, work: Work[T], *, slow: bool = False) -> T:
        """Run work that reads; `slow`: other reads must not wait for it."""
        ...

    async def write(self, work: Work[T]) -> T:
        """Run work that writes."""
        ...

    async def used_bytes(self) -> int:
        """Return how much of its space is used."""
        ...

    async def close(self) -> None:
        """Close the database after running work; a second call does nothing."""
        ...


class SqlTurnStore:
    """Turns in a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def store(self, turns: Sequence[StoredTurn]) -> None:
        """Store these turns in one transaction."""
        await self._database.write(write.store(turns))

    async def get(self, id: str, project: str | None) -> StoredTurn | None:
        """Return the turn of that id, or None when this project has none."""
        return await self._database.read(turns.get(id, project))

    async def list(self, project: str | None, query: TurnQuery = NEWEST) -> TurnPage:
        """Return the project's turns that match, newest or slowest first."""
        return await self._database.read(turns.page(project, query))

    async def stats(self, project: str | None, query: StatsQuery = EVERYTHING) -> Stats:
        """Return the figures of the project's turns that match."""
        return await self._database.read(rollup_query.stats(project, query))

    async def sessions(self, project: str | None, query: SessionQuery = NEWEST_SESSIONS) -> SessionPage:
        """Return the project's sessions that match, newest first."""
        return await self._database.read(sessions.page(project, query))

    async def store_summary(self, project: str, session: str, summary: str) -> bool:
        """Store the summary of a session that has turns."""
        return await self._database.write(sessions.store_summary(project, session, summary))

    async def summary(self, project: str | None, session: str) -> str:
        """Return the summary of a session, or an empty text."""
        return await self._database.read(sessions.summary(project, session))

    async def store_feedback(self, id: str, project: str | None, source: str, score: float, at_ms: int) -> bool:
        """Store a score of a turn's answer."""
        return await self._database.write(feedback.store(project, id, source, score, at_ms))

    async def by_arm(self, project: str | None, query: TurnFilter) -> tuple[ArmTurn, ...]:
        """Return the newest turns that match, with their arms and scores."""
        return await self._database.read(feedback.by_arm(project, query), slow=True)

    async def delete_session(self, project: str, session: str) -> int:
        """Delete all turns of a session."""
        return await self._database.write(write.delete(project, "session", session))

    async def delete_user(self, project: str, user: str) -> int:
        """Delete all turns of a user; turns without a user are never deleted by this."""
        return await self._database.write(write.delete(project, "user_id", user)) if user else 0

    async def maintain_step(self, now_ms: int) -> bool:
        """Delete an old day's minutes, or sum up one bucket that is over."""
        if await self._database.write(maintenance.prune(now_ms)):
            return True
        done = await self._database.read(maintenance.sum_up(now_ms), slow=True)
        if done is not None:
            await self._database.write(maintenance.store_sum(done))
        return done is not None

    async def trim(self, now_ms: int, *, keep_days: int | None, max_bytes: int | None) -> int:
        """Delete some of the oldest turns beyond these limits."""
        if keep_days is not None:
            gone = await self._database.write(maintenance.delete_turns_before(now_ms - keep_days * DAY_MS))
            if gone:
                return gone
        if max_bytes is None or await self.size_bytes() <= max_bytes:
            return 0
        before_ms = await self._database.read(maintenance.end_of_oldest_turns())
        return 0 if before_ms is None else await self._database.write(maintenance.delete_turns_before(before_ms))

    async def size_bytes(self) -> int:
        """Return the size of the store; the space of deleted turns doesn't count."""
        return await self._database.used_bytes()

    async def close(self) -> None:
        """Close the database; writes that `keep` began are finished first."""
        await self._database.close()
