"""The pages, and the token that this machine's talk page gets by itself."""

from __future__ import annotations

from typing import Any

import pytest
from yarl import URL

from voicepipe.auth.tokens import verify
from voicepipe.clock import unix_s


def own(server: Any, **more: str) -> dict[str, str]:
    """The headers of this server's own page."""
    return {"Origin": server.base, **more}


async def test_the_talk_page_of_this_machine_gets_a_token(serve: Any) -> None:
    """Good for that page alone: to talk, and to read its own turns."""
    async with serve() as server:
        status, minted = await server.post("/talk/token", headers=own(server))
        assert status == 200
        claims = verify(minted["value"], server.context.key_store.keyring(unix_s()), now_s=unix_s())
        assert (claims.scopes, claims.limits.origins) == (("realtime", "turns"), (server.base,))
        assert minted["voicepipe"]["agents"] == [
            {"name": "default", "voices": ["heart"]},
            {"name": "support", "voices": None},
        ]
        protocols = ("realtime", f"openai-insecure-api-key.{minted['value']}")
        async with server.connect(protocols=protocols, headers={"Origin": server.base}) as line:
            assert line.protocol == "realtime"
        assert (await server.refused(headers={"Authorization": f"Bearer {minted['value']}"}))[0] == 403


@pytest.mark.parametrize(
    ("headers", "code", "words"),
    [
        ({"Origin": "https://evil.test"}, "origin_not_allowed", "Let your backend mint a client secret"),
        ({"Origin": "null"}, "origin_not_allowed", "Let your backend mint a client secret"),
        ({"Host": "evil.test", "Origin": "http://evil.test"}, "host_not_allowed", "localhost, 127.0.0.1 or [::1]"),
        ({"X-Forwarded-For": "127.0.0.1"}, "forwarded", "came through a proxy (header x-forwarded-for)"),
        ({"Forwarded": "for=127.0.0.1"}, "forwarded", "came through a proxy (header forwarded)"),
        ({"Via": "1.1 proxy"}, "forwarded", "an API key or a client secret is needed"),
        ({"Origin": ""}, "origin_not_allowed", ""),
    ],
)
async def test_no_other_page_gets_one(serve: Any, headers: dict[str, str], code: str, words: str) -> None:
    """A foreign page, DNS rebinding, a proxy on the same machine."""
    async with serve() as server:
        status, body = await server.post("/talk/token", headers=own(server, **headers))
        assert (status, body["error"]["code"]) == (403, code)
        assert words in body["error"]["message"]


async def test_a_program_that_is_no_page_gets_none(serve: Any) -> None:
    async with serve() as server:
        status, body = await server.post("/talk/token")
        assert (status, body["error"]["code"]) == (403, "origin_required")
        assert "mint with an API key at /v1/realtime/client_secrets" in body["error"]["message"]


async def test_another_machine_gets_none(serve: Any) -> None:
    """A trusted proxy reports the address of the other machine; the tests of `auth` cover the case without proxies."""
    async with serve(trusted_proxies=("127.0.0.1",), talk_page_tokens="always") as server:
        status, body = await server.post("/talk/token", headers=own(server, **{"X-Forwarded-For": "203.0.113.7"}))
        assert (status, body["error"]["code"]) == (403, "not_loopback")


@pytest.mark.parametrize(("mint", "with_key"), [("auto", 403), ("always", 200), ("never", 403)])
async def test_with_api_keys_it_gets_one_only_when_that_was_chosen(serve: Any, mint: str, with_key: int) -> None:
    """A proxy that adds no header makes a stranger look like this machine; keys say that strangers are expected."""
    async with serve(talk_page_tokens=mint) as server:
        assert (await server.post("/talk/token", headers=own(server)))[0] == (403 if mint == "never" else 200)
        server.new_key()
        status, body = await server.post("/talk/token", headers=own(server))
        assert status == with_key
        assert status == 200 or "'voicepipe token'" in body["error"]["message"]


async def test_it_gets_none_behind_a_trusted_proxy(serve: Any) -> None:
    async with serve(trusted_proxies=("10.0.0.1",)) as server:
        status, body = await server.post("/talk/token", headers=own(server))
        assert (status, body["error"]["code"]) == (403, "talk_page_needs_token")


async def test_pages_come_with_a_strict_policy_and_their_types(serve: Any) -> None:
    async with serve() as server:
        async with server.http.get(f"{server.base}/") as answer:
            assert (answer.status, answer.url.path) == (200, "/talk")
            policy = answer.headers["Content-Security-Policy"]
            assert answer.content_type == "text/html"
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            assert answer.headers["Permissions-Policy"].startswith("microphone=(self)")
            assert "Strict-Transport-Security" not in answer.headers
            assert answer.headers["Server"] == "voicepipe"
        assert "unsafe" not in policy
        assert "*" not in policy
        for part in ("default-src 'self'", "script-src 'self'", "frame-ancestors 'none'", "object-src 'none'"):
            assert part in policy
        for name, kind in (("talk.js", "text/javascript"), ("talk.css", "text/css")):
            async with server.http.get(f"{server.base}/web/{name}") as answer:
                assert (answer.status, answer.content_type) == (200, kind)


@pytest.mark.parametrize(
    "path",
    [
        "/web/notes.py",
        "/web/.secret",
        "/web/nothing.js",
        "/web/../auth.sqlite3",
        "/web/%2e%2e/auth.sqlite3",
        "/web/..%2fauth.sqlite3",
        "/web/%2e%2e%2f%2e%2e%2fetc%2fpasswd.json",
        "/web//etc/passwd.json",
        "/web/talk.js%00.png",
    ],
)
async def test_nothing_but_pages_is_served(serve: Any, path: str) -> None:
    async with serve() as server, server.http.get(URL(server.base + path, encoded=True)) as answer:
        assert answer.status == 404


async def test_a_host_that_is_no_host_does_not_reach_the_policy(serve: Any) -> None:
    async with (
        serve() as server,
        server.http.get(f"{server.base}/talk", headers={"Host": "a; script-src *"}) as answer,
    ):
        assert answer.status == 200
        assert "connect-src 'self';" in answer.headers["Content-Security-Policy"]


async def test_api_answers_are_not_cached(serve: Any) -> None:
    async with serve() as server, server.http.post(f"{server.base}/v1/realtime/client_secrets") as answer:
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.headers["Content-Security-Policy"] == "default-src 'none'; frame-ancestors 'none'"
