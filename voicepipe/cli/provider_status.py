"""List the models that the running local server reports as unhealthy."""

from __future__ import annotations

from typing import Final

import msgspec

from voicepipe.client import ServerUnreachable, answers
from voicepipe.client.http import get

OK: Final = 200


class _ModelStatus(msgspec.Struct):
    id: str
    state: str
    retry_in_ms: int
    alert: str | None


class _List(msgspec.Struct):
    data: list[_ModelStatus]


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
    how = {"open": f"left alone for {status.retry_in_ms // 1_000} s", "half_open": "on trial"}.get(
        status.state, "asked"
    )
    return f"{how}; operator action needed: {status.alert}" if status.alert else how
