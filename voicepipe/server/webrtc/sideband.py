"""A WebSocket beside a call: a backend receives the call's events, and sends events of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from voicepipe.server.webrtc.calls import RtcCall
from voicepipe.session.shutdown import NORMAL
from voicepipe.session.socket import ClientSocket

MAX_UNSENT: Final = 1_000
"""Events that wait for a slow connection; one more closes it. The call goes on."""


CALL_OVER: Final = "The call is over."


class Sideband:
    """One sideband connection. Implements `EventSubscriber`."""

    def __init__(self, socket: ClientSocket) -> None:
        self._socket = socket
        self._unsent: asyncio.Queue[bytes | None] = asyncio.Queue()  # bounded by `put`

    def put(self, frame: bytes) -> None:
        """Queue an event; returns at once."""
        if self._unsent.qsize() < MAX_UNSENT:
            self._unsent.put_nowait(frame)
        else:
            self._socket.abort()

    def end(self) -> None:
        """Close the connection after all queued events: the call is over."""
        self._unsent.put_nowait(None)

    async def run(self, on_message: Callable[[str | bytes], None]) -> None:
        """Send queued events, and pass received messages to `on_message`, until either side closes the connection."""
        async with asyncio.TaskGroup() as group:
            sending = group.create_task(self._send(), name="sideband")
            while (message := await self._socket.receive()) is not None:
                on_message(message)
            sending.cancel()

    async def _send(self) -> None:
        while (frame := await self._unsent.get()) is not None:
            await self._socket.send(frame)
        await self._socket.close(NORMAL, CALL_OVER)


async def serve_sideband(call: RtcCall, socket: ClientSocket) -> None:
    """Serve a sideband connection of a call of this process to its end."""
    sideband = Sideband(socket)
    with call.socket.subscribed(sideband):
        await sideband.run(call.socket.on_event)
