"""Each endpoint requires the scope that it declares."""

from __future__ import annotations

import re
from typing import Any

from voicepipe.auth.scopes import ALL, INCLUDED, granted
from voicepipe.server.endpoints import ENDPOINTS, PHONE, Endpoint

EXAMPLES = {
    "id": "x1",
    "user": "anna",
    "side": "user",
    "item": "item_x1",
    "page": "index",
    "path": "talk.js",
    "line": "main",
    "token": "t1",
}

UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
}


async def answered(server: Any, endpoint: Endpoint, headers: dict[str, str]) -> int:
    """Return the status of a request without a body."""
    path = re.sub(r"{(\w+)[^}]*}", lambda name: EXAMPLES[name[1]], endpoint.path)
    sent = headers | (UPGRADE if endpoint.path == "/v1/realtime" else {})
    async with server.http.request(endpoint.method, server.base + path, headers=sent, allow_redirects=False) as answer:
        return int(answer.status)


async def test_every_endpoint_requires_its_scope(serve: Any) -> None:
    async with serve(on_loopback=False) as server:
        server.missing.append("models")  # what needs them checks the credential first, and answers 503
        for each in (each for each in ENDPOINTS if each.scope is not None):
            assert await answered(server, each, {}) == 401, each
            others = [scope for scope in ALL if each.scope not in granted([scope])]
            assert await answered(server, each, server.new_key(scopes=others)) == 403, each
            granting = (each.scope, *(scope for scope, has in INCLUDED.items() if each.scope in has))
            for scope in granting:
                assert await answered(server, each, server.new_key(scopes=(scope,))) not in (401, 403), (each, scope)


async def test_an_endpoint_without_a_scope_needs_no_credential(serve: Any) -> None:
    async with serve(on_loopback=False) as server:
        (server.context.pages / "docs").mkdir()
        (server.context.pages / "docs" / "index.md").write_text("# Voicepipe\n")
        for each in (each for each in ENDPOINTS if each.scope is None):
            expected = {403} if each.path == "/talk/token" else {200, 302}
            if each in PHONE:  # the carrier's signature, or the token in the path, is checked of a line that exists
                expected = {404}
            assert await answered(server, each, {}) in expected, each
