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
from voicepipe.protocol.outbound import EventRenderer
from voicepipe.protocol.session_config import SessionConfig
from voicepipe.session.audio_input import AudioInput
from voicepipe.session.connection import RESUME_WINDOW_MS, Reconnection, SessionConnection
from voicepipe.session.outbox import OutgoingFrame
from voicepipe.session.socket import ClientSocket
from voicepipe.turn import events as e

_UNSET: Final = hashlib.sha256(secrets.token_bytes(32)).digest()


class Resumption:
    """Replaces the connection of one session, if its client has enabled this and presents the session's secret."""

    def __init__(self, wire: EventRenderer, audio_input: AudioInput, post: Callable[[e.Event], None]) -> None:
        self._wire, self._audio_input, self._post = wire, audio_input, post
        self._password = ResumeSecret()
        self._connection: SessionConnection | None = None
        self._former = self._restored_secret = ""

    def connection(self, socket: ClientSocket) -> SessionConnection:
        """Return the session's connection, which outlives its socket if the client enabled resumption."""
        self._connection = SessionConnection(socket, on_lost=self._lost, on_back=self._back)
        return self._connection

    def offer(self, config: SessionConfig) -> dict[str, object]:
        """Allow or forbid resumption as the client configured it. Return the fields to send to the client when this
        changes."""
        is_resumable = config.extensions is not None and config.extensions.resume
        if self._connection is None or is_resumable == self._connection.is_resumable:
            return {}
        self._connection.allow_resume(is_resumable)
        if not is_resumable:
            self._password.clear()
            return {}
        return {"resume_secret": self._password.renew(), "resume_window_ms": RESUME_WINDOW_MS}

    def restore(self, request: Resume, secret: str) -> None:
        """Go on for the client that sent `request` to another process: its secret stays good until the client has sent
        anything on the connection. `secret` is the next one."""
        self._former = digest_of(request.secret)
        self._password.use(secret)
        self._restored_secret = secret

    def take_over(self, *, n_answers: int) -> bytes:
        """Return the first frame to a client whose session another process had, with the secret of `restore`.

        `n_answers`: the number of answers, or rests of one, that the session gives by itself.
        """
        secret, self._restored_secret = self._restored_secret, ""
        return self._wire.resumed(
            secret,
            input_received_ms=self._audio_input.restart(),
            window_ms=RESUME_WINDOW_MS,
            moved=True,
            n_answers=n_answers,
        )

    @property
    def digests(self) -> tuple[str, str] | None:
        """Return the digest of the present secret, and that of the secret with which the session was taken over. The
        second is empty once it is no longer good. None: the session can't be resumed."""
        connection = self._connection
        if connection is None or not connection.is_resumable:
            return None
        if connection.has_received:
            self._former = ""
        return self._password.digest, self._former

    async def resume(self, request: Resume, socket: ClientSocket) -> bool:
        """Continue the session on this socket, if its client may. Return when the session no longer uses the socket.

        Return False if the client may not resume; then nothing has changed.
        """
        allowed, seen = self._password.matches(request.secret), self._wire.number_of(request.last_event_id)
        if not allowed or self._connection is None or seen is None or not self._connection.can_resume_after(seen):
            return False
        reconnection = Reconnection(socket, seen, partial(self._greet, self._password.renew()))
        self._connection.replace(reconnection)
        await reconnection.over.wait()
        return True

    def forbid(self) -> None:
        """Refuse any further resumption."""
        if self._connection is not None:
            self._connection.forbid_resume()

    def drop(self, why: str) -> None:
        """Close the connection of a client that reads too slowly; see `Connection.drop`."""
        if self._connection is not None:
            self._connection.drop(why)

    def end(self) -> None:
        """End the session's connection."""
        if self._connection is not None:
            self._connection.end()
            self._connection = None

    def _greet(self, secret: str) -> bytes:
        return self._wire.resumed(secret, input_received_ms=self._audio_input.restart(), window_ms=RESUME_WINDOW_MS)

    def _lost(self) -> None:
        self._audio_input.pause()
        self._post(e.ConnectionLost())

    def _back(self, missed: tuple[OutgoingFrame, ...]) -> None:
        self._audio_input.resume()
        missed_ms = Counter[int]()
        for outgoing in missed:
            missed_ms[outgoing.turn] += outgoing.counts_ms
        self._post(e.ConnectionResumed(tuple(missed_ms.items())))


class ResumeSecret:
    """A secret that is valid once. Only its digest is stored."""

    def __init__(self) -> None:
        self._digest = _UNSET

    def renew(self) -> str:
        """Return a new secret and invalidate the previous one."""
        secret = new_secret()
        self.use(secret)
        return secret

    def use(self, secret: str) -> None:
        """Use this secret, and invalidate the previous one."""
        self._digest = _digest(secret)

    @property
    def digest(self) -> str:
        """Return the SHA-256 of the secret, in hex."""
        return self._digest.hex()

    def clear(self) -> None:
        """Remove the secret: nothing matches any more."""
        self._digest = _UNSET

    def matches(self, secret: str) -> bool:
        """Return whether this is the secret; takes the same time for every secret of one length."""
        return hmac.compare_digest(self._digest, _digest(secret))


def new_secret() -> str:
    """Return another secret: 256 bits, printable."""
    return secrets.token_urlsafe(32)


def digest_of(secret: str) -> str:
    """Return the SHA-256 of a secret, in hex."""
    return _digest(secret).hex()


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode(errors="replace")).digest()
