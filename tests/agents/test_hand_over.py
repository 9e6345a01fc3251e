"""An agent hands the call over to another, which goes on with all that was said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from voicepipe.agents import Agent, ToolSession
from voicepipe.config import load
from voicepipe.errors import ConfigError
from voicepipe.ports.model import ModelRequest
from voicepipe.testing.fakes.cues import CallCue, LlmCue, tokens
from voicepipe.testing.user import calling
from voicepipe.testing.waiting import eventually
from voicepipe.turn.record.values import TurnRecord

TEXT = {"output_modalities": ["text"]}
OPTED_IN = {"providerData": {"voicepipe": {"turn_events": True}}}


class Office:
    """Two agents in Python, and what their hooks and functions got."""

    def __init__(self) -> None:
        self.called: list[str] = []
        self.turns: list[tuple[str, str]] = []
        self.front = Agent(
            "You are the front for {{caller}}.",
            voice="low",
            variables={"caller": "nobody"},
            hand_over=["billing"],
            filler="One moment.",
        )
        self.billing = Agent(
            "You do the bills of {{caller}}.",
            name="billing",
            llm=["fake/accountant"],
            tts=["fake/tts"],
            stt=["fake/stt"],
            voice="high",
            variables={"caller": "nobody"},
        )
        for agent in (self.front, self.billing):
            self._follow(agent)
        self.front.tool(side_effects=False)(self.opening_hours)
        self.billing.tool(side_effects=False)(self.bills)

    def _follow(self, agent: Agent) -> None:
        @agent.on("before_reply")
        async def add(session: ToolSession, request: ModelRequest) -> str:
            return f"By the hook of {agent.name}."

        @agent.on("turn_ended")
        async def note(session: ToolSession, record: TurnRecord) -> None:
            self.turns.append((agent.name, session.agent))

        @agent.on("session_started")
        async def start(session: ToolSession) -> dict[str, str]:
            self.called.append(f"{agent.name} started")
            return {"caller": "Ada"}

    async def opening_hours(self) -> str:
        """Say when the office is open."""
        return "always"

    async def bills(self, session: ToolSession) -> str:
        """List the caller's bills."""
        self.called.append(session.agent)
        return "one of 5 USD"


def call(name: str, call_id: str, **arguments: Any) -> CallCue:
    return CallCue(name, (json.dumps(arguments),), call_id)


async def record_of(server: Any, done: Any) -> Any:
    turn_id = done["response"]["metadata"]["voicepipe_turn"]

    async def closed() -> Any:
        async with aiohttp.ClientSession() as http, http.get(f"{server.url}/v1/turns/{turn_id}") as answer:
            record = await answer.json()
            return record if record.get("outcome") else None

    return await eventually(closed)


async def test_the_next_agent_goes_on_with_the_call(fake_server: Any) -> None:
    """Its LLM, instructions, tools, voice and hooks count from the next reply on; the conversation stays."""
    office = Office()
    async with (
        fake_server(agents=[office.front, office.billing]) as server,
        calling(server.url, session=OPTED_IN) as user,
    ):
        server.vendor.llm.cue(
            LlmCue(tokens=tokens("Front desk.")),
            LlmCue(calls=(call("hand_over", "c1", agent="billing"),)),
            LlmCue(tokens=tokens("Billing here.")),
            LlmCue(calls=(call("bills", "c2"),)),
            LlmCue(tokens=tokens("Five dollars.")),
        )
        assert await user.prompt("Hello.") == "Front desk."
        assert await user.prompt("My bill, please.") == "Billing here."
        assert await user.prompt("How much is it?") == "Five dollars."
        events = [event for event in user.events if event["type"] == "voicepipe.agent.handed_over"]
        done = [event for event in user.events if event["type"] == "response.done"]
        first, second = await record_of(server, done[1]), await record_of(server, done[-1])
        requests = [each.question for each in server.vendor.llm.received]
        voices = [
            each.question["voice"] for each in server.vendor.tts.received if each.question["input"] != "One moment."
        ]
    assert [request["model"] for request in requests] == ["llm", "llm", "accountant", "accountant", "accountant"]
    systems = [[m["content"] for m in each["messages"] if m["role"] == "system"] for each in requests]
    assert systems[0] == ["You are the front for Ada.", "By the hook of default."]
    assert systems[2] == ["You do the bills of Ada.", "By the hook of billing."]
    tools = [{each["function"]["name"] for each in request["tools"]} for request in requests]
    assert tools == [*[{"opening_hours", "hand_over"}] * 2, *[{"bills"}] * 3]
    said = [m["content"] for m in requests[2]["messages"] if m["role"] in ("user", "assistant", "tool")]
    assert said[:3] == ["Hello.", "Front desk.", "My bill, please."]
    assert said[-1] == "You are the agent billing, and have taken over this call. Go on with it."
    assert voices == ["low", "high", "high"]
    assert [event["agent"] for event in events] == ["billing"]
    assert (first["agent"], [tool["name"] for tool in first["tools"]]) == ("default", ["hand_over"])
    assert (second["agent"], [tool["name"] for tool in second["tools"]]) == ("billing", ["bills"])
    assert office.called == ["default started", "billing"]
    assert office.turns == [("default", "default"), ("default", "default"), ("billing", "billing")]


async def test_the_call_can_be_handed_back(fake_server: Any) -> None:
    """The first agent goes on with its own LLM, and its turns are stored as its own."""
    office = Office()
    office.billing.settings["hand_over"] = ["default"]
    async with (
        fake_server(agents=[office.front, office.billing]) as server,
        calling(server.url, session=OPTED_IN) as user,
    ):
        server.vendor.llm.cue(
            LlmCue(calls=(call("hand_over", "c1", agent="billing"),)),
            LlmCue(tokens=tokens("Billing here.")),
            LlmCue(calls=(call("hand_over", "c2", agent="default"),)),
            LlmCue(tokens=tokens("Front desk again.")),
            LlmCue(tokens=tokens("Always.")),
        )
        assert await user.prompt("My bill, please.") == "Billing here."
        assert await user.prompt("Back to the front desk, please.") == "Front desk again."
        assert await user.prompt("When are you open?") == "Always."
        events = [event for event in user.events if event["type"] == "voicepipe.agent.handed_over"]
        record = await record_of(server, [event for event in user.events if event["type"] == "response.done"][-1])
        requests = [each.question for each in server.vendor.llm.received]
    assert [event["agent"] for event in events] == ["billing", "default"]
    assert [request["model"] for request in requests] == ["llm", "accountant", "accountant", "llm", "llm"]
    assert record["agent"] == "default"


async def test_the_first_agent_comes_back_with_what_the_client_secret_set(fake_server: Any) -> None:
    """The customer's backend has set its instructions, not those of the others."""
    office = Office()
    office.billing.settings["hand_over"] = ["default"]
    chosen = {"type": "realtime", "instructions": "You are the front of the north shop.", **TEXT}
    async with fake_server(agents=[office.front, office.billing]) as server:
        async with (
            aiohttp.ClientSession() as http,
            http.post(f"{server.url}/v1/realtime/client_secrets", json={"session": chosen}) as answer,
        ):
            headers = {"Authorization": f"Bearer {(await answer.json())['value']}"}
        server.vendor.llm.cue(
            LlmCue(calls=(call("hand_over", "c1", agent="billing"),)),
            LlmCue(tokens=tokens("Billing here.")),
            LlmCue(calls=(call("hand_over", "c2", agent="default"),)),
            LlmCue(tokens=tokens("Front desk again.")),
        )
        async with calling(server.url, headers=headers) as user:
            await user.prompt("My bill, please.")
            await user.prompt("Back to the front desk, please.")
        requests = [each.question for each in server.vendor.llm.received]
    first = [next(m["content"] for m in each["messages"] if m["role"] == "system") for each in requests]
    front, billing = "You are the front of the north shop.", "You do the bills of Ada."
    assert first == [front, billing, billing, front]


async def test_an_agent_that_is_none_of_them_is_refused_with_the_list(fake_server: Any) -> None:
    office = Office()
    async with fake_server(agents=[office.front, office.billing]) as server, calling(server.url, session=TEXT) as user:
        server.vendor.llm.cue(
            LlmCue(calls=(call("hand_over", "c1", agent="sales"),)), LlmCue(tokens=tokens("I cannot do that."))
        )
        assert await user.prompt("Sales, please.") == "I cannot do that."
        last = (await server.vendor.llm.nth(1)).question
    assert last["model"] == "llm"
    result = next(m["content"] for m in last["messages"] if m["role"] == "tool")
    assert json.loads(result) == {"error": "Expected one of these agents: billing."}


async def test_tools_of_the_client_stay_and_keep_their_names(fake_server: Any) -> None:
    """A client that has not opted in gets no event of ours."""
    office = Office()
    mine = {"type": "function", "name": "bills", "parameters": {"type": "object", "properties": {}}}
    async with (
        fake_server(agents=[office.front, office.billing]) as server,
        calling(server.url, session=TEXT | {"tools": [mine]}) as user,
    ):
        server.vendor.llm.cue(
            LlmCue(calls=(call("hand_over", "c1", agent="billing"),)), LlmCue(tokens=tokens("Billing here."))
        )
        assert await user.prompt("My bill, please.") == "Billing here."
        tools = (await server.vendor.llm.nth(1)).question["tools"]
        assert not [kind for kind in user.kinds() if kind.startswith("voicepipe.")]
    assert [each["function"]["name"] for each in tools] == ["bills"]
    assert office.called == ["default started"]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"agents.default.hand_over": "sales"}, r"agents\.default\.hand_over: .* \(billing\), got 'sales'"),
        ({"agents.default.hand_over": "default"}, r"agents\.default\.hand_over: .* \(billing\), got 'default'"),
        ({"tools.hand_over.url": "http://h"}, r"tools\.hand_over: expected another name"),
    ],
)
def test_wrong_settings_are_refused(tmp_path: Path, options: dict[str, object], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        load(overrides={"agents.billing.speed": 1.1, **options}, environ={"HOME": "/h"}, folder=tmp_path)


def test_a_call_costs_what_the_agents_cost_that_it_may_come_to(tmp_path: Path) -> None:
    """The window is the smallest of theirs."""
    options = {
        "agents.default.hand_over": "billing",
        "agents.billing.hand_over": "default,sales",
        "agents.sales.speed": 1.1,
        "agents.other.speed": 1.1,
    }
    settings = load(overrides=options, environ={"HOME": "/h"}, folder=tmp_path)
    assert settings.reachable("default") == ("default", "billing", "sales")
    assert settings.reachable("other") == ("other",)
