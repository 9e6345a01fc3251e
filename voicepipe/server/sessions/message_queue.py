"""Queue the messages that a client sent, and offer those that the session can process at once.

A message in the queue wakes the task that receives: that takes a future, a call of the event loop and a step of the
task, for each 20 ms of audio of each user. mypyc can't compile this module: it has no subclasses of Cython's classes.
"""

from __future__ import annotations

from typing import Any, Final, cast

from aiohttp import WSMsgType, web
from aiohttp._websocket.reader import WebSocketDataQueue

from voicepipe.server.http_protocol import HttpProtocol
from voicepipe.session.socket import TakeAtOnce

DATA: Final = (WSMsgType.TEXT, WSMsgType.BINARY)
"""The messages that sessions process."""

QUEUED_BYTES: Final = 256 * 1024
"""aiohttp's own limit: while messages of twice this length wait for the session, the connection is not read."""

_MAX_HEADER_BYTES: Final = 8
"""Header and mask of a client's frame of up to 65,535 bytes (RFC 6455, 5.2)."""


class MessageQueue(WebSocketDataQueue):
    """aiohttp's queue of received messages. While the session waits for one, it offers a message that has come alone to
    `take`.

    Messages that have come together go through the queue: the session is late then, and joins the audio that waits.
    """

    take: TakeAtOnce | None = None
    receiver: web.WebSocketResponse[bool] | None = None
    """The WebSocket whose `receive` returns the messages of this queue; None: none are offered."""

    def feed_data(self, data: Any, size: int) -> None:
        """Take a message of `size` bytes that was read."""
        take, receiver, protocol = self.take, self.receiver, cast(HttpProtocol, self._protocol)
        if (
            take is not None
            and receiver is not None
            and receiver._waiting
            and not receiver._closing
            and not self._buffer
            and protocol.n_received - size <= _MAX_HEADER_BYTES
            and data.type in DATA
            and take(data.data)
        ):
            return
        super().feed_data(data, size)
