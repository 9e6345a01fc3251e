"""`/v1/webhooks`: the status of each webhook, failed deliveries, and retrying them."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from aiohttp import web

from voicepipe.auth.scopes import OPERATE
from voicepipe.errors import ProtocolError
from voicepipe.server.api.query import whole
from voicepipe.server.api.turns import json_answer
from voicepipe.server.context import CONTEXT, ServerContext
from voicepipe.server.errors import NotFound
from voicepipe.server.sessions.live_sessions import iso
from voicepipe.telemetry.webhooks.payload import Webhook
from voicepipe.telemetry.webhooks.queue import Backlog, WebhookDelivery

MAX_LISTED: Final = 200
"""Deliveries on one page."""


async def list_webhooks(request: web.Request) -> web.Response:
    """Return each webhook of the settings: of its address only the host, since the rest may be a secret."""
    context, seen = await _operator(request)
    backlog = await context.webhooks.queue.backlog() if context.webhooks.queue is not None else {}
    return json_answer({"object": "list", "data": [_plain(each, backlog.get(each.name, Backlog())) for each in seen]})


async def list_dead(request: web.Request) -> web.Response:
    """Return dead letters, newest first, a page at a time."""
    context, seen = await _operator(request, "limit", "before", "webhook")
    limit = whole(request.query.get("limit", "50"), "limit")
    if not 1 <= limit <= MAX_LISTED:
        raise ProtocolError(f"Expected 1 to {MAX_LISTED}, got {limit}.", field="limit")
    before = whole(request.query["before"], "before") if "before" in request.query else None
    found = []
    if context.webhooks.queue is not None:
        found = await context.webhooks.queue.dead([each.name for each in seen], limit=limit + 1, before=before)
    more = str(found[limit - 1].number) if len(found) > limit else None
    return json_answer({"object": "list", "data": [_dead(each) for each in found[:limit]], "next": more})


async def retry_dead(request: web.Request) -> web.Response:
    """Retry dead letters: one by `?id=`, those of `?webhook=`, or all: `{"retried": n}`."""
    context, seen = await _operator(request, "id", "webhook")
    id_, n_retried = request.query.get("id"), 0
    if context.webhooks.queue is not None:
        n_retried = await context.webhooks.queue.revive([each.name for each in seen], id=id_)
        context.webhooks.wake()
    if id_ is not None and not n_retried:
        raise NotFound(f"No delivery {id_[:64]!r} was given up.", param="id", code="delivery_not_found")
    return json_answer({"object": "voicepipe.webhooks.retried", "retried": n_retried})


async def _operator(request: web.Request, *known: str) -> tuple[ServerContext, list[Webhook]]:
    """Return the webhooks that the principal may read: those of its project, or with `operate_all` all."""
    context = request.app[CONTEXT]
    principal = await context.authenticator.admit(request)
    principal.check_scope(OPERATE)
    unknown = next((name for name in request.query if name not in (*known, "project", "token")), None)
    if unknown is not None:
        raise ProtocolError(f"Unknown parameter; known are {', '.join((*known, 'project'))}.", field=unknown[:64])
    project, name = principal.requested_project(request.query.get("project")), request.query.get("webhook")
    seen = [each for each in context.webhooks.all if project is None or each.project == project]
    if name is not None and name not in {each.name for each in seen}:
        raise NotFound(f"There is no webhook {name[:64]!r}.", param="webhook", code="webhook_not_found")
    return context, [each for each in seen if name in (None, each.name)]


def _plain(webhook: Webhook, backlog: Backlog) -> dict[str, object]:
    return {
        "object": "voicepipe.webhook",
        "id": webhook.name,
        "host": urlsplit(webhook.url).hostname,
        "events": webhook.kinds,
        "project": webhook.project,
        "waiting": backlog.waiting,
        "dead": backlog.dead,
    }


def _dead(delivery: WebhookDelivery) -> dict[str, object]:
    return {
        "object": "voicepipe.webhook.delivery",
        "id": delivery.id,
        "webhook": delivery.webhook,
        "event": delivery.kind,
        "project": delivery.project,
        "session": delivery.session,
        "made_at": iso(delivery.made_at_ms),
        "given_up_at": iso(delivery.dead_at_ms or delivery.made_at_ms),
        "attempts": delivery.attempts,
        "why": delivery.why,
    }
