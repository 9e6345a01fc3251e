"""Find the nearest region whose nodes accept sessions."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import aiohttp
import msgspec

from voicepipe import clock
from voicepipe.client.address import Address
from voicepipe.client.errors import ServerUnreachable

TRIES: Final = 3
"""Requests on one connection; the first pays for the connection, so it counts only if it is the only one."""

TIMEOUT_MS: Final = 3_000


class _Listed(msgspec.Struct, frozen=True):
    name: str
    url: str


class _List(msgspec.Struct, frozen=True):
    """An answer of `GET /v1/regions`."""

    region: str
    ready: bool
    data: tuple[_Listed, ...]


@dataclass(frozen=True, slots=True)
class Region:
    """A region, as it is seen from here."""

    name: str
    url: str
    """The address of its nodes, for `connect` and for a token from its own `/v1/realtime/client_secrets`."""

    round_trip_ms: float | None
    """The shortest time of a request; None: it does not answer."""

    is_ready: bool
    """It accepts sessions now."""

    why: str = ""
    """Why it does not answer or accepts no sessions."""


async def regions(*urls: str, timeout_ms: int = TIMEOUT_MS) -> tuple[Region, ...]:
    """Return all regions, those that accept sessions first, each group from the nearest to the farthest.

    Args:
        urls: the address of any region, or of several in case that one is down: the first that answers has the list.
        timeout_ms: the limit of all requests to one region.

    Raises:
        ConfigError: an address is not one.
        ServerUnreachable: none of `urls` answers, or the server has no regions in its settings.
    """
    async with aiohttp.ClientSession() as http:
        listed = await _list_of(http, [Address.parse(url).http for url in urls], timeout_ms)
        found = await asyncio.gather(*(_measured(http, each, timeout_ms) for each in listed))
    return in_order(found)


def in_order(found: Iterable[Region]) -> tuple[Region, ...]:
    """Return regions in the order of `regions`; those that do not answer are the last, by name."""

    def place(region: Region) -> tuple[bool, float, str]:
        return not region.is_ready, math.inf if region.round_trip_ms is None else region.round_trip_ms, region.name

    return tuple(sorted(found, key=place))


async def nearest_region(*urls: str, timeout_ms: int = TIMEOUT_MS) -> Region:
    """Return the region with the shortest round trip among those that accept sessions; arguments as for `regions`.

    Raises:
        ConfigError: as `regions`.
        ServerUnreachable: as `regions`, or no region accepts sessions.
    """
    first, *others = await regions(*urls, timeout_ms=timeout_ms)
    if not first.is_ready:
        raise ServerUnreachable(", ".join(urls), "; ".join(f"{each.name}: {each.why}" for each in (first, *others)))
    return first


async def _list_of(http: aiohttp.ClientSession, urls: Iterable[str], timeout_ms: int) -> tuple[_Listed, ...]:
    why = "no address"
    for url in urls:
        try:
            async with asyncio.timeout(timeout_ms / 1_000):
                listed = (await _request(http, url)).data
        except (TimeoutError, ServerUnreachable) as failure:
            why = getattr(failure, "why", f"no answer within {timeout_ms} ms")
            continue
        if listed:
            return listed
        why = "this server has no [regions.NAME] in its settings"
    raise ServerUnreachable(", ".join(urls), why)


async def _measured(http: aiohttp.ClientSession, listed: _Listed, timeout_ms: int) -> Region:
    times_ms: list[float] = []
    answer: _List | None = None
    why = ""
    try:
        async with asyncio.timeout(timeout_ms / 1_000):
            for _ in range(TRIES):
                began_s = clock.loop_s()
                answer = await _request(http, listed.url)
                times_ms.append(1_000 * (clock.loop_s() - began_s))
    except TimeoutError:
        why = f"no answer within {timeout_ms} ms"
    except ServerUnreachable as failure:
        answer, why = None, failure.why
    if answer is None:
        return Region(listed.name, listed.url, None, is_ready=False, why=why)
    if answer.region != listed.name:
        why = f"its address has the nodes of another region, {answer.region!r}"
        return Region(listed.name, listed.url, None, is_ready=False, why=why)
    round_trip_ms = min(times_ms[1:] or times_ms)
    why = "" if answer.ready else "it accepts no sessions now"
    return Region(listed.name, listed.url, round_trip_ms, is_ready=answer.ready, why=why)


async def _request(http: aiohttp.ClientSession, url: str) -> _List:
    where = f"{url}/v1/regions"
    try:
        async with http.get(where, timeout=aiohttp.ClientTimeout(total=None)) as answer:
            body = await answer.read()
            if answer.status != 200:
                raise ServerUnreachable(where, f"expected status 200, got {answer.status}")
            return msgspec.json.decode(body, type=_List)
    except msgspec.DecodeError as wrong:
        raise ServerUnreachable(where, f"expected the list of regions, got {_kind_of(wrong)}") from wrong
    except aiohttp.ClientConnectorError as failure:
        raise ServerUnreachable(where, failure.strerror or "no connection") from failure
    except aiohttp.ClientError as failure:
        raise ServerUnreachable(where, str(failure) or type(failure).__name__) from failure


def _kind_of(wrong: msgspec.DecodeError) -> str:
    return "other JSON" if isinstance(wrong, msgspec.ValidationError) else "no JSON"
