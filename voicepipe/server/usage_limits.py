"""Count the usage of a client secret, by sessions and REST requests, and enforce its limits."""

from __future__ import annotations

import logging
from typing import Literal

from voicepipe.auth.claims import Limits
from voicepipe.auth.token_limits import TokenUsage, limit_reached
from voicepipe.auth.tokens import MAX_LIFE_S
from voicepipe.clock import unix_s
from voicepipe.cluster.port import Cluster, CountResult, counter
from voicepipe.errors import AuthError, Overload
from voicepipe.server.authenticate import Principal
from voicepipe.server.quota_usage import QuotaUsage
from voicepipe.server.quotas import MICRO, Quotas
from voicepipe.telemetry.log import log_event

Countable = Literal["turns", "spend", "seconds"]
"""What is counted while a session runs; `spend` in whole micro-USD."""


class UsageLimits:
    """The limits of one principal in all processes: those of its client secret, and the quotas of its API key, project
    and user. API keys and open mode have no claims, and quotas alone.

    Sessions and requests use this class only. The two kinds of limit have classes of their own, since they end
    differently: a secret is used up for good (401 or 403), a quota is used up until the next day (429).
    """

    def __init__(self, principal: Principal, quotas: Quotas, cluster: Cluster) -> None:
        self.claims, self._cluster = claims, cluster = principal.claims, cluster
        self._limits = claims.limits if claims is not None else Limits()
        subject = claims.subject if claims is not None else ""
        self.quotas = QuotaUsage(
            quotas.of(project=principal.project, key_id=principal.key_id, subject=subject), cluster
        )

    def limits(self, what: Countable) -> bool:
        """Return whether there is a limit, so that this must be counted."""
        return self._token_limits(what) or (what != "turns" and self.quotas.limits(what))

    async def check(self) -> None:
        """Check that another session may start.

        Raises:
            AuthError: 401: no session is left. 403: no turn, or no money, is left.
            QuotaExceeded: a quota of the day is used up.
        """
        limit = self._limits.max_sessions
        if limit is not None and (await self._count("sessions", 0)).total >= limit:
            raise self._used_up()
        self._check(await self._token_reached())
        await self.quotas.check()

    async def take_session(self) -> None:
        """Count a session against those that the secret may start; of several for the last one, one gets it.

        Raises:
            AuthError: 401: none is left.
        """
        if self.claims is None:
            return
        now_s, until_s = unix_s(), self.claims.expires_at_s
        name, limit = counter(self.claims, "sessions"), self._limits.max_sessions
        if not (await self._cluster.count(name, 1, limit=limit, until_s=until_s, now_s=now_s)).counted:
            raise self._used_up()

    async def take_turn(self) -> None:
        """Take 1 turn before a provider is called: of several requests for the last turn, one gets it.

        Raises:
            AuthError: 403: no turn, or no money, is left.
            QuotaExceeded: a quota of the day is used up.
        """
        await self.quotas.check()
        self._check(limit_reached(self._limits, TokenUsage(spend_usd=await self._spent_usd())))
        limit = self._limits.turns
        if limit is not None and not (await self._count("turns", 1, limit)).counted:
            self._check(limit_reached(self._limits, TokenUsage(turns=limit)))

    async def reached(self) -> str | None:
        """Return which limit or quota is reached, as text; None while none is."""
        return await self._token_reached() or await self.quotas.reached()

    async def _token_reached(self) -> str | None:
        turns = (await self._count("turns", 0)).total if self._token_limits("turns") else 0
        return limit_reached(self._limits, TokenUsage(turns=turns, spend_usd=await self._spent_usd()))

    async def add(self, what: Countable, amount: int) -> None:
        """Count an amount that has been used; a negative amount gives back.

        Raises:
            Overload: the shared store is busy: nothing was counted.
        """
        if self._token_limits(what):
            await self._count(what, amount)
        if what != "turns":
            await self.quotas.add(what, amount)

    async def add_or_log(self, what: Countable, amount: int) -> None:
        """Count the amount of something that has ended; an amount that can't be counted is logged and lost."""
        try:
            await self.add(what, amount)
        except Overload as busy:
            project = self.claims.project if self.claims is not None else ""
            log_event("usage_lost", level=logging.ERROR, project=project, what=what, amount=amount, why=busy.why)

    async def _spent_usd(self) -> float:
        return (await self._count("spend", 0)).total / MICRO if self._token_limits("spend") else 0.0

    def _token_limits(self, what: Countable) -> bool:
        match what:
            case "turns":
                return self._limits.turns is not None
            case "spend":
                return self._limits.spend_usd is not None
            case "seconds":
                return False

    async def _count(self, what: str, amount: int, limit: int | None = None) -> CountResult:
        assert self.claims is not None
        now_s = unix_s()
        # Sessions outlive their tokens, but not by this long.
        until_s = now_s + MAX_LIFE_S
        return await self._cluster.count(counter(self.claims, what), amount, limit=limit, until_s=until_s, now_s=now_s)

    def _used_up(self) -> AuthError:
        return AuthError(
            f"This client secret has started all of its {self._limits.max_sessions} sessions. Let your backend mint "
            "another one.",
            code="token_used_up",
        )

    def _check(self, reached: str | None) -> None:
        if reached is not None:
            why = f"{reached[0].upper()}{reached[1:]}. Let your backend mint another one."
            raise AuthError(why, code="limit_reached", status=403)


def micro_usd(usd: float) -> int:
    """Return an amount of money as it is counted."""
    return round(usd * MICRO)
