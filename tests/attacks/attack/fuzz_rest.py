"""Requests over REST that are almost right."""

from __future__ import annotations

import asyncio
import copy
import json
import random
from typing import Any

import aiohttp

from attack.fuzz_events import change
from attack.target import HANG_S, Sent, Target

REQUESTS = 400
RAW = 60
AT_ONCE = 10

CHAT = {
    "model": "default",
    "messages": [{"role": "user", "content": "hello"}],
    "stream": True,
    "temperature": 0.5,
    "max_tokens": 10,
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
    "stop": ["x"],
}
MINT = {
    "expires_after": {"anchor": "created_at", "seconds": 60},
    "session": {"type": "realtime", "instructions": "x", "audio": {"output": {"voice": "v"}}},
    "voicepipe": {"subject": "u", "scopes": ["realtime"], "limits": {"turns": 3, "agents": ["default"]}},
}
SPEECH = {"model": "default", "input": "Hello.", "voice": "v", "response_format": "pcm", "speed": 1.0}

Request = tuple[str, str, Any]

VALID: tuple[Request, ...] = (
    ("POST", "/v1/chat/completions", CHAT),
    ("POST", "/v1/realtime/client_secrets", MINT),
    ("POST", "/v1/audio/speech", SPEECH),
    ("POST", "/v1/realtime/client_secrets/revoke", {"token_id": "x"}),
    ("POST", "/v1/realtime/sessions", {"model": "default", "voice": "v"}),
    ("GET", "/v1/turns?limit=3&before=x&agent=default&outcome=failed", None),
    ("GET", "/v1/stats?window=15m&agent=default", None),
    ("GET", "/v1/turns/export?format=csv", None),
    ("GET", "/v1/turns/turn_x", None),
    ("GET", "/v1/models/default", None),
    ("GET", "/v1/webhooks/dead", None),
    ("GET", "/web/../../etc/passwd", None),
    ("DELETE", "/v1/sessions/sess_x", None),
)

ODD_PIECES = (
    "%00",
    "%2e%2e/",
    "..;/",
    "?",
    "&",
    "=",
    "%ff",
    "\u202e",
    "'",
    '"',
    "<x>",
    "-1",
    "9" * 30,
    "%0d%0a",
    "x" * 3_000,
)
ODD_BODIES = (b"", b"{", b"null", b"[]", b"\xff\xfe", b"[" * 5_000, b'{"a":' * 2_000, b"1e999", b'"x"', b"{}" * 100)
ODD_HEADERS = (
    {"Content-Type": "text/plain"},
    {"Content-Type": "application/json; charset=utf-7"},
    {"Content-Encoding": "gzip"},
    {"Accept": "*/*;q=x"},
    {"Origin": "null"},
    {"X-Forwarded-For": "::1, '"},
    {"Range": "bytes=-1-"},
    {"Expect": "100-continue"},
    {"Transfer-Encoding": "identity"},
    {"Host": "x" * 300},
    {"Authorization": "Bearer " + "e" * 5_000},
    {"Authorization": "\u00ff"},
    {"traceparent": "00-" + "0" * 32 + "-x-1"},
)
RAW_REQUESTS = (
    b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    b"GET /%s HTTP/1.1\r\nHost: a\r\n\r\n" % (b"a" * 20_000),
    b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 5_000 + b"\r\n",
    b"GET / HTTP/1.1\r\nX: " + b"y" * 50_000 + b"\r\n\r\n",
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n\r\n",
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0",
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"\x00" * 100,
    b"GET /v1/realtime HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
)


async def requests(target: Target) -> Sent:
    """Odd bodies, headers, paths and parameters with a good key, and bytes that are hardly HTTP."""
    chance, sent = random.Random(target.seed), Sent()
    timeout = aiohttp.ClientTimeout(total=HANG_S)
    async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as http:
        for _ in range(0, round(REQUESTS * target.scale), AT_ONCE):
            drawn = [_odd(chance) for _ in range(AT_ONCE)]
            await asyncio.gather(*(_send(http, target, sent, *each) for each in drawn))
    for _ in range(0, round(RAW * target.scale), AT_ONCE):
        raw = [_cut(chance, chance.choice(RAW_REQUESTS)) for _ in range(AT_ONCE)]
        await asyncio.gather(*(_send_raw(target, sent, each) for each in raw))
    return sent


def _odd(chance: random.Random) -> tuple[str, str, bytes | None, dict[str, str]]:
    method, path, value = copy.deepcopy(chance.choice(VALID))
    body = None
    if value is not None:
        for _ in range(chance.randint(1, 3)):
            change(chance, value)
        body = chance.choice(ODD_BODIES) if chance.random() < 0.15 else json.dumps(value).encode()
    if chance.random() < 0.3:
        at = chance.randrange(1, len(path) + 1)
        path = path[:at] + chance.choice(ODD_PIECES) + path[at:]
    headers = dict(chance.choice(ODD_HEADERS)) if chance.random() < 0.2 else {}
    return chance.choice(("PUT", "HEAD", "OPTIONS", "PATCH")) if chance.random() < 0.05 else method, path, body, headers


def _cut(chance: random.Random, data: bytes) -> bytes:
    return data[: chance.randrange(1, len(data))] if chance.random() < 0.3 else data


async def _send(
    http: aiohttp.ClientSession,
    target: Target,
    sent: Sent,
    method: str,
    path: str,
    body: bytes | None,
    headers: dict[str, str],
) -> None:
    sent.events += 1
    sent.n_bytes += len(path) + len(body or b"")
    both = {**target.headers(target.key), "Content-Type": "application/json", **headers}
    try:
        async with http.request(method, target.url + path, data=body, headers=both) as answer:
            await answer.read()
            sent.seen[f"{answer.status}"] += 1
            if answer.status == 500:
                sent.seen[f"500 to {method} {path[:80]} {(body or b'')[:300]!r} {headers}"] += 1
    except (aiohttp.ClientError, ValueError) as why:  # our own client refuses some of it, and the server hangs up
        sent.seen[type(why).__name__] += 1


async def _send_raw(target: Target, sent: Sent, data: bytes) -> None:
    reader, writer = await target.tcp()
    sent.write(writer, data)
    try:
        head = await asyncio.wait_for(reader.read(4_096), 0.5)
        sent.seen[f"raw {head[9:12].decode(errors='replace')}"] += 1
    except TimeoutError:
        sent.seen["raw waits"] += 1
    except ConnectionError:
        sent.seen["raw reset"] += 1
    writer.transport.abort()
