"""Count what one session uses of its token, and end the session when nothing is left."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from voicepipe.auth.claims import Claims
from voicepipe.auth.token_limits import Usage, limit_reached
from voicepipe.auth.tokens import LIFE_MAX_S
from voicepipe.clock import unix_s
from voicepipe.cluster.port import Cluster, counter
from voicepipe.errors import AuthError, Overload
from voicepipe.server.sessions.revocations import RETRY_S, Revocable
from voicepipe.session.shutdown import POLICY_VIOLATION, Ending
from voicepipe.telemetry.log import log_event
from voicepipe.turn.record.values import TurnRecord

MICRO: Final = 1_000_000
"""Money is counted in whole millionths of a USD: a sum of floats depends on its order."""

RECENT_TURNS: Final = 64
"""Turns whose cost may still change: a record is renewed when late words or audio arrive."""

Cost = Callable[[TurnRecord], float]
"""The cost of a turn, in USD."""


class NoUsageMeter:
    """The meter of API keys and of open mode, which have no limits."""

    claims = None

    def note(self, record: TurnRecord) -> None:
        """Count nothing."""

    def charge(self, usd: float) -> None:
        """Charge nothing."""

    async def check_token_limits(self) -> None:
        """Accept always."""

    async def use_up_session(self) -> None:
        """Count no session."""

    async def run(self, call: Revocable) -> None:
        """Return at once: the session has no limits that end it."""

    async def settle(self) -> None:
        """Do nothing: no cost is pending."""


class UsageMeter:
    """Counts what one session uses of its token, and ends the session when the token's limits are reached.

    Turns and spending are those of all sessions of the token, in all processes. A turn is counted when it is over. So
    each of several concurrent sessions may take one turn more than were left.
    """

    def __init__(self, claims: Claims, cluster: Cluster, cost_usd: Cost) -> None:
        self.claims, self._cluster, self._cost_usd = claims, cluster, cost_usd
        self._counts = claims.limits.turns is not None or claims.limits.spend_usd is not None
        self._known: OrderedDict[str, tuple[int, int]] = OrderedDict()
        self._uncounted: dict[str, int] = {}
        self._news = asyncio.Event()

    def note(self, record: TurnRecord) -> None:
        """Count a turn's record, new or renewed. A record without an outcome is still running."""
        if not self._counts or record.outcome is None:
            return
        turns, micro_usd = int(_is_used(record)), round(self._cost_usd(record) * MICRO)
        turns_before, micro_usd_before = self._known.pop(record.id, (0, 0))
        self._owe("turns", turns - turns_before)
        self._owe("spend", micro_usd - micro_usd_before)
        self._known[record.id] = turns, micro_usd
        if len(self._known) > RECENT_TURNS:
            self._known.popitem(last=False)
        self._news.set()

    def charge(self, usd: float) -> None:
        """Count a cost that belongs to no turn."""
        if self._counts:
            self._owe("spend", round(usd * MICRO))
            self._news.set()

    async def check_token_limits(self) -> None:
        """Check that something is left.

        Raises:
            AuthError: 403, naming the limit.
        """
        limit = self.claims.limits.max_sessions
        if limit is not None and await self._add("sessions", 0) >= limit:
            raise self._used_up()
        reached = limit_reached(self.claims.limits, await self._used()) if self._counts else None
        if reached is not None:
            raise AuthError(
                f"{reached[0].upper()}{reached[1:]}. Let your backend mint another one.",
                code="limit_reached",
                status=403,
            )

    async def use_up_session(self) -> None:
        """Count this session against the sessions that the token may start; of several that want the last one, one gets
        it.

        Raises:
            AuthError: 401.
        """
        tally = await self._cluster.count(
            counter(self.claims, "sessions"),
            1,
            limit=self.claims.limits.max_sessions,
            until_s=self.claims.expires_at_s,
            now_s=unix_s(),
        )
        if not tally.counted:
            raise self._used_up()

    async def run(self, call: Revocable) -> None:
        """End the session when a limit is reached, until cancelled."""
        while await self._news.wait():
            self._news.clear()
            try:
                await self._count()
                reached = limit_reached(self.claims.limits, await self._used())
            except Overload as busy:
                log_event("usage_update_failed", level=logging.WARNING, why=busy.why)
                await asyncio.sleep(RETRY_S)
                self._news.set()
                continue
            if reached is not None:
                call.end_after_turn(Ending("limit_reached", reached, POLICY_VIOLATION))

    async def settle(self) -> None:
        """Count the costs that arrive at the end of the session."""
        try:
            await self._count()
        except Overload as busy:
            log_event("usage_lost", level=logging.ERROR, project=self.claims.project, why=busy.why)

    async def _count(self) -> None:
        """Skip amounts in flight when cancelled: they were most likely counted, and are not counted again."""
        for what in ("turns", "spend"):
            amount = self._uncounted.pop(what, 0)
            if amount:
                try:
                    await self._add(what, amount)
                except Overload:
                    self._owe(what, amount)
                    raise

    def _owe(self, what: str, amount: int) -> None:
        self._uncounted[what] = self._uncounted.get(what, 0) + amount

    async def _used(self) -> Usage:
        return Usage(turns=await self._add("turns", 0), spend_usd=await self._add("spend", 0) / MICRO)

    def _used_up(self) -> AuthError:
        return AuthError(
            f"This client secret has started all of its {self.claims.limits.max_sessions} sessions. Let your backend "
            "mint another one.",
            code="token_used_up",
        )

    async def _add(self, what: str, amount: int) -> int:
        now_s = unix_s()
        name = counter(self.claims, what)
        # Sessions outlive their tokens, but not by this long.
        tally = await self._cluster.count(name, amount, limit=None, until_s=now_s + LIFE_MAX_S, now_s=now_s)
        return tally.total


def _is_used(record: TurnRecord) -> bool:
    """Return whether the turn caused a cost: the model was called, or words were transcribed. A cough is no turn."""
    return bool(record.user_text) or any(stage == "llm" for stage, _ in record.providers)
