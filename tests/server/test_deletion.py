"""All stored data of a session or a user is deleted on request, by those who are permitted to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from voicepipe.telemetry.store.port import StoredTurn
from voicepipe.telemetry.webhooks.payload import Webhook
from voicepipe.telemetry.webhooks.queue import NewDelivery
from voicepipe.testing.records import turn_record

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
        object.__setattr__(server.context, "delete_journal", delete_session)
        turns = [
            stored_turn("a", "sess_1"),
            stored_turn("b", "sess_1"),
            stored_turn("c", "sess_2"),
            stored_turn("x", "sess_1", project="bank"),
        ]
        await server.context.turns.keep(turns)
        for turn in turns:
            server.context.feed.on_record(turn)
        queue = server.context.webhooks.queue
        await queue.put(
            [NewDelivery("crm", s, "session.ended", "acme", s, b"{}") for s in ("sess_1", "sess_2")], now_ms=0
        )
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
        await server.context.turns.keep(
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
