"""The line to the client, as a session sees it."""

from __future__ import annotations

from typing import Protocol


class ClientSocket(Protocol):
    """One client's WebSocket. One task may receive while another one sends."""

    @property
    def hung_up(self) -> bool:
        """Whether either side said goodbye: a line that is closed without that has broken."""
        ...

    @property
    def gone(self) -> bool:
        """Whether the connection is closed. What came before may still be received."""
        ...

    async def receive(self) -> str | bytes | None:
        """Return the next message, text or not, as it came; None when the line is closed, and ever after."""
        ...

    async def send(self, frame: bytes) -> None:
        """Send one frame: a `SoundFrame` as it is, any other one as text, UTF-8 JSON.

        Waits while the client does not read: little is kept below this call, so whoever waits here knows it. A frame
        that can't be sent because the line is closed is dropped; `receive` tells of the end.
        """
        ...

    async def close(self, code: int, reason: str) -> None:
        """Say goodbye with a close code (RFC 6455, 7.4) and wait a short while for the client's."""
        ...

    def abort(self) -> None:
        """Drop the line now, and with it whatever was not sent."""
        ...
