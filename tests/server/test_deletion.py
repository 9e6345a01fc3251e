"""All stored data of a session or a user is deleted on request, by those who are permitted to."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from tests.server.test_presence import Announced, facts
from voicepipe.errors import StoreUnavailable
from voicepipe.server import presence
from voicepipe.telemetry.store.port import StoredTurn
from voicepipe.telemetry.webhooks.payload import Webhook
from voicepipe.telemetry.webhooks.queue import NewDelivery
from voicepipe.testing.records import turn_record
from voicepipe.values import replace

HOOK = Webhook(name="crm", url="http://127.0.0.1:1/", secrets=(b"x" * 32,))


def stored_turn(id: str, session: str, *, project: str = "acme", user: str = "") -> StoredTurn:
    return StoredTurn(replace(turn_record(), id=id, session=session), project, "default", 1, user=user)


async def test_a_session_is_deleted_with_all_its_data(serve: Any, monkeypatch: Any) -> None:
    """Delete its turns, its pending webhooks, its events in the live stream and its journal; leave other sessions
    alone.
    """
    deleted_journals: list[tuple[str, ...]] = []

    def delete_session(*whose: str) -> int:
        deleted_journals.append(whose)
        return 1

    async with serve(webhooks=[HOOK]) as server:
        msgspec.structs.force_setattr(server.context, "delete_journal", delete_session)
        turns = [
            stored_turn("a", "sess_1"),
            stored_turn("b", "sess_1"),
            stored_turn("c", "sess_2"),
            stored_turn("x", "sess_1", project="bank"),
        ]
        await server.context.turns.store(turns)
        for turn in turns:
            server.context.feed.on_record(turn)
        queue = server.context.webhooks.queue
        await queue.put([NewDelivery("crm", s, "session.ended", "acme", s, b"{}") for s in ("sess_1", "sess_2")])
        key = server.new_key(scopes=["operate"])
        status, body = await server.delete("/v1/sessions/sess_1", headers=key)
        assert (status, body) == (
            200,
            {"object": "voicepipe.session.deleted", "id": "sess_1", "deleted": True, "turns": 2},
        )
        _, page = await server.get("/v1/turns", headers=server.new_key(scopes=["operate_all"]))
        assert {turn["id"] for turn in page["data"]} == {"c", "x"}
        assert (await queue.backlog())["crm"].waiting == 1
        with server.context.feed.reading(lambda event: event.project == "acme", after="of-before-1") as reader:
            event = await reader.next(0)
            assert (event.session, await reader.next(0)) == ("sess_2", None)
        assert deleted_journals == [("acme", "sess_1")]
        assert (await server.delete("/v1/sessions/sess_1", headers=key))[1]["turns"] == 0


async def test_a_user_is_deleted_with_all_their_sessions(serve: Any) -> None:
    """Of this project."""
    async with serve() as server:
        await server.context.turns.store(
            [
                stored_turn("a", "sess_1", user="anna"),
                stored_turn("b", "sess_2", user="anna"),
                stored_turn("c", "sess_3", user="bert"),
                stored_turn("x", "sess_4", user="anna", project="bank"),
            ]
        )
        status, body = await server.delete("/v1/users/anna", headers=server.new_key(scopes=["operate"]))
        assert (status, body["sessions"], body["turns"]) == (200, 2, 2)
        every = server.new_key("ops", scopes=["operate_all"])
        _, page = await server.get("/v1/turns", headers=every)
        assert {turn["id"] for turn in page["data"]} == {"c", "x"}
        status, body = await server.delete("/v1/users/anna", headers=every)
        assert (status, body["error"]["param"]) == (400, "project")
        assert (await server.delete("/v1/users/anna?project=bank", headers=every))[1]["turns"] == 1


async def test_a_session_that_is_open_is_not_deleted(serve: Any, gate: Any) -> None:
    """It would go on writing. Another project neither deletes it nor learns that it is there."""
    async with serve() as server:
        server.talks.append(gate)
        secret = server.forge(sub="anna", identity="anna")
        key = server.new_key(scopes=["operate"])
        async with server.connect(headers={"Authorization": f"Bearer {secret}"}):
            await gate.began.wait()
            session = server.grants[0].session_id
            for path in (f"/v1/sessions/{session}", "/v1/users/anna"):
                status, body = await server.delete(path, headers=key)
                assert (status, body["error"]["code"]) == (409, "session_open")
                assert (await server.delete(path, headers=server.new_key("bank", scopes=["operate"])))[0] == 200
            gate.go.set()


class Store(Announced):
    """A store that may be away."""

    is_away = False

    async def announced(self) -> list[bytes]:
        if self.is_away:
            raise StoreUnavailable
        return await super().announced()


def announced(node: str, n_listed: int, n_open: int) -> bytes:
    """Return the announcement of a node with sessions of one project."""
    rows = [
        {"id": f"sess_{node}{n}", "project": "acme", "agent": "default", "user": "bert", "started_at": f"2026-01-{n}"}
        for n in range(n_listed)
    ]
    return json.dumps(msgspec.json.decode(facts(node, n_open)) | {"open": {"acme": n_open}, "newest": rows}).encode()


@pytest.mark.parametrize("path", ["/v1/sessions/sess_1", "/v1/users/anna"])
async def test_nothing_is_deleted_while_an_open_session_may_be_missing_in_the_list(
    serve: Any, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """A node lists not all of its sessions, or announces them in another form, or the store is away, or was just now:
    other nodes announce themselves again meanwhile."""
    now_ms = 1_000_000
    monkeypatch.setattr(presence, "monotonic_ms", lambda: now_ms)
    store = Store(announced("b", 2, 3))
    async with serve(presence=store) as server:
        await server.context.turns.store([stored_turn("a", "sess_1", user="anna")])
        key = server.new_key(scopes=["operate"])

        async def refusal() -> str:
            nonlocal now_ms
            now_ms += presence.FRESH_MS
            status, body = await server.delete(path, headers=key)
            if status == 200:
                return ""
            assert (status, body["error"]["code"]) == (503, "open_sessions_unknown")
            assert body["error"]["message"].startswith("Nothing was deleted, since not all open sessions are known: ")
            return str(body["error"]["message"]).partition(": ")[2]

        assert await refusal() == "node 'b' lists the newest 2 of 3."
        store.facts = [announced("b", 2, 2), b'{"node": 1}']
        assert "another form" in await refusal()
        store.facts, store.is_away = [announced("b", 2, 2)], True
        assert "is away" in await refusal()
        store.is_away = False
        assert "just come back" in await refusal()
        now_ms += 1_000 * presence.LIFE_S
        _, page = await server.get("/v1/turns", headers=server.new_key(scopes=["operate_all"]))
        assert len(page["data"]) == 1
        assert await refusal() == ""


async def test_an_open_session_of_another_node_is_not_deleted(serve: Any) -> None:
    """Whatever else is unknown. Of another project nothing is."""
    async with serve(presence=Announced(announced("b", 2, 3))) as server:
        for path in ("/v1/sessions/sess_b1", "/v1/users/bert"):
            status, body = await server.delete(path, headers=server.new_key(scopes=["operate"]))
            assert (status, body["error"]["code"]) == (409, "session_open")
            assert (await server.delete(path, headers=server.new_key("bank", scopes=["operate"])))[0] == 200


@pytest.mark.parametrize("path", ["/v1/sessions/sess_1", "/v1/users/anna"])
async def test_who_may_read_may_not_delete(serve: Any, path: str) -> None:
    async with serve() as server:
        token = server.forge(scopes=["realtime", "turns", "operate"])
        for headers in (server.new_key(), {"Authorization": f"Bearer {token}"}):
            status, body = await server.delete(path, headers=headers)
            assert (status, body["error"]["code"]) == (403, "missing_scope")
        operator = server.new_key(scopes=["operate"])
        assert (await server.delete(f"{path}?project=bank", headers=operator))[0] == 403
        assert (await server.delete(f"{path}?agent=x", headers=operator))[0] == 400
