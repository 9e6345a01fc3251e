"""The built-in tool `end_call`: the agent ends the session when its last word has been heard."""

from __future__ import annotations

from typing import Final

from voicepipe.ports.server_tool import END_CALL, ToolSession
from voicepipe.turn.settings import ServerTool as ToolFacts
from voicepipe.turn.settings import Tool

LABEL: Final = "voicepipe"
"""The `server_label` of built-in tools on the wire."""


class EndCall:
    """Implements `ServerTool`. The session itself ends the call, after the reply."""

    timeout_ms = 1_000
    facts = ToolFacts(
        tool=Tool(
            END_CALL,
            "End the call, once the user wants nothing more. Say goodbye in the same answer.",
            '{"type":"object","properties":{}}',
        ),
        label=LABEL,
        side_effects=False,
        ends_session=True,
    )

    async def call(self, arguments: str, session: ToolSession) -> str:
        """Return what the LLM reads if it has not said goodbye yet."""
        return "The call ends after your next words. Say goodbye."
