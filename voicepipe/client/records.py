"""Fetch a turn's record from the server that made it."""

from __future__ import annotations

import asyncio
from typing import Final
from urllib.parse import quote

from voicepipe import clock
from voicepipe.client.address import Address
from voicepipe.client.errors import CallRefused
from voicepipe.client.http import get
from voicepipe.telemetry.record_json import record_from_json
from voicepipe.turn.record.values import TurnRecord

POLL_INTERVAL_S: Final = 0.2


async def fetch_turn(url: str, turn_id: str, *, key: str | None = None) -> TurnRecord | None:
    """Return `/v1/turns/{id}` as it is now; None when the server has no record of that id (yet).

    Args:
        url: the server's address, see `Address.parse`.
        turn_id: the id from the answer.
        key: the key that the session was opened with.

    Raises:
        ServerUnreachable: no server answers there.
        CallRefused: the server denies access to the record.
    """
    got = await get(f"{Address.parse(url).http}/v1/turns/{quote(turn_id, safe='')}", key=key)
    if got.status == 404:
        return None
    if got.status != 200:
        raise CallRefused(got.status, got.reason)
    return record_from_json(got.body)


async def closed_turn(url: str, turn_id: str, *, key: str | None = None, timeout_ms: int) -> TurnRecord | None:
    """Wait until the turn is over, which is when its audio has been played, and return its record.

    Keep the session open meanwhile: closing it ends the turn. After `timeout_ms` the current record is returned, or
    None.

    Raises:
        ServerUnreachable, CallRefused: as `fetch_turn` does.
    """
    until_ms = clock.monotonic_ms() + timeout_ms
    while True:
        record = await fetch_turn(url, turn_id, key=key)
        if (record is not None and record.outcome is not None) or clock.monotonic_ms() >= until_ms:
            return record
        await asyncio.sleep(POLL_INTERVAL_S)
