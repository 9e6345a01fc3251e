"""`GET /dashboard/about`: reference figures that the dashboard compares with measured figures, for an operator."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import msgspec
from aiohttp import web

import voicepipe
from voicepipe.auth.scopes import OPERATE
from voicepipe.server.context import CONTEXT
from voicepipe.server.reference_figures import ReferenceFigures
from voicepipe.telemetry.rollups.stats import LATENCY_BANDS_MS


async def about(request: web.Request) -> web.Response:
    """Return the operator's identity and the reference figures.

    `{"project", "sees_all", "version", "limits": {stage: ms}, "latency_bands_ms", "over_allowed", "published": {spec:
    {...}}}`; 401 and 403 as everywhere, and 429 for an address that guesses keys.
    """
    context = request.app[CONTEXT]
    principal = await context.authenticator.admit(request)
    principal.check_scope(OPERATE)
    body = _plain(context.reference_figures) | {
        "project": principal.project,
        "sees_all": principal.sees_all,
        "version": voicepipe.__version__,
    }
    return web.Response(body=msgspec.json.encode(body), content_type="application/json")


def _plain(reference_figures: ReferenceFigures) -> dict[str, Any]:
    limits = reference_figures.limits
    return {
        "limits": {each.name.removesuffix("_ms"): getattr(limits, each.name) for each in fields(limits)},
        "latency_bands_ms": LATENCY_BANDS_MS,
        "over_allowed": reference_figures.over_allowed,
        "published": {
            spec: {"ttft_p50_ms": facts.ttft_p50_ms, "tokens_per_s": facts.tokens_per_s}
            for spec, facts in reference_figures.published.items()
        },
    }
