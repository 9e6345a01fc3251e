"""Apply a client secret to a chat completion: what it may request, and its session settings and locks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from voicepipe.auth.claims import Claims
from voicepipe.auth.handshake import Handshake
from voicepipe.protocol.chat_messages import DeveloperMessage, SystemMessage
from voicepipe.protocol.chat_request import ChatRequest
from voicepipe.protocol.session_config import SessionConfig
from voicepipe.server.chat_route import ChatRoute
from voicepipe.server.parts import Parts
from voicepipe.server.rest_held import check_may_reach, field_locked, held_session
from voicepipe.stages.model import Function, ModelRequest, Said, Text, Usage

NOTHING: Final = Usage(input_tokens=0, output_tokens=0)


def check_may_ask(claims: Claims, route: ChatRoute, shown: Handshake, parts: Parts) -> None:
    """Check a client secret against one route. It may request agents; a bare spec only if its limits name that spec.

    Raises:
        AuthError: 403, naming what is allowed.
    """
    unpriced = (spec for spec in (*route.specs, *route.reached) if parts.chat_models.cost_usd(spec, NOTHING) is None)
    check_may_reach(claims, route.name, route.agent, shown, unpriced=next(unpriced, None))


async def held(
    request: ModelRequest, asked: ChatRequest, claims: Claims, route: ChatRoute, parts: Parts
) -> ModelRequest:
    """Return the question with the client secret's session settings, locks and routing applied.

    Instructions of the secret's session apply when they are locked, or when the request brings no instructions.

    Raises:
        AuthError: the secret's session settings are no longer stored.
        ProtocolError: the request sets a locked field to another value.
    """
    started = await held_session(claims, route.name, route.agent, parts)
    session, config = started.session, started.config
    locked = {lock.field.partition(".")[0] for lock in claims.locks}
    _check_locks(asked, locked, session, config)
    changes: dict[str, Any] = {"metadata": tuple((dict(request.metadata) | claims.routing).items())}
    if "instructions" in locked or ("instructions" in config and not _told_at(asked)):
        changes["messages"] = (Said("system", (Text(session.instructions),)), *request.messages)
    if locked & {"tools", "tool_choice"}:
        tools = (Function(tool.name, tool.description, tool.parameters_json) for tool in session.tools)
        changes |= {"functions": tuple(tools), "tool_choice": session.tool_choice}
    if "max_output_tokens" in locked:
        changes["max_output_tokens"] = session.max_output_tokens
    return replace(request, **changes)


def _check_locks(asked: ChatRequest, locked: set[str], session: SessionConfig, config: Mapping[str, Any]) -> None:
    told = _told_at(asked)
    broken = (
        told[0] if told and "instructions" in locked else None,
        "tools" if asked.tools and locked & {"tools", "tool_choice"} else None,
        "tool_choice" if asked.tool_choice and locked & {"tools", "tool_choice"} else None,
        "model" if "model" in locked and asked.model != config.get("model", asked.model) else None,
        "max_completion_tokens"
        if "max_output_tokens" in locked and asked.output_limit not in (None, session.max_output_tokens)
        else None,
    )
    for field in filter(None, broken):
        raise field_locked(field)


def _told_at(asked: ChatRequest) -> list[str]:
    """Roles in which the request instructs the model."""
    return [
        f"messages[{position}]"
        for position, message in enumerate(asked.messages)
        if isinstance(message, SystemMessage | DeveloperMessage)
    ]
