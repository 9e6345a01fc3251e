"""Send a streamed answer to a client that may stop reading it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from aiohttp import web

STUCK_S: Final = 10.0
"""A client that reads nothing for this time loses its answer, as a session's client loses its socket."""

EVENTS: Final = "text/event-stream"


class StreamedResponse:
    """A streamed answer. Its headers are sent with its first piece, so that an earlier failure has its own status."""

    def __init__(self, request: web.Request, content_type: str, headers: Callable[[], Mapping[str, str]]) -> None:
        """`headers` is called when the first piece is sent."""
        self._request, self._content_type, self._headers = request, content_type, headers
        self.line: web.StreamResponse | None = None
        """The answer, once its headers were sent."""

    async def send(self, piece: bytes) -> web.StreamResponse:
        """Send a piece.

        Raises:
            ConnectionError: the client has disconnected, or reads nothing.
        """
        line = self.line or await self._begin()
        try:
            async with asyncio.timeout(STUCK_S):
                await line.write(piece)
        except TimeoutError:
            self.cut()
            raise ConnectionResetError(f"the client read nothing for {STUCK_S:g} s") from None
        return line

    async def end(self, last: bytes) -> web.StreamResponse:
        """Send the last piece."""
        line = await self.send(last)
        await line.write_eof()
        return line

    def cut(self) -> None:
        """Close the connection in the middle, so that the client cannot take the part for the whole."""
        if self._request.transport is not None:
            self._request.transport.abort()

    async def _begin(self) -> web.StreamResponse:
        # no-transform, X-Accel-Buffering: proxies that compress or collect would hold the pieces back
        headers = {"Cache-Control": "no-store, no-transform", "X-Accel-Buffering": "no"}
        line = web.StreamResponse(headers={**headers, **self._headers()})
        line.content_type = self._content_type
        if self._content_type.startswith("text/"):
            line.charset = "utf-8"
        self.line = line
        await line.prepare(self._request)
        return line
