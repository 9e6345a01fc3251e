"""What a client learns of an error: its status, its code, and when to come again."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
from typing import Any

import pytest
from aiohttp import web

from voicepipe.errors import Overload, StageBroken, StageError, StageRefused, StageTimeout
from voicepipe.server.detached import Outcome, _work
from voicepipe.server.errors import redacted_error, refuse_in_json, refused

SECRET = "org-42 has used 100 % of its quota"


def failure(kind: str, **more: Any) -> StageError:
    common: dict[str, Any] = {"provider": "v/m", "why": SECRET, "retryable": True}
    match kind:
        case "refused":
            return StageRefused("llm", **common, **more)
        case "timeout":
            return StageTimeout("llm", **common)
        case _:
            return StageBroken("llm", **common)


@pytest.mark.parametrize(
    ("error", "status", "code", "wait_s"),
    [
        (OSError(errno.EMFILE, "Too many open files"), 503, "server_overloaded", "5"),
        (OSError(errno.ENFILE, "Too many open files"), 503, "server_overloaded", "5"),
        (OSError(errno.EIO, "broken"), 500, "internal_error", None),
        (Overload("Full.", retry_after_ms=1_001), 503, "server_overloaded", "2"),
        (failure("timeout"), 504, "provider_timeout", None),
        (failure("broken"), 502, "provider_failed", None),
        (failure("refused", status=401), 502, "provider_failed", None),
        (failure("refused", status=429, retry_after_ms=2_500), 429, "rate_limit_exceeded", "3"),
        (failure("refused", status=503), 503, "provider_failed", None),
    ],
    ids=lambda value: str(value)[:20],
)
def test_each_error_has_its_status_and_code(error: Exception, status: int, code: str, wait_s: str | None) -> None:
    """A provider that refuses the operator's key is no 401 for the client."""
    answer = refused(error)
    assert isinstance(answer.body, bytes)
    assert (answer.status, json.loads(answer.body)["error"]["code"]) == (status, code)
    assert answer.headers.get("Retry-After") == wait_s


@pytest.mark.parametrize(
    "error",
    [failure("refused", status=429, retry_after_ms=2_500), failure("timeout"), failure("broken")],
    ids=["refused", "timeout", "broken"],
)
def test_a_redacted_failure_has_its_kind_and_none_of_its_words(error: StageError) -> None:
    hidden = redacted_error(error)
    assert type(hidden) is type(error)
    assert (hidden.stage, hidden.retryable) == (error.stage, error.retryable)
    assert "org-42" not in str(hidden)
    assert "v/m" not in str(hidden)
    assert refused(hidden).status == refused(error).status


async def test_a_redirect_is_no_error() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        raise web.HTTPFound("/docs")

    with pytest.raises(web.HTTPFound):
        await refuse_in_json(Request(), handler)  # type: ignore[arg-type]


class Request:
    method, path = "GET", "/v1/realtime"


@pytest.mark.parametrize(
    ("error", "logged"),
    [(RuntimeError("a bug"), ["GET /v1/realtime"]), (ConnectionResetError(), []), (failure("broken"), [])],
    ids=["bug", "connection", "known"],
)
async def test_a_bug_is_logged_though_no_route_waits_for_the_answer(
    error: Exception, logged: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """The connection of a detached route was lost before; what a lost connection itself causes is no bug."""

    async def handler(request: web.Request) -> web.StreamResponse:
        raise error

    outcome: Outcome = asyncio.get_running_loop().create_future()
    outcome.cancel()
    with caplog.at_level(logging.ERROR, logger="voicepipe"):
        await _work(handler, Request(), outcome)  # type: ignore[arg-type]
    assert [record.__dict__["fields"]["where"] for record in caplog.records] == logged
