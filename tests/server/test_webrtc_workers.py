"""A call over WebRTC that another worker serves: its sideband connections, and how a backend ends it."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any, cast

import pytest

from tests.server.conftest import Serve
from tests.server.test_webrtc_socket import FakeSocket, frame
from voicepipe.cluster.memory import MemoryCluster
from voicepipe.server.authenticate import Principal
from voicepipe.server.quotas import Quotas
from voicepipe.server.sessions.live_sessions import LiveSession, LiveSessions
from voicepipe.server.sessions.resume import Resumptions
from voicepipe.server.sessions.session_usage import SessionUsage
from voicepipe.server.sessions.websocket import AiohttpSocket
from voicepipe.server.usage_limits import UsageLimits
from voicepipe.server.webrtc.calls import RtcCall, RtcCallLookup, RtcCalls
from voicepipe.server.webrtc.rtc_socket import RtcSocket
from voicepipe.server.workers.relay import ServeSideband, relay, serve_relay
from voicepipe.session.grant import SessionGrant
from voicepipe.testing.waiting import WAIT_S

THEIRS = RtcCallLookup("rtc_1", "acme", None)


def a_call() -> RtcCall:
    """A call that a client secret of acme's began."""
    cluster = MemoryCluster()
    usage = SessionUsage(UsageLimits(Principal("acme", None), Quotas(), cluster))
    grant = SessionGrant(
        session_id="sess_1", project="acme", agent="default", model="default", identity=None, config=None, expires_at=0
    )
    return RtcCall("rtc_1", "acme", "token_1", LiveSession(grant, usage), RtcSocket())


async def relayed(request: RtcCallLookup, calls: RtcCalls, client: FakeSocket) -> bool:
    """Follow a call at another worker to the end."""
    ours, remote = socket.socketpair()
    sessions = LiveSessions(MemoryCluster(), max_sessions=1)
    async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as group:
        group.create_task(serve_relay(remote, sessions, Resumptions(), calls))
        return await relay(ours, ServeSideband(request), cast(AiohttpSocket, client))


async def test_a_sideband_connection_at_another_worker_gets_all_events_and_sends_its_own() -> None:
    call, calls, client = a_call(), RtcCalls(), FakeSocket()
    await call.socket.send(frame("session.created", session={"id": "sess_1", "turn_detection": None}))

    async def talk() -> None:
        cast(Any, client.incoming).put_nowait(b'{"type":"response.create"}')
        assert await call.socket.receive() == b'{"type":"response.create"}'
        await call.socket.send(frame("response.created"))
        call.socket.end()

    with calls.open(call):
        talking = asyncio.create_task(talk())
        assert await relayed(THEIRS, calls, client)
        await talking
    kinds = [json.loads(each)["type"] for each in client.sent[:-1]]
    assert (kinds, client.sent[-1]) == (["session.created", "response.created"], b"1000")


async def test_a_client_that_leaves_does_not_end_the_call() -> None:
    call, calls, client = a_call(), RtcCalls(), FakeSocket()
    client.incoming.put_nowait(None)
    with calls.open(call):
        assert await relayed(THEIRS, calls, client)
    assert not call.socket.gone


@pytest.mark.parametrize(
    ("named", "is_found"),
    [
        (THEIRS, True),
        (RtcCallLookup("rtc_1", "acme", "token_1"), True),
        (RtcCallLookup("rtc_1", "acme", "token_2"), False),
        (RtcCallLookup("rtc_1", "other", None), False),
        (RtcCallLookup("rtc_2", "acme", None), False),
    ],
)
async def test_a_call_is_for_its_project_and_for_the_secret_that_began_it(named: RtcCallLookup, is_found: bool) -> None:
    call, calls, client = a_call(), RtcCalls(), FakeSocket()
    client.incoming.put_nowait(None)
    with calls.open(call):
        assert (calls.find(named) is call) is is_found
        assert await relayed(named, calls, client) is is_found


class Elsewhere:
    """Another worker with one call. Implements `OtherRtcCalls`."""

    def __init__(self) -> None:
        self.is_over = False
        self.requests: list[RtcCallLookup] = []

    async def session_of(self, request: RtcCallLookup) -> str:
        self.requests.append(request)
        return "sess_1" if request.call_id == "rtc_1" else ""

    async def serve_sideband(self, request: RtcCallLookup, session: str, socket: AiohttpSocket) -> bool:
        if not self.is_over:
            await socket.send(frame("session.created", session={"id": session}))
            await socket.close(1000, "")
        return not self.is_over

    async def hang_up(self, request: RtcCallLookup) -> bool:
        self.requests.append(request)
        return request.call_id == "rtc_1"


async def test_a_backend_reaches_the_call_of_another_worker(serve: Serve) -> None:
    elsewhere = Elsewhere()
    async with serve(other_rtc_calls=elsewhere) as server:
        key: dict[str, Any] = {"headers": server.new_key()}
        async with server.connect("/v1/realtime?call_id=rtc_1", **key) as line:
            assert (await line.receive_json(timeout=WAIT_S))["session"]["id"] == "sess_1"
            assert (await line.receive(timeout=WAIT_S)).data == 1000
        elsewhere.is_over = True
        async with server.connect("/v1/realtime?call_id=rtc_1", **key) as line:
            assert (await line.receive(timeout=WAIT_S)).data == 1000
        assert (await server.get("/v1/realtime?call_id=rtc_1", **key))[0] == 426
        status, error = await server.refused("/v1/realtime?call_id=rtc_2", **key)
        assert (status, error["code"]) == (404, "call_not_found")
        hung_up = f"{server.base}/v1/realtime/calls/rtc_1/hangup"
        async with server.http.post(hung_up, **key) as answer:
            assert answer.status == 200
        status, answered = await server.post("/v1/realtime/calls/rtc_2/hangup", **key)
        assert (status, answered["error"]["code"]) == (404, "call_not_found")
        assert elsewhere.requests[-1] == RtcCallLookup("rtc_2", "acme", None)
