"""Calls of a fake Telnyx to a whole server: what follows from commands by its API."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from tests.phone.carriers import FakeTelnyx, metric, played, turns, webhook
from voicepipe.errors import Overload
from voicepipe.server.phone import routes
from voicepipe.testing.fakes import telnyx
from voicepipe.testing.fakes.carrier import reached
from voicepipe.testing.fakes.cues import CallCue, LlmCue, tokens
from voicepipe.testing.waiting import eventually

pytestmark = pytest.mark.slow  # a call takes as long as what is said in it

SETTINGS: dict[str, object] = {
    "phone.main.transfer_to.sales": "+4930999",
    "agents.default.tools": "end_call, transfer_call",
}


@pytest.fixture
async def carrier() -> AsyncIterator[FakeTelnyx]:
    fake = FakeTelnyx()
    async with fake.opened():
        yield fake


@pytest.fixture
async def server(fake_server: Any, carrier: FakeTelnyx) -> AsyncIterator[Any]:
    async with fake_server(SETTINGS | carrier.settings) as opened:
        opened.vendor.llm.usual = LlmCue(tokens=tokens("It is noon."))
        yield opened


def actions(carrier: FakeTelnyx) -> list[str]:
    return [each.path.rpartition("/")[2] for each in carrier.api.calls]


async def test_the_user_of_a_dialed_call_talks_in_alaw(
    server: Any, carrier: FakeTelnyx, http: aiohttp.ClientSession, no: bytes
) -> None:
    calling = telnyx.calling(http, webhook(server), carrier.signer, carrier.api, dialed=True, encoding="PCMA")
    async with calling as call:
        call.speak(no.translate(telnyx.ALAW_OF_MULAW))
        await played(call)
        await call.hang_up()
    turn, *_ = await turns(server, 1)
    assert turn["user"] == "+4915112345678"
    assert actions(carrier) == ["streaming_start"], "the user has ended the call"


async def test_a_call_whose_stream_breaks_is_ended(
    server: Any, carrier: FakeTelnyx, http: aiohttp.ClientSession, no: bytes
) -> None:
    async with carrier.calling(http, webhook(server)) as call:
        call.speak(no)
        await played(call)
        call.cut()
        assert await carrier.outcome(http, webhook(server), call) == "hung up"


async def test_a_bug_in_a_call_does_not_leave_it_up(
    server: Any, carrier: FakeTelnyx, http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(routes, "run_session", fail)
    async with carrier.calling(http, webhook(server)) as call:
        assert await carrier.outcome(http, webhook(server), call) == "hung up"


async def test_a_command_that_is_refused_is_a_bad_gateway_so_that_the_webhook_comes_again(
    server: Any, carrier: FakeTelnyx, http: aiohttp.ClientSession
) -> None:
    body = telnyx.webhook("call.initiated", call_control_id="v3:1", direction="incoming")
    carrier.api.answer = web.json_response({"errors": []}, status=422)
    assert await telnyx.post(http, webhook(server), body, carrier.signer) == 502
    carrier.api.answer = None
    assert await telnyx.post(http, webhook(server), body, carrier.signer) == 200
    assert actions(carrier) == ["answer"]
    assert await metric(server, "failed") == 1


async def test_a_step_of_a_call_needs_no_command(server: Any, carrier: FakeTelnyx, http: aiohttp.ClientSession) -> None:
    for path in ("", "/next"):
        body = telnyx.webhook("call.answered", call_control_id="v3:1")
        assert await telnyx.post(http, webhook(server) + path, body, carrier.signer) == 200
    assert carrier.api.calls == []


async def test_a_transfer_that_is_refused_ends_the_call(
    server: Any, carrier: FakeTelnyx, http: aiohttp.ClientSession, no: bytes
) -> None:
    transfer = CallCue("transfer_call", ('{"to":"sales"}',), "c1")
    server.vendor.llm.cue(LlmCue(tokens=tokens("I connect you with sales."), calls=(transfer,)))
    carrier.api.refused = "transfer"
    async with carrier.calling(http, webhook(server)) as call:
        call.speak(no)
        assert await carrier.outcome(http, webhook(server), call) == "hung up"
    await eventually(lambda: _failed(server))
    assert await metric(server, "transferred") == 0


async def _failed(server: Any) -> bool | None:
    return await metric(server, "failed") == 1 or None


@pytest.fixture
async def full_server(fake_server: Any, carrier: FakeTelnyx, http: aiohttp.ClientSession) -> AsyncIterator[Any]:
    """A server with one place, which a call has."""
    async with (
        fake_server(SETTINGS | carrier.settings | {"server.max_sessions": 1}) as server,
        carrier.calling(http, webhook(server), n=1),
    ):
        await eventually(lambda: _answered(server))
        yield server


async def test_a_full_server_rejects_a_call_as_busy(
    full_server: Any, carrier: FakeTelnyx, http: aiohttp.ClientSession
) -> None:
    body = telnyx.webhook("call.initiated", call_control_id="v3:2", direction="incoming")
    assert await telnyx.post(http, webhook(full_server), body, carrier.signer) == 200
    assert (await carrier.api.command("v3:2", "reject"))["cause"] == "USER_BUSY"


async def test_a_full_server_hangs_up_a_dialed_call(
    full_server: Any, carrier: FakeTelnyx, http: aiohttp.ClientSession
) -> None:
    """It is answered already: `reject` is for a call that rings."""
    body = telnyx.webhook("call.machine.detection.ended", call_control_id="v3:2", result="human")
    assert await telnyx.post(http, webhook(full_server), body, carrier.signer) == 200
    assert actions(carrier) == ["answer", "hangup"]


async def test_a_call_whose_stream_can_not_be_opened_is_ended(
    server: Any, carrier: FakeTelnyx, http: aiohttp.ClientSession
) -> None:
    body = telnyx.webhook("streaming.failed", call_control_id="v3:1")
    assert await telnyx.post(http, webhook(server), body, carrier.signer) == 200
    assert actions(carrier) == ["hangup"]


async def test_a_call_is_ended_whose_stream_meets_a_server_that_is_not_ready(
    server: Any, carrier: FakeTelnyx, http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = telnyx.webhook("call.machine.detection.ended", call_control_id="v3:1", result="human")
    assert await telnyx.post(http, webhook(server), body, carrier.signer) == 200
    stream = await carrier.api.command("v3:1", "streaming_start")

    def not_ready(context: object) -> None:
        raise Overload("The server is starting.", retry_after_ms=1)

    monkeypatch.setattr(routes, "check_ready", not_ready)
    with pytest.raises(aiohttp.WSServerHandshakeError):
        await http.ws_connect(reached(stream["stream_url"], webhook(server)))
    assert actions(carrier) == ["streaming_start", "hangup"]


async def _answered(server: Any) -> bool | None:
    return await metric(server, "answered") == 1 or None


async def test_a_signed_request_sent_again_to_another_address_chooses_no_agent_and_no_server(
    fake_server: Any, carrier: FakeTelnyx, http: aiohttp.ClientSession
) -> None:
    """Telnyx signs the body alone."""
    body = telnyx.webhook("call.initiated", call_control_id="v3:1", direction="incoming")
    other = {"agents.other.instructions": "You are another agent."}
    async with fake_server(SETTINGS | carrier.settings | other) as server:
        headers = {"Content-Type": "application/json", "Host": "evil.example.com", **carrier.signer.headers(body)}
        async with http.post(f"{webhook(server)}?agent=other", data=body, headers=headers) as answer:
            assert answer.status == 200
        stream = await carrier.api.command("v3:1", "answer")
        async with http.ws_connect(reached(stream["stream_url"], webhook(server))) as websocket:
            await telnyx.TelnyxCall(websocket, "v3:1", "PCMU").start()
            sessions = await eventually(lambda: _sessions(server))
            assert [each["agent"] for each in sessions] == ["default"]


async def _sessions(server: Any) -> list[dict[str, Any]] | None:
    async with aiohttp.ClientSession() as session, session.get(f"{server.url}/v1/sessions?live=true") as answer:
        listed: list[dict[str, Any]] = (await answer.json())["data"]
    return listed or None


async def test_a_call_that_the_server_did_not_make_is_refused(
    server: Any, carrier: FakeTelnyx, http: aiohttp.ClientSession
) -> None:
    body = telnyx.webhook("call.machine.detection.ended", call_control_id="v3:1", result="human")
    assert await telnyx.post(http, f"{webhook(server)}?dial=guessed", body, carrier.signer) == 403
    hangup = telnyx.webhook("call.hangup", call_control_id="v3:1")
    assert await telnyx.post(http, f"{webhook(server)}?dial=gone", hangup, carrier.signer) == 200, "long after the dial"
    assert carrier.api.calls == []


@pytest.mark.parametrize(("status", "n_tried"), [(500, 4), (429, 4), (422, 1)])
async def test_a_hang_up_that_fails_is_tried_again_while_that_may_help(
    server: Any,
    carrier: FakeTelnyx,
    http: aiohttp.ClientSession,
    no: bytes,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    n_tried: int,
) -> None:
    monkeypatch.setattr(routes, "RETRY_WAITS_S", (0, 0, 0))
    async with carrier.calling(http, webhook(server)) as call:
        call.speak(no)
        await played(call)
        carrier.api.answer = web.Response(status=status)
        call.cut()
        await eventually(lambda: _failed(server))
    assert carrier.api.n_refused == n_tried


async def test_a_hang_up_that_fails_once_ends_the_call(
    server: Any, carrier: FakeTelnyx, http: aiohttp.ClientSession, no: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "RETRY_WAITS_S", (0, 0, 0))
    async with carrier.calling(http, webhook(server)) as call:
        call.speak(no)
        await played(call)
        carrier.api.n_to_refuse = 1
        call.cut()
        assert await carrier.outcome(http, webhook(server), call) == "hung up"
    assert await metric(server, "failed") == 0
