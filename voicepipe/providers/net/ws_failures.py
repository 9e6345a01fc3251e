"""Map failures of a vendor's WebSocket to the one tree of errors, as `failures` does for HTTP."""

from __future__ import annotations

import socket
from types import TracebackType

from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI

from voicepipe.errors import StageError, StageTimeout
from voicepipe.providers.net import failures
from voicepipe.providers.net.address import ProviderAddress

LASTING_CODES = frozenset({1002, 1003, 1007, 1008, 1010})
"""Close codes by which a vendor rejects a message; the same message fails again (RFC 6455, 7.4.1)."""


def unreachable(address: ProviderAddress, error: Exception) -> StageError | None:
    """Return the stage error for a failed opening, or None if `error` is not one."""
    match error:
        case InvalidStatus(response=answer):
            return failures.refused(
                address, answer.status_code, bytes(answer.body or b""), retry_after=answer.headers.get("Retry-After")
            )
        case InvalidHandshake():
            return failures.broken(address, "expected a WebSocket, got a closed connection or another answer")
        case InvalidURI():
            return failures.broken(address, "the URL is malformed", retryable=False)
        case TimeoutError():
            why = f"no connection within {address.connect_timeout_ms} ms"
            return StageTimeout(address.stage, provider=address.name, why=why, retryable=True)
        case socket.gaierror():
            return failures.broken(address, "the host name was not found (DNS)")
        case ConnectionRefusedError():
            return failures.broken(address, "the connection was refused: is it running?")
        case ConnectionError():
            return failures.broken(address, "the connection broke while it was opened")
    known = failures.explain(address, error)  # TLS
    if known is None and isinstance(error, OSError):
        return failures.broken(address, f"no connection could be made ({error.strerror or 'no reason'})")
    return known


def cut(address: ProviderAddress, error: ConnectionClosed, *, pong_ms: int) -> StageError:
    """Return the stage error for a connection that ended; only the vendor's own close frame can make it permanent."""
    said = error.rcvd
    if said is None:
        if error.sent is not None and "ping timeout" in error.sent.reason:
            return failures.broken(address, f"no answer to a ping for {pong_ms} ms")
        why = (
            f"the vendor broke the WebSocket protocol ({error.sent.reason})"
            if error.sent is not None
            else "without a close frame"
        )
        return failures.broken(address, f"the connection ended: {failures.quote(address, why)}")
    reason = failures.quote(address, said.reason) or "no reason"
    retryable = said.code not in LASTING_CODES
    return failures.broken(address, f"the vendor closed the connection ({said.code}: {reason})", retryable=retryable)


class Opening:
    """Turn failures of the dialling into stage errors: `with Opening(address):`."""

    __slots__ = ("_address",)

    def __init__(self, address: ProviderAddress) -> None:
        self._address = address

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Exception) and (failure := unreachable(self._address, error)) is not None:
            raise failure from None
