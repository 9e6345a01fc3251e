"""End what runs here with a token when the token is revoked."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final, Protocol

from voicepipe.cluster.port import Cluster
from voicepipe.cluster.revocation import Revocation
from voicepipe.errors import Overload
from voicepipe.session.shutdown import NOT_AUTHORISED, Ending
from voicepipe.telemetry.log import log_event

REVOKED: Final = Ending("token_revoked", "This client secret was revoked.", NOT_AUTHORISED)

RETRY_S: Final = 1.0
"""Pause between two attempts when a shared store is busy."""


class Revocable(Protocol):
    """A session or a request, as far as it can be ended from outside."""

    def end_now(self, ending: Ending) -> None:
        """Send the client the reason and close the connection."""
        ...

    def end_after_turn(self, ending: Ending) -> None:
        """End the session after the running turn."""
        ...


class EndsRevoked(Protocol):
    """A registry of sessions or requests."""

    def end_revoked(self, revocation: Revocation) -> None:
        """End those that run with a token that this revocation covers; returns at once."""
        ...


async def watch_revocations(cluster: Cluster, registries: Sequence[EndsRevoked]) -> None:
    """End the sessions and requests whose tokens are revoked, until cancelled."""
    while True:
        try:
            async for revocation in cluster.revocations():
                for registry in registries:
                    registry.end_revoked(revocation)
        except Overload as busy:
            log_event("revocations_read_failed", level=logging.WARNING, why=busy.why)
        await asyncio.sleep(RETRY_S)
