"""`POST /v1/turns/{id}/feedback` and `GET /v1/experiments`: how good answers were, and arms compared by it."""

from __future__ import annotations

import asyncio
from typing import Annotated, Final

import msgspec
from aiohttp import web

from voicepipe.auth.scopes import TURNS
from voicepipe.clock import unix_ms
from voicepipe.errors import AuthError
from voicepipe.protocol.chat_request import json_refusal
from voicepipe.server.api.query import stats_query
from voicepipe.server.api.turns import json_answer, own_prefix
from voicepipe.server.context import CONTEXT
from voicepipe.server.errors import NotFound
from voicepipe.server.request_bodies import read_body
from voicepipe.telemetry.rollups.arms import experiments

MAX_BODY_BYTES: Final = 1_000

USER: Final = "user"


class _Feedback(msgspec.Struct, forbid_unknown_fields=True):
    score: Annotated[float, msgspec.Meta(ge=0, le=1)]


async def feedback(request: web.Request) -> web.Response:
    """Store the user's score of a turn's answer, in place of an earlier one."""
    context = request.app[CONTEXT]
    principal = await context.authenticator.admit(request)
    principal.check_scope(TURNS)
    body = await read_body(request, MAX_BODY_BYTES)
    try:
        given = msgspec.json.decode(body, type=_Feedback)
    except (msgspec.DecodeError, UnicodeDecodeError) as wrong:
        raise json_refusal(wrong) from None
    id_, prefix = request.match_info["id"], own_prefix(principal)
    project = principal.requested_project(request.query.get("project"))
    turn = await context.turns.get(id_, project)
    missing = turn is None or (prefix is not None and not turn.record.session.startswith(prefix))
    if missing or not await context.turns.store_feedback(id_, project, USER, given.score, unix_ms()):
        raise NotFound(f"There is no turn {id_[:64]!r}.", param="id", code="turn_not_found")
    return json_answer({"object": "voicepipe.feedback", "turn": id_, "source": USER, "score": given.score})


async def list_experiments(request: web.Request) -> web.Response:
    """Return the experiments of the turns that match, each with its arms side by side."""
    context = request.app[CONTEXT]
    principal = await context.authenticator.admit(request)
    principal.check_scope(TURNS)
    if principal.claims is not None:
        raise AuthError("Figures of a project are for API keys.", code="api_key_required", status=403)
    query = stats_query(request.query, now_ms=unix_ms())
    turns = await context.turns.by_arm(principal.requested_project(request.query.get("project")), query)
    data = [msgspec.to_builtins(each) for each in await asyncio.to_thread(experiments, turns)]
    between = {"since_ms": query.since_ms, "until_ms": query.until_ms}
    return json_answer({"object": "list", **between, "data": data})
