"""Check whether a server is up and accepts sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import msgspec

from voicepipe import clock
from voicepipe.client.address import Address
from voicepipe.client.errors import ServerUnreachable
from voicepipe.client.http import get

_POLL_INTERVAL_S: Final = 0.3
_READY_MS: Final = 180_000
"""A slow machine loads the local models in well under a minute."""


async def answers(url: str) -> bool:
    """Return whether a voicepipe server answers at this address; any other server does not count."""
    try:
        status, body = await _get(f"{Address.parse(url).http}/healthz")
    except ServerUnreachable:
        return False
    return status == 200 and body.get("status") == "ok"


async def until_ready(url: str, print_line: Callable[[str], None], *, timeout_ms: int = _READY_MS) -> None:
    """Wait while the server reports that it is starting; `print_line` gets each change of what the server waits for.

    A server without `/readyz` counts as ready.

    Raises:
        ServerUnreachable: no server answers, or it is still not ready after `timeout_ms`.
    """
    url, until_ms, last_missing = f"{Address.parse(url).http}/readyz", clock.monotonic_ms() + timeout_ms, ""
    while True:
        status, body = await _get(url)
        if status != 503:
            return
        missing = "; ".join(str(each) for each in body.get("missing") or ["not ready"])
        if clock.monotonic_ms() >= until_ms:
            raise ServerUnreachable(url, f"still waiting after {timeout_ms // 1_000} s: {missing}")
        if missing != last_missing:
            print_line(f"the server is starting: {missing}")
        last_missing = missing
        await asyncio.sleep(_POLL_INTERVAL_S)


async def _get(url: str) -> tuple[int, dict[str, Any]]:
    """Return status and JSON object of an answer; an empty object when the answer holds anything else."""
    response = await get(url)
    try:
        return response.status, msgspec.json.decode(response.body, type=dict[str, Any])
    except msgspec.DecodeError:
        return response.status, {}
