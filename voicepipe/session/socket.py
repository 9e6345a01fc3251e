"""The connection to the client, as a session uses it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Protocol, runtime_checkable

TakeAtOnce = Callable[[bytes], bool]
"""Processes a message at once. Returns False, and does nothing, if `receive` must return it. Raises nothing."""


class ClientSocket(Protocol):
    """One client's WebSocket. One task may receive while another one sends."""

    @property
    def hung_up(self) -> bool:
        """Return whether either side sent a close frame: a connection closed without one is broken."""
        ...

    @property
    def gone(self) -> bool:
        """Return whether the connection is closed. Messages that came before may still be received."""
        ...

    @property
    def has_message(self) -> bool:
        """Return whether `receive` returns a message without waiting: one has come behind the latest."""
        ...

    async def receive(self) -> str | bytes | None:
        """Return the next message, text or binary, as it came; None when the connection is closed, and on every later
        call."""
        ...

    def send(self, frame: bytes) -> Coroutine[Any, Any, None]:
        """Send one frame: a `SoundFrame` as it is, any other frame as text, UTF-8 JSON.

        Waits while the client does not read: little is buffered below this method, so the wait shows how fast the
        client reads. A frame that can't be sent because the connection is closed is dropped; `receive` reports the
        end.
        """
        ...

    async def close(self, code: int, reason: str) -> None:
        """Send a close frame with this code (RFC 6455, 7.4) and wait a short while for the client's."""
        ...

    def abort(self) -> None:
        """Abort the connection now, and drop what was not sent."""
        ...


@runtime_checkable
class DeliveringSocket(Protocol):
    """A `ClientSocket` that can also deliver a message in the call that has read it."""

    def deliver_to(self, take: TakeAtOnce | None) -> None:
        """Offer each message that comes alone, while `receive` waits, to `take` first; None: to nobody.

        A frame of audio then takes no step of a task.
        """
        ...
