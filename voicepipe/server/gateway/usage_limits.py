"""Charge each answer over REST to the limits of its client secret: 1 turn, and its cost."""

from __future__ import annotations

import logging
from typing import Final

from voicepipe.auth.claims import Claims
from voicepipe.auth.token_limits import Usage, limit_reached
from voicepipe.auth.tokens import LIFE_MAX_S
from voicepipe.clock import unix_s
from voicepipe.cluster.port import Cluster, Tally, counter
from voicepipe.errors import AuthError, Overload
from voicepipe.telemetry.log import log_event

MICRO: Final = 1_000_000
"""Money is counted in whole millionths of a USD, in the counter that the sessions of the same secret use."""


class UsageLimits:
    """Limits of one request. API keys and open mode have None: no limits."""

    def __init__(self, claims: Claims | None, cluster: Cluster) -> None:
        self._claims, self._cluster = claims, cluster

    async def take_turn(self) -> None:
        """Take 1 turn before a provider is called: of several requests that want the last turn, one gets it.

        Raises:
            AuthError: 403: no turn, or no money, is left.
        """
        if self._claims is None:
            return
        limits = self._claims.limits
        if limits.spend_usd is not None:
            spent = (await self._count("spend", 0, None)).total / MICRO
            self._check(limit_reached(limits, Usage(spend_usd=spent)))
        if limits.turns is not None and not (await self._count("turns", 1, limits.turns)).counted:
            self._check(limit_reached(limits, Usage(turns=limits.turns)))

    async def return_turn(self) -> None:
        """Return the turn: no provider answered."""
        if self._claims is not None and self._claims.limits.turns is not None:
            await self._settle("turns", -1)

    async def spend(self, cost_usd: float) -> None:
        """Add the cost of an answer."""
        if self._claims is not None and self._claims.limits.spend_usd is not None:
            await self._settle("spend", round(cost_usd * MICRO))

    async def _settle(self, what: str, amount: int) -> None:
        try:
            await self._count(what, amount, None)
        except Overload as busy:
            log_event("usage_lost", level=logging.ERROR, what=what, amount=amount, why=busy.why)

    async def _count(self, what: str, amount: int, limit: int | None) -> Tally:
        assert self._claims is not None
        now_s = unix_s()
        name = counter(self._claims, what)
        return await self._cluster.count(name, amount, limit=limit, until_s=now_s + LIFE_MAX_S, now_s=now_s)

    def _check(self, reached: str | None) -> None:
        if reached is not None:
            why = f"{reached[0].upper()}{reached[1:]}. Let your backend mint another one."
            raise AuthError(why, code="limit_reached", status=403)
