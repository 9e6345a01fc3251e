"""The built-in tool `transfer_call`: the agent has the carrier connect the call with a person."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Annotated

import msgspec

from voicepipe.phone.calls import LABEL, PhoneCalls
from voicepipe.ports.server_tool import TRANSFER_CALL, ToolError, ToolSession
from voicepipe.turn.settings import ServerTool as ToolFacts
from voicepipe.turn.settings import Tool


class _Arguments(msgspec.Struct, frozen=True):
    to: Annotated[str, msgspec.Meta(max_length=256)]


class TransferCall:
    """Implements `ServerTool`. The session ends after the reply; then the carrier transfers the call."""

    timeout_ms = 5_000

    def __init__(self, calls: PhoneCalls, names: Iterable[str]) -> None:
        """`names`: where calls may be transferred to."""
        self._calls = calls
        to = {"type": "string", "enum": sorted(names), "description": "Where to."}
        parameters = {"type": "object", "properties": {"to": to}, "required": ["to"], "additionalProperties": False}
        about = "Transfer the phone call to a person. Say in the same answer that you connect the user now."
        self.facts = ToolFacts(
            tool=Tool(TRANSFER_CALL, about, json.dumps(parameters, separators=(",", ":"))),
            label=LABEL,
            ends_session=True,
        )

    async def call(self, arguments: str, session: ToolSession) -> str:
        """Store the number of the transfer; return a text that has the LLM announce the transfer.

        Raises:
            ToolError: the session is no phone call, or its line has no such name.
        """
        call = self._calls.call_of(session)
        try:
            to = msgspec.json.decode(arguments, type=_Arguments).to
        except ValueError as why:  # not JSON, or another shape
            raise ToolError("Expected an object with `to`, a text.") from why
        if to not in call.transfer_to:
            raise ToolError(f"Expected one of {', '.join(sorted(call.transfer_to)) or 'no name'} for `to`.")
        await call.transfer(call.transfer_to[to])
        return "The call is transferred after your next words. Say so."
