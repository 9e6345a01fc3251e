"""One answer of the fake vendor on its way out."""

from __future__ import annotations

import asyncio
from typing import NoReturn

from aiohttp import web

from voicepipe.testing.fakes.script import ReceivedRequest


class HttpAnswer:
    """Write an answer with status 200, optionally in pieces of a fixed size."""

    def __init__(
        self, request: web.Request, received: ReceivedRequest, response: web.StreamResponse, chunk_bytes: int | None
    ) -> None:
        self._request, self._received, self._response = request, received, response
        self._chunk_bytes = chunk_bytes

    @classmethod
    async def begin(
        cls, request: web.Request, received: ReceivedRequest, *, content_type: str, chunk_bytes: int | None = None
    ) -> HttpAnswer:
        """Send the headers."""
        response = web.StreamResponse(headers={"Content-Type": content_type})
        await response.prepare(request)
        return cls(request, received, response, chunk_bytes)

    async def send(self, data: bytes) -> None:
        """Send `data`, perhaps in pieces. Waits while the client does not read."""
        step = self._chunk_bytes or max(1, len(data))
        for at in range(0, len(data), step):
            await self._response.write(data[at : at + step])
            if self._chunk_bytes:
                await asyncio.sleep(0)  # flush it as a piece of its own

    async def end(self) -> web.StreamResponse:
        """End the answer correctly."""
        await self._response.write_eof()
        return self._response

    async def cut(self) -> NoReturn:
        """Close the connection after all sent data has left, without the answer's end. Does not return."""
        self._received.ended.set()
        assert self._request.transport is not None
        self._request.transport.close()
        while True:  # until the connection's loss cancels this
            await asyncio.Event().wait()
