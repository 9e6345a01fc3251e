"""Report whether a provider has its key, and which models the running local server reports as unhealthy."""

from __future__ import annotations

from typing import Final

import msgspec

from voicepipe.client import ServerUnreachable, answers
from voicepipe.client.http import get
from voicepipe.config import Settings
from voicepipe.config.settings import LOCAL

OK: Final = 200


class _ModelStatus(msgspec.Struct):
    id: str
    state: str
    retry_in_ms: int
    alert: str | None


class _List(msgspec.Struct):
    data: list[_ModelStatus]


def key_of(settings: Settings, provider: str) -> str:
    """Return `set`, `$NAME missing`, `not needed`, or `no base_url`."""
    entry = settings.providers[provider]
    if entry.api_key:
        return "set" if entry.base_url else "set, no base_url"
    if entry.api_key_env:
        return f"${entry.api_key_env} missing"
    return "not needed" if entry.base_url or entry.kind in LOCAL else "no base_url"


async def unhealthy_models(url: str, key: str | None) -> dict[str, str]:
    """Return model -> its problem, from `GET /v1/providers`; empty when no server answers."""
    try:
        if not await answers(url):
            return {}
        got = await get(f"{url}/v1/providers", key=key)
        status = msgspec.json.decode(got.body, type=_List).data if got.status == OK else []
    except (ServerUnreachable, msgspec.DecodeError):
        return {}
    return {each.id: _words(each) for each in status if each.alert or each.state != "closed"}


def _words(status: _ModelStatus) -> str:
    how = {
        "open": f"circuit breaker open for {status.retry_in_ms // 1_000} s",
        "half_open": "circuit breaker half open",
    }.get(status.state, "in use")
    return f"{how}; operator action needed: {status.alert}" if status.alert else how
