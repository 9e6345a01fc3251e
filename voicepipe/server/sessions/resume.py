"""`GET /v1/realtime?resume=...`: a client reconnects to its session on another socket.

Its first event, `voicepipe.resume`, names the session and carries the secret. No other credential is required, since
the token that the session began with may have expired. All errors get the same answer, except one: a client that
names a session whose process has died or hangs learns that, since no secret would help.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import Final, Literal, Protocol

import msgspec
from aiohttp import web

from voicepipe.auth.rate_limit import FailedAttempts
from voicepipe.clock import monotonic_ms
from voicepipe.errors import Overload
from voicepipe.protocol.extensions import Resume, read_resume
from voicepipe.server.sessions.live_sessions import LiveSession, LiveSessions
from voicepipe.server.sessions.websocket import AiohttpSocket
from voicepipe.server.wait_limits import RESUME_CAPS, Group, WaitLimits, Waits, of_address, of_session, waiting
from voicepipe.session.resumption import ResumeSecret
from voicepipe.session.shutdown import NOT_AUTHORISED, TRY_AGAIN_LATER
from voicepipe.session.socket import ClientSocket
from voicepipe.telemetry.log import log_event

FIRST_EVENT_S: Final = 5.0
"""Time limit for a reconnecting client's first event."""

LAST_READ_S: Final = 0.5
"""How much longer the first event is awaited: an event loop that was stalled runs its timers before it has read what
has come meanwhile."""

SESSION_PREFIX: Final = "sess_"
"""Prefix of all session IDs (`voicepipe.auth.tokens.session_prefix`)."""

REFUSED: Final = (
    "This session can't be resumed: it has ended, the secret is not its latest, or the client missed too much. Open "
    "another session."
)


LOST: Final = "The process that ran this session has died, and the session with it. Open another session."

Found = Literal["held", "lost", "hung", "unknown"]
"""Another process has the session; had it, and has died; has it, and does not answer; none is known to have it."""


class OtherSessions(Protocol):
    """The sessions of other processes that serve the same port."""

    async def find(self, session_id: str) -> Found:
        """Return whether another process has this session."""
        ...

    async def resume(self, resume_request: Resume, socket: AiohttpSocket) -> bool:
        """Continue the session there on this socket; return when it is done with it. False: refused.

        Raises:
            Overload: not now, or not here; another attempt may succeed.
        """
        ...


class Resumptions:
    """The connections that request to continue a session. Belongs to one event loop."""

    def __init__(self, waits: Waits | None = None) -> None:
        """`waits` counts the connections of all processes that serve the port; None: there are no others."""
        self.waits: Waits = WaitLimits(RESUME_CAPS) if waits is None else waits
        self._refused = FailedAttempts()
        self._dummy_secret = ResumeSecret()

    async def resume(self, live: LiveSession | None, resume_request: Resume | None, socket: ClientSocket) -> bool:
        """Pass the socket to its session and return when the session is done with it; False: no session accepts it."""
        if live is None or live.session is None or resume_request is None:
            # Takes as long as a wrong secret.
            self._dummy_secret.matches(resume_request.secret if resume_request is not None else "")
            return False
        before, live.socket = live.socket, socket
        if await live.session.resumption.resume(resume_request, socket):
            return True
        live.socket = before
        return False

    def log_refusal(self, peer: str) -> None:
        """Log a refusal: for one address 10 in a row, and then 10 a minute."""
        now_ms = monotonic_ms()
        if not self._refused.wait_ms(peer, now_ms):
            self._refused.failed(peer, now_ms)
            log_event("resume_refused", peer=peer)


async def resume(
    request: web.Request,
    websocket: web.WebSocketResponse[bool],
    sessions: LiveSessions,
    resumptions: Resumptions,
    peer: str,
    others: OtherSessions | None = None,
) -> web.StreamResponse:
    """Upgrade, and pass the socket to its session if its first event is right: other connections never prevent a right
    secret.

    `?resume=SESSION_ID` is looked up while its first event comes. Then it waits among the connections of this session
    alone, or not at all when there is no such session. `?resume=1` waits among all of its address.

    Raises:
        Overload: the server is stopping.
    """
    if sessions.closing:
        raise Overload("The server is stopping.")
    named = request.query["resume"]
    await websocket.prepare(request)
    socket = AiohttpSocket(websocket, request.transport)
    resume_request: Resume | None = None
    found = await _found(named, sessions, None)
    if found == "held" or not named.startswith(SESSION_PREFIX):
        group = of_session(named) if found == "held" else of_address(peer)
        resume_request = await _first_event(socket, resumptions, group)
    elif others is not None:
        resume_request, found = await _first_event_or_look_up(named, socket, resumptions, others)
    live = sessions.find(resume_request.session_id) if resume_request is not None else None
    try:
        if live is None and others is not None and resume_request is not None:
            is_resumed = await others.resume(resume_request, socket)
        else:
            is_resumed = await resumptions.resume(live, resume_request, socket)
    except Overload:
        await socket.close(TRY_AGAIN_LATER, "This session can't be resumed here now.")
        return websocket
    if is_resumed:
        await socket.close(1000, "")
        return websocket
    if resume_request is not None and live is None:
        found = await _found(resume_request.session_id, sessions, others)
    if found == "hung":
        await socket.close(TRY_AGAIN_LATER, "The process of this session does not answer.")
        return websocket
    resumptions.log_refusal(peer)
    await socket.send(_refusal("session_lost", LOST) if found == "lost" else _refusal("resume_refused", REFUSED))
    await socket.close(NOT_AUTHORISED, "This session can't be resumed.")
    return websocket


async def _found(session_id: str, sessions: LiveSessions, others: OtherSessions | None) -> Found:
    if sessions.find(session_id) is not None:
        return "held"
    return "unknown" if others is None else await others.find(session_id)


async def _first_event(socket: AiohttpSocket, resumptions: Resumptions, group: Group) -> Resume | None:
    """Wait for the first event; None: it does not come, or another connection took the place."""
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(socket.receive(), name="first-event")
        with waiting(resumptions.waits, group, socket.abort):
            await _wait_for_first_event(first)
        first.cancel()
    return _resume_request(first)


async def _wait_for_first_event(first: asyncio.Task[str | bytes | None]) -> None:
    """Wait until the event has come, or its time is over."""
    await asyncio.wait({first}, timeout=FIRST_EVENT_S)
    await asyncio.wait({first}, timeout=LAST_READ_S)


def _resume_request(first: asyncio.Task[str | bytes | None]) -> Resume | None:
    """Return the request in the first event; None: it did not come, or is another one."""
    raw = None if first.cancelled() else first.result()
    return None if raw is None else read_resume(raw)


async def _first_event_or_look_up(
    named: str, socket: AiohttpSocket, resumptions: Resumptions, others: OtherSessions
) -> tuple[Resume | None, Found]:
    """Return the first event, which ends the look-up of the session: a slow store then has one request less to answer.
    Without an event yet, wait for it only if another process has the session; return what the look-up has found."""
    found: Found = "unknown"
    async with asyncio.TaskGroup() as group:
        first = group.create_task(socket.receive(), name="first-event")
        looking = group.create_task(others.find(named), name="find-session")
        await asyncio.wait({first, looking}, return_when=asyncio.FIRST_COMPLETED)
        if not first.done():
            found = looking.result()
            if found == "held":
                with waiting(resumptions.waits, of_session(named), socket.abort):
                    await _wait_for_first_event(first)
        first.cancel()
        looking.cancel()
    return _resume_request(first), found


def _refusal(code: str, why: str) -> bytes:
    error = {"type": "invalid_request_error", "code": code, "message": why, "param": None}
    event_id = f"event_{secrets.token_hex(8)}"
    return msgspec.json.encode({"type": "error", "event_id": event_id, "error": {**error, "event_id": None}})
