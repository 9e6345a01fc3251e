"""The webhooks of a call: its start, its function calls, and its end with transcript and summary."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from voicepipe.ports.transcriber import Samples
from voicepipe.testing.fakes.cues import CallCue, Hang, LlmCue, Status, tokens
from voicepipe.testing.user import User, calling
from voicepipe.testing.waiting import eventually

Event = dict[str, Any]

LOOK = {"type": "function", "name": "look", "parameters": {"type": "object"}}


@dataclass
class Receiver:
    """A server that takes webhooks."""

    url: str = ""
    events: list[Event] = field(default_factory=list)

    async def take(self, request: web.Request) -> web.Response:
        """Take one."""
        self.events.append(json.loads(await request.read()))
        return web.Response()

    async def event(self, kind: str) -> Event:
        """The only event of that kind, once it has come: its data."""

        async def probe() -> Event | None:
            found = [event["data"] for event in self.events if event["type"] == kind]
            assert len(found) <= 1
            return found[0] if found else None

        return await eventually(probe)


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    """A receiver on a socket."""
    taking = Receiver()
    app = web.Application()
    app.router.add_post("/", taking.take)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    taking.url = f"http://127.0.0.1:{runner.addresses[0][1]}/"
    yield taking
    await runner.cleanup()


def to(receiver: Receiver, **more: object) -> dict[str, object]:
    """Settings with that receiver."""
    return {"webhooks.crm.url": receiver.url, "webhooks.crm.secret": "whsec_" + "A" * 32, **more}


async def call_with_a_tool(server: Any, user: User, speech: Samples) -> None:
    """A question, a function call, its result, and the answer."""
    call = CallCue("look", ('{"who": "ada@example.com"}',), "call_1")
    server.vendor.llm.cue(LlmCue(calls=(call,)), LlmCue(tokens=tokens("It is noon.")))
    await user.speak(speech)
    await user.until("response.done")
    item = {"type": "function_call_output", "call_id": "call_1", "output": "12:00"}
    await user.send("conversation.item.create", item=item)
    await user.send("response.create")
    await user.until("response.done")


async def test_a_call_is_reported_from_its_start_to_its_end(
    fake_server: Any, receiver: Receiver, speech: Samples
) -> None:
    """The end has each turn's words, latency and function calls."""
    async with fake_server(to(receiver)) as server:
        async with calling(server.url, session={"tools": [LOOK]}) as user:
            session = user.events[0]["session"]["id"]
            started = await receiver.event("session.started")
            await call_with_a_tool(server, user, speech)
        tool, ended = await receiver.event("tool.called"), await receiver.event("session.ended")
    assert (started["id"], started["agent"], started["turns"]) == (session, "default", 0)
    assert (tool["session"], tool["name"], tool["outcome"]) == (session, "look", "returned")
    assert (tool["agent"], tool["arguments"], tool["took_ms"] >= 0) == ("default", '{"who": "ada@example.com"}', True)
    (turn,) = ended["transcript"]
    assert (ended["id"], ended["turns_left_out"], ended["summary"]) == (session, 0, "")
    assert turn["user"] == "what time is it"
    assert turn["agent"] in "It is noon."
    assert [call["name"] for call in turn["tools"]] == ["look"]
    assert turn["agent_name"] == "default"
    assert turn["id"] == tool["turn"]
    assert turn["total_ms"] > 0


@pytest.mark.parametrize(
    ("options", "arguments"),
    [({"records.redact": ["email"]}, '{"who": "[email]"}'), ({"records.text": "never"}, "")],
)
async def test_arguments_are_reported_as_the_record_has_them(
    fake_server: Any, receiver: Receiver, speech: Samples, options: dict[str, object], arguments: str
) -> None:
    async with fake_server(to(receiver, **options)) as server:
        async with calling(server.url, session={"tools": [LOOK]}) as user:
            await call_with_a_tool(server, user, speech)
        tool, ended = await receiver.event("tool.called"), await receiver.event("session.ended")
    assert tool["arguments"] == arguments
    assert [call["arguments"] for call in ended["transcript"][0]["tools"]] == [arguments]


async def test_the_transcript_is_redacted_and_summarized(fake_server: Any, receiver: Receiver, speech: Samples) -> None:
    """By the agent's LLM for summaries, which reads the transcript as it is stored."""
    settings = to(receiver, **{"agents.default.summary_llm": "fake/summary", "records.redact": ["email"]})
    async with fake_server(settings) as server:
        server.vendor.llm.usual = lambda query: LlmCue(
            tokens=tokens("They asked for the time." if query["model"] == "summary" else "Write to anna@example.com.")
        )
        async with calling(server.url) as user:
            await user.speak(speech)
            await user.until("response.done")
        ended = await receiver.event("session.ended")
        (request,) = [each for each in server.vendor.llm.received if each.question["model"] == "summary"]
    assert ended["summary"] == "They asked for the time."
    assert "User: what time is it" in request.question["messages"][1]["content"]
    assert "anna@" not in json.dumps(ended) + json.dumps(request.question["messages"])


async def test_a_summary_that_fails_delays_no_end(fake_server: Any, receiver: Receiver, speech: Samples) -> None:
    """The event comes without one."""
    settings = to(receiver, **{"agents.default.summary_llm": "fake/summary"})
    async with fake_server(settings) as server:
        server.vendor.llm.usual = lambda query: LlmCue(
            tokens=tokens("Yes."), fault=Status(500) if query["model"] == "summary" else None
        )
        async with calling(server.url) as user:
            await user.speak(speech)
            await user.until("response.done")
        ended = await receiver.event("session.ended")
    assert (ended["summary"], len(ended["transcript"])) == ("", 1)


async def test_the_end_of_the_server_waits_for_no_summary(
    fake_server: Any, receiver: Receiver, speech: Samples
) -> None:
    """The event is written without one, and sent at the next start."""
    settings = to(receiver, **{"agents.default.summary_llm": "fake/summary"})
    settings["webhooks.crm.events"] = ["session.ended"]
    async with fake_server(settings) as server:
        server.vendor.llm.usual = lambda query: LlmCue(
            tokens=tokens("Yes."), fault=Hang() if query["model"] == "summary" else None
        )
        async with calling(server.url) as user:
            await user.speak(speech)
            await user.until("response.done")

        async def requested() -> bool | None:
            return any(each.question["model"] == "summary" for each in server.vendor.llm.received) or None

        await eventually(requested)
        assert receiver.events == []
    async with fake_server(settings):
        ended = await receiver.event("session.ended")
    assert (ended["summary"], len(ended["transcript"])) == ("", 1)


async def test_a_call_is_summarized_for_its_transcript_without_a_webhook(fake_server: Any, speech: Samples) -> None:
    """By setting; it is stored with the session and served with its turns."""
    settings = {"agents.default.summary_llm": "fake/summary", "agents.default.summarize_calls": True}
    async with fake_server(settings) as server:
        server.vendor.llm.usual = lambda query: LlmCue(
            tokens=tokens("They asked for the time." if query["model"] == "summary" else "It is noon.")
        )
        async with calling(server.url) as user:
            await user.speak(speech)
            await user.until("response.done")
            url = f"{server.url}/v1/sessions/{user.events[0]['session']['id']}/transcript"

        async def probe() -> Event | None:
            async with aiohttp.ClientSession() as http, http.get(url) as answer:
                found: Event = await answer.json()
            return found if found.get("summary") else None

        found = await eventually(probe)
    assert found["summary"] == "They asked for the time."
    assert [turn["user"] for turn in found["turns"]] == ["what time is it"]


async def test_calls_are_not_summarized_unless_it_is_set(fake_server: Any, speech: Samples) -> None:
    """An agent's `summary_llm` alone costs nothing at the end of a call that no webhook reports."""
    async with fake_server({"agents.default.summary_llm": "fake/summary"}) as server, calling(server.url) as user:
        await user.speak(speech)
        await user.until("response.done")
    assert "summary" not in [each.question["model"] for each in server.vendor.llm.received]
