"""Approval of the calls of a session's MCP servers, and the choice of their tools, as the published API has them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from voicepipe.testing.fakes.cues import CallCue, LlmCue, tokens
from voicepipe.testing.fakes.mcp_server import FakeMcpServer, FakeMcpTool
from voicepipe.testing.user import User, calling

TEXT = {"type": "realtime", "output_modalities": ["text"]}


@pytest.fixture
async def mcp() -> AsyncIterator[FakeMcpServer]:
    async with FakeMcpServer() as server:
        server.tools["free_times"] = FakeMcpTool(lambda given: "at nine", read_only=True)
        server.tools["reset"] = FakeMcpTool(lambda given: "reset")
        yield server


def allowed(mcp: FakeMcpServer) -> dict[str, object]:
    return {"server.mcp_origins": [f"http://127.0.0.1:{mcp.port}"]}


async def request_server(user: User, mcp: FakeMcpServer, **more: Any) -> dict[str, Any]:
    """Request the server, wait for its tools, and return it as the session shows it."""
    tool = {"type": "mcp", "server_label": "clinic", "server_url": mcp.url, **more}
    await user.send("session.update", session={**TEXT, "tools": [tool]})
    (displayed,) = (await user.until("session.updated"))["session"]["tools"]
    await user.until("mcp_list_tools.completed")
    return dict(displayed)


def call(*names: str) -> LlmCue:
    return LlmCue(calls=tuple(CallCue(name, ("{}",), f"c_{name}") for name in names))


async def request_answer(user: User) -> None:
    content = [{"type": "input_text", "text": "Please."}]
    await user.send("conversation.item.create", item={"type": "message", "role": "user", "content": content})
    await user.send("response.create")


async def approval_request(user: User) -> dict[str, Any]:
    """Return the next item that asks for approval, once it is done."""
    done = await user.until("conversation.item.done", lambda e: e["item"]["type"] == "mcp_approval_request")
    return dict(done["item"])


async def decide(user: User, request_id: str, **decision: Any) -> None:
    item = {"type": "mcp_approval_response", "approval_request_id": request_id, **decision}
    await user.send("conversation.item.create", item=item)


@pytest.mark.parametrize("value", ["always", None])
async def test_a_call_is_approved(fake_server: Any, mcp: FakeMcpServer, value: str | None) -> None:
    """`always` is the default, as published. No `response.create` follows the approval."""
    async with fake_server(allowed(mcp)) as server, calling(server.url) as user:
        displayed = await request_server(user, mcp, require_approval=value)
        server.vendor.llm.cue(call("reset"), LlmCue(tokens=tokens("It is reset.")))
        await request_answer(user)
        item = await approval_request(user)
        output = (await user.until("response.done"))["response"]["output"]
        assert mcp.called == []
        await decide(user, item["id"], approve=True)
        running = await user.until("conversation.item.added", lambda e: e["item"]["type"] == "mcp_call")
        await user.until("response.mcp_call.in_progress")
        await user.until("response.mcp_call.completed")
        done = await user.until("conversation.item.done", lambda e: e["item"]["type"] == "mcp_call")
        assert await user.answer() == "It is reset."
        messages = (await server.vendor.llm.nth(1)).question["messages"]
    assert displayed["require_approval"] == "always"
    about = {"id": item["id"], "type": "mcp_approval_request", "server_label": "clinic"}
    assert item == output[-1] == {**about, "name": "reset", "arguments": "{}"}
    assert running["item"]["id"] == done["item"]["id"] != item["id"]
    assert done["item"]["approval_request_id"] == item["id"]
    assert done["item"]["output"] == messages[-1]["content"] == "reset"
    assert [message["role"] for message in messages[-3:]] == ["user", "assistant", "tool"]
    assert not any("arguments" in event["type"] for event in user.events)
    assert [name for name, _ in mcp.called] == ["reset"]


async def test_a_call_is_refused(fake_server: Any, mcp: FakeMcpServer) -> None:
    async with fake_server(allowed(mcp)) as server, calling(server.url) as user:
        await request_server(user, mcp)
        server.vendor.llm.cue(call("reset"), LlmCue(tokens=tokens("Then not.")))
        await request_answer(user)
        item = await approval_request(user)
        await user.until("response.done")
        await decide(user, item["id"], approve=False, reason="Not today.")
        answer = (await user.until("conversation.item.done"))["item"]
        assert await user.answer() == "Then not."
        messages = (await server.vendor.llm.nth(1)).question["messages"]
    assert (answer["type"], answer["approve"], answer["reason"]) == ("mcp_approval_response", False, "Not today.")
    assert messages[-1]["content"] == "Not run: the user has refused it. Not today."
    assert mcp.called == []


@pytest.mark.parametrize(
    ("value", "needed"),
    [
        ("never", {}),
        ({"never": {"tool_names": ["free_times"]}}, {"reset"}),
        ({"never": {"read_only": True}}, {"reset"}),
        ({"always": {"tool_names": ["free_times"]}, "never": {"tool_names": ["free_times", "reset"]}}, {"free_times"}),
        ({"always": {"tool_names": ["reset"]}}, {"free_times", "reset"}),
        ({"never": {}}, {"free_times", "reset"}),
    ],
)
async def test_filters_choose_the_calls(fake_server: Any, mcp: FakeMcpServer, value: Any, needed: set[str]) -> None:
    """A tool that no filter has needs approval."""
    async with fake_server(allowed(mcp)) as server, calling(server.url) as user:
        displayed = await request_server(user, mcp, require_approval=value)
        server.vendor.llm.cue(call("free_times", "reset"), LlmCue(tokens=tokens("Done.")))
        await request_answer(user)
        output = (await user.until("response.done"))["response"]["output"]
    assert displayed["require_approval"] == value
    assert {item["name"] for item in output if item["type"] == "mcp_approval_request"} == set(needed)
    assert {item["name"] for item in output if item["type"] == "mcp_call"} == {"free_times", "reset"} - set(needed)


async def test_only_the_read_only_tools_of_a_server(fake_server: Any, mcp: FakeMcpServer) -> None:
    async with fake_server(allowed(mcp)) as server, calling(server.url) as user:
        displayed = await request_server(user, mcp, allowed_tools={"read_only": True})
        server.vendor.llm.cue(LlmCue(tokens=tokens("Fine.")))
        assert await user.prompt("hello") == "Fine."
        tools = (await server.vendor.llm.nth(0)).question["tools"]
    assert displayed["allowed_tools"] == {"read_only": True}
    assert [tool["function"]["name"] for tool in tools] == ["free_times"]


@pytest.mark.parametrize(
    ("item", "param"),
    [
        ({"approval_request_id": "nothing", "approve": True}, "item.approval_request_id"),
        ({"approve": True}, "item.approval_request_id"),
        ({"approval_request_id": "nothing", "approve": "yes"}, "item.approve"),
        ({"approval_request_id": "nothing"}, "item.approve"),
    ],
)
async def test_a_wrong_answer_is_refused(fake_server: Any, item: dict[str, Any], param: str) -> None:
    async with fake_server() as server, calling(server.url) as user:
        await user.send("conversation.item.create", item={"type": "mcp_approval_response", **item})
        assert (await user.until("error"))["error"]["param"] == param


@pytest.mark.parametrize(
    ("choice", "chosen", "functions"),
    [
        ({"server_label": "clinic", "name": "reset"}, "reset", ["free_times", "reset"]),
        ({"server_label": "clinic"}, "required", ["free_times", "reset"]),
        ({"server_label": "another"}, "auto", ["free_times", "reset", "mine"]),
        ({"server_label": "clinic", "name": "another"}, "auto", ["free_times", "reset", "mine"]),
    ],
)
async def test_the_tools_of_a_server_must_be_called(
    fake_server: Any, mcp: FakeMcpServer, choice: dict[str, Any], chosen: str, functions: list[str]
) -> None:
    """By the session or for one response; a server without such a tool is as good as no choice."""
    choice = {"type": "mcp", **choice}
    tools = [
        {"type": "mcp", "server_label": "clinic", "server_url": mcp.url, "require_approval": "never"},
        {"type": "function", "name": "mine"},
    ]
    async with fake_server(allowed(mcp)) as server, calling(server.url) as user:
        await user.send("session.update", session={**TEXT, "tools": tools, "tool_choice": choice})
        assert (await user.until("session.updated"))["session"]["tool_choice"] == choice
        await user.until("mcp_list_tools.completed")
        server.vendor.llm.cue(call("reset"), LlmCue(tokens=tokens("Done.")), LlmCue(tokens=tokens("No.")))
        assert await user.prompt("Please.") == "Done."
        await user.send("response.create", response={"tool_choice": "none"})
        assert await user.answer() == "No."
        requests = [(await server.vendor.llm.nth(place)).question for place in range(3)]
    named = {"type": "function", "function": {"name": chosen}}
    assert requests[0].get("tool_choice", "auto") == (named if chosen == "reset" else chosen)
    assert [tool["function"]["name"] for tool in requests[0]["tools"]] == functions
    assert requests[1].get("tool_choice", "auto") == "auto"
    assert [tool["function"]["name"] for tool in requests[1]["tools"]] == ["free_times", "reset", "mine"]
    assert requests[2].get("tool_choice", "none") == "none"


@pytest.mark.parametrize(("field", "value"), [("connector_id", "connector_gmail"), ("tunnel_id", "t")])
async def test_connectors_are_refused_in_a_sentence(
    fake_server: Any, mcp: FakeMcpServer, field: str, value: str
) -> None:
    async with fake_server(allowed(mcp)) as server, calling(server.url) as user:
        tool = {"type": "mcp", "server_label": "mail", field: value}
        await user.send("session.update", session={**TEXT, "tools": [tool]})
        error = (await user.until("error"))["error"]
    assert error["param"] == f"session.tools[0].{field}"
    assert "expected the address of an MCP server in server_url" in error["message"]
