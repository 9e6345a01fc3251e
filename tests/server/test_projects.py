"""What belongs to one project is out of another's reach, wherever something belongs to a project."""

from __future__ import annotations

from typing import Any

from voicepipe.auth.tokens import verify
from voicepipe.clock import unix_s
from voicepipe.server.quotas import Quotas
from voicepipe.telemetry.store.port import StoredTurn
from voicepipe.testing.records import turn_record
from voicepipe.values import replace


async def test_turns_are_not_read_across_projects(serve: Any) -> None:
    """By a key or by a token with the scope, alone or in a list, by the id of a turn or of a session."""
    async with serve() as server:
        record = replace(turn_record(), id="turn_theirs", session="sess_theirs")
        await server.context.turns.store([StoredTurn(record, "theirs", "default", 1)])
        token = server.forge(project="mine", scopes=["realtime", "turns"])
        for headers in (server.new_key("mine"), {"Authorization": f"Bearer {token}"}):
            assert (await server.get("/v1/turns/turn_theirs", headers=headers))[0] == 404
            status, page = await server.get("/v1/turns?session=sess_theirs", headers=headers)
            assert status == 403 or page["data"] == []
        _, page = await server.get("/v1/turns", headers=server.new_key("mine"))
        assert page["data"] == []
        assert (await server.get("/v1/turns/turn_theirs", headers=server.new_key("theirs")))[0] == 200


async def test_a_stored_session_config_is_not_read_across_projects(serve: Any) -> None:
    """A token names its config by id; one of another project that names the same id finds nothing."""
    async with serve() as server:
        session = {"type": "realtime", "instructions": "Their secret."}
        _, minted = await server.mint({"session": session}, headers=server.new_key("theirs"))
        claims = verify(minted["value"], server.context.key_store.keyring(unix_s()), now_s=unix_s())
        stolen = server.forge(project="mine", cfg=claims.config_id)
        status, error = await server.refused(headers={"Authorization": f"Bearer {stolen}"})
        assert (status, error["code"]) == (401, "session_config_expired")
        assert server.grants == []


async def test_sessions_are_of_the_project_of_their_credential(serve: Any) -> None:
    """Whatever else the request says."""
    async with serve() as server:
        _, minted = await server.mint(headers=server.new_key("acme"))
        claimed = {"OpenAI-Project": "rival", "OpenAI-Organization": "rival"}
        async with server.connect(headers={"Authorization": f"Bearer {minted['value']}", **claimed}):
            pass
        async with server.connect("/v1/realtime?project=rival", headers=server.new_key("other") | claimed):
            pass
        assert [grant.project for grant in server.grants] == ["acme", "other"]


async def test_one_project_does_not_take_the_slots_of_another(serve: Any, gate: Any) -> None:
    async with serve(quotas=Quotas(project_sessions=1)) as server:
        mine, theirs = server.new_key("mine"), server.new_key("theirs")
        server.talks.append(gate)
        async with server.connect(headers=mine):
            await gate.began.wait()
            status, error = await server.refused(headers=mine)
            assert (status, error["code"]) == (429, "quota_exceeded")
            assert error["message"] == "Too many sessions of project 'mine' (limit 1)."
            async with server.connect(headers=theirs):
                gate.go.set()
        async with server.connect(headers=mine):
            pass


async def test_limits_of_a_token_are_counted_for_its_project(serve: Any) -> None:
    """Two projects may have tokens of the same id, when they sign their own."""
    async with serve() as server:
        for project in ("mine", "theirs"):
            token = server.forge(project=project, jti="same", limits={"max_sessions": 1})
            async with server.connect(headers={"Authorization": f"Bearer {token}"}):
                pass
        first, second = (grant.session_id for grant in server.grants)
        assert first[:21] != second[:21]
