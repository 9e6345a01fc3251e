"""The built-in tool `send_dtmf`: the agent presses keys, such as in the menu of a telephone system."""

from __future__ import annotations

import json
from typing import Annotated, Final

import msgspec

from voicepipe.phone.calls import LABEL, PhoneCalls
from voicepipe.ports.server_tool import SEND_DTMF, ToolError, ToolSession
from voicepipe.turn.settings import ServerTool as ToolFacts
from voicepipe.turn.settings import Tool

_KEYS: Final = r"^[0-9*#A-D]{1,32}$"


class _Arguments(msgspec.Struct, frozen=True):
    digits: Annotated[str, msgspec.Meta(pattern=_KEYS)]


class SendDtmf:
    """Implements `ServerTool`. The keys are pressed at once, and the conversation goes on."""

    timeout_ms = 15_000

    def __init__(self, calls: PhoneCalls) -> None:
        self._calls = calls
        digits = {"type": "string", "pattern": _KEYS, "description": "The keys, such as 1 or 4711#."}
        parameters = {
            "type": "object",
            "properties": {"digits": digits},
            "required": ["digits"],
            "additionalProperties": False,
        }
        about = "Press keys on the telephone, for the menu of an automatic system. Not to say a number to a person."
        self.facts = ToolFacts(tool=Tool(SEND_DTMF, about, json.dumps(parameters, separators=(",", ":"))), label=LABEL)

    async def call(self, arguments: str, session: ToolSession) -> str:
        """Press the keys; return the result for the LLM.

        Raises:
            ToolError: the session is no phone call, the arguments are wrong, or the carrier refused the keys.
        """
        call = self._calls.call_of(session)
        try:
            digits = msgspec.json.decode(arguments, type=_Arguments).digits
        except ValueError as why:  # not JSON, or another shape
            raise ToolError("Expected an object with `digits`, 1 to 32 of 0 to 9, *, #, A to D.") from why
        await call.send_dtmf(digits)
        return f"The keys {digits} are pressed. Wait for what follows."
