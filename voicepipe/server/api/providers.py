"""`GET /v1/providers`: the status of each provider, for the operator."""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp import web

from voicepipe.auth.scopes import OPERATE
from voicepipe.router.health import Health
from voicepipe.server.context import CONTEXT


async def list_providers(request: web.Request) -> web.Response:
    """Return `{"object": "list", "data": [...]}`, with providers that need an operator's action first."""
    context = request.app[CONTEXT]
    principal = await context.authenticator.admit(request)
    principal.check_scope(OPERATE)
    data = [_wire(each) for each in sorted(context.healths(), key=lambda each: not each.alert)]
    return web.Response(body=msgspec.json.encode({"object": "list", "data": data}), content_type="application/json")


def _wire(health: Health) -> dict[str, Any]:
    return {
        "object": "voicepipe.provider",
        "id": health.spec,
        "stage": health.stage,
        "state": health.state,
        "retry_in_ms": health.retry_in_ms,
        "opened": health.n_opened,
        "alert": health.alert or None,
        "in_flight": health.in_flight,
        "errors": dict(health.errors),
        "ttft_p50_ms": health.ttft_p50_ms,
        "ttft_p95_ms": health.ttft_p95_ms,
        "itl_ms": _tenths(health.itl_ms),
        "tokens_per_s": _tenths(health.tokens_per_s),
    }


def _tenths(figure: float | None) -> float | None:
    return None if figure is None else round(figure, 1)
