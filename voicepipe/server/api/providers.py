"""`GET /v1/providers`: the status of each provider, for the operator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
from aiohttp import web

from voicepipe.auth.scopes import OPERATE
from voicepipe.router.health import Health
from voicepipe.server.context import CONTEXT, ServerContext
from voicepipe.server.gateway.response_cache import ResponseCache

STATES: Final = ("closed", "half_open", "open")
"""From the best to the worst."""

MEASURED: Final = ("ttft_p50_ms", "ttft_p95_ms", "itl_ms", "tokens_per_s")


async def list_providers(request: web.Request) -> web.Response:
    """Return `{"object": "list", "data": [...], "response_cache": {...}}`, with providers that need an operator's
    action first. `response_cache` is null while it is off."""
    context = request.app[CONTEXT]
    principal = await context.authenticator.admit(request)
    principal.check_scope(OPERATE)
    each_worker = [own_providers(context)] if context.workers is None else await context.workers.providers()
    data = sorted(_together([each["data"] for each in each_worker]), key=lambda each: each["alert"] is None)
    replies = [each["response_cache"] for each in each_worker if each["response_cache"] is not None]
    added = {name: sum(each[name] for each in replies) for name in replies[0]} if replies else None
    body = {"object": "list", "data": data, "response_cache": added}
    return web.Response(body=msgspec.json.encode(body), content_type="application/json")


def own_providers(context: ServerContext) -> dict[str, Any]:
    """Return the status of each provider and the counts of the response cache, as this process has them."""
    return {
        "data": [_wire(each) for each in context.healths()],
        "response_cache": _response_cache(context.response_cache),
    }


def _response_cache(cache: ResponseCache) -> dict[str, float] | None:
    if not cache.is_on:
        return None
    sizes = {"entries": len(cache), "bytes": cache.n_bytes}
    return dict(cache.counts()) | {"saved_usd": cache.saved_usd} | sizes


def _together(each_worker: Sequence[Sequence[dict[str, Any]]]) -> Iterator[dict[str, Any]]:
    """Yield each provider once: counts added, the worst state, and the mean of the measured times."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for status in each_worker:
        for each in status:
            found.setdefault((each["stage"], each["id"]), []).append(each)
    for same in found.values():
        yield same[0] if len(same) == 1 else _one(same)


def _one(same: Sequence[dict[str, Any]]) -> dict[str, Any]:
    errors: Counter[str] = Counter()
    for each in same:
        errors.update(each["errors"])
    return {
        **same[0],
        "state": max((each["state"] for each in same), key=STATES.index),
        "retry_in_ms": max(each["retry_in_ms"] for each in same),
        "opened": sum(each["opened"] for each in same),
        "alert": next((each["alert"] for each in same if each["alert"]), None),
        "in_flight": sum(each["in_flight"] for each in same),
        "errors": dict(errors),
        **{name: _mean([each[name] for each in same if each[name] is not None]) for name in MEASURED},
    }


def _mean(known: Sequence[float]) -> float | None:
    if not known:
        return None
    mean = sum(known) / len(known)
    return round(mean) if all(isinstance(each, int) for each in known) else _tenths(mean)


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
