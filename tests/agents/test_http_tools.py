"""Tools that a server of the operator's answers over HTTP."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import standardwebhooks
from aiohttp import web

from voicepipe.agents.http_tool import HttpTool
from voicepipe.config import load
from voicepipe.config.docs_table import effective
from voicepipe.config.settings import Settings
from voicepipe.errors import ConfigError
from voicepipe.ports.server_tool import MAX_RESULT_CHARS, ToolError, ToolSession
from voicepipe.testing.fakes.cues import CallCue, LlmCue, tokens
from voicepipe.testing.user import calling

SECRET = b"0123456789abcdef0123456789abcdef"
SESSION = ToolSession(session_id="sess_1", project="p", agent="clinic", identity="Ada", metadata={"tier": "gold"})

TOML = """
[agents.default]
tools = ["book", "times"]

[tools.book]
description = "Book a time."
url = "URL/book/{{doctor}}"
headers = { Authorization = "Bearer ${BACKEND_KEY}" }
secret_env = "BACKEND_SECRET"
[tools.book.parameters.doctor]
description = "who"
one_of = ["Wu", "Ito"]
[tools.book.parameters.minutes]
type = "integer"
required = false
[tools.book.parameters.days]
list = true

[tools.times]
method = "GET"
url = "URL/times"
side_effects = false
timeout_ms = 500
parameters.day.type = "string"
parameters.days.list = true
parameters.days.required = false
"""


def read(tmp_path: Path, url: str, toml: str = TOML, **environ: str) -> Settings:
    (tmp_path / "voicepipe.toml").write_text(toml.replace("URL", url))
    secret = f"whsec_{base64.b64encode(SECRET).decode()}"
    env = {"HOME": str(tmp_path), "BACKEND_KEY": "k-1", "BACKEND_SECRET": secret} | environ
    return load(environ=env, folder=tmp_path)


@asynccontextmanager
async def backend(handler: Callable[[web.Request], Any]) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def tool(tmp_path: Path, name: str, handler: Callable[[web.Request], Any]) -> AsyncIterator[HttpTool]:
    async with backend(handler) as url, aiohttp.ClientSession() as http:
        yield HttpTool(read(tmp_path, url).tools[name].options(name), http)


async def test_a_call_is_signed_and_has_arguments_and_session(tmp_path: Path) -> None:
    received: list[tuple[Any, bytes]] = []

    async def handler(request: web.Request) -> web.Response:
        received.append((request, await request.read()))
        return web.Response(text="booked")

    async with tool(tmp_path, "book", handler) as http_tool:
        assert await http_tool.call('{"doctor": "Wu", "days": ["Mon"]}', SESSION) == "booked"
    ((request, body),) = received
    assert (request.method, request.path, request.headers["Authorization"]) == ("POST", "/book/Wu", "Bearer k-1")
    signed = {name: request.headers[name] for name in ("webhook-id", "webhook-timestamp", "webhook-signature")}
    standardwebhooks.Webhook(SECRET).verify(body, signed)
    assert json.loads(body) == {
        "tool": "book",
        "arguments": {"doctor": "Wu", "days": ["Mon"]},
        "session": {
            "id": "sess_1",
            "project": "p",
            "agent": "clinic",
            "identity": "Ada",
            "metadata": {"tier": "gold"},
        },
    }


async def test_a_get_has_its_arguments_in_the_query(tmp_path: Path) -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.json_response([request.method, request.query.getall("days"), request.query["day"]])

    async with tool(tmp_path, "times", handler) as http_tool:
        assert await http_tool.call('{"day": "a&b", "days": ["x", "y"]}', SESSION) == '["GET", ["x", "y"], "a&b"]'


@pytest.mark.parametrize("arguments", ['{"id": ".."}', '{"id": "."}', '{"id": ""}', "{}", '{"id": ".", "more": "."}'])
async def test_the_llm_chooses_no_other_path(tmp_path: Path, arguments: str) -> None:
    """Of `/bookings/{{id}}`, an empty value or dots would be the address of all bookings."""
    toml = """
[agents.default]
tools = ["cancel"]
[tools.cancel]
method = "DELETE"
url = "URL/bookings/{{id}}{{more}}?by={{by}}"
parameters.id.required = false
parameters.more.required = false
parameters.by.required = false
"""
    paths: list[str] = []

    async def handler(request: web.Request) -> web.Response:
        paths.append(request.raw_path)
        return web.Response(text="deleted")

    async with backend(handler) as url, aiohttp.ClientSession() as http:
        http_tool = HttpTool(read(tmp_path, url, toml).tools["cancel"].options("cancel"), http)
        with pytest.raises(ToolError, match=r"^Wrong arguments: expected a name or a number for id and more\.$"):
            await http_tool.call(arguments, SESSION)
        assert paths == []
        assert await http_tool.call('{"id": "../7"}', SESSION) == "deleted"
    assert paths == ["/bookings/..%2F7?by="]


@pytest.mark.parametrize("status", [200, 401])
async def test_the_llm_reads_no_secret_that_the_server_echoes(tmp_path: Path, status: int) -> None:
    """Not those of headers, and of the address; the rest of the answer stays."""
    toml = """
[agents.default]
tools = ["echo"]
[tools.echo]
url = "URL/echo?key=key-in-the-url&day={{day}}"
headers = { Authorization = "Bearer ${BACKEND_KEY}", Accept = "application/json", X-Key = "another-key" }
parameters.day.type = "string"
"""

    async def handler(request: web.Request) -> web.Response:
        sent = [request.headers[name] for name in ("Authorization", "Accept", "X-Key")]
        return web.json_response([*sent, *request.query.values()], status=status)

    async with backend(handler) as url, aiohttp.ClientSession() as http:
        options = read(tmp_path, url, toml, BACKEND_KEY="key-of-the-backend").tools["echo"].options("echo")
        try:
            read_by_llm = await HttpTool(options, http).call('{"day": "Whit Monday"}', SESSION)
        except ToolError as why:
            read_by_llm = str(why)
    echoed = ["Bearer [secret]", "application/json", "[secret]", "[secret]", "Whit Monday"]
    assert read_by_llm.endswith(json.dumps(echoed))


async def test_the_schema_is_that_of_the_settings(tmp_path: Path) -> None:
    async with aiohttp.ClientSession() as http:
        facts = HttpTool(read(tmp_path, "http://h").tools["book"].options("book"), http).facts
    assert json.loads(facts.tool.parameters_json) == {
        "type": "object",
        "properties": {
            "days": {"type": "array", "items": {"type": "string"}},
            "doctor": {"enum": ["Ito", "Wu"], "description": "who"},
            "minutes": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
        },
        "required": ["days", "doctor"],
        "additionalProperties": False,
    }


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (web.HTTPFound("http://127.0.0.1:1/"), "status 302"),
        (web.HTTPInternalServerError(text="no database"), "status 500: no database"),
    ],
)
async def test_another_status_is_a_failure(tmp_path: Path, answer: web.HTTPException, why: str) -> None:
    async def handler(request: web.Request) -> web.Response:
        raise answer

    async with tool(tmp_path, "times", handler) as http_tool:
        with pytest.raises(ToolError, match=why):
            await http_tool.call('{"day": "Mon"}', SESSION)


async def test_an_endless_answer_is_read_no_further_than_the_limit(tmp_path: Path) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        while True:
            await answer.write(b"x" * 65_536)

    async with tool(tmp_path, "times", handler) as http_tool:
        assert len(await http_tool.call('{"day": "Mon"}', SESSION)) == 4 * MAX_RESULT_CHARS


async def test_no_server_is_a_failure_that_names_no_address(tmp_path: Path) -> None:
    async with aiohttp.ClientSession() as http:
        http_tool = HttpTool(read(tmp_path, "http://127.0.0.1:1").tools["times"].options("times"), http)
        with pytest.raises(ToolError) as failed:
            await http_tool.call('{"day": "Mon"}', SESSION)
    assert "127.0.0.1" not in str(failed.value)


async def test_an_agent_of_the_settings_uses_it(fake_server: Any) -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(text=f"free on {request.query['day']}")

    async with backend(handler) as url:
        more = {
            "agents.default.tools": "times",
            "tools.times.url": f"{url}/times",
            "tools.times.method": "GET",
            "tools.times.parameters.day.description": "the day",
        }
        async with fake_server(more) as server, calling(server.url, session={"output_modalities": ["text"]}) as user:
            server.vendor.llm.cue(
                LlmCue(calls=(CallCue("times", ('{"day": "Monday"}',)),)), LlmCue(tokens=tokens("At nine."))
            )
            await user.send("response.create")
            await user.until("response.done")
            assert (await user.until("conversation.item.done"))["item"]["output"] == "free on Monday"
            await user.until("response.done")


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        (
            '"times"]',
            '"tmes"]',
            r"agents\.default\.tools: expected .* \(book, end_call, send_dtmf, times, transfer_call\), got 'tmes'",
        ),
        ("{{doctor}}", "{{who}}", r"tools\.book\.url: .* \(days, doctor, minutes\), got 'who'"),
        ("BACKEND_KEY", "OTHER", r"tools\.book\.headers\.Authorization: .*OTHER, which is not set"),
        ("BACKEND_SECRET", "OTHER", r"tools\.book\.secret_env: .*OTHER, got none"),
        ("URL/times", "ftp://h", r"tools\.times\.url: expected an address"),
        ('type = "integer"', 'type = "int"', r"tools\.book\.parameters\.minutes\.type: expected"),
        ("[tools.book]", "[tools.'a b']\nurl = 'http://h'\n[tools.book]", r"tools\.a b: expected a name"),
    ],
)
def test_wrong_tools_are_refused(tmp_path: Path, before: str, after: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        read(tmp_path, "http://h", TOML.replace(before, after))


def test_secrets_are_never_displayed(tmp_path: Path) -> None:
    settings = read(tmp_path, "http://user:pw@h")
    text = f"{effective(settings)} {settings!r}"
    assert not [secret for secret in ("k-1", "user:pw", base64.b64encode(SECRET).decode()) if secret in text]
