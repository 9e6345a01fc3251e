"""Record all messages between a server and its client, and check them afterwards. Needs openai, pydantic.

recording = Recording()
await session.run(recording.of(socket))
assert recording.problems() == []
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from voicepipe.protocol.binary import SoundFrame


class SessionSocket(Protocol):
    """A client's WebSocket, as sessions use it."""

    @property
    def hung_up(self) -> bool: ...
    @property
    def gone(self) -> bool: ...
    @property
    def has_message(self) -> bool: ...
    async def receive(self) -> str | bytes | None: ...
    async def send(self, frame: bytes) -> None: ...
    async def close(self, code: int, reason: str) -> None: ...
    def abort(self) -> None: ...


@dataclass(slots=True)
class RecordedLine:
    """A connection and all its messages, in order."""

    line: SessionSocket
    messages: list[tuple[bool, str | bytes]] = field(default_factory=list)
    """(whether the server sent it, the message)."""

    @property
    def hung_up(self) -> bool:
        """Whether either side sent a close frame."""
        return self.line.hung_up

    @property
    def gone(self) -> bool:
        """Whether the connection is closed."""
        return self.line.gone

    @property
    def has_message(self) -> bool:
        """Whether the client's next message has come already."""
        return self.line.has_message

    async def receive(self) -> str | bytes | None:
        """Return the next message of the client."""
        message = await self.line.receive()
        if message is not None:
            self.messages.append((False, message))
        return message

    async def send(self, frame: bytes) -> None:
        """Send an event to the client."""
        self.messages.append((True, frame))
        await self.line.send(frame)

    async def close(self, code: int, reason: str) -> None:
        """Close the connection."""
        await self.line.close(code, reason)

    def abort(self) -> None:
        """Drop the connection."""
        self.line.abort()

    def deliver_to(self, take: Callable[[bytes], bool] | None) -> None:
        """Offer messages to `take` before `receive` returns them, where the connection can do this."""
        deliver_to = getattr(self.line, "deliver_to", None)
        if deliver_to is not None:
            deliver_to(None if take is None else partial(self._offer, take))

    def _offer(self, take: Callable[[bytes], bool], message: bytes) -> bool:
        n_before = len(self.messages)
        self.messages.append((False, message))
        taken = take(message)
        if not taken:
            del self.messages[n_before]  # `receive` returns it
        return taken

    def problems(self) -> list[str]:
        """Return the faults of the server's events: shape, order and IDs."""
        # Imported here, since the published types take a second to load and most tests need none of them.
        from voicepipe.testing.strict_events import problems
        from voicepipe.testing.wire_checker import WireChecker

        checker, faults = WireChecker(), []
        for by_server, message in self.messages:
            event = _object(message)
            if by_server and isinstance(message, SoundFrame):
                faults += [] if checker.extended else ["a binary frame in a session that did not request them"]
            elif by_server:
                checker.see(event)
                shape = problems(event, dialect=checker.dialect, extended=checker.extended)
                faults += [f"{event.get('type')}: {fault}" for fault in shape]
            else:
                checker.sent(event)
        return faults + checker.problems


@dataclass(slots=True)
class RecordedConnections:
    """The connections of all sessions that ran."""

    lines: list[RecordedLine] = field(default_factory=list)

    def of(self, line: SessionSocket) -> RecordedLine:
        """Return a connection that is recorded from now on."""
        self.lines.append(RecordedLine(line))
        return self.lines[-1]

    def problems(self) -> list[str]:
        """Return the faults of all events of all sessions."""
        return [fault for line in self.lines for fault in line.problems()]


def _object(message: str | bytes) -> dict[str, Any]:
    """Return a message as an event; an empty one if the message is none."""
    try:
        event = json.loads(message)
    except (ValueError, RecursionError):
        return {}
    return event if isinstance(event, dict) else {}
