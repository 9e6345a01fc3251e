"""A test client whose connection breaks on cue, and which resumes; all its connections share one list of events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from voicepipe.audio.samples import Samples, to_pcm
from voicepipe.protocol import binary
from voicepipe.testing.strict_events import problems
from voicepipe.testing.user import BINARY, WIRE_HZ, User, WireEvent
from voicepipe.testing.waiting import WAIT_S


class ReconnectingUser(User):
    """A `User` that can lose its connection and resume."""

    def __init__(self, http: aiohttp.ClientSession, base_url: str, line: aiohttp.ClientWebSocketResponse) -> None:
        super().__init__(line)
        self._http, self._base_url = http, base_url
        self.session_id = self.secret = self.last_event_id = ""
        self.lines = [line]

    async def next(self) -> WireEvent:
        """Return the next event of the session. Answers to resumption are skipped: they belong to one connection."""
        event = await super().next()
        self._record(event)
        return event

    def _record(self, event: WireEvent) -> None:
        if event["type"] == BINARY:
            prefix = self.last_event_id.rpartition("_")[0]
            self.last_event_id = f"{prefix}_{event['number']:x}"
        else:
            self.last_event_id = event["event_id"]
        if event["type"] == "session.updated":
            granted = (event["session"].get("providerData") or {}).get("voicepipe", {})
            self.session_id = event["session"]["id"]
            self.secret = granted.get("resume_secret", self.secret)

    async def break_connection(self) -> None:
        """Drop the connection without a close frame; data in transit is lost."""
        connection = self.line._response.connection
        assert connection is not None
        assert connection.transport is not None
        connection.transport.abort()
        async with asyncio.timeout(WAIT_S):
            await self.line.close()

    async def resume(self) -> int:
        """Resume on a new connection; return `input_received_ms`. Fails if the server refuses."""
        resumed = await self.request_resume(self.secret, self.last_event_id)
        assert resumed["type"] == "voicepipe.resumed", resumed
        self.secret = resumed["secret"]
        received_ms: int = resumed["input_received_ms"]
        return received_ms

    async def resume_at(self, base_url: str, **position: object) -> WireEvent:
        """Resume at another node, and return its answer, of any type.

        `position`: `received_item_id` and `received_ms`.
        """
        self._base_url = base_url
        answer = await self.request_resume(self.secret, self.last_event_id, position=position)
        self.secret = answer.get("secret", self.secret)
        return answer

    async def request_resume(
        self,
        secret: str,
        last_event_id: str | None,
        *,
        session_id: str | None = None,
        position: dict[str, object] | None = None,
    ) -> WireEvent:
        """Open a new connection and request the session; return the server's answer, of any type."""
        self.line = await self._http.ws_connect(f"{self._base_url}/v1/realtime?resume=1", max_msg_size=0)
        self.lines.append(self.line)
        request = {
            "session_id": session_id or self.session_id,
            "secret": secret,
            "last_event_id": last_event_id,
        } | (position or {})
        await self.line.send_str(json.dumps({"type": "voicepipe.resume", **request}))
        async with asyncio.timeout(WAIT_S):
            answer: WireEvent = json.loads(await self.line.receive_str())
        self.faults += [f"{answer['type']}: {fault}" for fault in problems(answer, extended=True)]
        return answer

    async def resend_from(self, samples: Samples, received_ms: int, *, in_binary: bool = False) -> None:
        """Send the user's audio again from `received_ms` on."""
        rest = samples[received_ms * WIRE_HZ // 1_000 :]
        if in_binary:
            await self.line.send_bytes(binary.user_frame(to_pcm(rest)))
        else:
            await self.speak(rest)


@asynccontextmanager
async def reconnecting_user(base_url: str, session: dict[str, Any]) -> AsyncIterator[ReconnectingUser]:
    """Open a session that can be resumed; check all events of all connections at the end."""
    async with aiohttp.ClientSession() as http:
        line = await http.ws_connect(f"{base_url}/v1/realtime", max_msg_size=0)
        user = ReconnectingUser(http, base_url, line)
        await user.until("session.created")
        await user.send("session.update", session={"type": "realtime", **session})
        await user.until("session.updated")
        yield user
        for each in user.lines:
            await each.close()
        user.require_sound_wire()
