"""Tools of an MCP server."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from typing import Any, Final

from voicepipe.agents.mcp_options import McpOptions
from voicepipe.ports.server_tool import TOOL_NAME, ToolError, ToolSession
from voicepipe.turn.settings import ServerTool as ToolFacts
from voicepipe.turn.settings import Tool

MAX_TOOLS: Final = 128
"""How many tools of a server are offered; the others are left out. LLM vendors accept as many functions."""

MAX_TOOL_CHARS: Final = 16_000
"""The longest description and schema of a tool; a longer one is left out."""

MAX_LIST_CHARS: Final = 200_000
"""All descriptions and schemas of a server's tools; the tools beyond it are left out."""

CallTool = Callable[[str, dict[str, Any]], Awaitable[str]]
"""Calls a tool of that name with these arguments; raises ToolError."""


class McpTool:
    """A tool of an MCP server. Implements `ServerTool`. It outlasts the connection in which it was listed."""

    def __init__(self, listed: Any, options: McpOptions, call: CallTool) -> None:
        """`listed`: the tool as `mcp` returns it.

        Raises:
            ValueError: an LLM cannot be given this tool; the text has the reason.
        """
        schema = json.dumps(listed.input_schema, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        description = listed.description or ""
        if not TOOL_NAME.fullmatch(listed.name):
            raise ValueError("its name has other characters than letters, digits, _ and -, or more than 64")
        if listed.input_schema.get("type") != "object":
            raise ValueError("its arguments are no object")
        if len(schema) + len(description) > MAX_TOOL_CHARS:
            raise ValueError(f"its description and schema have more than {MAX_TOOL_CHARS} characters")
        self._call, self._schema = call, listed.input_schema
        self._validator: Any = None
        self.timeout_ms = options.timeout_ms
        read_only = is_read_only(listed)
        self.facts = ToolFacts(
            tool=Tool(listed.name, description, schema),
            label=options.name,
            side_effects=not (read_only and options.is_trusted),
            runs_early=read_only and options.is_trusted,
            needs_approval=options.needs_approval is not None and options.needs_approval(listed.name, read_only),
        )

    async def call(self, arguments: str, session: ToolSession) -> str:
        """Check the arguments against the schema, and return the result's text.

        Raises:
            ToolError: wrong arguments, a server that is away, or a tool that failed.
        """
        try:
            given = json.loads(arguments or "{}")
        except (ValueError, RecursionError) as why:
            raise ToolError(f"Wrong arguments: {why}") from None
        if not isinstance(given, dict):
            raise ToolError("Wrong arguments: expected a JSON object.")
        self._check(given)
        return await self._call(self.facts.tool.name, given)

    def _check(self, given: dict[str, Any]) -> None:
        from jsonschema.exceptions import SchemaError, best_match
        from jsonschema.validators import validator_for
        from referencing import Registry
        from referencing.exceptions import Unresolvable

        if self._validator is None:
            # An empty registry: a reference to another document is never fetched.
            self._validator = validator_for(self._schema)(self._schema, registry=Registry())
        try:
            wrong = best_match(self._validator.iter_errors(given))
        except (SchemaError, Unresolvable, re.error, RecursionError, TypeError, ValueError):
            return  # the schema is at fault: the server judges the arguments
        if wrong is not None:
            at = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in wrong.absolute_path)
            raise ToolError(f"Wrong arguments: {wrong.message[:500]}{f' at {at[:200]}' if at else ''}")


def is_read_only(listed: Any) -> bool:
    """Return whether the server declares that a tool changes nothing."""
    return listed.annotations is not None and bool(listed.annotations.read_only_hint)


def text_of(result: Any) -> str:
    """Return what an LLM reads of a `CallToolResult`: its texts, or else its structured content as JSON."""
    texts = [block.text if block.type == "text" else f"[{block.type}]" for block in result.content]
    if not texts and result.structured_content is not None:
        return json.dumps(result.structured_content, ensure_ascii=False)
    return "\n".join(texts)
