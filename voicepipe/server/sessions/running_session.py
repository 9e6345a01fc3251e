"""The port to a session, as the server uses it: what runs it, resumes it, and moves it to another process."""

from __future__ import annotations

from typing import Protocol

from voicepipe.protocol.extensions import Resume
from voicepipe.server.revocations import Revocable
from voicepipe.session.item_audio import ItemAudio
from voicepipe.session.snapshot import SessionSnapshot
from voicepipe.session.snapshot_writer import StoreSnapshot
from voicepipe.session.socket import ClientSocket


class ResumableSession(Protocol):
    """The resumption of a session, as the server uses it."""

    async def resume(self, request: Resume, socket: ClientSocket) -> bool:
        """Continue with this socket and return when done with it; False: refused."""
        ...

    def forbid(self) -> None:
        """End resumption: a connection that is down ends the session, now or when it breaks."""
        ...


class MovableSession(Protocol):
    """The takeover of a session, as the server uses it."""

    def share_snapshot(self, store: StoreSnapshot) -> None:
        """Have the session's snapshot written, so that another process can go on with it; before the session runs."""
        ...

    def restore(self, state: SessionSnapshot, request: Resume, secret: str) -> None:
        """Go on with the session of another process; before the session runs. `secret`: its next resume secret.

        Raises:
            ProtocolError, ValueError: the state can't be read.
        """
        ...

    def drain(self, within_ms: int, *, at_once: bool) -> bool:
        """Have the client resume at another node: when no turn runs, or `at_once`. False: no node could go on."""
        ...


class RunningSession(Revocable, Protocol):
    """A session, as the server uses it."""

    @property
    def is_recorded(self) -> bool:
        """Return whether a recording of its call has begun."""
        ...

    @property
    def items(self) -> ItemAudio | None:
        """Return the newest audio of its items; None: it is not held."""
        ...

    @property
    def resumption(self) -> ResumableSession:
        """Return what continues the session on another connection."""
        ...

    @property
    def takeover(self) -> MovableSession:
        """Return what continues the session in another process."""
        ...

    async def run(self, socket: ClientSocket) -> None:
        """Run until either side closes the connection. The calling code closes the rest of the connection."""
        ...
