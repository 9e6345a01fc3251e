"""The calls that run here with a token: found when it is revoked."""

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
from voicepipe.session.ending import NOT_AUTHORISED, Ending
from voicepipe.telemetry.log import log_event

REVOKED: Final = Ending("token_revoked", "This client secret was revoked.", NOT_AUTHORISED)

RETRY_S: Final = 1.0
"""Between two tries at a shared store that is busy."""


class Call(Protocol):
    """A session, as far as it can be ended from outside."""

    def end_now(self, ending: Ending) -> None:
        """Tell the client why and close the line."""
        ...

    def end_after_turn(self, ending: Ending) -> None:
        """Do so when the running turn is over."""
        ...


class Calls:
    """Belongs to one event loop."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        # bounded: as many as there are places in the lobby
        self._running: dict[Call, Claims] = {}

    @contextmanager
    def running(self, call: Call, claims: Claims | None) -> Iterator[None]:
        """Have the call found by revocations of its token for as long as the block runs; None: it has no token."""
        if claims is None:
            yield
            return
        self._running[call] = claims
        try:
            yield
        finally:
            del self._running[call]

    async def watch(self) -> None:
        """End the calls whose tokens are revoked, until cancelled."""
        while True:
            try:
                async for revocation in self._cluster.revocations():
                    self._end(revocation)
            except Overload as busy:
                log_event("revocations_unreadable", level=logging.WARNING, why=busy.why)
            await asyncio.sleep(RETRY_S)

    def _end(self, revocation: Revocation) -> None:
        for call, claims in self._running.items():
            if revocation.covers(claims):
                call.end_now(REVOKED)
