"""Bad credentials never lock out good ones, and a foreign page's requests are its visitor's fault in nothing."""

from __future__ import annotations

from typing import Any

import pytest

from voicepipe.auth.apikeys import ApiKeys
from voicepipe.clock import unix_s
from voicepipe.cluster.revocation import RevokedToken

UNKNOWN = {"Authorization": "Bearer vp_acme_" + "a" * 51}
MADE_UP = "openai-insecure-api-key.ek_a.b.c"
EVIL = "https://evil.test"


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


async def test_a_right_key_passes_whatever_its_address_did(serve: Any) -> None:
    """Only who shows unknown ones waits."""
    async with serve(burst=2) as server:
        key = server.new_key("acme")
        _, minted = await server.mint({}, headers=key)
        assert [(await server.get("/v1/turns", headers=UNKNOWN))[0] for _ in range(4)] == [401, 401, 429, 429]
        assert (await server.get("/v1/turns", headers=key))[0] == 200
        async with server.connect(headers=bearer(minted["value"])):
            pass
        assert (await server.get("/v1/turns"))[1]["error"]["code"] == "missing_credential"
        assert (await server.get("/v1/turns", headers=UNKNOWN))[0] == 429


async def test_what_was_once_given_out_is_no_guess(serve: Any) -> None:
    """Expired, revoked, used up, without the scope, meant for another page: a tab that was left open tries them all."""
    async with serve(burst=1) as server:
        key = server.new_key("acme")
        expired = server.forge(iat=unix_s() - 100, nbf=0, exp=unix_s() - 50)
        elsewhere = server.forge(aud="another-server")
        of_a_page = server.forge(limits={"origins": ["https://shop.test"]})
        _, minted = await server.mint({"voicepipe": {"subject": "u"}}, headers=key)
        gone = RevokedToken.at(unix_s(), "acme", minted["voicepipe"]["token_id"])
        await server.context.cluster.revoke(gone, now_s=unix_s())
        used = server.forge(limits={"max_sessions": 1})
        async with server.connect(headers=bearer(used)):
            pass
        made = server.api_keys.create("acme", now_s=1)
        server.api_keys.revoke(made.key.id, now_s=2)
        expected = {
            expired: "token_expired",
            elsewhere: "wrong_audience",
            of_a_page: "origin_not_allowed",
            minted["value"]: "token_revoked",
            used: "token_used_up",
            made.text: "api_key_revoked",
        }
        for _ in range(3):
            for secret, code in expected.items():
                assert (await server.refused(headers=bearer(secret)))[1]["code"] == code
        assert (await server.get("/v1/turns", headers=UNKNOWN))[0] == 401, "the first guess of this address"
        assert (await server.get("/v1/turns", headers=UNKNOWN))[0] == 429


async def test_a_foreign_pages_websockets_count_nothing(serve: Any) -> None:
    """Any page can open them from its visitor's address, with whatever it makes up."""
    async with serve(burst=2) as server:
        for _ in range(5):
            status, error = await server.refused(headers={"Origin": EVIL, "Sec-WebSocket-Protocol": MADE_UP})
            assert (status, error["code"]) == (401, "invalid_token")
        status, _ = await server.get("/v1/turns", headers=UNKNOWN | {"Sec-Fetch-Site": "cross-site"})
        assert status == 403, "an open server takes any key, from its own machine's programs"
        own = {"Origin": server.base, "Sec-WebSocket-Protocol": MADE_UP}
        assert [(await server.refused(headers=own))[0] for _ in range(3)] == [401, 401, 429]
        async with server.connect():
            pass


async def test_guesses_of_a_foreign_page_are_not_counted_where_keys_are_needed(serve: Any) -> None:
    async with serve(burst=1) as server:
        server.new_key()
        for headers in ({"Origin": EVIL}, {"Sec-Fetch-Site": "cross-site"}):
            for _ in range(3):
                assert (await server.get("/v1/turns", headers=UNKNOWN | headers))[0] == 401


@pytest.mark.parametrize("site", ["cross-site", "same-site", "nonsense"])
async def test_a_foreign_pages_pictures_are_refused(serve: Any, site: str) -> None:
    """A browser sends no `Origin` for them: forty would hold every live stream of an open server."""
    async with serve(metrics_allow=("127.0.0.1",)) as server:
        foreign = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}
        for path in ("/v1/turns/stream", "/v1/turns", "/v1/turns/export", "/v1/models", "/metrics", "/dashboard/about"):
            status, body = await server.get(path, headers=foreign)
            assert (status, body["error"]["code"]) == (403, "origin_not_allowed"), path


async def test_own_pages_and_programs_are_not(serve: Any) -> None:
    async with serve() as server:
        for headers in ({"Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "none"}, {}):
            assert (await server.get("/v1/turns", headers=headers))[0] == 200


@pytest.mark.parametrize(("allowed", "status"), [((), 403), ((EVIL,), 200)])
async def test_pages_of_an_origin_that_is_allowed_are_not(serve: Any, allowed: tuple[str, ...], status: int) -> None:
    async with serve(allowed_origins=allowed) as server:
        headers = {"Sec-Fetch-Site": "cross-site", "Origin": EVIL}
        assert (await server.get("/v1/turns", headers=headers))[0] == status


async def test_a_request_with_a_key_passes_from_any_site(serve: Any) -> None:
    """A page that has a credential was given it; the refusal is for what needs none."""
    async with serve() as server:
        key = server.new_key()
        assert (await server.get("/v1/turns", headers=key | {"Sec-Fetch-Site": "cross-site"}))[0] == 200


async def test_guesses_never_read_the_file_of_keys(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serve(burst=1_000) as server:
        server.new_key()
        assert (await server.get("/v1/turns", headers=UNKNOWN))[0] == 401

        def read(self: ApiKeys) -> None:
            raise AssertionError("the file was read")

        for name in ("table", "list"):
            monkeypatch.setattr(ApiKeys, name, read)
        for _ in range(20):
            assert (await server.get("/v1/turns", headers=UNKNOWN))[0] == 401
