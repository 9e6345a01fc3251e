"""How a call fails, as the one who made it sees it."""

from __future__ import annotations

from voicepipe.errors import VoicepipeError


class CallFailed(VoicepipeError):
    """A call could not be made or did not end as it should."""


class ServerUnreachable(CallFailed):
    """Nobody answers at `url`, or what answers does not speak WebSocket."""

    def __init__(self, url: str, why: str) -> None:
        super().__init__(f"no server answers at {url}: {why}")
        self.url, self.why = url, why


class CallRefused(CallFailed):
    """The server said no before the call began; `why` are its own words, `code` the wire's error code."""

    def __init__(self, status: int, why: str, *, code: str = "") -> None:
        super().__init__(f"refused with HTTP {status}: {why}")
        self.status, self.why, self.code = status, why, code


class CallEnded(CallFailed):
    """The line was closed before the answer was complete. `close_code` as in RFC 6455, section 7.4."""

    def __init__(self, close_code: int, reason: str) -> None:
        super().__init__(f"the line was closed ({close_code}{': ' + reason if reason else ''})")
        self.close_code, self.reason = close_code, reason


class NoAnswer(CallFailed):
    """The server took the words and gave nothing back; `why` says how far it came."""

    def __init__(self, why: str) -> None:
        super().__init__(f"no answer: {why}")
        self.why = why
