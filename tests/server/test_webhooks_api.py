"""Webhooks over HTTP: their state, failed deliveries, retries, and the event at the end of a session."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from voicepipe.telemetry.webhooks.payload import Webhook
from voicepipe.telemetry.webhooks.queue import NewDelivery
from voicepipe.testing.waiting import WAIT_S
from voicepipe.values import replace

EVERY = Webhook(name="every", url="https://user:hush@hooks.example/x?key=hush", secrets=(b"x" * 32,))
ACME = Webhook(name="crm", url="http://127.0.0.1:1/", secrets=(b"x" * 32,), kinds=("session.ended",), project="acme")


async def give_up(server: Any, *deliveries: tuple[str, str]) -> None:
    """Mark these deliveries (webhook, id) as failed for good."""
    queue = server.context.webhooks.queue
    for webhook, id in deliveries:
        await queue.put([NewDelivery(webhook, id, "session.ended", "acme", "sess_1", b"{}")])
        due = await queue.take(webhook, lease_ms=1)
        await queue.give_up(due, why="HTTP 500")


async def test_an_operator_sees_the_webhooks_of_their_project(serve: Any) -> None:
    """Of all projects with `operate_all`; of an address only the host, since the rest may hold a key."""
    async with serve(webhooks=[EVERY, ACME]) as server:
        await give_up(server, ("crm", "m1"))
        status, own = await server.get("/v1/webhooks", headers=server.new_key(scopes=["operate"]))
        assert status == 200
        assert own["data"] == [
            {
                "object": "voicepipe.webhook",
                "id": "crm",
                "host": "127.0.0.1",
                "events": ["session.ended"],
                "project": "acme",
                "waiting": 0,
                "dead": 1,
            }
        ]
        status, every = await server.get("/v1/webhooks", headers=server.new_key(scopes=["operate_all"]))
        assert [(each["id"], each["host"]) for each in every["data"]] == [
            ("every", "hooks.example"),
            ("crm", "127.0.0.1"),
        ]
        assert "hush" not in json.dumps(every)


async def test_the_dead_are_paged_and_tried_again(serve: Any) -> None:
    """One by its id, or all of a webhook; another project's are not there."""
    async with serve(webhooks=[EVERY, ACME]) as server:
        await give_up(server, ("crm", "m1"), ("crm", "m2"), ("crm", "m3"), ("every", "m4"))
        key = server.new_key(scopes=["operate"])
        _, page = await server.get("/v1/webhooks/dead?limit=2", headers=key)
        assert [each["id"] for each in page["data"]] == ["m3", "m2"]
        assert page["data"][0]["why"] == "HTTP 500"
        assert (page["data"][0]["attempts"], page["data"][0]["event"]) == (1, "session.ended")
        _, rest = await server.get(f"/v1/webhooks/dead?limit=2&before={page['next']}", headers=key)
        assert ([each["id"] for each in rest["data"]], rest["next"]) == (["m1"], None)
        status, body = await server.post("/v1/webhooks/dead/retry?id=m4", headers=key)
        assert (status, body["error"]["code"]) == (404, "delivery_not_found")
        assert (await server.post("/v1/webhooks/dead/retry?id=m2", headers=key))[1]["retried"] == 1
        assert (await server.post("/v1/webhooks/dead/retry?webhook=crm", headers=key))[1]["retried"] == 2
        assert (await server.get("/v1/webhooks/dead", headers=key))[1]["data"] == []
        every = server.new_key(scopes=["operate_all"])
        assert (await server.post("/v1/webhooks/dead/retry", headers=every))[1]["retried"] == 1


async def test_what_is_wrong_is_named(serve: Any) -> None:
    async with serve(webhooks=[EVERY]) as server:
        for path, status, param in (
            ("/v1/webhooks/dead?limit=0", 400, "limit"),
            ("/v1/webhooks/dead?before=x", 400, "before"),
            ("/v1/webhooks/dead?event=x", 400, "event"),
            ("/v1/webhooks/dead?webhook=none", 404, "webhook"),
        ):
            got, body = await server.get(path)
            assert (got, body["error"]["param"]) == (status, param)


async def test_without_webhooks_there_are_none(serve: Any) -> None:
    async with serve() as server:
        assert (await server.get("/v1/webhooks"))[1]["data"] == []
        assert (await server.get("/v1/webhooks/dead"))[1] == {"object": "list", "data": [], "next": None}
        assert (await server.post("/v1/webhooks/dead/retry"))[1]["retried"] == 0


async def test_who_may_read_turns_sees_no_webhooks(serve: Any) -> None:
    async with serve(webhooks=[EVERY]) as server:
        for path in ("/v1/webhooks", "/v1/webhooks/dead"):
            assert (await server.get(path, headers=server.new_key()))[0] == 403
        assert (await server.post("/v1/webhooks/dead/retry", headers=server.new_key()))[0] == 403


async def test_the_end_of_a_session_is_sent(serve: Any, gate: Any) -> None:
    """With what became of it; a session that was refused never began, so it does not end."""
    async with serve(webhooks=[replace(EVERY, kinds=("session.ended",))]) as server:
        server.talks.append(gate)
        refused, _ = await server.refused("/v1/realtime?agent=nobody")
        assert refused == 404
        async with server.connect(headers=server.new_key()):
            await gate.began.wait()
            gate.go.set()
        async with asyncio.timeout(WAIT_S):
            await server.context.webhooks._to_write.wait()
        (event,) = server.context.webhooks._events
        assert (event.kind, event.project, event.session) == ("session.ended", "acme", server.grants[0].session_id)
        assert (event.data["id"], event.data["turns"], event.data["object"]) == (event.session, 0, "voicepipe.session")
        assert event.data["lasted_ms"] >= 0
        assert event.data["ended_at"] >= event.data["started_at"]
