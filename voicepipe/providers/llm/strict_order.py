"""Reorder roles for servers that refuse sequences that others accept (Mistral).

Source: its refusals, such as "Unexpected role 'user' after role 'tool'".
"""

from __future__ import annotations

from typing import Any, Final

_BREATH: Final = " "
"""The agent's message between a function's result and a user who interrupted: content-free text."""


def reordered(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return chat messages in an order that such a server accepts."""
    written: list[dict[str, Any]] = []
    opening = True
    for message in messages:
        opening = opening and message["role"] == "system"
        if message["role"] == "system" and not opening:
            message = {**message, "role": "user"}
        if message["role"] == "user" and written and written[-1]["role"] == "tool":
            written.append({"role": "assistant", "content": _BREATH})
        written.append(message)
    return written
