"""Python functions as tools: what the LLM learns of them, and what they get."""

from __future__ import annotations

import json
from typing import Any, Literal

import pytest

from voicepipe.agents import Agent, FunctionTool, ToolError, ToolSession, tool
from voicepipe.errors import ConfigError

SESSION = ToolSession(session_id="sess_1", project="p", agent="default", identity="Ada")


@tool(side_effects=False)
async def free_times(day: str, doctor: Literal["Wu", "Ito"] = "Wu", most: int = 3) -> list[str]:
    """Find free times
    of a doctor.

    Args:
        day: as YYYY-MM-DD,
            in local time
        most: how many

    Returns:
        the times
    """
    return [f"{day} {doctor} {hour}:00" for hour in range(9, 9 + most)]


def schema(tool: FunctionTool) -> Any:
    return json.loads(tool.facts.tool.parameters_json)


def test_the_schema_is_that_of_the_signature() -> None:
    facts = free_times.facts
    assert (facts.tool.name, facts.tool.description) == ("free_times", "Find free times of a doctor.")
    assert (facts.side_effects, facts.label) == (False, "agent")
    assert schema(free_times) == {
        "type": "object",
        "properties": {
            "day": {"type": "string", "description": "as YYYY-MM-DD, in local time"},
            "doctor": {"enum": ["Ito", "Wu"], "default": "Wu"},
            "most": {"type": "integer", "description": "how many", "default": 3},
        },
        "required": ["day"],
        "additionalProperties": False,
    }


async def test_a_call_gets_its_arguments_and_defaults() -> None:
    assert await free_times.call('{"day": "Monday", "most": 1}', SESSION) == '["Monday Wu 9:00"]'
    assert await free_times("Monday", most=0) == [], "called directly, it is the function"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ('{"day": 3}', r"Expected `str`, got `int` - at `\$\.day`"),
        ('{"most": 3}', "missing required field `day`"),
        ('{"day": "x", "doctor": "House"}', "Invalid enum value 'House'"),
        ('{"day": "x", "more": 1}', "unknown field `more`"),
        ('{"day": ', "Input data was truncated"),
        ("[]", "Expected `object`, got `array`"),
    ],
)
async def test_wrong_arguments_are_refused(arguments: str, why: str) -> None:
    with pytest.raises(ToolError, match=f"Wrong arguments: .*{why}"):
        await free_times.call(arguments, SESSION)


async def test_a_function_may_take_the_session_and_run_in_a_thread() -> None:
    @tool
    def whoami(session: ToolSession) -> str:
        """Tell who calls."""
        return session.identity

    assert schema(whoami)["properties"] == {}
    assert whoami.facts.side_effects
    assert await whoami.call("", SESSION) == "Ada"


@pytest.mark.parametrize("name", ["prüfen", "find slots", "x" * 65])
def test_a_name_that_llms_refuse_is_refused(name: str) -> None:
    async def find() -> None: ...

    with pytest.raises(ConfigError, match=f"tool {name}: expected a name of at most 64 letters"):
        tool(name=name)(find)


async def test_a_method_is_a_tool() -> None:
    class Diary:
        async def book(self, day: str) -> str:
            return f"booked {day}"

    book = Agent(tools=[Diary().book]).tools["book"]
    assert await book.call('{"day": "Monday"}', SESSION) == "booked Monday"


def test_a_parameter_needs_a_type() -> None:
    def untyped(day) -> None:  # type: ignore[no-untyped-def]
        """Do nothing."""

    with pytest.raises(ConfigError, match=r"tool untyped: .* got none for 'day'"):
        tool(untyped)
