"""Map vendors' failures to the one tree of errors. This is the only place that maps them.

`retryable` follows the vendor's own report. It is true for rate limits, overload, server faults and every transport
fault, since another attempt may succeed. It is false where the same request with the same settings can only fail again:
a wrong key, an unknown model, an invalid request. `StageRefused.status` distinguishes these.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from abc import ABC, abstractmethod
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import Any

import aiohttp
import msgspec
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI

from voicepipe import clock
from voicepipe.errors import StageBroken, StageError, StageExpired, StageRefused, StageTimeout
from voicepipe.providers.net.address import ProviderAddress

QUOTE_CHARS = 200
"""Maximum length of a vendor's text that an error repeats."""

RETRYABLE_STATUS = frozenset({408, 409, 421, 425, 429})
"""Statuses below 500 that are temporary: RFC 9110, RFC 8470, and RFC 6585 for 429."""

LASTING_WS_CODES = frozenset({1002, 1003, 1007, 1008, 1010})
"""Close codes by which a vendor rejects a message; the same message fails again (RFC 6455, 7.4.1)."""

_MEANINGS = {
    401: "the key was refused",
    402: "no credit is left",
    403: "the key may not do this",
    404: "not found: a wrong base_url or an unknown model",
    429: "rate limit or quota",
    503: "overloaded",
    529: "overloaded",
}
_QUOTA = "insufficient_quota"

_NO_CREDIT_CODES = frozenset(
    {
        _QUOTA,  # with 429
        "billing_hard_limit_reached",  # with 400
        "billing_not_active",  # with 429
        "exceeded_current_quota_error",  # with 429
        "quota_exceeded",  # with 401
        "Arrearage",
    }
)
"""Codes of vendors that report used up credit with another status than 402. The source of each, with its vendor:
web/docs/models.md, "Used-up credit".
"""

_QUOTA_MEANS_RATE = ".aliyuncs.com/"
"""Where `insufficient_quota` is a limit of the rate. Source: help.aliyun.com/en/model-studio/error-code-start, 429."""

_NO_CREDIT_STATUS = frozenset({400, 401, 403, 412, 429})
"""Statuses of vendors that report it otherwise."""

_NO_CREDIT_WORDS = re.compile(
    r"\bcredit balance is too low\b|\binsufficient (?:account )?(?:balance|credits?|funds)\b"
    r"|\bbalance is insufficient\b|\bspecified API usage limits\b"
    r"|\bused all available credits\b|\bmonthly spending limit\b|\u4f59\u989d\u4e0d\u8db3",
    re.IGNORECASE,
)
"""Likewise in words alone; the last are Chinese. Sources: the same table."""

_KEY_LIKE = re.compile(r"\b(?:sk|gsk|pk|rk|xai|key|token|bearer)[-_ ][\w*.…-]{6,}", re.IGNORECASE)


def quote(address: ProviderAddress, words: str) -> str:
    """Return at most `QUOTE_CHARS` of a vendor's text, in one printable line, without anything that looks like a
    key."""
    if address.secret:
        words = words.replace(address.secret, "[key]")
    words = _KEY_LIKE.sub("[key]", words[: 8 * QUOTE_CHARS])
    words = " ".join("".join(c if c.isprintable() else " " for c in words).split())
    return words if len(words) <= QUOTE_CHARS else words[: QUOTE_CHARS - 1] + "…"


def retry_after_ms(value: str | None) -> int | None:
    """Return a `Retry-After` header, seconds or an HTTP date (RFC 9110, 10.2.3), as ms from now; None if there is
    none."""
    if value is None:
        return None
    try:
        return max(0, round(float(value) * 1_000))
    except (ValueError, OverflowError):
        pass
    try:
        return max(0, round(parsedate_to_datetime(value).timestamp() - clock.unix_s()) * 1_000)
    except (ValueError, OverflowError, TypeError):
        return None


def refused(address: ProviderAddress, status: int, body: bytes, *, retry_after: str | None = None) -> StageRefused:
    """Return the error for an answer with this status; `body` may be JSON in any of the vendors' shapes, or not."""
    details = _details(body)
    if status == 400 and any(each.get("reason") == "API_KEY_INVALID" for each in details):
        status = 401  # Gemini's way to refuse a key
    if status in _NO_CREDIT_STATUS and _has_no_credit(address, body):
        status = 402
    if retry_after is None:  # Gemini's is in the body: "37s"
        retry_after = next((str(each["retryDelay"]).rstrip("s") for each in details if "retryDelay" in each), None)
    why = f"HTTP {status}: {_MEANINGS.get(status, 'refused')}"
    # Vendors repeat parts of the key in the text of a 401.
    words = "" if status == 401 else quote(address, vendor_words(body))
    return StageRefused(
        address.stage,
        provider=address.name,
        why=f"{why} ({words})" if words else why,
        retryable=status in RETRYABLE_STATUS or status >= 500,
        status=status,
        retry_after_ms=retry_after_ms(retry_after),
    )


def in_band(address: ProviderAddress, error: bytes) -> StageError:
    """Return the error for an error that a vendor sends inside an answer that began with 200.

    `error` is the JSON of the event or body. An integer `code` or `status` from 400 to 599 counts as the HTTP status
    that can no longer be sent. So does a code or words of used-up credit. Without one the answer counts as broken.
    """
    inner = _error_object(error)
    for key in ("code", "status", "status_code"):
        code = inner.get(key)
        if isinstance(code, str) and code.isdecimal():
            code = int(code)
        if isinstance(code, int) and 400 <= code <= 599:
            return refused(address, code, error)
    if _has_no_credit(address, error):
        return refused(address, 402, error)
    return broken(
        address, f"the vendor ended its answer with an error ({quote(address, vendor_words(error)) or 'no reason'})"
    )


def broken(address: ProviderAddress, why: str, *, retryable: bool = True) -> StageBroken:
    """Return the error for an answer that ended early or could not be parsed."""
    return StageBroken(address.stage, provider=address.name, why=why, retryable=retryable)


def expired(address: ProviderAddress, words: str) -> StageExpired:
    """Return the error for a connection that the vendor closed for its age."""
    why = f"the vendor ended its stream for its age ({quote(address, words) or 'no reason'})"
    return StageExpired(address.stage, provider=address.name, why=why, retryable=True)


def vendor_words(body: bytes) -> str:
    """Return the message in an error body: `{"error": {"message"}}`, `{"error": "..."}`, `{"message"}`, `{"detail"}`,
    `{"err_msg"}` (Deepgram), text."""
    inner = _error_object(body)
    for key in ("message", "detail", "error", "msg", "err_msg", "code", "type"):
        words = inner.get(key)
        if isinstance(words, str) and words:
            return words
        if isinstance(words, list) and words and isinstance(words[0], dict):
            return str(words[0].get("msg", ""))  # FastAPI's; the rest of it repeats the request
    text = body.decode("utf-8", "replace")
    return "" if inner or text.lstrip()[:1] in ("<", "{") else text  # proxies' HTML pages have no useful text


def _has_no_credit(address: ProviderAddress, body: bytes) -> bool:
    known = _NO_CREDIT_CODES - {_QUOTA} if _QUOTA_MEANS_RATE in f"{address.base_url}/" else _NO_CREDIT_CODES
    inner = _error_object(body)
    detail = inner.get("detail")
    codes = [inner.get(key) for key in ("code", "type", "status")]
    codes += [detail.get(key) for key in ("code", "status")] if isinstance(detail, dict) else []
    if any(isinstance(code, str) and code in known for code in codes):
        return True
    return bool(_NO_CREDIT_WORDS.search(vendor_words(body)))


def _error_object(body: bytes) -> dict[str, Any]:
    try:
        outer = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
    if isinstance(outer, list) and outer:  # Gemini's OpenAI-compatible API wraps it in a list
        outer = outer[0]
    if not isinstance(outer, dict):
        return {}
    inner = outer.get("error")
    return inner if isinstance(inner, dict) else outer


def _details(body: bytes) -> list[dict[str, Any]]:
    """Return the additional details of Google's errors."""
    details = _error_object(body).get("details")
    return [each for each in details if isinstance(each, dict)] if isinstance(details, list) else []


def explain(address: ProviderAddress, error: BaseException) -> StageError | None:
    """Return the stage error for a transport failure, or None if `error` is not one."""
    idle, connect = address.idle_timeout_ms, address.connect_timeout_ms
    match error:
        case aiohttp.ConnectionTimeoutError():
            return _timeout(address, f"no connection within {connect} ms")
        case aiohttp.ServerTimeoutError():
            return _timeout(address, f"no data for {idle} ms")
        case aiohttp.ClientConnectorDNSError():
            return broken(address, "the host name was not found (DNS)")
        case aiohttp.ClientConnectorCertificateError() | ssl.CertificateError():
            return broken(address, "the TLS certificate was refused", retryable=False)
        case aiohttp.ClientSSLError() | ssl.SSLError():
            return broken(address, "no TLS connection could be made")
        case aiohttp.ClientConnectorError(os_error=ConnectionRefusedError()):
            return broken(address, "the connection was refused: is it running?")
        case aiohttp.ClientConnectorError():
            return broken(address, f"no connection could be made ({error.os_error.strerror or 'no reason'})")
        case aiohttp.ServerDisconnectedError():
            return broken(address, "the vendor closed the connection without an answer")
        case aiohttp.InvalidURL():
            return broken(address, "the URL is malformed", retryable=False)
        case aiohttp.ClientPayloadError() | aiohttp.ClientOSError() | ConnectionError():
            return broken(address, "the connection broke during the answer")
        case aiohttp.ClientError():
            return broken(address, f"expected an answer in HTTP, got another ({type(error).__name__})")
        case asyncio.TimeoutError():
            return _timeout(address, f"no data for {idle} ms")
    return None


def _timeout(address: ProviderAddress, why: str) -> StageTimeout:
    return StageTimeout(address.stage, provider=address.name, why=why, retryable=True)


class _Explained(ABC):
    """A block of vendor I/O whose failures become stage errors."""

    __slots__ = ("_address",)

    def __init__(self, address: ProviderAddress) -> None:
        self._address = address

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Exception) and (failure := self._explain(error)) is not None:
            raise failure from None

    @abstractmethod
    def _explain(self, error: Exception) -> StageError | None:
        """Return the stage error, or None if `error` is none of the vendor's."""


class Translated(_Explained):
    """Turn transport failures of vendor I/O into stage errors: `with Translated(address):`.

    Put only I/O inside, never a `yield`: a consumer's exception is not the vendor's.
    """

    __slots__ = ()

    def _explain(self, error: Exception) -> StageError | None:
        return explain(self._address, error)


def ws_unreachable(address: ProviderAddress, error: Exception) -> StageError | None:
    """Return the stage error for a WebSocket that can't be opened, or None if `error` is not one."""
    match error:
        case InvalidStatus(response=answer):
            return refused(
                address, answer.status_code, bytes(answer.body or b""), retry_after=answer.headers.get("Retry-After")
            )
        case InvalidHandshake():
            return broken(address, "expected a WebSocket, got a closed connection or another answer")
        case InvalidURI():
            return broken(address, "the URL is malformed", retryable=False)
        case TimeoutError():
            why = f"no connection within {address.connect_timeout_ms} ms"
            return StageTimeout(address.stage, provider=address.name, why=why, retryable=True)
        case socket.gaierror():
            return broken(address, "the host name was not found (DNS)")
        case ConnectionRefusedError():
            return broken(address, "the connection was refused: is it running?")
        case ConnectionError():
            return broken(address, "the connection broke while it was opened")
    known = explain(address, error)  # TLS
    if known is None and isinstance(error, OSError):
        return broken(address, f"no connection could be made ({error.strerror or 'no reason'})")
    return known


def ws_cut(address: ProviderAddress, error: ConnectionClosed, *, pong_ms: int) -> StageError:
    """Return the stage error for a WebSocket that ended; only the vendor's own close frame can make it permanent."""
    close = error.rcvd
    if close is None:
        if error.sent is not None and "ping timeout" in error.sent.reason:
            return broken(address, f"no answer to a ping for {pong_ms} ms")
        why = (
            f"the vendor broke the WebSocket protocol ({error.sent.reason})"
            if error.sent is not None
            else "without a close frame"
        )
        return broken(address, f"the connection ended: {quote(address, why)}")
    reason = quote(address, close.reason) or "no reason"
    retryable = close.code not in LASTING_WS_CODES
    return broken(address, f"the vendor closed the connection ({close.code}: {reason})", retryable=retryable)


class WsOpening(_Explained):
    """Turn failures to open a WebSocket into stage errors: `with WsOpening(address):`."""

    __slots__ = ()

    def _explain(self, error: Exception) -> StageError | None:
        return ws_unreachable(self._address, error)
