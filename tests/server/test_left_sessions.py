"""The records of a session whose node has died and whose client has not come back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.server.conftest import Serve, Server
from tests.server.test_takeover import FIRST_VERSION, Snapshots
from voicepipe.cluster.port import LeftSnapshot
from voicepipe.errors import StoreUnavailable
from voicepipe.server import left_sessions
from voicepipe.server.left_sessions import LeftSessions
from voicepipe.session.grant import SessionGrant
from voicepipe.telemetry.store.port import StoredTurn
from voicepipe.testing.records import turn_record
from voicepipe.testing.waiting import eventually
from voicepipe.turn.record.values import Outcome, TurnRecord
from voicepipe.values import replace

RUNNING = turn_record(outcome=None, played_text="", spoken_ms=0, session="sess_x", id="turn_2")
CLOSED = turn_record(session="sess_x")


class FakeLeftSnapshots(Snapshots):
    """A store whose sessions are all left."""

    def __init__(self, *sessions: dict[str, Any], n_failures: int = 0) -> None:
        super().__init__(FIRST_VERSION)
        self.left = [json.dumps(each).encode() for each in sessions]
        self.n_lease_failures = n_failures
        self.leases: list[str] = []
        self.ended: list[str] = []

    async def lease_left_snapshot(self, *, after_s: int, life_s: int, lease: str) -> LeftSnapshot | None:
        """Return the next one; the first calls fail."""
        if self.n_lease_failures:
            self.n_lease_failures -= 1
            raise StoreUnavailable
        self.leases.append(lease)
        return LeftSnapshot("sess_x", self.left.pop(0)) if self.left else None

    async def delete_left_snapshot(self, session_id: str, *, lease: str) -> None:
        """Note that its records have an end."""
        assert lease == self.leases[-1]
        self.ended.append(session_id)

    async def is_ended(self) -> bool | None:
        """Return whether a session's records have an end."""
        return bool(self.ended) or None


def left(*changes: dict[str, str]) -> dict[str, Any]:
    """Return a session as its node has left it, with one turn that ran and one that was closed."""
    records = {"running_records": [msgspec.to_builtins(RUNNING)], "closed_records": [msgspec.to_builtins(CLOSED)]}
    snapshot = {**FIRST_VERSION["snapshot"], **records, "began_unix_ms": 1_000, "changes": list(changes)}
    return {**FIRST_VERSION, "snapshot": snapshot}


class FakeRecordWriter:
    """What stores the records of sessions (`ServerContext.records_of`)."""

    def __init__(self) -> None:
        self.records: list[TurnRecord] = []
        self.whose: list[tuple[str, str, int]] = []

    def of(self, grant: SessionGrant, agent: str, began_unix_ms: int) -> Callable[[TurnRecord], None]:
        """Return what stores those of one session."""
        self.whose.append((grant.session_id, agent, began_unix_ms))
        return self.records.append

    @property
    def outcomes(self) -> dict[str, str | None]:
        """Return the outcome of each turn."""
        return {each.id: each.outcome for each in self.records}


def survivor(server: Server, snapshots: FakeLeftSnapshots, record_writer: FakeRecordWriter) -> LeftSessions:
    """Return what a node does for the sessions of others."""
    return LeftSessions(replace(server.context, records_of=record_writer.of), snapshots)


async def test_its_turns_end_and_its_snapshot_is_deleted(serve: Serve) -> None:
    snapshots, record_writer = FakeLeftSnapshots(left()), FakeRecordWriter()
    async with serve() as server:
        node = survivor(server, snapshots, record_writer)
        assert await node.end_one()
        assert not await node.end_one()
    assert record_writer.outcomes == {"turn_1": "completed", "turn_2": "abandoned"}
    assert record_writer.whose == [("sess_x", "default", 1_000)]
    assert (snapshots.ended, len(set(snapshots.leases))) == (["sess_x"], 2)


async def test_they_are_of_the_agent_that_had_the_call(serve: Serve) -> None:
    snapshots, record_writer = FakeLeftSnapshots(left({"type": "agent", "agent": "support"})), FakeRecordWriter()
    async with serve() as server:
        assert await survivor(server, snapshots, record_writer).end_one()
    assert record_writer.whose == [("sess_x", "support", 1_000)]


@pytest.mark.parametrize("outcome", ["interrupted", None])
async def test_a_turn_that_its_node_has_recorded_as_over_stays_so(serve: Serve, outcome: Outcome | None) -> None:
    """The node was stopped, and wrote all records. One that was recorded as running gets its end."""
    snapshots, record_writer = FakeLeftSnapshots(left()), FakeRecordWriter()
    async with serve() as server:
        stored = StoredTurn(replace(RUNNING, outcome=outcome), "acme", "default", 1_000)
        await server.context.turns.store([stored])
        assert await survivor(server, snapshots, record_writer).end_one()
    assert ("turn_2" in record_writer.outcomes) == (outcome is None)


async def test_a_text_that_this_node_cannot_read_is_left_to_others(serve: Serve) -> None:
    snapshots, record_writer = FakeLeftSnapshots({"snapshot": "of a newer version"}, left()), FakeRecordWriter()
    async with serve() as server:
        node = survivor(server, snapshots, record_writer)
        assert await node.end_one()
        assert (snapshots.ended, record_writer.records) == ([], [])
        assert await node.end_one(), "the next one has its turn"
        assert snapshots.ended == ["sess_x"]


async def test_a_text_stays_until_its_records_are_stored(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(left_sessions, "RECORDS_S", 0.001)
    snapshots, record_writer = FakeLeftSnapshots(left()), FakeRecordWriter()

    async def never(session_id: str) -> None:
        await asyncio.Event().wait()

    async with serve(records_written=never) as server:
        with pytest.raises(TimeoutError):
            await survivor(server, snapshots, record_writer).end_one()
    assert snapshots.ended == []


async def test_a_server_looks_for_them_again_after_a_failure(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(left_sessions, "PAUSE_S", 0.001)
    snapshots = FakeLeftSnapshots(left(), n_failures=2)
    async with serve(left_snapshots=snapshots):
        await eventually(snapshots.is_ended)
