"""What a client gets from a node that finds the snapshot of its session, and can or can't go on with it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from aiohttp import ClientWebSocketResponse, WSMsgType

from tests.server.conftest import Serve, Server
from voicepipe.errors import StoreUnavailable
from voicepipe.protocol.extensions import Resume
from voicepipe.server import takeover
from voicepipe.server.authenticate import Principal
from voicepipe.server.sessions.resume import Found
from voicepipe.server.sessions.websocket import AiohttpSocket
from voicepipe.server.takeover import StoredSession
from voicepipe.server.wait_limits import WaitLimits
from voicepipe.session.grant import SessionGrant
from voicepipe.session.resumption import digest_of
from voicepipe.session.snapshot import SessionSnapshot
from voicepipe.testing.waiting import WAIT_S, eventually

SECRET = "right"
ITEM = {"is": "Message", "id": "i1", "role": "user", "parts": [{"is": "InputText", "text": "hi"}]}
REPLY = {"item_id": "i2", "response_id": "r1", "is_generated": False, "is_synthesized": False}
SNAPSHOT: dict[str, Any] = {"items": [ITEM], "counts": {"item": 1}, "reply": REPLY}
GRANT = {
    "session_id": "sess_x",
    "project": "acme",
    "agent": "default",
    "model": "m",
    "identity": None,
    "config": None,
    "expires_at": 4_000_000_000,
}
FIRST_VERSION: dict[str, Any] = {
    "grant": GRANT,
    "project": "acme",
    "claims": None,
    "api_key": None,
    "snapshot": SNAPSHOT,
}
"""A session as the first version that shared snapshots stored it, with the fields that had no default then. It never
changes: nodes of two versions run at once while a cluster is upgraded."""


class Snapshots:
    """A store that has one snapshot."""

    def __init__(self, stored: dict[str, Any], n_failures: int = 0) -> None:
        self.stored = json.dumps(stored).encode()
        self.n_failures, self.dropped = n_failures, False
        self.finds = asyncio.Event()
        """Set: look-ups are answered."""

        self.finds.set()
        self.n_taken = 0

    async def has_snapshot(self, session_id: str) -> bool:
        """Return whether it is the session of this snapshot."""
        await self.finds.wait()
        return session_id == "sess_x"

    async def store_snapshot(
        self, session_id: str, snapshot: bytes, *, digest: str, owner: str, life_s: int, previous_digest: str = ""
    ) -> bool:
        """Store the snapshot in place of the one before."""
        self.stored = snapshot
        return True

    async def acquire_snapshot(self, session_id: str, *, digest: str, owner: str, next_digest: str) -> bytes | None:
        """Return the snapshot to whoever has the secret; the first calls fail."""
        if self.n_failures:
            self.n_failures -= 1
            raise StoreUnavailable
        self.n_taken += 1
        return self.stored if digest == digest_of(SECRET) else None

    async def delete_snapshot(self, session_id: str, *, owner: str) -> None:
        """Note that the session is over."""
        self.dropped = True


async def requested(server: Server, secret: str = SECRET, named: str = "sess_x") -> ClientWebSocketResponse:
    """Ask to resume the session."""
    line: ClientWebSocketResponse = await server.http.ws_connect(f"{server.base}/v1/realtime?resume={named}")
    await line.send_str(json.dumps({"type": "voicepipe.resume", "session_id": "sess_x", "secret": secret}))
    return line


async def close_code(line: ClientWebSocketResponse) -> int | None:
    """Return the code with which the server closes the connection, before any other message."""
    assert (await line.receive(timeout=WAIT_S)).type is WSMsgType.CLOSE
    return line.close_code


async def goes_on(server: Server) -> bool:
    """Return whether a right request is followed by the session."""
    line = await requested(server)
    await line.send_str("echo")
    message = await line.receive(timeout=WAIT_S)
    await line.close()
    return message.data in ("echo", b"echo")


async def test_a_snapshot_of_the_first_version_is_read(serve: Serve) -> None:
    async with serve(session_snapshots=Snapshots(FIRST_VERSION)) as server:
        assert await goes_on(server)
        assert server.grants[0].session_id == "sess_x"


def without(*path: str) -> Callable[[], dict[str, Any]]:
    """Return a session that lacks a field: as if this version required one that others do not write."""

    def stored() -> dict[str, Any]:
        whole = json.loads(json.dumps(FIRST_VERSION))
        inner = whole
        for name in path[:-1]:
            inner = inner[name]
        del inner[path[-1]]
        return dict(whole)

    return stored


def with_an_unknown_item() -> dict[str, Any]:
    return {**FIRST_VERSION, "snapshot": {**SNAPSHOT, "items": [{"is": "Hologram", "id": "i1"}]}}


@pytest.mark.parametrize(
    "stored",
    [without("project"), without("grant", "agent"), without("snapshot", "counts"), with_an_unknown_item],
    ids=["the session", "the grant", "the snapshot", "an item"],
)
async def test_a_snapshot_that_this_node_cannot_read_is_left_to_others(
    serve: Serve, stored: Callable[[], dict[str, Any]]
) -> None:
    """The client is not refused for good: it tries again, and reaches a node that reads it. The snapshot stays."""
    snapshots = Snapshots(stored())
    async with serve(session_snapshots=snapshots) as server:
        assert await close_code(await requested(server)) == 1_013
        snapshots.stored = json.dumps(FIRST_VERSION).encode()
        assert not snapshots.dropped
        assert await goes_on(server), "a slot was not given back"


@pytest.mark.parametrize("redacted", [True, False])
def test_a_grant_is_stored_under_the_names_that_older_nodes_read(redacted: bool) -> None:
    """A node of an older version goes on with the session: it must not send providers' texts to a client secret."""
    grant = msgspec.convert({**GRANT, "redacted": redacted}, SessionGrant)
    snapshot = msgspec.json.decode(json.dumps(SNAPSHOT), type=SessionSnapshot)
    stored = StoredSession.of(Principal("acme", None), grant, snapshot)
    older = msgspec.json.decode(stored)["grant"]
    assert (older["veiled"], "redacted" in older) == (redacted, False)
    assert msgspec.json.decode(stored, type=StoredSession).session_grant == grant


async def test_a_store_that_fails_once_loses_no_session(serve: Serve) -> None:
    """The store was away when the snapshot was to be taken, and is back when the reason is looked for: not refused."""
    async with serve(session_snapshots=Snapshots(FIRST_VERSION, n_failures=1)) as server:
        assert await close_code(await requested(server)) == 1_013
        assert await goes_on(server)


class HungSnapshots(Snapshots):
    """A store that hangs: no request is answered in its time, and each is carried out later."""

    async def has_snapshot(self, session_id: str) -> bool:
        """Give up waiting."""
        raise StoreUnavailable


@pytest.mark.parametrize("named", ["sess_x", "1"])
async def test_a_store_that_hangs_is_sent_nothing_that_it_would_do_later(serve: Serve, named: str) -> None:
    """It would take the session from the node to which its client has turned since."""
    snapshots = HungSnapshots(FIRST_VERSION)
    async with serve(session_snapshots=snapshots) as server:
        assert await close_code(await requested(server, named=named)) == 1_013
        assert not snapshots.n_taken


async def test_a_connection_without_an_event_waits_for_one_if_its_session_is_known(serve: Serve) -> None:
    """The store's answer comes first: the event is read as soon as it is there."""
    snapshots = Snapshots(FIRST_VERSION)
    async with serve(session_snapshots=snapshots) as server:
        line = await server.http.ws_connect(f"{server.base}/v1/realtime?resume=sess_x")
        await eventually(lambda: is_waiting(server))
        await line.send_str(json.dumps({"type": "voicepipe.resume", "session_id": "sess_x", "secret": SECRET}))
        await line.send_str("echo")
        assert (await line.receive(timeout=WAIT_S)).data in ("echo", b"echo")
        await line.close()
        assert not await is_waiting(server)


async def is_waiting(server: Server) -> bool | None:
    """Return whether the server waits for the first event of a connection."""
    waits = server.context.resumptions.waits
    assert isinstance(waits, WaitLimits)
    return len(waits) > 0 or None


class HungProcess:
    """Another process of this node, which has the session and does not answer."""

    async def find(self, session_id: str) -> Found:
        """Return what the supervisor knows."""
        return "hung"

    async def resume(self, resume_request: Resume, socket: AiohttpSocket) -> bool:
        """Refuse."""
        return False


@pytest.mark.parametrize("named", ["sess_x", "1"])
async def test_a_session_whose_own_process_hangs_is_not_taken_from_it(serve: Serve, named: str) -> None:
    """That process may go on any moment: the client tries again."""
    snapshots = Snapshots(FIRST_VERSION)
    async with serve(session_snapshots=snapshots, other_sessions=HungProcess()) as server:
        assert await close_code(await requested(server, named=named)) == 1_013
        assert not snapshots.n_taken


async def test_a_node_without_a_slot_leaves_the_session_to_others(serve: Serve) -> None:
    async with serve(session_snapshots=Snapshots(FIRST_VERSION), max_sessions=1) as server:
        other = await server.http.ws_connect(f"{server.base}/v1/realtime")
        assert await close_code(await requested(server)) == 1_013
        await other.close()


async def test_a_wrong_secret_is_refused_for_good(serve: Serve) -> None:
    async with serve(session_snapshots=Snapshots(FIRST_VERSION)) as server:
        line = await requested(server, "wrong")
        assert json.loads(await line.receive_str(timeout=WAIT_S))["error"]["code"] == "resume_refused"
        assert await close_code(line) == 4_001


def test_what_is_stored_is_what_is_read() -> None:
    stored = msgspec.json.decode(json.dumps(FIRST_VERSION), type=StoredSession)
    assert msgspec.json.decode(msgspec.json.encode(stored), type=StoredSession) == stored


async def test_the_snapshot_of_a_session_that_is_over_stays_until_its_records_are_stored(serve: Serve) -> None:
    """Both have its last turn: no kill of the node in between loses it."""
    snapshots = Snapshots(FIRST_VERSION)
    waited: list[tuple[str, bool]] = []

    async def written(session_id: str) -> None:
        waited.append((session_id, snapshots.dropped))

    async with serve(session_snapshots=snapshots, records_written=written) as server:
        assert await goes_on(server)
        await eventually(lambda: dropped(snapshots))
    assert waited == [("sess_x", False)]


async def dropped(snapshots: Snapshots) -> bool | None:
    return snapshots.dropped or None


async def test_a_database_that_is_away_stores_no_snapshot(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a while it is deleted without the records, which wait in their process."""
    monkeypatch.setattr(takeover, "RECORDS_S", 0.001)
    snapshots = Snapshots(FIRST_VERSION)

    async def never(session_id: str) -> None:
        await asyncio.Event().wait()

    async with serve(session_snapshots=snapshots, records_written=never) as server:
        assert await goes_on(server)
        await eventually(lambda: dropped(snapshots))
