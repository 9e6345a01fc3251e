"""`GET /v1/realtime`: from a handshake to a session on a WebSocket."""

from __future__ import annotations

import asyncio
import functools
import re
import secrets
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from typing import Any

import msgspec
from aiohttp import web

from voicepipe.auth.claims import Claims
from voicepipe.auth.credentials import answer_subprotocol
from voicepipe.auth.entry import check_entry
from voicepipe.auth.handshake import Handshake
from voicepipe.auth.scopes import REALTIME
from voicepipe.auth.tokens import session_prefix
from voicepipe.clock import monotonic_ms, unix_ms, unix_s
from voicepipe.errors import AuthError, Overload, StageError
from voicepipe.server.doorway import Visitor
from voicepipe.server.meter import Meter, NoMeter
from voicepipe.server.open_sessions import OpenSession, iso
from voicepipe.server.parts import PARTS, Charge, NoteTurn, Parts, RunsOnSocket
from voicepipe.server.refusals import Missing, refusal
from voicepipe.server.resume import resume
from voicepipe.server.socket import AiohttpSocket, upgrade
from voicepipe.session.grant import Dialect, SessionGrant
from voicepipe.telemetry.log import log_crash, log_event, working_for
from voicepipe.turn.record import TurnRecord

STARTING_WAIT_MS = 2_000
"""`Retry-After` while models load."""

DATED_PREVIEW = re.compile(r"\d{4}-\d{2}-\d{2}(-preview)?")
"""Clients of the older dialect send an `api-version` of this shape."""


async def realtime(request: web.Request) -> web.StreamResponse:
    """Check everything that can be refused with an HTTP answer, then upgrade and run the session to its end.

    A browser hides the reason why its WebSocket was refused. The same request without the upgrade is refused for the
    same reasons, where a page can read them. It is answered 426 when there are none.
    """
    parts = request.app[PARTS]
    if "resume" in request.query:
        return await _resume(request, parts)
    visitor = await parts.doorway.admit(request)
    visitor.check_scope(REALTIME)
    shown = parts.doorway.shown(request)
    check_ready(parts)
    grant = await grant_for(visitor, shown, request.query, parts)
    parts.lobby.check()
    meter = _meter(visitor, grant, parts)
    await meter.check_entry()
    line = upgrade(ping_ms=parts.options.ping_ms, subprotocol=answer_subprotocol(shown))
    if not line.can_prepare(request):
        return _upgrade_required()
    with parts.lobby.place() as place:
        async with parts.slots.slot(grant.session_id, grant.project), _admitted(meter, grant, parts) as session:
            with _traced(grant, parts), working_for(grant.session_id):
                await line.prepare(request)
                socket = place.socket = AiohttpSocket(line, request.transport)
                with parts.resumptions.running(grant.session_id, session, place):
                    await _run(session, meter, socket, grant)
    return line


async def _resume(request: web.Request, parts: Parts) -> web.StreamResponse:
    shown = parts.doorway.shown(request)
    line = upgrade(ping_ms=parts.options.ping_ms, subprotocol=answer_subprotocol(shown))
    if not line.can_prepare(request):
        return _upgrade_required()
    return await resume(request, line, parts.resumptions, shown.peer)


def _upgrade_required() -> web.Response:
    answer = refusal(426, "This is a WebSocket endpoint: connect with ws:// or wss://.", code="upgrade_required")
    answer.headers["Upgrade"] = "websocket"
    return answer


def _meter(visitor: Visitor, grant: SessionGrant, parts: Parts) -> Meter | NoMeter:
    if visitor.claims is None:
        return NoMeter()
    return Meter(visitor.claims, parts.cluster, functools.partial(parts.cost_usd, grant.agent))


@asynccontextmanager
async def _admitted(meter: Meter | NoMeter, grant: SessionGrant, parts: Parts) -> AsyncIterator[RunsOnSocket]:
    """Yield the session. While the block runs, a token's session is found by revocations and held to the token's
    limits."""
    shown = OpenSession(grant, began_unix_ms=unix_ms())

    def note_turn(record: TurnRecord) -> None:
        meter.note(record)
        shown.note(record)

    session = _opened(parts, grant, note_turn, meter.charge)
    with parts.calls.running(session, meter.claims):
        if meter.claims is not None:
            # Check again: any later revocation finds the session.
            await parts.doorway.check_not_revoked(meter.claims)
        await meter.use_up_session()
        try:
            with _listed(shown, parts):
                yield session
        finally:
            await meter.settle()


@contextmanager
def _listed(session: OpenSession, parts: Parts) -> Iterator[None]:
    """List the session among the open ones, and send webhooks at its end."""
    began_ms = monotonic_ms()
    with parts.open_sessions.running(session):
        try:
            yield
        finally:
            lasted_ms, grant = monotonic_ms() - began_ms, session.grant
            ended = {"ended_at": iso(unix_ms()), "lasted_ms": lasted_ms}
            parts.webhooks.tell("session.ended", grant.project, grant.session_id, lambda: session.plain() | ended)


def _traced(grant: SessionGrant, parts: Parts) -> AbstractContextManager[None]:
    return parts.tracing.session(grant.session_id, project=grant.project, agent=grant.agent, model=grant.model)


async def _run(session: RunsOnSocket, meter: Meter | NoMeter, socket: AiohttpSocket, grant: SessionGrant) -> None:
    log_event("session_opened", session=grant.session_id, project=grant.project, agent=grant.agent)
    began_ms = monotonic_ms()
    async with asyncio.TaskGroup() as group:
        metering = group.create_task(meter.run(session), name="meter")
        await _talk(session, socket, grant)
        metering.cancel()
    log_event("session_closed", session=grant.session_id, lasted_ms=monotonic_ms() - began_ms)


async def _talk(session: RunsOnSocket, socket: AiohttpSocket, grant: SessionGrant) -> None:
    try:
        await session.run(socket)
    except Exception as error:
        # Not the client's fault, and no other route could answer: the connection is already a WebSocket.
        log_crash("session", error, session=grant.session_id)
        await socket.close(1011, "The session failed.")
    await socket.close(1000, "")


async def grant_for(visitor: Visitor, shown: Handshake, query: Mapping[str, str], parts: Parts) -> SessionGrant:
    """Decide what the client gets.

    Raises:
        AuthError: 403, when the token does not allow this page, model or agent.
        Missing: 404, for an agent or (with `strict_models`) a model that does not exist.
    """
    claims, now_s = visitor.claims, unix_s()
    config = await token_config(claims, parts) if claims is not None else None
    asked = query.get("model") or query.get("deployment") or _model_of(config)
    agent = _agent(claims, query.get("agent", ""), asked, parts)
    length_s = parts.options.max_session_s
    if claims is not None:
        check_entry(claims, origin=origin_of(shown), model=asked, agent=agent)
        length_s = min(length_s, claims.limits.session_seconds or length_s)
    return SessionGrant(
        session_id=f"{session_prefix(claims) if claims is not None else 'sess_'}{secrets.token_urlsafe(18)}",
        project=visitor.project,
        agent=agent,
        model=asked or agent,
        identity=(claims.identity or claims.subject or None) if claims is not None else None,
        config=config,
        locks=claims.locks if claims is not None else (),
        veiled=claims is not None,
        expires_at=now_s + length_s,
        kind="transcription" if query.get("intent") == "transcription" else "realtime",
        dialect=_dialect(shown, query),
    )


def origin_of(shown: Handshake) -> str | None:
    """Return the origin of the page that sends the request. In a GET without the upgrade to its own server a browser
    omits `Origin`. It then sends the same fact in a header that pages cannot set (Fetch Metadata, `Sec-Fetch-Site`)."""
    origins, hosts = shown.values("origin"), shown.values("host")
    if not origins and hosts and shown.values("sec-fetch-site") == ("same-origin",):
        return f"{shown.scheme}://{hosts[0]}"
    return origins[0] if origins else None


def _agent(claims: Claims | None, wanted: str, model: str, parts: Parts) -> str:
    """Return the requested agent. An agent of `?agent=` must exist; a model's name may be anything, unless set to
    strict."""
    if wanted:
        found = parts.agent_named(wanted)
        if found is None:
            raise Missing(f"There is no agent {wanted[:64]!r} here.", param="agent", code="agent_not_found")
        return found
    found = parts.agent_named(model) if model else None
    if found is not None:
        return found
    if model and parts.options.strict_models:
        raise Missing(f"There is no model {model[:64]!r} here.", param="model", code="model_not_found")
    allowed = claims.limits.agents if claims is not None else ()
    return next((agent for agent in allowed if parts.agent_named(agent) == agent), "default")


async def token_config(claims: Claims, parts: Parts) -> Mapping[str, Any] | None:
    """Return the session settings of a client secret; None: none.

    Raises:
        AuthError: 401: the settings were stored here, and no longer are.
    """
    if not claims.config_id:
        return claims.session or None
    kept = await parts.cluster.config(claims.config_id, project=claims.project, now_s=unix_s())
    if kept is None:
        raise AuthError(
            "The session settings of this client secret are gone: the server was restarted or they expired. Let your "
            "backend mint another one.",
            code="session_config_expired",
        )
    config: dict[str, Any] = msgspec.json.decode(kept)
    return config


def _model_of(config: Mapping[str, Any] | None) -> str:
    model = (config or {}).get("model")
    return model if isinstance(model, str) else ""


def _dialect(shown: Handshake, query: Mapping[str, str]) -> Dialect:
    by_header = any("realtime=v1" in value for value in shown.values("openai-beta"))
    by_subprotocol = "openai-beta.realtime-v1" in shown.subprotocols()
    by_version = DATED_PREVIEW.fullmatch(query.get("api-version", "")) is not None
    return "beta" if by_header or by_subprotocol or by_version else "ga"


def check_ready(parts: Parts) -> None:
    """Check that everything is loaded.

    Raises:
        Overload: something is not.
    """
    missing = parts.missing()
    if missing:
        raise Overload(f"The server is starting: {'; '.join(missing)}.", retry_after_ms=STARTING_WAIT_MS)


def _opened(parts: Parts, grant: SessionGrant, note_turn: NoteTurn, charge: Charge) -> RunsOnSocket:
    try:
        return parts.open_session(grant, note_turn, charge)
    except StageError as error:
        why = "" if grant.veiled else f": {error}"
        raise Overload(f"A provider of agent {grant.agent!r} can't be used now{why or '.'}") from error
