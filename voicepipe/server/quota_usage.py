"""Count what sessions and requests use of the quotas of their API key, project and user, in all processes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from voicepipe.clock import unix_s
from voicepipe.cluster.port import Cluster
from voicepipe.server.errors import TooManyRequests
from voicepipe.server.quotas import MICRO, Metered, Quota

DAY_S: Final = 86_400

COUNTER_LIFE_S: Final = 2 * DAY_S
"""Lifetime of a day's counter, from its latest count."""

FULL_WAIT_S: Final = 5
"""`Retry-After` when a holder has all the sessions that it may have at once: sessions last minutes."""


class QuotaExceeded(TooManyRequests):
    """A quota is used up. `wait_s`: until it may have something left."""

    code = "quota_exceeded"


class QuotaUsage:
    """Usage of the quotas of one session or request; a part of `UsageLimits`.

    Slots and the reservation of one at minting use it alone: there the limits of a client secret don't count.
    """

    def __init__(self, quotas: tuple[Quota, ...], cluster: Cluster) -> None:
        self._quotas, self._cluster = quotas, cluster

    @property
    def pools(self) -> dict[str, int]:
        """Return the pools of slots that a session must have a slot in: name -> number of slots."""
        return {quota.name: quota.sessions for quota in self._quotas if quota.sessions}

    def full(self, pool: str) -> QuotaExceeded:
        """Return the refusal of a session for which one of these pools has no slot."""
        quota = next(each for each in self._quotas if each.name == pool)
        return QuotaExceeded(f"Too many sessions of {quota.label} (limit {quota.sessions}).", wait_s=FULL_WAIT_S)

    def limits(self, what: Metered) -> bool:
        """Return whether any quota counts this."""
        return any(what in quota.per_day for quota in self._quotas)

    async def check(self) -> None:
        """Check that something is left of each quota of the day.

        Raises:
            QuotaExceeded: nothing is left of one.
        """
        reached = await self.reached()
        if reached is not None:
            raise QuotaExceeded(f"{reached[0].upper()}{reached[1:]}.", wait_s=DAY_S - unix_s() % DAY_S)

    async def reached(self) -> str | None:
        """Return which quota is used up, as text for a close reason (at most 123 bytes); None while none is."""
        for quota, what, limit in self._each():
            if await self._count(quota, what, 0) >= limit:
                displayed = f"{limit // 60} minutes" if what == "seconds" else f"{limit / MICRO:g} USD"
                return f"daily quota of {quota.label} used up: {displayed}"
        return None

    async def add(self, what: Metered, amount: int) -> None:
        """Count an amount that was used, in the quotas of today.

        Raises:
            Overload: the shared store is busy.
        """
        for quota, metered, _ in self._each():
            if metered == what:
                await self._count(quota, what, amount)

    def _each(self) -> Iterator[tuple[Quota, Metered, int]]:
        return ((quota, what, limit) for quota in self._quotas for what, limit in quota.per_day.items())

    async def _count(self, quota: Quota, what: Metered, amount: int) -> int:
        now_s = unix_s()
        name = f"quota/{quota.name}/{now_s // DAY_S}/{what}"
        result = await self._cluster.count(name, amount, limit=None, until_s=now_s + COUNTER_LIFE_S, now_s=now_s)
        return result.total
