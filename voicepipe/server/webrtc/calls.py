"""Find the calls over WebRTC by ID: those of this process, and of the other workers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import msgspec

from voicepipe.server.authenticate import Principal
from voicepipe.server.errors import NotFound
from voicepipe.server.sessions.live_sessions import LiveSession
from voicepipe.server.sessions.websocket import AiohttpSocket
from voicepipe.server.webrtc.rtc_socket import RtcSocket
from voicepipe.server.webrtc.settings import WebRtcSettings
from voicepipe.session.shutdown import NORMAL, Ending

HUNG_UP = Ending("call_ended", "The call was hung up.", NORMAL)


class RtcCallLookup(msgspec.Struct, frozen=True):
    """A look-up of a call by ID, with the credentials of the request."""

    call_id: str
    project: str
    token_id: str | None
    """The ID of the request's client secret; None: the request has an API key, or needs none."""

    @classmethod
    def of(cls, call_id: str, principal: Principal) -> RtcCallLookup:
        """Return the look-up of a principal. It finds calls of its project; with a client secret, only the call started
        by that secret."""
        claims = principal.claims
        return cls(call_id, principal.project, claims.token_id if claims is not None else None)

    def not_found(self) -> NotFound:
        """Return the error that there is no such call."""
        return NotFound(f"There is no call {self.call_id[:64]!r} here.", param="call_id", code="call_not_found")


class RtcCall(msgspec.Struct, frozen=True):
    """One call."""

    id: str
    """`rtc_...`, unguessable."""

    project: str
    token_id: str
    """The ID of the client secret that started the call; empty: an API key started it, or none was needed."""

    live: LiveSession
    socket: RtcSocket

    def hang_up(self) -> None:
        """End the call."""
        if self.live.session is not None:
            self.live.session.end_now(HUNG_UP)


class OtherRtcCalls(Protocol):
    """The calls of the other workers."""

    async def session_of(self, lookup: RtcCallLookup) -> str:
        """Return the ID of the call's session; empty: no worker has the call.

        Raises:
            Overload: the other workers can't be reached, or one that may have the call does not answer.
        """
        ...

    async def serve_sideband(self, lookup: RtcCallLookup, session: str, socket: AiohttpSocket) -> bool:
        """Serve a sideband connection until the call or the connection ends; False: the call is over."""
        ...

    async def hang_up(self, lookup: RtcCallLookup) -> bool:
        """End the call; False: no worker has the call.

        Raises:
            Overload: the other workers can't be reached, or one that may have the call does not answer.
        """
        ...


class RtcCalls:
    """The calls of this process, each from the SDP answer to the end of the call."""

    def __init__(self, settings: WebRtcSettings | None = None) -> None:
        self.settings = settings or WebRtcSettings()
        self._calls: dict[str, RtcCall] = {}  # bounded by `server.max_sessions`

    @contextmanager
    def open(self, call: RtcCall) -> Iterator[None]:
        """Register a call while the block runs."""
        self._calls[call.id] = call
        try:
            yield
        finally:
            del self._calls[call.id]

    def find(self, lookup: RtcCallLookup) -> RtcCall | None:
        """Return the call of a look-up; None: this process has none that the credentials permit."""
        call = self._calls.get(lookup.call_id)
        if call is None or call.project != lookup.project:
            return None
        return call if lookup.token_id in (None, call.token_id) else None
