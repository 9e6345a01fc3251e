"""The port of functions that the server runs for an agent: arguments in, a text for the LLM out."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Protocol

from msgspec import Struct, field

from voicepipe.errors import VoicepipeError
from voicepipe.turn.settings import ServerTool as ToolFacts

END_CALL: Final = "end_call"
"""The built-in function with which the agent ends the call: no answer follows if it has said goodbye."""

TRANSFER_CALL: Final = "transfer_call"
"""The built-in function with which the agent has a phone call transferred: likewise, once it has announced it."""

SEND_DTMF: Final = "send_dtmf"
"""The built-in function with which the agent presses keys in a phone call."""

ENDING_TOOLS: Final = (END_CALL, TRANSFER_CALL)
"""The functions after which the session ends."""

TOOL_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""The names of functions that every LLM vendor accepts."""

MAX_RESULT_CHARS: Final = 16_000
"""The longest result that the LLM reads, about 4,000 tokens: the rest is cut."""


class ToolError(VoicepipeError):
    """A function has no result. The text is for the LLM, and must not contain a secret."""


class ToolSession(Struct, frozen=True, kw_only=True):
    """The session for which a function runs."""

    session_id: str
    project: str
    agent: str
    identity: str = ""
    """The user's identity, as the token's issuer names it; empty: unknown."""

    metadata: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """The metadata of the client's token."""


class ToolServer(Protocol):
    """A server with tools that the session's client has requested, such as an MCP server."""

    @property
    def tools(self) -> tuple[ServerTool, ...]:
        """Return those that are listed now."""
        ...

    @property
    def attempted(self) -> asyncio.Event:
        """Return what is set when the first attempt to connect is over."""
        ...

    @property
    def is_away(self) -> bool:
        """Return whether there is no connection."""
        ...

    async def run(self) -> None:
        """Keep the connection until cancelled, after `stop`."""
        ...

    def stop(self) -> None:
        """Connect no more."""
        ...


class ServerTool(Protocol):
    """One function. It serves many sessions at once."""

    @property
    def facts(self) -> ToolFacts:
        """Return its name, its parameters, and what the core needs of it."""
        ...

    @property
    def timeout_ms(self) -> int:
        """Return how long a call may take."""
        ...

    async def call(self, arguments: str, session: ToolSession) -> str:
        """Return the result as text, JSON as a rule. `arguments` is what the LLM wrote: JSON, or not.

        Cancellation ends the call as soon as it can be ended.

        Raises:
            ToolError: the arguments are wrong, or the function failed.
        """
        ...
