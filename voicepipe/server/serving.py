"""Serve an admitted session until it ends, with its slots, its usage and its events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager
from functools import partial

from voicepipe.clock import monotonic_ms, unix_ms
from voicepipe.errors import Overload, StageError
from voicepipe.server.context import ServerContext
from voicepipe.server.sessions.live_sessions import LiveSession, iso
from voicepipe.server.sessions.running_session import RunningSession
from voicepipe.session.grant import SessionGrant
from voicepipe.session.socket import ClientSocket
from voicepipe.telemetry.log import log_crash, log_event, working_for


@asynccontextmanager
async def admitted(live: LiveSession, context: ServerContext) -> AsyncIterator[RunningSession]:
    """Yield the session. While the block runs it has its slots, is listed, and is held to its client secret."""
    grant, limits = live.grant, live.usage.limits
    async with context.live_sessions.slot(live):
        session = live.session = _opened(context, live)
        if limits.claims is not None:
            # Check again: any later revocation finds the session.
            await context.authenticator.check_not_revoked(limits.claims)
        if not live.is_taken_over:
            await limits.take_session()
        began_ms, live.admitted = monotonic_ms(), True
        context.session_events.started(grant.project, grant.session_id, live.plain)
        try:
            with _traced(grant, context), working_for(grant.session_id):
                yield session
        finally:
            live.admitted = False
            recording = f"/v1/sessions/{grant.session_id}/recording" if session.is_recorded else None
            ended = {"ended_at": iso(unix_ms()), "lasted_ms": monotonic_ms() - began_ms, "recording": recording}
            whose = (grant.project, grant.session_id, grant.agent)
            context.session_events.ended(*whose, lambda: live.plain() | ended, live.usage.add_late_cost)
            await live.usage.add_rest()


def _traced(grant: SessionGrant, context: ServerContext) -> AbstractContextManager[None]:
    return context.tracing.session(grant.session_id, project=grant.project, agent=grant.agent, model=grant.model)


async def run_session(session: RunningSession, live: LiveSession, socket: ClientSocket) -> None:
    """Run a session to its end, and count its usage."""
    grant = live.grant
    log_event("session_opened", session=grant.session_id, project=grant.project, agent=grant.agent)
    began_ms = monotonic_ms()
    async with asyncio.TaskGroup() as group:
        usage = group.create_task(live.usage.run(session), name="usage")
        await _talk(session, socket, grant)
        usage.cancel()
    log_event("session_closed", session=grant.session_id, lasted_ms=monotonic_ms() - began_ms)


async def _talk(session: RunningSession, socket: ClientSocket, grant: SessionGrant) -> None:
    try:
        await session.run(socket)
    except Exception as error:
        # Not the client's fault, and no other route could answer: the connection is already a WebSocket.
        log_crash("session", error, session=grant.session_id)
        await socket.close(1011, "The session failed.")
    await socket.close(1000, "")


def _opened(context: ServerContext, live: LiveSession) -> RunningSession:
    grant = live.grant
    try:
        return context.open_session(grant, partial(context.live_sessions.count_turn, live), live.usage.charge)
    except StageError as error:
        why = "" if grant.redacted else f": {error}"
        raise Overload(f"A provider of agent {grant.agent!r} can't be used now{why or '.'}") from error
