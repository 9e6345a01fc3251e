"""`POST /v1/settings/reload`: other settings for new sessions, without a restart."""

from __future__ import annotations

from aiohttp import web

from voicepipe.auth.scopes import OPERATE_ALL
from voicepipe.errors import ConfigError
from voicepipe.server.context import CONTEXT
from voicepipe.server.errors import refusal


async def reload_settings(request: web.Request) -> web.Response:
    """Read the settings again. Wrong ones are answered 409 with the reason, and the old ones stay in force."""
    context = request.app[CONTEXT]
    principal = await context.authenticator.admit(request)
    principal.check_scope(OPERATE_ALL)
    if context.reload is None:
        return refusal(409, "The settings of this server can't be read again.", code="settings_refused")
    try:
        agents = await context.reload()
    except ConfigError as why:
        return refusal(409, str(why), code="settings_refused")
    return web.json_response({"agents": agents})
