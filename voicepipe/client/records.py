"""A turn's record, asked from the server that made it."""

from __future__ import annotations

import asyncio
from typing import Final
from urllib.parse import quote

import aiohttp

from voicepipe import clock
from voicepipe.client.address import Address
from voicepipe.client.failures import CallRefused, ServerUnreachable
from voicepipe.telemetry.record_json import record_from_json
from voicepipe.turn.record import TurnRecord

ASK_AGAIN_S: Final = 0.2
_ANSWER_S: Final = 10.0


async def fetch_turn(url: str, turn_id: str, *, key: str | None = None) -> TurnRecord | None:
    """Get `/v1/turns/{id}` as it is now; None when the server has none of that id (yet).

    Args:
        url: the server's address, see `Address.parse`.
        turn_id: as the answer names it.
        key: the one that the call was made with.

    Raises:
        ServerUnreachable: nobody answers there.
        CallRefused: the server does not show it to us.
    """
    address = Address.parse(url)
    async with _http(key) as http:
        return await _fetch(http, address, turn_id)


async def closed_turn(url: str, turn_id: str, *, key: str | None = None, patience_ms: int) -> TurnRecord | None:
    """Wait until the turn is over, which is when its sound has been played, and get its record.

    Keep the call open meanwhile: hanging up ends the turn. Gives what there is, perhaps None, when `patience_ms`
    have passed.

    Raises:
        ServerUnreachable, CallRefused: as `fetch_turn` does.
    """
    address, until_ms = Address.parse(url), clock.monotonic_ms() + patience_ms
    async with _http(key) as http:
        while True:
            record = await _fetch(http, address, turn_id)
            if (record is not None and record.outcome is not None) or clock.monotonic_ms() >= until_ms:
                return record
            await asyncio.sleep(ASK_AGAIN_S)


def _http(key: str | None) -> aiohttp.ClientSession:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return aiohttp.ClientSession(headers=headers, timeout=aiohttp.ClientTimeout(total=_ANSWER_S))


async def _fetch(http: aiohttp.ClientSession, address: Address, turn_id: str) -> TurnRecord | None:
    where = f"{address.http}/v1/turns/{quote(turn_id, safe='')}"
    try:
        async with http.get(where) as answer:
            body = await answer.read()
    except (aiohttp.ClientError, TimeoutError) as why:
        raise ServerUnreachable(where, str(why) or type(why).__name__) from why
    if answer.status == 404:
        return None
    if answer.status != 200:
        raise CallRefused(answer.status, answer.reason or "without a reason")
    return record_from_json(body)
