"""Work that goes on when its client's connection is lost: sessions, whose callers may come back.

All other routes are cancelled with their connection (`handler_cancellation` of aiohttp), so that nobody works on for a
client that has gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web

from voicepipe.errors import VoicepipeError
from voicepipe.stages.helpers import Helpers
from voicepipe.telemetry.log import log_crash

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Outcome = asyncio.Future[web.StreamResponse]

OUTLIVING: Final = web.AppKey("outliving", Helpers)
"""Whom the tasks belong to: `listening` opens it, and cancels what is left at the end."""


def outliving(handler: Handler) -> Handler:
    """Wrap a route: its work has a task of its own, which the loss of the connection leaves alone."""

    async def handle(request: web.Request) -> web.StreamResponse:
        outcome: Outcome = asyncio.get_running_loop().create_future()
        request.app[OUTLIVING].start(_work(handler, request, outcome), name="outliving")
        return await outcome

    return handle


async def _work(handler: Handler, request: web.Request, outcome: Outcome) -> None:
    """Do the work, and leave what came of it in `outcome`, which is cancelled when nobody waits for it any more."""
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
        outcome.cancel()  # we were cancelled: so is who waits
