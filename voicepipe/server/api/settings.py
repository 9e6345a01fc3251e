"""`POST /v1/settings/reload`: other settings for new sessions, without a restart."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from voicepipe.auth.scopes import OPERATE_ALL
from voicepipe.errors import ConfigError, Overload
from voicepipe.server.context import CONTEXT, ServerContext
from voicepipe.server.errors import refusal
from voicepipe.server.workers.peers import Reloaded


async def reload_settings(request: web.Request) -> web.Response:
    """Read the settings again. Wrong ones are answered 409 with the reason, and the old ones stay in force."""
    context = request.app[CONTEXT]
    principal = await context.authenticator.admit(request)
    principal.check_scope(OPERATE_ALL)
    outcome = await reloaded(context)
    if not outcome.agents:
        return refusal(409, outcome.why, code="settings_refused")
    answer: dict[str, Any] = {"agents": outcome.agents}
    if context.workers is not None:
        answer["workers"] = {"reloaded": outcome.n_workers, "all": context.workers.link.n_workers, "why": outcome.why}
    return web.json_response(answer)


async def reloaded(context: ServerContext) -> Reloaded:
    """Read the settings again, in every worker of the server."""
    if context.workers is None:
        return await own_reload(context)
    try:
        return await context.workers.reload()
    except Overload as why:
        return Reloaded(why=str(why))


async def own_reload(context: ServerContext) -> Reloaded:
    """Read the settings again in this process."""
    if context.reload is None:
        return Reloaded(why="The settings of this server can't be read again.")
    try:
        return Reloaded(await context.reload(), n_workers=1)
    except ConfigError as why:
        return Reloaded(why=str(why))


def reload_line(outcome: Reloaded, n_workers: int) -> str:
    """Return the line for the operator at the terminal."""
    if not outcome.agents:
        return f"settings not reloaded, the old ones stay in force: {outcome.why}"
    line = f"settings reloaded by {outcome.n_workers} of {n_workers} workers, agents: {', '.join(outcome.agents)}"
    return f"{line}; refused by others: {outcome.why}" if outcome.why else line
