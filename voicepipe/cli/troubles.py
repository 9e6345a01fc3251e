"""List the models that the running local server reports as unhealthy."""

from __future__ import annotations

from typing import Final

import msgspec

from voicepipe.client import ServerUnreachable, answers
from voicepipe.client.http import get

OK: Final = 200


class _Told(msgspec.Struct):
    id: str
    state: str
    retry_in_ms: int
    alert: str | None


class _List(msgspec.Struct):
    data: list[_Told]


async def told_now(url: str, key: str | None) -> dict[str, str]:
    """Return model -> its problem, from `GET /v1/providers`; empty when no server answers."""
    try:
        if not await answers(url):
            return {}
        got = await get(f"{url}/v1/providers", key=key)
        told = msgspec.json.decode(got.body, type=_List).data if got.status == OK else []
    except (ServerUnreachable, msgspec.DecodeError):
        return {}
    return {each.id: _words(each) for each in told if each.alert or each.state != "closed"}


def _words(told: _Told) -> str:
    how = {"open": f"left alone for {told.retry_in_ms // 1_000} s", "half_open": "on trial"}.get(told.state, "asked")
    return f"{how}; somebody must act: {told.alert}" if told.alert else how
