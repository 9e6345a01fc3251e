"""The server of a fake vendor that speaks over WebSockets: its address, its connections, its start and its end."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Generic, Self, TypeVar

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.http11 import Request, Response

from voicepipe.testing.fakes.script import soon

ConnectionT = TypeVar("ConnectionT")


class FakeWsVendor(ABC, Generic[ConnectionT]):
    """A server on a socket of this machine. The kernel chooses its port."""

    base_path = ""
    """The end of a provider's `base_url`."""

    def __init__(self) -> None:
        self.calls: list[ConnectionT] = []
        self._server: Server | None = None
        self._arrived = asyncio.Event()

    @abstractmethod
    def _admit(self, socket: ServerConnection, request: Request) -> Response | None:
        """Return the refusal of a handshake, if it is refused."""

    @abstractmethod
    async def _serve(self, socket: ServerConnection) -> None:
        """Serve a connection to its end."""

    @abstractmethod
    def _abort(self, call: ConnectionT) -> None:
        """Drop a connection without a close frame."""

    @property
    def base_url(self) -> str:
        """Return the `base_url` of a provider for this fake."""
        assert self._server is not None
        return f"ws://127.0.0.1:{next(iter(self._server.sockets)).getsockname()[1]}{self.base_path}"

    async def __aenter__(self) -> Self:
        self._server = await serve(
            self._serve, "127.0.0.1", 0, process_request=self._admit, compression=None, ping_interval=None
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        for call in self.calls:
            self._abort(call)
        self._server.close()
        await self._server.wait_closed()

    async def nth(self, n: int) -> ConnectionT:
        """Return the `n`th connection, from 0, when it has come.

        Raises:
            TimeoutError: it did not come within `WAIT_S`.
        """
        while len(self.calls) <= n:
            await soon(self._arrived)
        return self.calls[n]

    def _add(self, call: ConnectionT) -> None:
        """Add a connection that has come."""
        self.calls.append(call)
        self._arrived.set()
        self._arrived = asyncio.Event()
