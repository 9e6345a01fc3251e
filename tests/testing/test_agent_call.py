"""An agent is called in a test of a few lines."""

from __future__ import annotations

import json
from pathlib import Path

from voicepipe.agents import Agent, ToolError
from voicepipe.testing.agent_call import calling_agent, calls
from voicepipe.testing.fakes.vendor import FakeVendor

FILE = """
from voicepipe.agents import Agent

front = Agent("You are the front.", name="front", first_speaker="agent", greeting="Hello.")
back = Agent("You are the back.", name="back")
"""


def clinic() -> Agent:
    agent = Agent("You book for {{caller}}.", variables={"caller": "Ada"}, llm=["groq/llama-3.3-70b"])

    @agent.tool(side_effects=False)
    async def free_times(day: str) -> list[str]:
        """Find free times."""
        if day == "Sunday":
            raise ToolError("We are closed.")
        return [f"{day} 9:00"]

    return agent


async def test_an_agent_answers_after_its_functions() -> None:
    """Fakes stand in for the providers that it names, so no key is needed."""
    script = (
        (calls("free_times", day="Monday"), "At nine."),
        ((calls("free_times", day="Sunday"), calls("free_times")), "No."),
    )
    async with calling_agent(clinic(), *script[0], *script[1]) as call:
        assert await call.speaks("Monday?") == "At nine."
        assert call.results == ['["Monday 9:00"]']
        assert await call.speaks("Sunday?") == "No."
        assert call.instructions == ["You book for Ada."]
    assert [json.loads(each)["error"] for each in call.results[1:]] == [
        "We are closed.",
        "Wrong arguments: Object missing required field `day`",
    ]


async def test_no_provider_of_an_agent_needs_a_key(tmp_path: Path) -> None:
    (tmp_path / "opening.md").write_text("We open at nine.")
    agent = Agent(
        "Answer.",
        model="openai/gpt-realtime",
        summary_llm="openai/gpt-4.1-mini",
        summarize_calls=True,
        knowledge=str(tmp_path),
        knowledge_embedding="openai/text-embedding-3-small",
    )
    async with calling_agent(agent, "At nine.") as call:
        assert await call.speaks("When do you open?") == "At nine."
        assert "We open at nine." in call.vendor.llm.received[-1].question["messages"][-1]["content"]


async def test_an_agent_has_tools_of_the_settings() -> None:
    """At an address of the test."""
    async with FakeVendor() as backend:
        settings = {"tools.look_up.url": f"{backend.base_url}/models", "tools.look_up.method": "GET"}
        async with calling_agent(Agent(tools=["look_up"]), calls("look_up"), "Done.", settings=settings) as call:
            assert await call.speaks("Look it up.") == "Done."
            (models,) = call.results
    assert json.loads(models)["object"] == "list"


async def test_an_agent_of_a_file_greets(tmp_path: Path) -> None:
    path = tmp_path / "office.py"
    path.write_text(FILE)
    async with calling_agent(path) as call:
        assert await call.greeting() == "Hello."
    async with calling_agent(str(path), "Yes?", name="back") as call:
        assert await call.speaks("Hello.") == "Yes?"
        assert call.instructions == ["You are the back."]
