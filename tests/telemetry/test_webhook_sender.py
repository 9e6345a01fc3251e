"""Webhooks on real sockets: signed, retried with one id, abandoned at last, never sent twice after they arrived."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from voicepipe.telemetry.ended_turns import EndedTurns
from voicepipe.telemetry.store.port import StoredTurn, StoreError
from voicepipe.telemetry.webhooks.payload import KINDS, Webhook, read_secrets, signed_headers
from voicepipe.telemetry.webhooks.queue import WebhookDelivery, WebhookQueue
from voicepipe.telemetry.webhooks.queue_file import QueueFile
from voicepipe.telemetry.webhooks.sender import MAX_BUFFERED, RetryPolicy, WebhookCounts, Webhooks, _judged
from voicepipe.testing.records import turn_record
from voicepipe.testing.waiting import WAIT_S
from voicepipe.values import replace

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
QUICK = RetryPolicy(first_ms=1, factor=1, jitter=0, attempts=4)


@dataclass
class Receiver:
    """A receiver with scripted answers: a status, no answer (`hang`), or half an answer (`cut`)."""

    cues: deque[int | str] = field(default_factory=deque)
    got: asyncio.Queue[tuple[dict[str, str], bytes]] = field(default_factory=asyncio.Queue)
    headers: dict[str, str] = field(default_factory=dict)
    url: str = ""

    async def take(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.got.put_nowait(({name.lower(): value for name, value in request.headers.items()}, body))
        cue = self.cues.popleft() if self.cues else 204
        if cue == "hang":
            await asyncio.Event().wait()
        if cue == "cut":
            assert request.transport is not None
            request.transport.abort()
        return web.Response(status=cue if isinstance(cue, int) else 204, headers=self.headers)

    async def next(self) -> tuple[dict[str, str], bytes]:
        async with asyncio.timeout(WAIT_S):
            return await self.got.get()


@asynccontextmanager
async def receiving(*cues: int | str) -> AsyncIterator[Receiver]:
    receiver = Receiver(deque(cues))
    app = web.Application()
    app.router.add_post("/hook", receiver.take)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.01)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        receiver.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
        yield receiver
    finally:
        await runner.cleanup()


class NotifyingQueue(WebhookQueue):
    """A queue that signals when a delivery has ended."""

    ended: asyncio.Queue[str]

    async def delivered(self, delivery: WebhookDelivery) -> None:
        await super().delivered(delivery)
        self.ended.put_nowait("delivered")

    async def failed(self, delivery: WebhookDelivery, *, why: str, wait_ms: int) -> None:
        await super().failed(delivery, why=why, wait_ms=wait_ms)
        self.ended.put_nowait(why)

    async def give_up(self, delivery: WebhookDelivery, *, why: str) -> None:
        await super().give_up(delivery, why=why)
        self.ended.put_nowait(f"dead: {why}")

    async def next(self) -> str:
        async with asyncio.timeout(WAIT_S):
            return await self.ended.get()


@asynccontextmanager
async def sending(
    folder: Path, *urls: str, retry_policy: RetryPolicy = QUICK, **more: Any
) -> AsyncIterator[tuple[Webhooks, NotifyingQueue]]:
    queue = NotifyingQueue(await QueueFile.open(folder / "webhooks.sqlite3"))
    queue.ended = asyncio.Queue()
    hooks = [
        Webhook(**{"name": f"hook{n}", "url": url, "secrets": read_secrets(SECRET), "timeout_ms": 10_000, **more})
        for n, url in enumerate(urls)
    ]
    webhooks = Webhooks(hooks, queue, retry_policy)
    try:
        async with asyncio.TaskGroup() as group:
            running = group.create_task(webhooks.run())
            yield webhooks, queue
            running.cancel()
        await webhooks.write_waiting_events()
    finally:
        await queue.close()


def stored_turn(id: str = "turn_1", **changes: Any) -> StoredTurn:
    return StoredTurn(replace(turn_record(), id=id, **changes), "acme", "default", 1)


def test_the_published_signature_of_the_specification() -> None:
    """Its own example: secret, id, time and body give this signature."""
    webhook = Webhook(name="x", url="", secrets=read_secrets(SECRET))
    headers = signed_headers(webhook, "msg_p5jXN8AQM9LWM0D4loKWxJek", b'{"test": 2432232314}', now_s=1614265330)
    assert headers["webhook-id"] == "msg_p5jXN8AQM9LWM0D4loKWxJek"
    assert headers["webhook-timestamp"] == "1614265330"
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_while_a_secret_is_replaced_both_sign() -> None:
    """Each receiver finds its own among them."""
    other = f"whsec_{b64encode(b'x' * 32).decode()}"
    both = Webhook(name="x", url="", secrets=read_secrets(f"{other} {SECRET}"))
    signatures = signed_headers(both, "msg_p5jXN8AQM9LWM0D4loKWxJek", b'{"test": 2432232314}', now_s=1614265330)
    first, second = signatures["webhook-signature"].split(" ")
    assert second == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    assert first.startswith("v1,")
    assert len(b64decode(first.removeprefix("v1,"))) == 32


async def test_a_closed_turn_is_sent_once_and_one_over_budget_twice(tmp_path: Path) -> None:
    """Events carry the record; renewed records and turns that are still spoken are not sent."""
    async with receiving() as receiver, sending(tmp_path, receiver.url) as (webhooks, queue):
        ends = EndedTurns((webhooks.on_turn_end,))
        ends.on_record(stored_turn("slow", outcome=None))
        ends.on_record(stored_turn("slow", total_ms=1_400, total_verdict="over"))
        ends.on_record(stored_turn("slow", total_ms=1_400, total_verdict="over", reason="late words"))
        sent = [json.loads((await receiver.next())[1]) for _ in range(2)]
        assert sorted(each["type"] for each in sent) == ["turn.completed", "turn.over_budget"]
        for each in sent:
            assert (each["data"]["id"], each["data"]["total_ms"], each["data"]["reason"]) == ("slow", 1_400, "")
            assert each["data"]["project"] == "acme"
        ends.on_record(stored_turn("quick"))
        assert json.loads((await receiver.next())[1])["data"]["id"] == "quick"
        assert [await queue.next() for _ in range(3)] == ["delivered"] * 3
        assert await queue.backlog() == {}
        assert receiver.got.empty()


async def test_receivers_get_only_their_events(tmp_path: Path) -> None:
    """By event or by project."""
    async with receiving() as ours, receiving() as theirs:
        async with sending(tmp_path, ours.url, kinds=("session.ended",)) as (webhooks, _):
            webhooks.on_turn_end(stored_turn())
            webhooks.notify("session.ended", "acme", "sess_1", lambda: {"id": "sess_1"})
            assert json.loads((await ours.next())[1])["data"] == {"id": "sess_1"}
        async with sending(tmp_path, theirs.url, project="other") as (webhooks, _):
            webhooks.on_turn_end(stored_turn())
            webhooks.notify("session.ended", "other", "sess_2", lambda: {"id": "sess_2"})
            assert json.loads((await theirs.next())[1])["data"] == {"id": "sess_2"}
        assert ours.got.empty()
        assert theirs.got.empty()


async def test_a_receiver_that_fails_hangs_and_cuts_gets_it_at_last(tmp_path: Path) -> None:
    """Each attempt has the same id and body, and its own time in the signature."""
    async with (
        receiving(500, "hang", "cut") as receiver,
        sending(tmp_path, receiver.url, timeout_ms=1_500, retry_policy=replace(QUICK, attempts=20)) as (
            webhooks,
            queue,
        ),
    ):
        webhooks.notify("session.ended", "acme", "sess_1", lambda: {"id": "sess_1"})
        reasons = [await queue.next()]
        while reasons[-1] != "delivered":
            reasons.append(await queue.next())
        # On a machine that is busy an attempt may be too late before its answer comes: one more of that kind.
        assert {"HTTP 500", "no answer within 1500 ms"} <= set(reasons)
        assert {"ServerDisconnectedError", "ClientOSError"} & set(reasons)
        attempts = [receiver.got.get_nowait() for _ in range(receiver.got.qsize())]
        assert len(attempts) >= 4
        assert {headers["webhook-id"] for headers, _ in attempts} == {attempts[0][0]["webhook-id"]}
        for headers, body in attempts:
            webhook = Webhook(name="x", url="", secrets=read_secrets(SECRET))
            again = signed_headers(webhook, headers["webhook-id"], body, now_s=int(headers["webhook-timestamp"]))
            assert headers["webhook-signature"] == again["webhook-signature"]
            assert headers["content-type"] == "application/json"
        assert await queue.backlog() == {}


async def test_one_that_hangs_holds_up_no_other(tmp_path: Path) -> None:
    """Neither another webhook nor the next event of its own."""
    async with receiving("hang") as stuck, receiving() as well, sending(tmp_path, stuck.url, well.url) as (webhooks, _):
        webhooks.notify("session.ended", "acme", "sess_1", lambda: {"n": 1})
        assert json.loads((await well.next())[1])["data"] == {"n": 1}
        assert json.loads((await stuck.next())[1])["data"] == {"n": 1}
        webhooks.notify("session.ended", "acme", "sess_1", lambda: {"n": 2})
        assert json.loads((await well.next())[1])["data"] == {"n": 2}
        assert json.loads((await stuck.next())[1])["data"] == {"n": 2}


async def test_refused_deliveries_are_given_up_and_can_be_retried(tmp_path: Path) -> None:
    """After the last attempt; at once where the receiver says that it is gone."""
    async with receiving(500, 502, 503, 504) as receiver, sending(tmp_path, receiver.url) as (webhooks, queue):
        webhooks.notify("session.ended", "acme", "sess_1", dict)
        assert [await queue.next() for _ in range(4)] == ["HTTP 500", "HTTP 502", "HTTP 503", "dead: HTTP 504"]
        (dead,) = await queue.dead(["hook0"], limit=9)
        assert (dead.attempts, dead.kind, dead.project) == (4, "session.ended", "acme")
        first = await receiver.next()
        assert await queue.revive(["hook0"]) == 1
        webhooks.wake()
        assert await queue.next() == "delivered"
        later = [await receiver.next() for _ in range(4)][-1]
        assert webhooks.counts == WebhookCounts(delivered=1, failed=4, given_up=1)
        assert later[0]["webhook-id"] == first[0]["webhook-id"]
        receiver.cues.append(410)
        webhooks.notify("session.ended", "acme", "sess_1", dict)
        assert await queue.next() == "dead: HTTP 410: the receiver is gone"


async def test_redirects_are_not_followed(tmp_path: Path) -> None:
    """A receiver's answer must not choose where events go."""
    async with receiving() as elsewhere, receiving(*[307] * 4) as receiver:
        receiver.headers = {"Location": elsewhere.url}
        async with sending(tmp_path, receiver.url) as (webhooks, queue):
            webhooks.notify("session.ended", "acme", "sess_1", dict)
            assert [await queue.next() for _ in range(3)] == ["HTTP 307: redirects are not followed"] * 3
            assert (await queue.next()).startswith("dead: HTTP 307")
        assert elsewhere.got.empty()


async def test_a_receiver_that_is_not_there_is_named_by_no_address(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Log and store say what went wrong without the address, which may hold a key; it is logged once."""
    caplog.set_level(logging.INFO)
    async with sending(tmp_path, "http://user:hush@127.0.0.1:1/hook?key=hush") as (webhooks, queue):
        webhooks.notify("session.ended", "acme", "sess_1", dict)
        reasons = [await queue.next() for _ in range(4)]
    assert reasons[0] == "ClientConnectorError"
    assert "hush" not in caplog.text + "".join(reasons)
    assert [record.message for record in caplog.records if record.name == "voicepipe"] == [
        "webhook_failing",
        "webhook_given_up",
    ]


async def test_retry_after_never_shortens_the_wait(tmp_path: Path) -> None:
    """`Retry-After` counts where it is longer than our own wait."""
    async with receiving(503) as receiver:
        receiver.headers = {"Retry-After": "120"}
        async with sending(tmp_path, receiver.url) as (webhooks, queue):
            webhooks.notify("session.ended", "acme", "sess_1", dict)
            assert await queue.next() == "HTTP 503"
            due_in_ms = await queue.due_in_ms("hook0")
            assert due_in_ms is not None
            assert 120_000 - 1_000 * WAIT_S < due_in_ms <= 120_000
    assert _judged(503, "120") == ("HTTP 503", 120_000)
    assert _judged(503, "Sat, 21 Nov 2026") == ("HTTP 503", 0)
    assert _judged(429, "999999999999") == ("HTTP 429", 0)


def test_waits_grow_and_end() -> None:
    """Within a fifth more or less."""
    retry_policy = RetryPolicy()
    waits = [retry_policy.wait_ms(n) for n in range(1, 13)]
    assert waits[-1] is None
    usual = [5_000 * 3**n for n in range(8)] + [21_600_000] * 3
    for wait_ms, expected_ms in zip(waits[:-1], usual, strict=True):
        assert wait_ms is not None
        assert 0.8 * min(expected_ms, 21_600_000) <= wait_ms <= 1.2 * min(expected_ms, 21_600_000)


async def test_without_webhooks_nothing_is_made() -> None:
    """And nothing runs."""
    webhooks = Webhooks()
    webhooks.on_turn_end(stored_turn())
    webhooks.notify("session.ended", "acme", "sess_1", lambda: pytest.fail("nobody wants it"))
    await webhooks.run()
    await webhooks.write_waiting_events()
    assert webhooks.queue is None


async def test_a_disk_that_is_stuck_costs_events_and_no_turn(tmp_path: Path) -> None:
    """They are counted; what waits is written when it can be."""
    queue = WebhookQueue(await QueueFile.open(tmp_path / "webhooks.sqlite3"))
    webhooks = Webhooks([Webhook(name="x", url="http://127.0.0.1:1/", secrets=read_secrets(SECRET))], queue)
    for number in range(MAX_BUFFERED + 3):
        webhooks.on_turn_end(stored_turn(f"turn_{number}"))
    assert webhooks.counts.dropped == 3
    await webhooks.write_waiting_events()
    assert (await queue.backlog())["x"].waiting == MAX_BUFFERED
    await queue.close()
    webhooks.notify("session.ended", "acme", "sess_1", dict)
    with pytest.raises(StoreError):
        await webhooks.write_waiting_events()


async def test_deleted_deliveries_are_not_sent(tmp_path: Path) -> None:
    """This covers waiting and abandoned deliveries; another session's delivery stays."""
    async with receiving(*[500] * 8) as receiver, sending(tmp_path, receiver.url) as (webhooks, queue):
        for session in ("sess_1", "sess_2"):
            webhooks.notify("session.ended", "acme", session, dict)
            assert [await queue.next() for _ in range(4)][-1] == "dead: HTTP 500"
        webhooks.notify("session.ended", "acme", "sess_1", dict)
        await webhooks.delete_session("acme", "sess_1")
        await webhooks.delete_session("other", "sess_2")
        await webhooks.write_waiting_events()
        assert [each.session for each in await queue.dead(["hook0"], limit=9)] == ["sess_2"]
        assert (await queue.backlog())["hook0"].waiting == 0


CHILD = """
import asyncio, sys
from pathlib import Path
from voicepipe.telemetry.webhooks.queue import WebhookQueue
from voicepipe.telemetry.webhooks.queue_file import QueueFile
from voicepipe.telemetry.webhooks.sender import Webhooks
from voicepipe.telemetry.webhooks.payload import Webhook, read_secrets

async def main():
    queue = WebhookQueue(await QueueFile.open(Path(sys.argv[1])))
    hook = Webhook(name="hook0", url=sys.argv[2], secrets=read_secrets(sys.argv[3]), timeout_ms=1_000)
    webhooks = Webhooks([hook], queue)
    for number in range(20):
        webhooks.notify("session.ended", "acme", "sess_1", lambda: {"n": number})
    await webhooks.run()

asyncio.run(main())
"""


@pytest.mark.slow
async def test_a_process_that_is_killed_loses_nothing_that_it_took_in(tmp_path: Path) -> None:
    """Killed while its receiver hangs: the next process delivers all of it, with the ids that they had."""
    async with receiving(*["hang"] * 20) as receiver:
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", CHILD, str(tmp_path / "webhooks.sqlite3"), receiver.url, SECRET),
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        )
        try:
            before = await receiver.next()  # it is delivering, so all twenty are in the file
        finally:
            with contextlib.suppress(ProcessLookupError):
                child.send_signal(signal.SIGKILL)
            await child.wait()
        receiver.cues.clear()
        async with sending(tmp_path, receiver.url, timeout_ms=1_000):
            got: dict[int, str] = {}
            while len(got) < 20:
                headers, body = await receiver.next()
                got[json.loads(body)["data"]["n"]] = headers["webhook-id"]
        assert sorted(got) == list(range(20))
        assert len(set(got.values())) == 20
        assert got[json.loads(before[1])["data"]["n"]] == before[0]["webhook-id"]


def test_every_kind_has_its_name() -> None:
    of_sessions = ("session.started", "turn.completed", "turn.over_budget", "tool.called", "session.ended")
    assert (*of_sessions, "bench.drifted") == KINDS
