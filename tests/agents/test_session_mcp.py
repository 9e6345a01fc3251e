"""Tools of `type: "mcp"` that a session requests, as the published API has them."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from voicepipe.testing.fakes.cues import CallCue, LlmCue, tokens
from voicepipe.testing.fakes.mcp_server import FakeMcpServer, FakeMcpTool
from voicepipe.testing.user import User, calling

TEXT = {"output_modalities": ["text"]}
DAY = {"type": "object", "properties": {"day": {"type": "string"}}, "required": ["day"]}


@pytest.fixture
async def mcp() -> AsyncIterator[FakeMcpServer]:
    async with FakeMcpServer() as server:
        server.tools["free_times"] = FakeMcpTool(lambda given: f"{given['day']} 9:00", DAY, "Find free times.", True)
        server.tools["reset"] = FakeMcpTool()
        yield server


def allowed(mcp: FakeMcpServer) -> dict[str, object]:
    return {"server.mcp_origins": [f"http://127.0.0.1:{mcp.port}"]}


def requested(mcp: FakeMcpServer, **more: Any) -> dict[str, Any]:
    about = {"type": "mcp", "server_label": "clinic", "server_url": mcp.url, "require_approval": "never"}
    return {**about, "authorization": "hunter2", "headers": {"X-Key": "hunter3"}, **more}


async def update(user: User, *tools: dict[str, Any]) -> Any:
    await user.send("session.update", session={"type": "realtime", **TEXT, "tools": list(tools)})
    return (await user.until("session.updated"))["session"]["tools"]


async def test_a_session_requests_the_tools_of_a_server(
    fake_server: Any, mcp: FakeMcpServer, caplog: pytest.LogCaptureFixture
) -> None:
    """The client sees the list and the calls; its secrets are in no event and no log."""
    caplog.set_level(logging.INFO, logger="voicepipe")
    async with fake_server(allowed(mcp)) as server, calling(server.url) as user:
        (tool,) = await update(user, requested(mcp, allowed_tools=["free_times"]))
        assert tool == {
            "type": "mcp",
            "server_label": "clinic",
            "server_url": mcp.url,
            "allowed_tools": ["free_times"],
            "require_approval": "never",
            "allowed_callers": None,
            "defer_loading": None,
            "server_description": None,
        }
        listing = await user.until("mcp_list_tools.in_progress")
        done = (await user.until("conversation.item.done"))["item"]
        completed = await user.until("mcp_list_tools.completed")
        server.vendor.llm.cue(
            LlmCue(calls=(CallCue("free_times", (json.dumps({"day": "Monday"}),), "c1"),)),
            LlmCue(tokens=tokens("At nine.")),
        )
        assert await user.prompt("When?") == "At nine."
        request = (await server.vendor.llm.nth(0)).question
        messages = (await server.vendor.llm.nth(1)).question["messages"]
        calls = [e["item"] for e in user.events if e["type"] == "conversation.item.done" and "output" in e["item"]]
    assert listing["item_id"] == completed["item_id"] == done["id"]
    assert (done["type"], done["server_label"]) == ("mcp_list_tools", "clinic")
    assert done["tools"] == [{"name": "free_times", "description": "Find free times.", "input_schema": DAY}]
    assert [each["function"]["name"] for each in request["tools"]] == ["free_times"]
    assert messages[-1]["content"] == "Monday 9:00"
    assert [(item["type"], item["server_label"], item["output"]) for item in calls] == [
        ("mcp_call", "clinic", "Monday 9:00")
    ]
    assert mcp.requests[-1][2]["Authorization"] == "Bearer hunter2"
    assert mcp.requests[-1][2]["X-Key"] == "hunter3"
    assert "hunter" not in f"{user.events} {[vars(record) for record in caplog.records]}"


async def test_fields_without_effect_are_null_and_named(fake_server: Any, mcp: FakeMcpServer) -> None:
    """Each in one error, once in a session; the rest of the update is in force. Their defaults are not named."""
    usual = {"defer_loading": False, "allowed_callers": ["direct"], "server_description": ""}
    other = requested(mcp, server_label="other", allowed_tools=["free_times"])
    unserved = {"defer_loading": True, "allowed_callers": ["programmatic"], "server_description": "The clinic."}
    async with fake_server(allowed(mcp)) as server, calling(server.url) as user:
        await update(user, requested(mcp, allowed_tools=["reset"], **usual))
        await user.until("mcp_list_tools.completed")
        assert "error" not in user.kinds()
        for _ in range(2):
            tools = await update(user, requested(mcp, allowed_tools=["reset"]), other | unserved)
            assert [tools[1][name] for name in unserved] == [None] * 3
        await user.until("mcp_list_tools.completed")
        response = {"tools": [{"type": "mcp", "server_label": "other", "require_approval": "always", **usual}]}
        server.vendor.llm.cue(LlmCue(tokens=tokens("Fine.")))
        await user.send("response.create", response=response)
        await user.until("response.done")
        request = (await server.vendor.llm.nth(0)).question
        errors = [event["error"] for event in user.events if event["type"] == "error"]
    assert [(each["code"], each["param"]) for each in errors] == [
        ("unsupported_parameter", "session.tools[1].allowed_callers"),
        ("unsupported_parameter", "session.tools[1].defer_loading"),
        ("unsupported_parameter", "session.tools[1].server_description"),
        ("unsupported_parameter", "response.tools[0].require_approval"),
    ]
    assert [each["function"]["name"] for each in request["tools"]] == ["free_times"]


async def test_another_list_of_tools_ends_the_connection(fake_server: Any, mcp: FakeMcpServer) -> None:
    async with fake_server(allowed(mcp)) as server, calling(server.url) as user:
        await update(user, requested(mcp))
        await user.until("mcp_list_tools.completed")
        assert await update(user) == []
        server.vendor.llm.cue(LlmCue(tokens=tokens("Fine.")))
        assert await user.prompt("hello") == "Fine."
        assert "tools" not in (await server.vendor.llm.nth(0)).question


async def test_a_server_that_is_away_is_reported(fake_server: Any, mcp: FakeMcpServer) -> None:
    async with fake_server(allowed(mcp)) as server, calling(server.url) as user:
        await mcp.unplug()
        await update(user, requested(mcp))
        await user.until("mcp_list_tools.failed")
        server.vendor.llm.cue(LlmCue(tokens=tokens("Fine.")))
        assert await user.prompt("hello") == "Fine."


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:1/mcp",
        "https://127.0.0.1:PORT/mcp",
        "http://localhost:PORT/mcp",
        "http://127.0.0.1:PORT@evil.example/mcp",
        "http://u:p@127.0.0.1:PORT/mcp",
        "file:///etc/passwd",
        "http://127.0.0.1:PORT.evil.example/mcp",
    ],
)
async def test_no_other_address_is_ever_called(fake_server: Any, mcp: FakeMcpServer, url: str) -> None:
    """A client must not choose where the server sends requests."""
    async with fake_server(allowed(mcp)) as server, calling(server.url) as user:
        tool = requested(mcp, server_url=url.replace("PORT", str(mcp.port)))
        await user.send("session.update", session={"type": "realtime", "tools": [tool]})
        error = (await user.until("error"))["error"]
    assert error["param"] in ("session.tools", "session.tools[0].server_url")
    assert mcp.requests == []


async def test_without_the_setting_no_session_may_request_a_server(fake_server: Any, mcp: FakeMcpServer) -> None:
    async with fake_server() as server, calling(server.url) as user:
        await user.send("session.update", session={"type": "realtime", "tools": [requested(mcp)]})
        assert (await user.until("error"))["error"]["code"] == "mcp_server_not_allowed"
    assert mcp.requests == []


@pytest.mark.parametrize(
    ("wrong", "param"),
    [
        ({"require_approval": "sometimes"}, "session.tools[0].require_approval"),
        (
            {"require_approval": {"never": {"tool_names": "reset"}}},
            "session.tools[0].require_approval.never.tool_names",
        ),
        ({"server_label": ""}, "session.tools[0].server_label"),
        ({"headers": {"X": "a\r\nb"}}, "session.tools[0].headers"),
        ({"allowed_tools": [1]}, "session.tools[0].allowed_tools[0]"),
        ({"allowed_tool": ["reset"]}, "session.tools[0].allowed_tool"),
        ({"allowed_tools": {"tools_names": ["reset"]}}, "session.tools[0].allowed_tools.tools_names"),
        ({"require_approval": {"allways": {}}}, "session.tools[0].require_approval.allways"),
        ({"defer_loading": "yes"}, "session.tools[0].defer_loading"),
    ],
)
async def test_a_wrong_request_is_refused(
    fake_server: Any, mcp: FakeMcpServer, wrong: dict[str, Any], param: str
) -> None:
    async with fake_server(allowed(mcp)) as server, calling(server.url) as user:
        await user.send("session.update", session={"type": "realtime", "tools": [requested(mcp, **wrong)]})
        assert (await user.until("error"))["error"]["param"] == param


async def test_a_response_names_the_servers_that_it_may_use(fake_server: Any, mcp: FakeMcpServer) -> None:
    """By the session's labels; the client's functions are replaced as before, and another label is refused."""
    async with fake_server(allowed(mcp)) as server, calling(server.url) as user:
        other = requested(mcp, server_label="other", allowed_tools=["reset"])
        await update(user, requested(mcp, allowed_tools=["free_times"]), other)
        for _ in range(2):
            await user.until("mcp_list_tools.completed")
        server.vendor.llm.usual = LlmCue(tokens=tokens("Fine."))
        function = {"type": "function", "name": "wave", "parameters": {}}
        named = {"type": "mcp", "server_label": "clinic"}
        for tools in (
            [function],
            [named, function],
            [{**named, "server_url": mcp.url}, {"type": "mcp", "server_label": "other"}],
            [{**named, "server_label": "other"}],
            [{**named, "allowed_tools": ["book"]}],
        ):
            await user.send("response.create", response={"tools": tools})
            await user.until("response.done")
        definitions = [
            {each["function"]["name"] for each in request.question.get("tools", ())}
            for request in server.vendor.llm.received
        ]
        await user.send("response.create", response={"tools": [{**named, "server_label": "crm"}]})
        refused = (await user.until("error"))["error"]
        await user.send("response.create", response={"tools": [{**named, "server_url": "https://else.example"}]})
        elsewhere = (await user.until("error"))["error"]
    both = {"free_times", "reset"}
    assert definitions == [both | {"wave"}, {"free_times", "wave"}, both, {"reset"}, set()]
    assert refused["param"] == "response.tools[0].server_label"
    assert "'crm'" in refused["message"]
    assert elsewhere["param"] == "response.tools[0].server_url"
