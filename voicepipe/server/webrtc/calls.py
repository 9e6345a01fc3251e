"""The calls over WebRTC of this process, found by their IDs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from voicepipe.server.authenticate import Principal
from voicepipe.server.errors import NotFound
from voicepipe.server.sessions.live_sessions import LiveSession
from voicepipe.server.webrtc.rtc_socket import RtcSocket
from voicepipe.server.webrtc.settings import WebRtcSettings


@dataclass(frozen=True, slots=True)
class Call:
    """One call."""

    id: str
    """`rtc_...`, unguessable."""

    project: str
    token_id: str
    """Of the client secret that began it; empty: an API key did, or none was needed."""

    live: LiveSession
    socket: RtcSocket


class Calls:
    """The calls of this process, from the answer of their request to their end."""

    def __init__(self, settings: WebRtcSettings | None = None) -> None:
        self.settings = settings or WebRtcSettings()
        self._calls: dict[str, Call] = {}  # bounded by `server.max_sessions`

    @contextmanager
    def open(self, call: Call) -> Iterator[None]:
        """List a call while the block runs."""
        self._calls[call.id] = call
        try:
            yield
        finally:
            del self._calls[call.id]

    def find(self, call_id: str, principal: Principal) -> Call:
        """Return a call of the principal's project; with a client secret, only the call that it began.

        Raises:
            NotFound: there is none.
        """
        call, claims = self._calls.get(call_id), principal.claims
        if call is not None and call.project == principal.project and (not claims or claims.token_id == call.token_id):
            return call
        raise NotFound(f"There is no call {call_id[:64]!r} here.", param="call_id", code="call_not_found")
