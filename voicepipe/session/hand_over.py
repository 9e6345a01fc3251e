"""The built-in tool `hand_over`: another agent goes on with the call, from the next reply on."""

from __future__ import annotations

import json
from typing import Final

from voicepipe.ports.server_tool import ToolError, ToolSession
from voicepipe.protocol.prompt import listed
from voicepipe.session.end_call import LABEL
from voicepipe.turn.settings import ServerTool as ToolFacts
from voicepipe.turn.settings import Tool

HAND_OVER: Final = "hand_over"


class HandOver:
    """Implements `ServerTool`. The session itself changes the agent, before the result is there."""

    timeout_ms = 1_000

    def __init__(self, agents: tuple[str, ...]) -> None:
        """`agents`: the names of those that may go on with the call."""
        self._agents = agents
        agent = {"type": "string", "enum": list(agents), "description": "who goes on with the call"}
        schema = {"type": "object", "properties": {"agent": agent}, "required": ["agent"]}
        self.facts = ToolFacts(
            tool=Tool(
                HAND_OVER,
                "Hand the call over to another agent, who knows all that was said. Say so in the same answer.",
                json.dumps(schema, separators=(",", ":")),
            ),
            label=LABEL,
            side_effects=False,
        )

    def agent_of(self, arguments: str) -> str:
        """Return the agent that the LLM names.

        Raises:
            ToolError: there is none, or not one of them; the text lists them.
        """
        try:
            agent = json.loads(arguments)["agent"]
        except (ValueError, KeyError, TypeError, RecursionError):
            agent = ""
        if agent not in self._agents:
            raise ToolError(f"Expected one of these agents: {listed(self._agents)}.")
        return str(agent)

    async def call(self, arguments: str, session: ToolSession) -> str:
        """Return what the next agent's LLM reads."""
        return f"You are the agent {self.agent_of(arguments)}, and have taken over this call. Go on with it."
