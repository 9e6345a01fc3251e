"""Which clients may open the dashboard, and the limits to which it compares figures."""

from __future__ import annotations

from typing import Any


async def test_a_new_server_shows_it_to_its_own_machine(serve: Any) -> None:
    """No API key exists yet and no other machine can connect: there is nothing to sign in with."""
    async with serve() as server:
        status, body = await server.get("/dashboard/about")
        assert (status, body["sees_all"]) == (200, True)
        assert body["limits"]["total"] == 1_000
        assert body["limits"]["llm_ttft"] == 600
        assert body["over_allowed"] == 0.05
        assert body["latency_bands_ms"][-1] == 3000


async def test_beyond_loopback_it_is_never_open(serve: Any) -> None:
    """The page itself holds no data and every client may load it; its figures require a key, also before one exists."""
    async with serve(on_loopback=False) as server:
        async with server.http.get(f"{server.base}/dashboard") as page:
            assert (page.status, page.content_type) == (200, "text/html")
            assert "script-src 'self'" in page.headers["Content-Security-Policy"]
        status, body = await server.get("/dashboard/about")
        assert (status, body["error"]["code"]) == (401, "missing_credential")


async def test_an_operator_sees_a_project_or_all(serve: Any) -> None:
    async with serve() as server:
        own, every = (server.new_key("acme", scopes=(scope,)) for scope in ("operate", "operate_all"))
        assert [(await server.get("/dashboard/about", headers=key))[1]["sees_all"] for key in (own, every)] == [
            False,
            True,
        ]
        assert (await server.get("/dashboard/about", headers=own))[1]["project"] == "acme"


async def test_other_credentials_open_nothing(serve: Any) -> None:
    """Neither the key of a customer's backend nor a client secret in a browser."""
    async with serve() as server:
        key = server.new_key("acme")
        assert (await server.get("/dashboard/about", headers=key))[0] == 403
        _, minted = await server.mint({}, headers=key)
        secret = {"Authorization": f"Bearer {minted['value']}"}
        assert (await server.get("/dashboard/about", headers=secret))[0] == 403


async def test_guessing_keys_is_slowed_down(serve: Any) -> None:
    async with serve(burst=3) as server:
        server.new_key("acme", scopes=("operate",))
        wrong = {"Authorization": f"Bearer vp_acme_{'x' * 51}"}
        statuses = [(await server.get("/dashboard/about", headers=wrong))[0] for _ in range(4)]
        assert statuses == [401, 401, 401, 429]
