"""The transcript of a session over HTTP: its turns in order, latencies, function calls, and who may read it."""

from __future__ import annotations

from typing import Any

import pytest

from voicepipe.auth.tokens import session_prefix, verify
from voicepipe.clock import unix_s
from voicepipe.telemetry import transcript
from voicepipe.telemetry.store.port import StoredTurn
from voicepipe.testing.records import turn_record
from voicepipe.turn.record.values import Contribution, ToolCall
from voicepipe.values import replace

LOOK = ToolCall(name="look", arguments='{"at": 9}', ran_by="server", took_ms=40, outcome="returned")
STAGES = (Contribution("endpoint", "a", "b", 300), Contribution("llm_ttft", "b", "c", 200))
CUT = Contribution("endpoint", "c", "d", 45)


def stored_turn(number: int, *, session: str = "sess_1", project: str = "acme", **more: Any) -> StoredTurn:
    texts = {"user_text": f"Question {number}.", "agent_text": f"Answer {number}, and more.", "total_ms": 545}
    record = replace(
        turn_record(), id=f"t{number}", session=session, **{**texts, "played_text": f"Answer {number}", **more}
    )
    return StoredTurn(record, project, "support", 1_000 * number, user="anna")


async def test_it_has_the_turns_in_order_with_latencies_and_function_calls(serve: Any) -> None:
    """What was said and what was heard; and the time of each stage that the user waited for, cut or not."""
    async with serve() as server:
        first = stored_turn(1, tools=(LOOK,), contributions=(*STAGES, CUT))
        others = (stored_turn(3, session="sess_2"), stored_turn(4, project="bank"))
        await server.context.turns.store([stored_turn(2), first, *others])
        await server.context.turns.store_summary("acme", "sess_1", "They had two questions.")
        status, found = await server.get("/v1/sessions/sess_1/transcript", headers=server.new_key())
    assert status == 200
    assert {name: found[name] for name in found if name != "turns"} == {
        "object": "voicepipe.session.transcript",
        "id": "sess_1",
        "project": "acme",
        "agent": "support",
        "user": "anna",
        "turns_left_out": 0,
        "summary": "They had two questions.",
    }
    assert [(turn["user"], turn["agent"]) for turn in found["turns"]] == [
        ("Question 1.", "Answer 1"),
        ("Question 2.", "Answer 2"),
    ]
    assert found["turns"][0]["stages"] == {"endpoint": 345, "llm_ttft": 200}
    assert found["turns"][0]["tools"] == [
        {
            "name": "look",
            "arguments": '{"at": 9}',
            "ran_by": "server",
            "took_ms": 40,
            "early_ms": 0,
            "outcome": "returned",
        },
    ]


async def test_it_comes_as_text(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line for each side, one for each function call, and one for the latency; long sessions say what is missing."""
    monkeypatch.setattr("voicepipe.server.api.transcript.MAX_TURNS", 1)
    async with serve() as server:
        turns = [stored_turn(1), stored_turn(2, tools=(LOOK,), contributions=STAGES)]
        await server.context.turns.store(turns)
        url = f"{server.base}/v1/sessions/sess_1/transcript?format=text"
        async with server.http.get(url, headers=server.new_key()) as answer:
            text = await answer.text()
    assert (answer.content_type, text.splitlines()) == (
        "text/plain",
        [
            "(1 earlier turns are left out)",
            "",
            "[1970-01-01T00:00:02.000Z] completed, 545 ms (endpoint 300, llm_ttft 200)",
            "User: Question 2.",
            'Tool: look {"at": 9}, server, returned, 40 ms',
            "Agent: Answer 2",
        ],
    )


def test_a_turn_without_words_or_latency_is_a_line() -> None:
    """Texts are not stored, or the turn is still running."""
    turn = stored_turn(1, user_text="", played_text="", total_ms=None, outcome=None)
    text = transcript.transcript_text([transcript.transcript_turn(turn)], turns_left_out=0, summary="They called.")
    assert text.splitlines() == ["Summary: They called.", "", "[1970-01-01T00:00:01.000Z] running"]


async def test_a_client_secret_reads_its_own_sessions_only(serve: Any) -> None:
    """As it reads their turns: another session is as unknown as a missing one."""
    async with serve() as server:
        secret = server.forge(scopes=["realtime", "turns"])
        claims = verify(secret, server.context.key_store.keyring(unix_s()), now_s=unix_s())
        own = f"{session_prefix(claims)}abc"
        await server.context.turns.store([stored_turn(1), stored_turn(2, session=own)])
        headers = {"Authorization": f"Bearer {secret}"}
        assert (await server.get(f"/v1/sessions/{own}/transcript", headers=headers))[0] == 200
        status, body = await server.get("/v1/sessions/sess_1/transcript", headers=headers)
        assert (status, body["error"]["code"]) == (404, "session_not_found")


async def test_wrong_requests_are_refused(serve: Any) -> None:
    """An unknown session, another format, no credential."""
    async with serve() as server:
        await server.context.turns.store([stored_turn(1, project="bank")])
        key = server.new_key()
        status, body = await server.get("/v1/sessions/sess_1/transcript", headers=key)
        assert (status, body["error"]["code"]) == (404, "session_not_found")
        status, body = await server.get("/v1/sessions/sess_1/transcript?format=pdf", headers=key)
        assert (status, body["error"]["param"]) == (400, "format")
        assert (await server.get("/v1/sessions/sess_1/transcript"))[0] == 401
