"""Errors of a session, as the client gets them."""

from __future__ import annotations

from voicepipe.errors import VoicepipeError


class CallFailed(VoicepipeError):
    """A session could not be opened or did not end as it should."""


class ServerUnreachable(CallFailed):
    """No server answers at `url`, or the server there does not speak WebSocket."""

    def __init__(self, url: str, why: str) -> None:
        super().__init__(f"no server answers at {url}: {why}")
        self.url, self.why = url, why


class CallRefused(CallFailed):
    """The server refused the connection; `why` is the server's own text, `code` the wire's error code."""

    def __init__(self, status: int, why: str, *, code: str = "") -> None:
        super().__init__(f"refused with HTTP {status}: {why}")
        self.status, self.why, self.code = status, why, code


class CallEnded(CallFailed):
    """The connection was closed before the answer was complete. `close_code` as in RFC 6455, section 7.4."""

    def __init__(self, close_code: int, reason: str) -> None:
        super().__init__(f"the connection was closed ({close_code}{': ' + reason if reason else ''})")
        self.close_code, self.reason = close_code, reason


class NoAnswer(CallFailed):
    """The server received the user's turn and sent no answer; `why` is how far it got."""

    def __init__(self, why: str) -> None:
        super().__init__(f"no answer: {why}")
        self.why = why
