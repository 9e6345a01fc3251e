"""Return errors in the one shape that SDKs read: `{"error": {"message", "type", "param", "code"}}`."""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from voicepipe.errors import (
    AuthError,
    Overload,
    ProtocolError,
    StageBroken,
    StageError,
    StageRefused,
    StageTimeout,
    StoreUnavailable,
    VoicepipeError,
)
from voicepipe.telemetry.log import log_crash, log_event
from voicepipe.telemetry.store.port import StoreError

PEER: Final = web.RequestKey("peer", str)
"""The sender of the request, as far as trusted proxies report it: for the log."""

CODES: Final = {
    404: "not_found",
    405: "method_not_allowed",
    408: "request_timeout",
    413: "request_too_large",
    426: "upgrade_required",
}


NO_DESCRIPTORS_WAIT_S: Final = 5
"""`Retry-After` when the process has no more descriptors: connections without a request are closed first."""

STORAGE_WAIT_S: Final = 2
"""`Retry-After` while a store fails."""

ABOUT_THE_REQUEST: Final = frozenset({400, 404, 413, 415, 422})
"""Statuses with which a provider rejects the request: a retry does not help."""


class NotFound(VoicepipeError):
    """The requested name does not exist, at least for this client."""

    def __init__(self, why: str, *, param: str | None, code: str) -> None:
        super().__init__(why)
        self.why, self.param, self.code = why, param, code


class TooManyAttempts(AuthError):
    """Refusal: the address has sent too many bad credentials and must wait."""

    def __init__(self, wait_ms: int) -> None:
        self.wait_s = -(-wait_ms // 1_000)
        super().__init__(
            f"Too many refused credentials from this address. Try again in {self.wait_s} s, with a good one.",
            code="too_many_attempts",
            status=429,
        )


class TooManyRequests(VoicepipeError):
    """The client has as many requests running as it may."""

    code = "rate_limit_exceeded"

    def __init__(self, why: str, *, wait_s: int = 1) -> None:
        super().__init__(why)
        self.why, self.wait_s = why, wait_s


def refusal(
    status: int, message: str, *, code: str | None, param: str | None = None, wait_s: int | None = None
) -> web.Response:
    """Return an error answer. `wait_s` becomes `Retry-After`, which SDKs honour on 429 and 503."""
    kind = "rate_limit_error" if status == 429 else "server_error" if status >= 500 else "invalid_request_error"
    body = msgspec.json.encode({"error": {"message": message, "type": kind, "param": param, "code": code}})
    headers = {} if wait_s is None else {"Retry-After": str(wait_s)}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return web.Response(status=status, body=body, content_type="application/json", headers=headers)


def refused(error: Exception) -> web.Response:
    """Return the answer for an error."""
    match error:
        case TooManyAttempts():
            return refusal(error.status, error.why, code=error.code, wait_s=error.wait_s)
        case AuthError():
            return refusal(error.status, error.why, code=error.code)
        case ProtocolError():
            return refusal(400, error.why, code=error.code, param=error.field)
        case NotFound():
            return refusal(404, error.why, code=error.code, param=error.param)
        case StoreUnavailable():
            return refusal(503, error.why, code="storage_unavailable", wait_s=STORAGE_WAIT_S)
        case StoreError():  # its own text names files
            why = "The server can't read or write its records at the moment."
            return refusal(503, why, code="storage_unavailable", wait_s=STORAGE_WAIT_S)
        case Overload():
            return refusal(503, error.why, code="server_overloaded", wait_s=-(-error.retry_after_ms // 1_000))
        case TooManyRequests():
            return refusal(429, error.why, code=error.code, wait_s=error.wait_s)
        case StageError():
            return _provider_failed(error)
        case web.RequestPayloadError() | HttpProcessingError():
            return refusal(400, "Expected a body in HTTP/1.1, got a broken one.", code="bad_http")
        case OSError(errno=errno.EMFILE | errno.ENFILE):
            why = "The server has no more file descriptors."
            return refusal(503, why, code="server_overloaded", wait_s=NO_DESCRIPTORS_WAIT_S)
        case web.HTTPException():
            return refusal(error.status, error.reason, code=CODES.get(error.status))
        case _:
            return refusal(500, "The server failed. Its log has the reason.", code="internal_error")


def _provider_failed(error: StageError) -> web.Response:
    """Return a provider's refusal as the server's own error. A refused provider key is the operator's fault, never a
    401 for the client."""
    status, retry_after_ms = 502, None
    if isinstance(error, StageTimeout):
        status = 504
    elif isinstance(error, StageRefused):
        retry_after_ms = error.retry_after_ms
        status = {429: 429, 503: 503}.get(error.status or 0, 400 if error.status in ABOUT_THE_REQUEST else 502)
    code = {400: "provider_refused", 429: "rate_limit_exceeded", 504: "provider_timeout"}.get(status, "provider_failed")
    wait_s = None if retry_after_ms is None else -(-retry_after_ms // 1_000)
    return refusal(status, str(error), code=code, wait_s=wait_s)


def redacted_error(error: StageError) -> StageError:
    """Return the same failure without the provider's own text, which names the operator's accounts and limits."""
    stage, provider, why, retryable = error.stage, "its provider", "it failed", error.retryable
    match error:
        case StageRefused(status=status, retry_after_ms=wait_ms):
            return StageRefused(
                stage, provider=provider, why=why, retryable=retryable, status=status, retry_after_ms=wait_ms
            )
        case StageTimeout():
            return StageTimeout(stage, provider=provider, why=why, retryable=retryable)
        case _:
            return StageBroken(stage, provider=provider, why=why, retryable=retryable)


@web.middleware
async def refuse_in_json(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Convert errors of a route to answers; only unexpected ones are logged."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        if error.status < 400:
            raise
        return refused(error)
    except Exception as error:
        answer = refused(error)
        if answer.status == 500:
            log_crash(f"{request.method} {request.path}", error)
        elif isinstance(error, AuthError) and not isinstance(error, TooManyAttempts):
            # Further guesses are not logged: the address is in the log often enough already.
            log_event("refused", path=request.path, status=answer.status, code=error.code, address=request.get(PEER))
        return answer
