"""Apply a client secret to an answer over REST: its allowed models, session settings and locks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from voicepipe.auth.claims import Claims
from voicepipe.auth.request_credentials import Handshake
from voicepipe.ports.model import Content, Function, ModelRequest, Text, Usage
from voicepipe.protocol.session_config import SessionConfig
from voicepipe.server.chat_ports import ChatRoute
from voicepipe.server.context import ServerContext
from voicepipe.server.gateway.answer_request import AnswerRequest
from voicepipe.server.gateway.token_policy import check_may_reach, field_locked, token_session
from voicepipe.values import replace

NO_TOKENS: Final = Usage(input_tokens=0, output_tokens=0)


def check_may_request(claims: Claims, route: ChatRoute, handshake: Handshake, context: ServerContext) -> None:
    """Check a client secret against one route. It may request agents; a bare spec only if its limits name that spec.

    Raises:
        AuthError: 403, naming the allowed agents and models.
    """
    cost_usd = context.chat_models.cost_usd
    unpriced = (spec for spec in (*route.specs, *route.reached) if cost_usd(spec, NO_TOKENS) is None)
    check_may_reach(claims, route.name, route.agent, handshake, unpriced=next(unpriced, None))


async def apply_token_policy(
    request: ModelRequest, requested: AnswerRequest, claims: Claims, route: ChatRoute, context: ServerContext
) -> ModelRequest:
    """Return the request with the client secret's session settings, locks and routing applied.

    Instructions of the secret's session apply if they are locked, or if the request has no instructions.

    Raises:
        AuthError: the secret's session settings are no longer stored.
        ProtocolError: the request sets a locked field to another value.
    """
    started = await token_session(claims, route.name, route.agent, context)
    session, config = started.session, started.config
    locked = {lock.path[0] for lock in claims.locks}
    _check_locks(requested, locked, session, config)
    changes: dict[str, Any] = {"metadata": tuple((dict(request.metadata) | claims.routing).items())}
    if "instructions" in locked or ("instructions" in config and not requested.instruction_field):
        changes["messages"] = (Content("system", (Text(session.instructions),)), *request.messages)
    if locked & {"tools", "tool_choice"}:
        tools = (Function(tool.name, tool.description, tool.parameters_json, tool.strict) for tool in session.tools)
        choice = "auto" if session.tool_server else session.tool_choice
        changes |= {"functions": tuple(tools), "tool_choice": choice}
    if "max_output_tokens" in locked:
        changes["max_output_tokens"] = session.max_output_tokens
    return replace(request, **changes)


def _check_locks(requested: AnswerRequest, locked: set[str], session: SessionConfig, config: Mapping[str, Any]) -> None:
    broken = (
        requested.instruction_field if "instructions" in locked else None,
        "tools" if requested.functions and locked & {"tools", "tool_choice"} else None,
        "tool_choice" if requested.tool_choice and locked & {"tools", "tool_choice"} else None,
        "model" if "model" in locked and requested.model != config.get("model", requested.model) else None,
        requested.output_limit_field
        if "max_output_tokens" in locked and requested.max_output_tokens not in (None, session.max_output_tokens)
        else None,
    )
    for field in filter(None, broken):
        raise field_locked(field)
