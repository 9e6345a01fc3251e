"""Resume a session: its connection, its resume secret, and the client that reconnects."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final

from voicepipe.protocol.extensions import Resume
from voicepipe.protocol.session_config import SessionConfig
from voicepipe.protocol.writer import Wire
from voicepipe.session.line import RESUME_WINDOW_MS, Comeback, Line
from voicepipe.session.listen import Listener
from voicepipe.session.outbox import Parcel
from voicepipe.session.socket import ClientSocket
from voicepipe.turn import events as e

_NOBODYS: Final = hashlib.sha256(secrets.token_bytes(32)).digest()


class Comebacks:
    """Lets the client of one session replace its connection, if the client enabled this and presents the session's
    secret."""

    def __init__(self, wire: Wire, listener: Listener, post: Callable[[e.Fact], None]) -> None:
        self._wire, self._listener, self._post = wire, listener, post
        self._password = Password()
        self._line: Line | None = None

    def line(self, socket: ClientSocket) -> Line:
        """Return the session's connection, which outlives its socket if the client enabled resumption."""
        self._line = Line(socket, on_lost=self._lost, on_back=self._back)
        return self._line

    def offer(self, config: SessionConfig) -> dict[str, object]:
        """Allow or forbid resumption as the client configured it. Return the fields to send to the client when this
        changes."""
        wants = config.extensions is not None and config.extensions.resume
        if self._line is None or wants == self._line.is_resumable:
            return {}
        self._line.allow_resume(wants)
        if not wants:
            self._password.forget()
            return {}
        return {"resume_secret": self._password.renew(), "resume_window_ms": RESUME_WINDOW_MS}

    async def resume(self, asked: Resume, socket: ClientSocket) -> bool:
        """Continue the session on this socket, if its client may. Return when the session no longer uses the socket.

        Return False if the client may not resume; then nothing has changed.
        """
        allowed, seen = self._password.matches(asked.secret), self._wire.number_of(asked.last_event_id)
        if not allowed or self._line is None or seen is None or not self._line.can_resume_after(seen):
            return False
        comeback = Comeback(socket, seen, partial(self._greet, self._password.renew()))
        self._line.replace(comeback)
        await comeback.over.wait()
        return True

    def forbid(self) -> None:
        """Refuse any further resumption."""
        if self._line is not None:
            self._line.forbid_resume()

    def drop(self, why: str) -> None:
        """Close the connection of a client that reads too slowly; see `Line.drop`."""
        if self._line is not None:
            self._line.drop(why)

    def end(self) -> None:
        """End the session's connection."""
        if self._line is not None:
            self._line.end()
            self._line = None

    def _greet(self, secret: str) -> bytes:
        return self._wire.resumed(secret, input_received_ms=self._listener.restart(), window_ms=RESUME_WINDOW_MS)

    def _lost(self) -> None:
        self._listener.hold()
        self._post(e.LineLost())

    def _back(self, missed: tuple[Parcel, ...]) -> None:
        self._listener.resume()
        missed_ms = Counter[int]()
        for parcel in missed:
            missed_ms[parcel.turn] += parcel.counts_ms
        self._post(e.LineResumed(tuple(missed_ms.items())))


class Password:
    """A secret that is valid once. Only its digest is kept."""

    def __init__(self) -> None:
        self._digest = _NOBODYS

    def renew(self) -> str:
        """Return a new secret and invalidate the previous one. 256 bits, printable."""
        secret = secrets.token_urlsafe(32)
        self._digest = _digest(secret)
        return secret

    def forget(self) -> None:
        """Remove the secret: nothing matches any more."""
        self._digest = _NOBODYS

    def matches(self, secret: str) -> bool:
        """Return whether this is the secret; takes the same time for every secret of one length."""
        return hmac.compare_digest(self._digest, _digest(secret))


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode(errors="replace")).digest()
