"""Feedback on a turn's answer, and the arms of experiments that it compares."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from voicepipe.server.api import experiments as api
from voicepipe.telemetry.rollups.arms import ArmTurn, ExperimentFigures, experiments
from voicepipe.telemetry.store.port import StoredTurn
from voicepipe.testing.records import turn_record
from voicepipe.turn.record.arm import Arm
from voicepipe.values import replace


def turn(id: str, *, arm: str = "", project: str = "acme", session: str = "sess_1") -> StoredTurn:
    stored = StoredTurn(turn_record(id=id, session=session), project, "default", 1_795_000_000_000)
    return replace(stored, arm=Arm.read(arm))


async def score(server: Any, id: str, body: Any, key: Any) -> tuple[int, Any]:
    async with server.http.post(f"{server.base}/v1/turns/{id}/feedback", json=body, headers=key) as answer:
        return answer.status, await answer.json()


async def compared(server: Any, key: Any, query: str = "") -> Any:
    async with server.http.get(f"{server.base}/v1/experiments{query}", headers=key) as answer:
        assert answer.status == 200, await answer.text()
        return await answer.json()


async def test_feedback_is_compared_by_arm(serve: Any) -> None:
    async with serve() as server:
        key = server.new_key("acme")
        await server.context.turns.store([turn("a", arm="host/new"), turn("b", arm="host/old"), turn("c")])
        assert await score(server, "a", {"score": 0}, key) == (
            200,
            {"object": "voicepipe.feedback", "turn": "a", "source": "user", "score": 0.0},
        )
        assert (await score(server, "a", {"score": 1}, key))[0] == 200
        assert (await score(server, "b", {"score": 0.4}, key))[0] == 200
        (host,) = (await compared(server, key))["data"]
        assert (host["name"], host["winner"]) == ("host", None)
        new, old, rest = host["arms"]
        assert [arm["pool"] for arm in (new, old, rest)] == ["new", "old", ""]
        assert new["quality"]["user"]["good"] == 1
        assert new["quality"]["user"]["share"]["low"] == pytest.approx(0.2065, abs=1e-3)
        assert old["quality"]["user"]["good"] == 0
        assert rest["quality"] == {}
        assert (await compared(server, key, "?window=1h"))["data"] == []


async def test_arms_are_compared_beside_the_event_loop(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes long for many turns."""
    threads: list[threading.Thread] = []

    def noted(turns: tuple[ArmTurn, ...]) -> tuple[ExperimentFigures, ...]:
        threads.append(threading.current_thread())
        return experiments(turns)

    monkeypatch.setattr(api, "experiments", noted)
    async with serve() as server:
        key = server.new_key("acme")
        await server.context.turns.store([turn("a", arm="host/new")])
        assert [each["name"] for each in (await compared(server, key))["data"]] == ["host"]
    assert len(threads) == 1
    assert threads[0] is not threading.current_thread()


@pytest.mark.parametrize("body", [{}, {"score": 2}, {"score": "good"}, {"score": 1, "more": 1}, [], "no"])
async def test_a_wrong_score_is_refused(serve: Any, body: Any) -> None:
    async with serve() as server:
        key = server.new_key("acme")
        await server.context.turns.store([turn("a")])
        status, answer = await score(server, "a", body, key)
        assert status == 400
        assert answer["error"]["code"] in (
            "missing_required_parameter",
            "invalid_value",
            "invalid_type",
            "unknown_parameter",
        )


async def test_turns_of_others_are_unknown(serve: Any) -> None:
    """Of another project, and for a client secret those of other sessions."""
    async with serve() as server:
        await server.context.turns.store([turn("a"), turn("b", project="rival")])
        for id in ("b", "nothing"):
            status, answer = await score(server, id, {"score": 1}, server.new_key("acme"))
            assert (status, answer["error"]["code"]) == (404, "turn_not_found")
        _, minted = await server.mint({"voicepipe": {"scopes": ["turns"]}}, headers=server.new_key("acme"))
        secret = {"Authorization": f"Bearer {minted['value']}"}
        assert (await score(server, "a", {"score": 1}, secret))[0] == 404
        async with server.http.get(f"{server.base}/v1/experiments", headers=secret) as answer:
            assert (answer.status, (await answer.json())["error"]["code"]) == (403, "api_key_required")
