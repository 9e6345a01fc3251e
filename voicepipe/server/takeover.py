"""Take over a session whose node is gone, from its snapshot, for the client that has its resume secret."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from functools import partial
from typing import Any, Final

import msgspec

from voicepipe.auth.apikeys import ApiKey
from voicepipe.auth.claims import Claims
from voicepipe.cluster.port import SessionSnapshots
from voicepipe.errors import Overload, ProtocolError, VoicepipeError
from voicepipe.protocol.extensions import Resume
from voicepipe.server.authenticate import Principal
from voicepipe.server.context import ServerContext
from voicepipe.server.serving import admitted, run_session
from voicepipe.server.sessions.live_sessions import LiveSession
from voicepipe.server.sessions.resume import Found, OtherSessions
from voicepipe.server.sessions.running_session import RunningSession
from voicepipe.server.sessions.session_usage import SessionUsage
from voicepipe.server.sessions.websocket import AiohttpSocket
from voicepipe.server.usage_limits import UsageLimits
from voicepipe.session.grant import SessionGrant
from voicepipe.session.resumption import digest_of, new_secret
from voicepipe.session.snapshot import LIFE_S, MAX_BYTES, SessionSnapshot
from voicepipe.telemetry.log import log_event

RECORDS_S: Final = 5.0
"""How long the snapshot of an ended session waits for the records of its turns. Without the database it is then
deleted, and the records wait in this process."""


_STORED_NAMES: Final = {"redacted": "veiled"}
"""Field of a grant -> its name in the store. Nodes of an older version read and write this name."""

_CODE_NAMES: Final = {stored: name for name, stored in _STORED_NAMES.items()}


def _stored_grant(grant: SessionGrant) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(grant)
    return {_STORED_NAMES.get(name, name): value for name, value in fields.items()}


class StoredSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session as the store has it. It contains no secret: of the resume secret only the digest is stored."""

    grant: dict[str, Any]
    project: str
    claims: Claims | None
    api_key: dict[str, Any] | None
    snapshot: SessionSnapshot

    @classmethod
    def of(cls, principal: Principal, grant: SessionGrant, snapshot: SessionSnapshot) -> bytes:
        """Return a session as JSON."""
        key = principal.holder if isinstance(principal.holder, ApiKey) else None
        stored = cls(
            grant=_stored_grant(grant),
            project=principal.project,
            claims=principal.claims,
            api_key=msgspec.to_builtins(key) if key is not None else None,
            snapshot=snapshot,
        )
        return msgspec.json.encode(stored)

    @property
    def session_grant(self) -> SessionGrant:
        """Return the grant with which the session began.

        Raises:
            ValueError: a newer voicepipe wrote it.
        """
        fields = {_CODE_NAMES.get(name, name): value for name, value in self.grant.items()}
        return msgspec.convert(fields, SessionGrant)

    @property
    def principal(self) -> Principal:
        """Return the client that began the session."""
        key = msgspec.convert(self.api_key, ApiKey) if self.api_key is not None else None
        return Principal(self.project, self.claims if self.claims is not None else key)


def share_snapshot(session: RunningSession, principal: Principal, grant: SessionGrant, context: ServerContext) -> None:
    """Have a session's snapshot written to the store, if nodes share one."""
    if context.session_snapshots is not None:
        owner = context.live_sessions.slots.owner
        session.takeover.share_snapshot(partial(_store, context.session_snapshots, owner, principal, grant))


async def _store(
    snapshots: SessionSnapshots,
    owner: str,
    principal: Principal,
    grant: SessionGrant,
    snapshot: SessionSnapshot,
    digest: str,
    previous_digest: str,
) -> bool:
    stored = StoredSession.of(principal, grant, snapshot)
    if len(stored) > MAX_BYTES:
        log_event("session_snapshot_too_large", level=logging.WARNING, session=grant.session_id, n_bytes=len(stored))
        return True
    return await snapshots.store_snapshot(
        grant.session_id, stored, digest=digest, owner=owner, life_s=LIFE_S, previous_digest=previous_digest
    )


class StoredSessions(msgspec.Struct, frozen=True):
    """The sessions of other nodes, and of the other processes of this one."""

    context: ServerContext
    snapshots: SessionSnapshots
    others: OtherSessions | None

    async def find(self, session_id: str) -> Found:
        """Return whether another process has this session; `held` also where the store has its snapshot.

        `hung`: unknown while the store is away.
        """
        found: Found = "unknown" if self.others is None else await self.others.find(session_id)
        if found in ("held", "hung"):
            return found
        try:
            return "held" if await self.snapshots.has_snapshot(session_id) else found
        except Overload:
            return "hung"

    async def resume(self, resume_request: Resume, socket: AiohttpSocket) -> bool:
        """Continue the session in its process, or here from its snapshot. Return when the socket is no longer used.

        False: refused.

        Raises:
            Overload: not now, or not here: the store or the session's own process does not answer, this node has no
                slot, or a newer voicepipe wrote the snapshot. The client's secret stays good.
        """
        if self.others is not None:
            if await self.others.find(resume_request.session_id) == "hung":
                raise Overload("The process of this session does not answer.")
            if await self.others.resume(resume_request, socket):
                return True
        # A store that hangs carries out later what it was sent. An acquisition without a waiting client would take the
        # session from the process that has gone on with it meanwhile. So a request that changes nothing goes first.
        if not await self.snapshots.has_snapshot(resume_request.session_id):
            return False
        owner, digest = self.context.live_sessions.slots.owner, digest_of(resume_request.secret)
        secret = new_secret()
        secrets = {"digest": digest, "owner": owner, "next_digest": digest_of(secret)}
        found = await self.snapshots.acquire_snapshot(resume_request.session_id, **secrets)
        if found is None:
            return False
        try:
            await self._go_on(msgspec.json.decode(found, type=StoredSession), resume_request, secret, socket)
        except (VoicepipeError, ValueError) as why:
            log_event("session_not_taken_over", level=logging.WARNING, why=type(why).__name__)
            if isinstance(why, Overload):
                raise
            if isinstance(why, ProtocolError | ValueError):
                raise Overload("This node can't read the session.") from why
            return False
        return True

    async def _go_on(self, stored: StoredSession, resume_request: Resume, secret: str, socket: AiohttpSocket) -> None:
        """Run the session here to its end. `secret`: its next one, which the store has already.

        Raises:
            VoicepipeError: this node has no slot for it, or its secret was revoked.
            ProtocolError, ValueError: a newer voicepipe wrote it.
        """
        context, principal = self.context, stored.principal
        grant = stored.session_grant
        limits = UsageLimits(principal, context.quotas, context.cluster)
        live = LiveSession(grant, SessionUsage(limits), is_taken_over=True)
        async with admitted(live, context) as session:
            share_snapshot(session, principal, grant, context)
            session.takeover.restore(stored.snapshot, resume_request, secret)
            live.socket = socket
            log_event("session_taken_over", session=grant.session_id)
            await run_session(session, live, socket)
        await delete_snapshot(grant.session_id, context)


async def delete_snapshot(session_id: str, context: ServerContext) -> None:
    """Delete the snapshot of an ended session once its latest records are stored, of which it has copies.

    If the server stops the snapshot stays: its client goes on at another node.
    """
    if context.session_snapshots is None or context.live_sessions.closing:
        return
    with suppress(TimeoutError):
        async with asyncio.timeout(RECORDS_S):
            await context.records_written(session_id)
    try:
        await context.session_snapshots.delete_snapshot(session_id, owner=context.live_sessions.slots.owner)
    except Overload:
        return  # it expires
