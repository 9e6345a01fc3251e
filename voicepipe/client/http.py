"""Send one HTTP request to a server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import aiohttp

from voicepipe.client.errors import ServerUnreachable

ANSWER_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A response, whatever its status."""

    status: int
    reason: str
    body: bytes


async def get(url: str, *, key: str | None = None) -> HttpResponse:
    """Send a GET request once.

    Raises:
        ServerUnreachable: no answer, or none within `ANSWER_S`.
    """
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    timeout = aiohttp.ClientTimeout(total=ANSWER_S)
    try:
        async with aiohttp.ClientSession(headers=headers, timeout=timeout) as http, http.get(url) as answer:
            return HttpResponse(answer.status, answer.reason or "without a reason", await answer.read())
    except aiohttp.ClientConnectorError as why:
        raise ServerUnreachable(url, why.strerror or "no connection") from why
    except aiohttp.ClientError as why:
        raise ServerUnreachable(url, str(why) or type(why).__name__) from why
    except TimeoutError as why:
        raise ServerUnreachable(url, f"no answer within {ANSWER_S:.0f} s") from why
