"""`GET /dashboard/about`: reference figures that the dashboard compares with measured figures, for an operator."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import msgspec
from aiohttp import web

import voicepipe
from voicepipe.auth.scopes import OPERATE
from voicepipe.server.parts import PARTS
from voicepipe.server.yardstick import Yardstick


async def about(request: web.Request) -> web.Response:
    """Return the operator's identity and the reference figures.

    `{"project", "sees_all", "version", "limits": {stage: ms}, "over_allowed", "published": {spec: {...}}}`; 401 and 403
    as everywhere, and 429 for an address that guesses keys.
    """
    parts = request.app[PARTS]
    visitor = await parts.doorway.admit(request)
    visitor.check_scope(OPERATE)
    told = _plain(parts.yardstick) | {
        "project": visitor.project,
        "sees_all": visitor.sees_all,
        "version": voicepipe.__version__,
    }
    return web.Response(body=msgspec.json.encode(told), content_type="application/json")


def _plain(yardstick: Yardstick) -> dict[str, Any]:
    limits = yardstick.limits
    return {
        "limits": {each.name.removesuffix("_ms"): getattr(limits, each.name) for each in fields(limits)},
        "over_allowed": yardstick.over_allowed,
        "published": {
            spec: {"ttft_p50_ms": facts.ttft_p50_ms, "tokens_per_s": facts.tokens_per_s}
            for spec, facts in yardstick.published.items()
        },
    }
