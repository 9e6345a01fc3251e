"""MCP servers of a session, by the Python client: requested, and their calls approved, refused, or decided singly."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from voicepipe.client import Call, McpServer, SessionOptions, connect
from voicepipe.client import events as e
from voicepipe.testing.fakes.cues import CallCue, LlmCue, tokens
from voicepipe.testing.fakes.mcp_server import FakeMcpServer, FakeMcpTool

TEXT = SessionOptions(text_only=True)
LISTED = "mcp_list_tools.completed"


@pytest.fixture
async def mcp() -> AsyncIterator[FakeMcpServer]:
    async with FakeMcpServer() as server:
        server.tools["reset"] = FakeMcpTool(lambda given: "reset")
        yield server


def allowed(mcp: FakeMcpServer) -> dict[str, object]:
    return {"server.mcp_origins": [f"http://127.0.0.1:{mcp.port}"]}


def cue(server: Any) -> None:
    """Have the LLM call the tool, and then answer."""
    calls = (CallCue("reset", ("{}",), "c1"),)
    server.vendor.llm.cue(LlmCue(calls=calls, tokens=()), LlmCue(tokens=tokens("Done.")))


async def listed(call: Call) -> None:
    """Wait until the server's tools are there."""
    while await call.next_event() != e.OtherEvent(LISTED):
        pass


def test_an_entry_of_the_session() -> None:
    whole = McpServer("crm", "https://mcp.example", "secret", ("find",), "never")
    assert whole.to_wire() == {
        "type": "mcp",
        "server_label": "crm",
        "server_url": "https://mcp.example",
        "authorization": "secret",
        "allowed_tools": ["find"],
        "require_approval": "never",
    }
    assert "secret" not in repr(whole)
    assert McpServer("crm", "https://mcp.example").to_wire().keys() == {
        *("type", "server_label", "server_url", "require_approval")
    }


@pytest.mark.parametrize("decision", [True, False, RuntimeError("not today")])
async def test_a_turn_with_a_decision(fake_server: Any, mcp: FakeMcpServer, decision: bool | Exception) -> None:
    """It ends with the answer behind it; a decision that fails is a refusal, and the LLM reads why."""
    requested: list[e.ApprovalRequested] = []

    async def approve(request: e.ApprovalRequested) -> bool:
        requested.append(request)
        if isinstance(decision, Exception):
            raise decision
        return decision

    server_of_session = McpServer("clinic", mcp.url)
    async with (
        fake_server(allowed(mcp)) as server,
        connect(server.url, session_options=TEXT, mcp=[server_of_session], approve=approve) as call,
    ):
        await listed(call)
        cue(server)
        answer = await call.text_turn("Please.")
        result = (await server.vendor.llm.nth(1)).question["messages"][-1]["content"]
    assert answer.agent_text == "Done."
    assert [(each.server_label, each.name, each.arguments) for each in requested] == [("clinic", "reset", "{}")]
    assert [name for name, _ in mcp.called] == (["reset"] if decision is True else [])
    assert ("not today" in result) == isinstance(decision, Exception)


async def test_a_call_is_approved_by_hand(fake_server: Any, mcp: FakeMcpServer) -> None:
    """Without a function that decides, a turn ends where it asks."""
    async with (
        fake_server(allowed(mcp)) as server,
        connect(server.url, session_options=TEXT, mcp=[McpServer("clinic", mcp.url)]) as call,
    ):
        await listed(call)
        cue(server)
        await call.write("Please.")
        await call.respond()
        seen: list[e.ServerEvent] = []
        async for event in call:
            seen.append(event)
            if isinstance(event, e.ApprovalRequested):
                assert mcp.called == []
                await call.approve(event.request_id)
            if isinstance(event, e.ReplyEnded) and not event.awaits_approval:
                break
    assert "".join(each.text for each in seen if isinstance(each, e.ReplyText)) == "Done."
    assert [name for name, _ in mcp.called] == ["reset"]
