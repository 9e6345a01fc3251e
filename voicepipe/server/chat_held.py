"""A client secret's say in a chat completion: what it may ask, and what its session settings and locks make of it."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from voicepipe.auth.claims import Claims
from voicepipe.auth.entry import check_entry
from voicepipe.auth.handshake import Handshake
from voicepipe.errors import AuthError, ProtocolError
from voicepipe.protocol.chat_messages import DeveloperMessage, SystemMessage
from voicepipe.protocol.chat_request import ChatRequest
from voicepipe.protocol.session_config import SessionConfig
from voicepipe.server.chat_route import ChatRoute
from voicepipe.server.parts import Parts
from voicepipe.server.realtime import origin_of, token_config
from voicepipe.session.grant import SessionGrant
from voicepipe.stages.model import Function, ModelRequest, Said, Text, Usage

NOTHING: Final = Usage(input_tokens=0, output_tokens=0)


def check_may_ask(claims: Claims, route: ChatRoute, shown: Handshake, parts: Parts) -> None:
    """Hold a client secret against one route. It asks for agents; for a bare spec only if its limits name that.

    Raises:
        AuthError: 403, naming what is allowed.
    """
    check_entry(claims, origin=origin_of(shown), model=route.name, agent=route.agent or "")
    if route.agent is None and route.name not in claims.limits.models:
        why = "A client secret may ask for agents, and for what its limits.models names."
        raise AuthError(why, code="model_not_allowed", status=403)
    unpriced = [spec for spec in (*route.specs, *route.reached) if parts.chat_models.cost_usd(spec, NOTHING) is None]
    if claims.limits.spend_usd is not None and unpriced:
        why = f"This client secret has a limit on spending, and the price of {unpriced[0]} is not known here."
        raise AuthError(why, code="price_unknown", status=403)


async def held(
    request: ModelRequest, asked: ChatRequest, claims: Claims, route: ChatRoute, parts: Parts
) -> ModelRequest:
    """The question under what the client secret says: its session's settings, its locks, its routing.

    Instructions of its session hold when they are locked, and while the request brings none of its own.

    Raises:
        AuthError: its session's settings are gone.
        ProtocolError: a locked field was asked for otherwise.
    """
    config = await token_config(claims, parts) or {}
    session = _started(claims, route, parts).merged(config)
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
        raise ProtocolError("The client secret locks the field: leave it out.", field=field, code="field_locked")


def _told_at(asked: ChatRequest) -> list[str]:
    """Where the request tells the model what to be."""
    return [
        f"messages[{position}]"
        for position, message in enumerate(asked.messages)
        if isinstance(message, SystemMessage | DeveloperMessage)
    ]


def _started(claims: Claims, route: ChatRoute, parts: Parts) -> SessionConfig:
    """The session that the client secret would start with this agent, before its own settings."""
    return parts.desk.start_config(
        SessionGrant(
            session_id=f"sess_{secrets.token_urlsafe(18)}",
            project=claims.project,
            agent=route.agent or "default",
            model=route.name,
            identity=None,
            config=None,
            expires_at=claims.expires_at_s,
        )
    )
