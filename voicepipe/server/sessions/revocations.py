"""The sessions and requests that run here with a token, so that a revocation can end them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from voicepipe.auth.claims import Claims
from voicepipe.cluster.port import Cluster
from voicepipe.cluster.revocation import Revocation
from voicepipe.errors import Overload
from voicepipe.session.shutdown import NOT_AUTHORISED, Ending
from voicepipe.telemetry.log import log_event

REVOKED: Final = Ending("token_revoked", "This client secret was revoked.", NOT_AUTHORISED)

RETRY_S: Final = 1.0
"""Pause between two attempts when a shared store is busy."""


class Revocable(Protocol):
    """A session, as far as it can be ended from outside."""

    def end_now(self, ending: Ending) -> None:
        """Send the client the reason and close the connection."""
        ...

    def end_after_turn(self, ending: Ending) -> None:
        """End the session after the running turn."""
        ...


class RevocableSessions:
    """Belongs to one event loop."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        # bounded: the limit of sessions
        self._running: dict[Revocable, Claims] = {}

    @contextmanager
    def running(self, call: Revocable, claims: Claims | None) -> Iterator[None]:
        """Register the session for revocations of its token while the block runs; None: it has no token."""
        if claims is None:
            yield
            return
        self._running[call] = claims
        try:
            yield
        finally:
            del self._running[call]

    async def watch(self) -> None:
        """End the sessions whose tokens are revoked, until cancelled."""
        while True:
            try:
                async for revocation in self._cluster.revocations():
                    self._end(revocation)
            except Overload as busy:
                log_event("revocations_read_failed", level=logging.WARNING, why=busy.why)
            await asyncio.sleep(RETRY_S)

    def _end(self, revocation: Revocation) -> None:
        for call, claims in self._running.items():
            if revocation.covers(claims):
                call.end_now(REVOKED)
