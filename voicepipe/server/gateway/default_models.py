"""Route the model names that vendors' clients send by default to the default agent, as the WebSocket does."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeVar

from voicepipe.auth.claims import Claims
from voicepipe.server.context import ServerContext

_USUAL: Final = re.compile(r"(gpt-|chatgpt-|o[1-9](-|$)|claude-|gemini-|whisper-|tts-)[\w.:-]*", re.ASCII)
"""Names of models without a provider, as the vendors' own clients send them. What has a slash is a spec or a pool: a
misspelt one must not be answered, and paid, by another model.
"""

_Route = TypeVar("_Route")


def route_of(
    name: str, find: Callable[[str], _Route | None], claims: Claims | None, context: ServerContext
) -> _Route | None:
    """Return the route of a name, or for a vendor's usual name that of the agent that a session would get.

    With `strict_models` only names of the settings have a route.
    """
    found = find(name)
    if found is not None or context.options.strict_models or not _USUAL.fullmatch(name):
        return found
    allowed = claims.limits.agents if claims is not None else ()
    return find(next((agent for agent in allowed if context.agent_named(agent) == agent), "default"))
