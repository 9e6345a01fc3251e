"""Why a session of another process can't be resumed now, or ever."""

from __future__ import annotations

import json

import pytest
from aiohttp import WSMsgType

from tests.server.conftest import Serve
from voicepipe.protocol.extensions import Resume
from voicepipe.server.sessions.resume import Found
from voicepipe.server.sessions.websocket import AiohttpSocket
from voicepipe.testing.waiting import WAIT_S


class Others:
    """Other processes, of which one had the session `sess_x`."""

    def __init__(self, found: Found) -> None:
        self.found = found

    async def find(self, session_id: str) -> Found:
        """Return what became of the session."""
        return self.found if session_id == "sess_x" else "unknown"

    async def resume(self, resume_request: Resume, socket: AiohttpSocket) -> bool:
        """Refuse."""
        return False


@pytest.mark.parametrize("named", ["sess_x", "1"])
@pytest.mark.parametrize(
    ("found", "code", "closed_with"),
    [
        ("lost", "session_lost", 4_001),
        ("hung", None, 1_013),
        ("unknown", "resume_refused", 4_001),
        ("held", "resume_refused", 4_001),
    ],
)
async def test_a_client_learns_at_once_why(
    serve: Serve, found: Found, code: str | None, closed_with: int, named: str
) -> None:
    """Its process has died: another session. It does not answer: later. Anything else is not told."""
    async with serve(other_sessions=Others(found)) as server:
        line = await server.http.ws_connect(f"{server.base}/v1/realtime?resume={named}")
        if named == "1" or found == "held":
            request = {"session_id": "sess_x", "secret": "any", "last_event_id": None}
            await line.send_str(json.dumps({"type": "voicepipe.resume", **request}))
        if code is not None:
            assert json.loads(await line.receive_str(timeout=WAIT_S))["error"]["code"] == code
        assert (await line.receive(timeout=WAIT_S)).type is WSMsgType.CLOSE
        assert line.close_code == closed_with
