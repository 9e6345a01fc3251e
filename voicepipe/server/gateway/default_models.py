"""Route the model names that vendors' clients send by default to the default agent, as the WebSocket does."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeVar

from voicepipe.auth.claims import Claims
from voicepipe.server.context import ServerContext

_VENDOR_NAME: Final = re.compile(r"(gpt-|chatgpt-|o[1-9](-|$)|claude-|gemini-|whisper-|tts-)[\w.:-]*", re.ASCII)
"""Model names without a provider, as the vendors' own clients send them. A name with a slash is a spec or a pool: if it
is misspelt, no other model may answer and be paid.
"""

_Route = TypeVar("_Route")


def route_of(
    name: str, find: Callable[[str], _Route | None], claims: Claims | None, context: ServerContext
) -> _Route | None:
    """Return the route of a name. A vendor's model name gets the route of the agent that a session would get.

    With `strict_models` only names of the settings have a route.
    """
    found = find(name)
    if found is not None or context.options.strict_models or not _VENDOR_NAME.fullmatch(name):
        return found
    allowed = claims.limits.agents if claims is not None else ()
    return find(next((agent for agent in allowed if context.agent_named(agent) == agent), "default"))
