"""Tokens, turns and health over HTTP."""

from __future__ import annotations

import io
from typing import Any

import pytest

from voicepipe.clock import unix_s
from voicepipe.telemetry.store.port import StoredTurn
from voicepipe.testing.records import turn_record
from voicepipe.values import replace


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def test_a_minted_secret_opens_sessions_with_its_config(serve: Any) -> None:
    async with serve() as server:
        key = server.new_key("acme")
        requested = {
            "type": "realtime",
            "model": "helper",
            "instructions": "Be brief.",
            "audio": {"output": {"speed": 1.2}},
        }
        status, minted = await server.mint({"session": requested}, headers=key)
        assert status == 200
        assert minted["value"].startswith("ek_")
        assert 590 <= minted["expires_at"] - unix_s() <= 600
        session = minted["session"]
        assert (session["type"], session["object"], session["model"]) == ("realtime", "realtime.session", "helper")
        assert (session["instructions"], session["audio"]["output"]["speed"]) == ("Be brief.", 1.2)
        assert session["id"].startswith("sess_")
        for _ in range(2):
            async with server.connect(headers=bearer(minted["value"])):
                pass
        first, second = server.grants
        assert (first.project, first.agent, first.model, first.config) == ("acme", "support", "helper", requested)
        assert first.session_id != second.session_id


async def test_a_small_config_travels_in_the_token(serve: Any) -> None:
    async with serve() as server:
        _, minted = await server.mint({"session": {"type": "realtime", "audio": {"output": {"voice": "heart"}}}})
        async with server.connect(headers=bearer(minted["value"])):
            pass
        assert server.grants[0].config == {"type": "realtime", "audio": {"output": {"voice": "heart"}}}
        assert server.grants[0].project == "default"


async def test_an_empty_body_mints_the_usual(serve: Any) -> None:
    async with serve() as server, server.http.post(f"{server.base}/v1/realtime/client_secrets") as answer:
        assert answer.status == 200
        minted = await answer.json()
        assert minted["session"]["instructions"] == "I am default."
        async with server.connect(headers=bearer(minted["value"])):
            pass
        assert server.grants[0].config is None


async def test_a_transcription_session_is_returned_as_one(serve: Any) -> None:
    async with serve() as server:
        status, minted = await server.mint({"session": {"type": "transcription"}})
        assert (status, minted["session"]["object"]) == (200, "realtime.transcription_session")


async def test_a_secret_has_the_requested_lifetime(serve: Any) -> None:
    async with serve() as server:
        _, minted = await server.mint({"expires_after": {"anchor": "created_at", "seconds": 10}})
        assert 0 < minted["expires_at"] - unix_s() <= 10


async def test_a_secret_never_mints_another(serve: Any) -> None:
    async with serve() as server:
        _, minted = await server.mint()
        status, body = await server.mint(headers=bearer(minted["value"]))
        assert (status, body["error"]["code"]) == (403, "api_key_required")


async def test_a_secret_reads_no_turns(serve: Any) -> None:
    async with serve() as server:
        _, minted = await server.mint()
        status, body = await server.get("/v1/turns", headers=bearer(minted["value"]))
        assert (status, body["error"]["code"]) == (403, "missing_scope")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"expires_after": {"seconds": 9}}, "expires_after.seconds"),
        ({"expires_after": {"seconds": 7_201}}, "expires_after.seconds"),
        ({"expires_after": {"seconds": "60"}}, "expires_after.seconds"),
        ({"expires_after": {"anchor": "now"}}, "expires_after.anchor"),
        ({"expires_after": 60}, "expires_after"),
        ({"session": "realtime"}, "session"),
        ({"session": {"model": 7}}, "session.model"),
        ({"session": {"type": "video"}}, "session.type"),
        (
            {"session": {"audio": {"input": {"turn_detection": {"type": "psychic"}}}}},
            "session.audio.input.turn_detection.type",
        ),
        ([], None),
    ],
)
async def test_a_wrong_request_for_a_secret_names_the_field(serve: Any, body: Any, param: str | None) -> None:
    async with serve() as server:
        status, answer = await server.mint(body)
        assert (status, answer["error"]["param"]) == (400, param)
        assert answer["error"]["type"] == "invalid_request_error"


async def test_a_body_that_is_no_json_is_refused(serve: Any) -> None:
    async with serve() as server:
        for data in (b"{", b"\xff", b'{"session":' + b'{"a":' * 100_000):
            async with server.http.post(f"{server.base}/v1/realtime/client_secrets", data=data) as answer:
                assert (answer.status, (await answer.json())["error"]["code"]) == (400, "invalid_json")


async def test_a_huge_body_is_refused(serve: Any) -> None:
    async with serve() as server:
        url, body = f"{server.base}/v1/realtime/client_secrets", io.BytesIO(b"x" * 2_000_000)
        async with server.http.post(url, data=body) as answer:
            assert (answer.status, (await answer.json())["error"]["code"]) == (413, "request_too_large")


async def keep(server: Any, *turns: StoredTurn) -> None:
    await server.context.turns.store(turns)


def stored_turn(id_: str, project: str, at_ms: int = 1_700_000_000_000) -> StoredTurn:
    return StoredTurn(replace(turn_record(), id=id_), project, "default", at_ms)


async def test_turns_are_read_newest_first_and_by_pages(serve: Any) -> None:
    async with serve() as server:
        await keep(server, *(stored_turn(f"turn_{n}", "default", 1_700_000_000_000 + n) for n in range(5)))
        status, page = await server.get("/v1/turns?limit=3")
        assert (status, page["object"]) == (200, "list")
        assert [turn["id"] for turn in page["data"]] == ["turn_4", "turn_3", "turn_2"]
        _, rest = await server.get("/v1/turns", params={"limit": "3", "before": page["next"]})
        assert ([turn["id"] for turn in rest["data"]], rest["next"]) == (["turn_1", "turn_0"], None)
        status, one = await server.get("/v1/turns/turn_4")
        assert (status, one) == (200, page["data"][0])
        assert one["total_ms"] == 983
        assert one["marks"]["voiced_last"] == 5_000


async def test_turns_can_be_chosen(serve: Any) -> None:
    async with serve() as server:
        bad = StoredTurn(
            replace(turn_record(), id="turn_bad", outcome="failed", session="sess_2"), "default", "default", 2
        )
        await keep(server, stored_turn("turn_good", "default"), bad)
        for query in ("outcome=failed", "session=sess_2"):
            _, page = await server.get(f"/v1/turns?{query}")
            assert [turn["id"] for turn in page["data"]] == ["turn_bad"]
        assert (await server.get("/v1/turns?over=true"))[1]["data"] == []


async def test_turns_of_another_project_do_not_exist(serve: Any) -> None:
    async with serve() as server:
        await keep(server, stored_turn("turn_theirs", "theirs"), stored_turn("turn_mine", "mine"))
        mine = server.new_key("mine")
        _, page = await server.get("/v1/turns", headers=mine)
        assert [turn["id"] for turn in page["data"]] == ["turn_mine"]
        status, body = await server.get("/v1/turns/turn_theirs", headers=mine)
        assert (status, body["error"]["code"]) == (404, "turn_not_found")


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("limit=0", "limit"),
        ("limit=many", "limit"),
        ("limit=1000000000000", "limit"),
        ("outcome=fine", "outcome"),
        ("over=maybe", "over"),
        ("before=yesterday", "before"),
        ("page=2", "page"),
    ],
)
async def test_a_wrong_query_names_the_parameter(serve: Any, query: str, param: str) -> None:
    async with serve() as server:
        status, body = await server.get(f"/v1/turns?{query}")
        assert (status, body["error"]["param"]) == (400, param)


async def test_health_answers_while_models_load_and_sessions_are_refused(serve: Any) -> None:
    async with serve() as server:
        server.missing.append("local models: loading smollm2-135m")
        assert await server.get("/healthz") == (200, {"status": "ok"})
        async with server.http.get(f"{server.base}/readyz") as answer:
            assert (answer.status, answer.headers["Retry-After"]) == (503, "2")
            assert await answer.json() == {"status": "starting", "missing": ["local models: loading smollm2-135m"]}
        status, error = await server.refused()
        assert (status, error["message"]) == (503, "The server is starting: local models: loading smollm2-135m.")
        server.missing.clear()
        assert await server.get("/readyz/") == (200, {"status": "ready", "missing": []})


async def test_routes_that_are_not_there_answer_in_json(serve: Any) -> None:
    async with serve() as server:
        status, body = await server.get("/v1/nothing")
        assert (status, body["error"]["code"]) == (404, "not_found")
        async with server.http.post(f"{server.base}/v1/turns") as answer:
            assert (answer.status, (await answer.json())["error"]["code"]) == (405, "method_not_allowed")
        async with server.http.get(f"{server.base}/healthz") as answer:
            assert answer.status == 200


async def test_a_failing_store_is_not_our_failure_and_names_no_file(serve: Any) -> None:
    async with serve() as server:
        await server.context.turns.close()
        for path in ("/v1/turns", "/v1/turns/t1", "/v1/stats", "/v1/sessions"):
            status, body = await server.get(path)
            assert (status, body["error"]["code"], body["error"]["type"]) == (
                503,
                "storage_unavailable",
                "server_error",
            )
            assert body["error"]["message"] == "The server can't read or write its records at the moment."


async def test_a_failing_store_is_reported_and_the_server_is_ready(serve: Any) -> None:
    async with serve() as server:
        server.context.storage.failed("records", "full", "/a/path: database or disk is full")
        status, body = await server.get("/readyz")
        (failing,) = body.pop("storage")
        assert (status, body) == (200, {"status": "ready", "missing": []})
        assert (failing.pop("since")[-1], failing) == ("Z", {"store": "records", "kind": "full"})
        async with server.http.get(f"{server.base}/metrics") as answer:
            lines = (await answer.text()).splitlines()
        assert 'voicepipe_storage_failing{store="records"} 1.0' in lines
        assert 'voicepipe_storage_failing{store="keys"} 0.0' in lines
        assert 'voicepipe_storage_failures_total{store="records"} 1.0' in lines
        server.context.storage.worked("records")
        assert await server.get("/readyz") == (200, {"status": "ready", "missing": []})


async def test_our_own_failure_says_nothing_of_its_inside(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("/a/path")

    async with serve() as server:
        monkeypatch.setattr(server.context.turns, "list", fail)
        status, body = await server.get("/v1/turns")
        assert (status, body["error"]["code"], body["error"]["type"]) == (500, "internal_error", "server_error")
        assert body["error"]["message"] == "The server failed. Its log has the reason."
