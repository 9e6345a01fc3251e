"""Send requests to the API of a carrier."""

from __future__ import annotations

from typing import Final

import aiohttp

from voicepipe.phone.carrier import ApiRequest

API_TIMEOUT_S: Final = 10.0
"""Timeout of the carrier's API. The API answers before the user has picked up."""

MAX_ANSWER_BYTES: Final = 64 * 1024
"""Limit of an answer's body: the carriers send some kB."""


async def send_request(request: ApiRequest) -> tuple[int, bytes]:
    """Return the status and the body of the API's answer; status 0: there was no answer."""
    headers = {"Authorization": request.authorization, "Content-Type": request.content_type}
    try:
        async with (
            aiohttp.ClientSession(headers=headers, timeout=aiohttp.ClientTimeout(total=API_TIMEOUT_S)) as http,
            http.request(request.method, request.url, data=request.body, allow_redirects=False) as answer,
        ):
            body = bytearray()
            async for part in answer.content.iter_any():
                body += part[: MAX_ANSWER_BYTES - len(body)]
            return answer.status, bytes(body)
    except (aiohttp.ClientError, TimeoutError):
        return 0, b""


def is_transient(status: int) -> bool:
    """Return whether a retry may succeed: there was no answer, the API failed, or limits the rate."""
    return status == 0 or status == 429 or status >= 500
