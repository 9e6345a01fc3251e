"""The proxy examples, in front of a real server: calls, pages and what must not be reached from outside."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.deploy.balancers import BALANCERS
from voicepipe.auth.apikeys import ApiKeys
from voicepipe.client import connect
from voicepipe.clock import unix_s

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", BALANCERS)
async def test_a_call_through_the_proxy(
    fake_server: Any, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is answered, over TLS; metrics stay inside, plain http is sent elsewhere, and no credential is logged."""
    async with fake_server({"server.trusted_proxies": ["127.0.0.1"]}) as server:
        key = ApiKeys(server.folder / "data").create("acme", now_s=unix_s()).text
        async with BALANCERS[name](tmp_path, [server.url.removeprefix("http://")]) as proxy:
            monkeypatch.setenv("SSL_CERT_FILE", str(proxy.certificate))
            async with connect(proxy.url, key=key) as call:
                assert (await call.text_turn("What time is it?")).status == "completed"
            trusting = ssl.create_default_context(cafile=proxy.certificate)
            async with aiohttp.ClientSession() as http:
                bearer = {"Authorization": f"Bearer {key}", "X-Forwarded-For": "127.0.0.1"}
                for path, headers, status in (
                    ("/healthz", {}, 200),
                    ("/v1/models", bearer, 200),
                    ("/v1/models", {"X-Forwarded-For": "127.0.0.1"}, 401),  # no client can pretend to be this machine
                    ("/metrics", bearer, 404),
                    (f"/v1/models?token={key}", {}, 401),
                ):
                    async with http.get(f"{proxy.url}{path}", headers=headers, ssl=trusting) as answer:
                        assert (path, answer.status) == (path, status)
                url = f"http://127.0.0.1:{proxy.plain_port}/talk"
                async with http.get(url, headers={"Host": "voice.example"}, allow_redirects=False) as answer:
                    assert (answer.status, answer.headers["Location"]) == (308, "https://voice.example/talk")
    assert '"GET /v1/realtime" 101' in proxy.logged()
    assert key not in proxy.logged()
    assert proxy.complaints() == []
