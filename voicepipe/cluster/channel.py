"""Messages and open sockets between the processes of one server, over a pair of connected Unix sockets."""

from __future__ import annotations

import array
import asyncio
import os
import socket
import struct
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final

_HEAD: Final = struct.Struct(">IB")
"""Length of the message, and how many sockets come with it."""

_FD_BYTES: Final = array.array("i").itemsize
_READ_BYTES: Final = 1 << 18
_CLOSE_ON_EXEC: Final = getattr(socket, "MSG_CMSG_CLOEXEC", 0)

MAX_UNSENT: Final = 32 << 20
"""Maximum of bytes that wait for the other process. Above it, `send` refuses: that process does not read."""

LONG_BYTES: Final = 1 << 18
MAX_LONG_UNSENT: Final = 16 << 20
"""The same for messages longer than `LONG_BYTES`. A few files that are sent at once leave room for short messages, many
of which are sent only once."""

OnMessage = Callable[[bytes, socket.socket | None], None]
"""Takes a message, and the socket that came with it, which it owns."""


class Channel:
    """One end. Messages arrive in order and whole. Belongs to one event loop, which calls the handlers."""

    def __init__(self, end: socket.socket, on_message: OnMessage, on_closed: Callable[[], None]) -> None:
        """Start to read. `on_closed` is called once, when the other process has closed its end or has died."""
        self._end, self._on_message, self._on_closed = end, on_message, on_closed
        self._loop = asyncio.get_running_loop()
        self._unread = bytearray()
        self._sockets: deque[int] = deque()  # bounded: one for each message in `_unread`
        # Full: the message is refused, since the other process reads nothing.
        self._unsent: deque[tuple[memoryview, socket.socket | None]] = deque()
        self._unsent_bytes = 0
        self._is_closed = False
        end.setblocking(False)
        self._loop.add_reader(end, self.read)

    def send(self, message: bytes, passed: socket.socket | None = None) -> bool:
        """Send a message, and a socket that the channel closes on this side. Never waits.

        Returns:
            False: the channel is closed, or too much waits; nothing is sent then, and `passed` is closed.
        """
        max_bytes = MAX_UNSENT if len(message) <= LONG_BYTES else MAX_LONG_UNSENT
        if self._is_closed or self._unsent_bytes > max_bytes:
            if passed is not None:
                passed.close()
            return False
        data = memoryview(_HEAD.pack(len(message), passed is not None) + message)
        self._unsent.append((data, passed))
        self._unsent_bytes += len(data)
        if len(self._unsent) == 1:
            self._write()
        return True

    def close(self) -> None:
        """Close this end; what was not sent is dropped. Repeating it has no effect."""
        if self._is_closed:
            return
        self._is_closed = True
        self._loop.remove_reader(self._end)
        self._loop.remove_writer(self._end)
        self._end.close()
        for _, passed in self._unsent:
            if passed is not None:
                passed.close()
        for descriptor in self._sockets:
            os.close(descriptor)
        self._unsent.clear()
        self._sockets.clear()

    def read(self) -> None:
        """Handle what has arrived. The event loop calls it; call it to have handled all that was sent before."""
        while not self._is_closed:
            try:
                data, ancillary, flags, _ = self._end.recvmsg(_READ_BYTES, socket.CMSG_SPACE(_FD_BYTES), _CLOSE_ON_EXEC)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                data, ancillary, flags = b"", [], 0
            self._take_sockets(ancillary)
            if not data or flags & socket.MSG_CTRUNC:  # closed, or a socket was lost: nothing can be trusted then
                self.close()
                self._on_closed()
                return
            self._unread += data
            self._deliver()

    def _take_sockets(self, ancillary: list[tuple[int, int, bytes]]) -> None:
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                descriptors = array.array("i", data[: len(data) // _FD_BYTES * _FD_BYTES])
                for descriptor in descriptors:
                    os.set_inheritable(descriptor, False)
                self._sockets.extend(descriptors)

    def _deliver(self) -> None:
        while not self._is_closed and len(self._unread) >= _HEAD.size:
            length, n_sockets = _HEAD.unpack_from(self._unread)
            end = _HEAD.size + length
            if len(self._unread) < end:
                break
            message = bytes(memoryview(self._unread)[_HEAD.size : end])
            del self._unread[:end]  # before it is handled: one whose handler fails must not be handled again
            self._on_message(message, socket.socket(fileno=self._sockets.popleft()) if n_sockets else None)

    def _write(self) -> None:
        while self._unsent:
            data, passed = self._unsent[0]
            rights = [] if passed is None else [_rights(passed)]
            try:
                n_sent = self._end.sendmsg([data], rights)
            except (BlockingIOError, InterruptedError):
                self._loop.add_writer(self._end, self._write)
                return
            except OSError:  # the other process is gone: the next read shows it
                self._drop_unsent()
                return
            self._unsent_bytes -= n_sent
            if passed is not None:
                passed.close()
            if n_sent < len(data):
                self._unsent[0] = (data[n_sent:], None)
            else:
                self._unsent.popleft()
        self._loop.remove_writer(self._end)

    def _drop_unsent(self) -> None:
        for _, passed in self._unsent:
            if passed is not None:
                with suppress(OSError):
                    passed.close()
        self._unsent.clear()
        self._unsent_bytes = 0
        self._loop.remove_writer(self._end)


def _rights(passed: socket.socket) -> tuple[int, int, bytes]:
    return socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [passed.fileno()]).tobytes()
