"""`GET /v1/turns/stream`: live events, as server-sent events (WHATWG HTML, section 9.2)."""

from __future__ import annotations

from typing import Final

import msgspec
from aiohttp import web

from voicepipe.auth.scopes import TURNS
from voicepipe.auth.tokens import session_prefix
from voicepipe.clock import monotonic_ms
from voicepipe.errors import AuthError, Overload, ProtocolError
from voicepipe.server.api.nodes import ANNOUNCER
from voicepipe.server.api.query import ALWAYS
from voicepipe.server.api.stream_state import open_sessions, server_state
from voicepipe.server.authenticate import Principal
from voicepipe.server.context import CONTEXT, ServerContext
from voicepipe.server.streaming import EVENTS, StreamedResponse
from voicepipe.telemetry.live_feed import EventFilter, FeedEvent, Reader

CHECK_S: Final = 1.0
"""Interval of checks for changed sessions and for the server's stop."""

LOOP_MS: Final = 5_000
"""Interval of events with the loop's lag."""

HEARTBEAT_MS: Final = 15_000
"""Interval of keep-alives: proxies cut connections that are silent for longer, often after 30 or 60 s."""

CHECK_MS: Final = 15_000
"""Interval of checks that the credential is still valid."""

MAX_ID_CHARS: Final = 64


async def stream_turns(request: web.Request) -> web.StreamResponse:
    """Send events until either side disconnects: `turn`, `live`, `sessions`, `loop`, `storage` and `dropped`.

    `Last-Event-ID` (or `?after=`) continues after that event. A client that loses its permission is
    disconnected.

    Raises:
        Overload, TooManyRequests: there are too many streams: in all, of client secrets, or of this one.
    """
    context = request.app[CONTEXT]
    principal = await context.authenticator.admit(request)
    principal.check_scope(TURNS)
    accepts = _filter(request, principal)
    after = request.headers.get("Last-Event-ID") or request.query.get("after", "")
    async with context.stream_slots.slot(principal):
        with context.feed.reading(accepts, after=after[:MAX_ID_CHARS]) as reader:
            return await _Stream(request, context, principal, reader).run()


def _filter(request: web.Request, principal: Principal) -> EventFilter:
    known = (*ALWAYS, "session", "after")
    unknown = next((name for name in request.query if name not in known), None)
    if unknown is not None:
        raise ProtocolError("Unknown parameter; known are session, after, project.", field=unknown[:64])
    project, session = principal.requested_project(request.query.get("project")), request.query.get("session")
    prefix = "" if principal.claims is None else session_prefix(principal.claims)

    def accepts(event: FeedEvent) -> bool:
        is_in_project = project is None or event.project == project
        return is_in_project and event.session.startswith(prefix) and session in (None, event.session)

    return accepts


class _Stream:
    """The live stream of one client."""

    def __init__(self, request: web.Request, context: ServerContext, principal: Principal, reader: Reader) -> None:
        self._request, self._context, self._reader = request, context, reader
        self._project = principal.requested_project(request.query.get("project"))
        self._is_operator = principal.claims is None
        self._response = StreamedResponse(request, EVENTS, dict)
        self._sent: dict[str, bytes] = {}
        self._sent_ms = self._checked_ms = monotonic_ms()
        self._loop_ms: int | None = None

    async def run(self) -> web.StreamResponse:
        """Send until the server stops, or the credential is no longer valid."""
        await self._send(b"retry: 1000\n\n")
        while not self._context.live_sessions.closing and await self._may_go_on():
            await self._send(b"".join(await self._changes()))
            event = await self._reader.next(CHECK_S)
            while event is not None:
                data = event.data if self._is_operator else event.redacted_data
                await self._send(_event(event.kind, data, event.id))
                event = await self._reader.next(0)
        return await self._response.end(b"")

    async def _send(self, piece: bytes) -> None:
        now_ms = monotonic_ms()
        if not piece and now_ms - self._sent_ms >= HEARTBEAT_MS:
            piece = b":\n\n"
        if piece:
            self._sent_ms = now_ms
            await self._response.send(piece)

    async def _may_go_on(self) -> bool:
        if monotonic_ms() - self._checked_ms < CHECK_MS:
            return True
        self._checked_ms = monotonic_ms()
        try:
            (await self._context.authenticator.admit(self._request)).check_scope(TURNS)
        except AuthError:
            return False
        except Overload:  # the store cannot answer now; the credential was valid when the stream began
            return True
        return True

    async def _changes(self) -> list[bytes]:
        """Return the events of changes other than turns; the holder of a client secret gets only its own turns."""
        lost = {"events": self._reader.lost, "gap": self._reader.has_gap}
        if not self._is_operator:
            return self._if_changed("dropped", lost) if any(lost.values()) else []
        state = await server_state(self._context)
        n_elsewhere = await self._request.app[ANNOUNCER].open_elsewhere(self._project)
        events = self._if_changed("sessions", {"open": open_sessions(state, self._project) + n_elsewhere})
        if state.storage or "storage" in self._sent:
            events += self._if_changed("storage", {"failing_stores": state.storage})
        events += self._if_changed("dropped", {"records": state.records_lost, **lost})
        if self._loop_ms is None or monotonic_ms() - self._loop_ms >= LOOP_MS:
            self._loop_ms = monotonic_ms()
            events += [] if state.lag is None else self._if_changed("loop", state.lag)
        return events

    def _if_changed(self, kind: str, what: object) -> list[bytes]:
        data = msgspec.json.encode(what)
        if self._sent.get(kind) == data:
            return []
        self._sent[kind] = data
        return [_event(kind, data)]


def _event(kind: str, data: bytes, id: str = "") -> bytes:
    head = f"id: {id}\nevent: {kind}\n" if id else f"event: {kind}\n"
    return b"".join((head.encode(), b"data: ", data, b"\n\n"))
