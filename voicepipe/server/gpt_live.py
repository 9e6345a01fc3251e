"""`/v1/live/sessions`: refuse sessions of GPT-Live, another protocol than that of `/v1/realtime`."""

from __future__ import annotations

from aiohttp import web

from voicepipe.auth.scopes import REALTIME
from voicepipe.server.context import CONTEXT
from voicepipe.server.errors import NotFound

WHY = (
    "GPT-Live sessions are not served: in them one model listens and speaks at the same time. Use a client of the "
    "Realtime API (/v1/realtime), with any model's name."
)


async def live_sessions(request: web.Request) -> web.StreamResponse:
    """Refuse, in words that a client shows to its user.

    Raises:
        NotFound: always, for a client that may open sessions.
    """
    principal = await request.app[CONTEXT].authenticator.admit(request)
    principal.check_scope(REALTIME)
    raise NotFound(WHY, param=None, code="live_not_served")
