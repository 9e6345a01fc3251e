"""Send a streamed answer to a client that may stop reading it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from aiohttp import web

STUCK_S: Final = 10.0
"""Timeout of a write: a client that reads nothing for this time is disconnected, as in a session."""

EVENTS: Final = "text/event-stream"


class StreamedResponse:
    """A streamed answer. Its headers are sent with its first piece, so that an earlier failure has its own status."""

    def __init__(self, request: web.Request, content_type: str, headers: Callable[[], Mapping[str, str]]) -> None:
        """`headers` is called when the first piece is sent."""
        self._request, self._content_type, self._headers = request, content_type, headers
        self.sent_response: web.StreamResponse | None = None
        """The response, once its headers were sent."""

    async def send(self, piece: bytes) -> web.StreamResponse:
        """Send a piece.

        Raises:
            ConnectionError: the client has disconnected, or reads nothing.
        """
        response = self.sent_response or await self._begin()
        try:
            async with asyncio.timeout(STUCK_S):
                await response.write(piece)
        except TimeoutError:
            self.cut()
            raise ConnectionResetError(f"the client read nothing for {STUCK_S:g} s") from None
        return response

    async def end(self, last: bytes) -> web.StreamResponse:
        """Send the last piece."""
        response = await self.send(last)
        await response.write_eof()
        return response

    def cut(self) -> None:
        """Abort the connection, so that the client does not take a part of the answer for all of it."""
        if self._request.transport is not None:
            self._request.transport.abort()

    async def _begin(self) -> web.StreamResponse:
        # no-transform, X-Accel-Buffering: proxies that compress or buffer would delay the pieces
        headers = {"Cache-Control": "no-store, no-transform", "X-Accel-Buffering": "no"}
        response = web.StreamResponse(headers={**headers, **self._headers()})
        response.content_type = self._content_type
        if self._content_type.startswith("text/"):
            response.charset = "utf-8"
        self.sent_response = response
        await response.prepare(self._request)
        return response
