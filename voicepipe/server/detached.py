"""Run work that continues when its client's connection is lost: sessions, whose clients may reconnect.

All other routes are cancelled with their connection (`handler_cancellation` of aiohttp), so that no work is done for a
client that has disconnected.
"""

from __future__ import annotations

import asyncio
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler

from voicepipe.errors import VoicepipeError
from voicepipe.tasks import BackgroundTasks
from voicepipe.telemetry.log import log_crash

Outcome = asyncio.Future[web.StreamResponse]

DETACHED_TASKS: Final = web.AppKey("detached_tasks", BackgroundTasks)
"""The owner of the tasks: `app.listening` opens it, and cancels the remaining tasks at the end."""


def detached(handler: Handler) -> Handler:
    """Wrap a route: its work runs in a task of its own, which the loss of the connection does not cancel."""

    async def handle(request: web.Request) -> web.StreamResponse:
        outcome: Outcome = asyncio.get_running_loop().create_future()
        request.app[DETACHED_TASKS].start(_work(handler, request, outcome), name="detached")
        return await outcome

    return handle


async def _work(handler: Handler, request: web.Request, outcome: Outcome) -> None:
    """Do the work, and put its result in `outcome`, which is cancelled when the route no longer waits for it."""
    try:
        answer = await handler(request)
    except Exception as error:
        if not outcome.done():
            outcome.set_exception(error)
        elif not isinstance(error, VoicepipeError | ConnectionError):
            log_crash(f"{request.method} {request.path}", error)
    else:
        if not outcome.done():
            outcome.set_result(answer)
    finally:
        outcome.cancel()  # this task was cancelled: cancel the waiting route too
