"""A whole server reports its turns: to subscribers and to webhooks; never more than is stored."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from voicepipe.audio.files import read_sound
from voicepipe.config import load
from voicepipe.errors import ConfigError
from voicepipe.telemetry.storage_log import new_health
from voicepipe.telemetry.store.port import StoreError
from voicepipe.telemetry.webhooks.payload import Webhook, read_secrets, signed_headers
from voicepipe.telemetry.webhooks.queue import NewDelivery, WebhookQueue
from voicepipe.telemetry.webhooks.queue_file import FILE_NAME, QueueFile
from voicepipe.testing.fakes.cues import LlmCue, tokens
from voicepipe.testing.postgres import postgres
from voicepipe.testing.user import WIRE_HZ, calling
from voicepipe.testing.waiting import WAIT_S, eventually
from voicepipe.wiring.webhooks import webhooks_of

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
VAD = {"audio": {"input": {"turn_detection": {"type": "server_vad", "silence_duration_ms": 200}}}}
ANSWER = "It is noon. Anything else?"


@asynccontextmanager
async def receiving(status: int = 204) -> AsyncIterator[tuple[str, asyncio.Queue[tuple[dict[str, str], bytes]]]]:
    """A receiver of webhooks that answers with that status: its address, and what it got."""
    got: asyncio.Queue[tuple[dict[str, str], bytes]] = asyncio.Queue()

    async def take(request: web.Request) -> web.Response:
        got.put_nowait(({name.lower(): value for name, value in request.headers.items()}, await request.read()))
        return web.Response(status=status)

    app = web.Application()
    app.router.add_post("/hook", take)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/hook", got
    finally:
        await runner.cleanup()


async def events(answer: aiohttp.ClientResponse) -> AsyncIterator[tuple[str, Any]]:
    """The events of a stream: kind and data."""
    kind = ""
    async for line in answer.content:
        if line.startswith(b"event: "):
            kind = line[7:].strip().decode()
        elif line.startswith(b"data: "):
            yield kind, json.loads(line[6:])


async def test_who_watches_sees_each_mark_before_the_turn_that_it_belongs_to(fake_server: Any, question: Path) -> None:
    """The marks that were sent are those of the record, none is sent twice, and the event loop's lag comes along."""
    async with fake_server() as server, aiohttp.ClientSession() as http:
        server.vendor.llm.usual = LlmCue(tokens=tokens(ANSWER))
        async with (
            asyncio.timeout(WAIT_S),
            http.get(f"{server.url}/v1/turns/stream") as answer,
            calling(server.url, session=VAD) as user,
        ):
            await user.speak(read_sound(question, WIRE_HZ))
            seen: list[dict[str, Any]] = []
            kinds: set[str] = set()
            async for kind, data in events(answer):
                kinds.add(kind)
                if kind == "live":
                    seen.append(data)
                if kind == "turn":
                    break
    assert {"sessions", "loop", "dropped", "live", "turn"} == kinds
    assert data["agent_text"] == ANSWER
    marks = [event for event in seen if event["type"] == "voicepipe.turn.mark"]
    assert {event["mark"] for event in marks} == set(data["marks"])
    latest = {event["mark"]: event["at_ms"] for event in marks}
    assert latest == data["marks"]
    marks_seen = [(event["mark"], event["at_ms"]) for event in marks]
    assert len(marks_seen) == len(set(marks_seen))
    verdicts = {event["stage"]: event["duration_ms"] for event in seen if event["type"] == "voicepipe.turn.stage"}
    assert verdicts == {stage["stage"]: stage["duration_ms"] for stage in data["stages"]}
    for event in seen:
        assert (event["session"], event["agent"], event["project"]) == (data["session"], "default", "default")
        assert (event["turn_id"], event["revision"]) == (data["id"], 0)


async def test_webhooks_get_the_events_of_a_session(fake_server: Any, question: Path) -> None:
    """Its start, its turn, that the turn was over its limit, and its end; signed with the secret of the settings."""
    async with receiving() as (url, got):
        hook = {"webhooks.crm.url": url, "webhooks.crm.secret": SECRET, "budget.total_ms": 1}
        async with fake_server(hook) as server:
            server.vendor.llm.usual = LlmCue(tokens=tokens(ANSWER))
            async with calling(server.url, session=VAD) as user:
                await user.speak(read_sound(question, WIRE_HZ))
                done = await user.until("response.done")
            async with asyncio.timeout(WAIT_S):
                deliveries = [await got.get() for _ in range(4)]
    webhook = Webhook(name="crm", url=url, secrets=read_secrets(SECRET))
    marks_seen = {}
    for headers, body in deliveries:
        again = signed_headers(webhook, headers["webhook-id"], body, now_s=int(headers["webhook-timestamp"]))
        assert headers["webhook-signature"] == again["webhook-signature"]
        event = json.loads(body)
        marks_seen[event["type"]] = event["data"]
    assert marks_seen.keys() == {"session.started", "turn.completed", "turn.over_budget", "session.ended"}
    turn, session = marks_seen["turn.completed"], marks_seen["session.ended"]
    assert turn == marks_seen["turn.over_budget"]
    assert turn["id"] == done["response"]["metadata"]["voicepipe_turn"]
    assert turn["agent_text"] == ANSWER
    assert (session["id"], session["turns"], session["over"]) == (turn["session"], 1, 1)


async def test_texts_that_are_not_stored_are_not_sent(fake_server: Any, question: Path) -> None:
    """Words that records must not hold are in no webhook and in no stream."""
    async with receiving() as (url, got):
        hook = {
            "webhooks.crm.url": url,
            "webhooks.crm.secret": SECRET,
            "webhooks.crm.events": ["session.started", "turn.completed", "session.ended"],
            "records.text": "never",
        }
        async with (
            fake_server(hook) as server,
            aiohttp.ClientSession() as http,
            asyncio.timeout(WAIT_S),
            http.get(f"{server.url}/v1/turns/stream") as answer,
        ):
            server.vendor.llm.usual = LlmCue(tokens=tokens(ANSWER))
            async with calling(server.url, session=VAD) as user:
                await user.speak(read_sound(question, WIRE_HZ))
                await user.until("response.done")
                streamed = []
                async for kind, data in events(answer):
                    streamed.append(json.dumps(data))
                    if kind == "turn":
                        break
            sent = [(await got.get())[1].decode() for _ in range(3)]  # a server that stops leaves them to the next one
    assert [json.loads(body)["type"] for body in sent] == ["session.started", "turn.completed", "session.ended"]
    assert json.loads(sent[1])["data"]["outcome"] is not None
    assert "noon" not in "".join((*sent, *streamed))


async def test_a_later_server_retries_deliveries_on_request(fake_server: Any) -> None:
    """An abandoned delivery lies in the data folder; `retry` delivers it, with the id that it had."""
    async with receiving(410) as (gone, refused), receiving() as (url, got), aiohttp.ClientSession() as http:
        hook = {"webhooks.crm.secret": SECRET, "webhooks.crm.events": "session.ended"}
        async with fake_server(hook | {"webhooks.crm.url": gone}) as server:
            async with calling(server.url):
                pass

            async def given_up() -> Any:
                async with http.get(f"{server.url}/v1/webhooks/dead") as answer:
                    return (await answer.json())["data"] or None

            (dead,) = await eventually(given_up)
        async with fake_server(hook | {"webhooks.crm.url": url}) as server, asyncio.timeout(WAIT_S):
            async with http.post(f"{server.url}/v1/webhooks/dead/retry") as answer:
                assert (await answer.json())["retried"] == 1
            headers, body = await got.get()
        first, _ = refused.get_nowait()
    assert headers["webhook-id"] == first["webhook-id"] == dead["id"]
    assert json.loads(body)["data"]["id"] == dead["session"]


@pytest.fixture(scope="module")
def postgres_url() -> Iterator[str]:
    with postgres() as url:
        yield url


async def test_with_the_records_in_postgres_the_queue_is_there_too(tmp_path: Path, postgres_url: str) -> None:
    """What waited in the file before is moved, and sent."""
    async with receiving() as (url, got):
        webhook = {"webhooks.crm.url": url, "webhooks.crm.secret": SECRET, "server.data_dir": str(tmp_path)}
        file = WebhookQueue(await QueueFile.open(tmp_path / FILE_NAME))
        await file.put([NewDelivery("crm", "msg_1", "session.ended", "acme", "sess_1", b"{}")])
        await file.close()
        settings = load(overrides={**webhook, "records.url": postgres_url}, environ={}, folder=tmp_path)
        async with webhooks_of(settings, new_health(), is_first=True) as webhooks:
            headers, _ = await asyncio.wait_for(got.get(), WAIT_S)
            assert headers["webhook-id"] == "msg_1"
            webhooks.notify("session.ended", "acme", "sess_1", dict)
            await asyncio.wait_for(got.get(), WAIT_S)
        file = WebhookQueue(await QueueFile.open(tmp_path / FILE_NAME))
        assert await file.backlog() == {}
        await file.close()


async def test_another_worker_leaves_the_file_to_the_first(tmp_path: Path, postgres_url: str) -> None:
    """Else it could put back what the first has moved, and one of them has delivered meanwhile."""
    webhook = {"webhooks.crm.url": "http://127.0.0.1:1/", "webhooks.crm.secret": SECRET}
    overrides = {**webhook, "records.url": postgres_url, "server.data_dir": str(tmp_path)}
    file = WebhookQueue(await QueueFile.open(tmp_path / FILE_NAME))
    await file.put([NewDelivery("crm", "msg_2", "session.ended", "acme", "sess_1", b"{}")])
    settings = load(overrides=overrides, environ={}, folder=tmp_path)
    async with webhooks_of(settings, new_health(), is_first=False):
        assert (await file.backlog())["crm"].waiting == 1
    await file.close()


async def test_a_file_that_can_not_be_moved_stops_the_start(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its events would wait for ever."""

    async def fails(former: WebhookQueue, to: WebhookQueue) -> int:
        raise StoreError("locked")

    monkeypatch.setattr(WebhookQueue, "move_all", fails)
    await (await QueueFile.open(tmp_path / FILE_NAME)).close()
    webhook = {"webhooks.crm.url": "http://127.0.0.1:1/", "webhooks.crm.secret": SECRET}
    overrides = {**webhook, "records.url": postgres_url, "server.data_dir": str(tmp_path)}
    with pytest.raises(ConfigError, match=r"can't be moved to records\.url: locked"):
        async with webhooks_of(load(overrides=overrides, environ={}, folder=tmp_path), new_health(), is_first=True):
            pass
