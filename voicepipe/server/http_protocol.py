"""aiohttp's protocol of a connection, with additional limits for untrusted clients.

aiohttp closes idle connections. But it sets no deadline for a request's headers, nor for a client that reads no answer.
For bytes that are no HTTP it logs a traceback.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, cast

from aiohttp import web
from aiohttp.http_exceptions import BadHttpMethod, LineTooLong

from voicepipe.clock import monotonic_ms
from voicepipe.server.connections import PROXY_IDLE_S, UNREAD_S, AcceptedConnection
from voicepipe.server.errors import refusal
from voicepipe.server.log_limit import LogLimit
from voicepipe.telemetry.log import log_event

TLS_RECORD: Final = b"\x16\x03"
"""First byte of a TLS handshake (RFC 8446, 5.1)."""


class HttpProtocol(web.RequestHandler):
    """The HTTP of one connection."""

    __slots__ = ("_connection", "_log_limit", "_logged_tls", "_unread", "n_received")

    def __init__(self, server: web.Server, connection: AcceptedConnection, log_limit: LogLimit) -> None:
        """Begin; `log_limit` limits the log lines about bad requests."""
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            access_log=None,  # type: ignore[arg-type]  # none: aiohttp accepts None
            keepalive_timeout=PROXY_IDLE_S if connection.trusted else connection.limits.idle_ms / 1_000,
        )
        self._connection, self._log_limit = connection, log_limit
        self._logged_tls = False
        self._unread: asyncio.TimerHandle | None = None
        self.n_received = 0
        """The number of bytes that came with the latest read."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        self._connection.opened(cast(asyncio.Transport, transport).abort)
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Remove the connection from the count."""
        self._connection.closed()
        self._taken()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read the received bytes; the headers of a request have a deadline from their first byte."""
        self.n_received = len(data)
        if not self._connection.is_waiting:
            super().data_received(data)
            return
        if data:
            self._connection.begin_headers()
            self._logged_tls = not self._request_count and data.startswith(TLS_RECORD)
        n_before = self._request_count
        super().data_received(data)
        if self._request_count > n_before:
            self._connection.work()

    async def _handle_request(
        self,
        request: web.BaseRequest,
        start_time: float | None,
        request_handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
    ) -> tuple[web.StreamResponse, bool]:
        self._connection.work()  # a request that arrived while the previous one was being answered
        try:
            return await super()._handle_request(request, start_time, request_handler)
        finally:
            if self.transport is not None:
                self._connection.wait()

    def pause_writing(self) -> None:
        """Start the time limit for a client whose answer waits to be read."""
        super().pause_writing()
        self._unread = asyncio.get_running_loop().call_later(UNREAD_S, self._connection.close_for, "unread")

    def resume_writing(self) -> None:
        """Stop the time limit: the client reads the answer."""
        self._taken()
        super().resume_writing()

    def _taken(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer bytes that could not be read as a request; only the server's own failures are logged with their
        traceback."""
        if status >= 500:
            return super().handle_error(request, status, exc, message)
        why = self._why(exc)
        log_bad_http(self._log_limit, self._connection.address, why)
        status = 431 if isinstance(exc, LineTooLong) else status
        answer = refusal(status, f"Expected an HTTP/1.1 request, got {why}.", code="bad_http")
        answer.force_close()
        return answer

    def log_exception(self, *args: object, **kw: object) -> None:
        """Log what aiohttp reports, but a client's broken body only as bad HTTP."""
        if isinstance(kw.get("exc_info"), web.RequestPayloadError):
            log_bad_http(self._log_limit, self._connection.address, "a body that is broken")
        else:
            super().log_exception(*args, **kw)

    def _why(self, exc: BaseException | None) -> str:
        """Return a text without the request's bytes: the parser's texts quote the request, which may hold a
        credential."""
        if self._logged_tls:
            return "TLS on a port without TLS"
        if isinstance(exc, LineTooLong):
            return "headers that are too large"
        return "something else" if isinstance(exc, BadHttpMethod) else "a malformed one"


def log_bad_http(log_limit: LogLimit, address: str, why: str) -> None:
    """Log, rate limited, that a client sent bytes that are no HTTP."""
    unlogged = log_limit.take(monotonic_ms())
    if unlogged is not None:
        log_event("bad_http", address=address, why=why, unlogged=unlogged)
