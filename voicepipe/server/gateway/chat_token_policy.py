"""Apply a client secret to a chat completion: its allowed models, session settings and locks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from voicepipe.auth.claims import Claims
from voicepipe.auth.request_credentials import Handshake
from voicepipe.ports.model import Function, ModelRequest, Said, Text, Usage
from voicepipe.protocol.chat_messages import DeveloperMessage, SystemMessage
from voicepipe.protocol.chat_request import ChatRequest
from voicepipe.protocol.session_config import SessionConfig
from voicepipe.server.chat_ports import ChatRoute
from voicepipe.server.context import ServerContext
from voicepipe.server.gateway.token_policy import check_may_reach, field_locked, token_session

NOTHING: Final = Usage(input_tokens=0, output_tokens=0)


def check_may_request(claims: Claims, route: ChatRoute, handshake: Handshake, context: ServerContext) -> None:
    """Check a client secret against one route. It may request agents; a bare spec only if its limits name that spec.

    Raises:
        AuthError: 403, naming the allowed agents and models.
    """
    unpriced = (spec for spec in (*route.specs, *route.reached) if context.chat_models.cost_usd(spec, NOTHING) is None)
    check_may_reach(claims, route.name, route.agent, handshake, unpriced=next(unpriced, None))


async def held(
    request: ModelRequest, requested: ChatRequest, claims: Claims, route: ChatRoute, context: ServerContext
) -> ModelRequest:
    """Return the question with the client secret's session settings, locks and routing applied.

    Instructions of the secret's session apply when they are locked, or when the request brings no instructions.

    Raises:
        AuthError: the secret's session settings are no longer stored.
        ProtocolError: the request sets a locked field to another value.
    """
    started = await token_session(claims, route.name, route.agent, context)
    session, config = started.session, started.config
    locked = {lock.field.partition(".")[0] for lock in claims.locks}
    _check_locks(requested, locked, session, config)
    changes: dict[str, Any] = {"metadata": tuple((dict(request.metadata) | claims.routing).items())}
    if "instructions" in locked or ("instructions" in config and not _instruction_fields(requested)):
        changes["messages"] = (Said("system", (Text(session.instructions),)), *request.messages)
    if locked & {"tools", "tool_choice"}:
        tools = (Function(tool.name, tool.description, tool.parameters_json) for tool in session.tools)
        choice = "auto" if session.tool_server else session.tool_choice
        changes |= {"functions": tuple(tools), "tool_choice": choice}
    if "max_output_tokens" in locked:
        changes["max_output_tokens"] = session.max_output_tokens
    return replace(request, **changes)


def _check_locks(requested: ChatRequest, locked: set[str], session: SessionConfig, config: Mapping[str, Any]) -> None:
    instructed = _instruction_fields(requested)
    broken = (
        instructed[0] if instructed and "instructions" in locked else None,
        "tools" if requested.tools and locked & {"tools", "tool_choice"} else None,
        "tool_choice" if requested.tool_choice and locked & {"tools", "tool_choice"} else None,
        "model" if "model" in locked and requested.model != config.get("model", requested.model) else None,
        "max_completion_tokens"
        if "max_output_tokens" in locked and requested.output_limit not in (None, session.max_output_tokens)
        else None,
    )
    for field in filter(None, broken):
        raise field_locked(field)


def _instruction_fields(requested: ChatRequest) -> list[str]:
    """Roles in which the request instructs the model."""
    return [
        f"messages[{position}]"
        for position, message in enumerate(requested.messages)
        if isinstance(message, SystemMessage | DeveloperMessage)
    ]
