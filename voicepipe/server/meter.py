"""What one call uses of its token, counted, and the call ended when nothing is left."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from voicepipe.auth.claims import Claims
from voicepipe.auth.entry import Usage, limit_reached
from voicepipe.auth.tokens import LIFE_MAX_S
from voicepipe.clock import unix_s
from voicepipe.cluster.port import Cluster, counter
from voicepipe.errors import AuthError, Overload
from voicepipe.server.calls import RETRY_S, Call
from voicepipe.session.ending import POLICY_VIOLATION, Ending
from voicepipe.telemetry.log import log_event
from voicepipe.turn.record import TurnRecord

MICRO: Final = 1_000_000
"""Money is counted in whole millionths of a USD: a sum of floats depends on its order."""

RECENT_TURNS: Final = 64
"""Turns whose cost may still change: a record is renewed when late words or sounds come."""

Cost = Callable[[TurnRecord], float]
"""What a turn cost, in USD."""


class NoMeter:
    """For who holds an API key, and in open mode: nothing limits them."""

    claims = None

    def note(self, record: TurnRecord) -> None:
        """Nothing is counted."""

    def charge(self, usd: float) -> None:
        """Nothing is charged."""

    async def check_entry(self) -> None:
        """Everything is left."""

    async def use_up_session(self) -> None:
        """Sessions are not counted."""

    async def run(self, call: Call) -> None:
        """Nothing ends the call."""

    async def settle(self) -> None:
        """Nothing is owed."""


class Meter:
    """Counts what one call uses of its token, and ends the call when the token's limits are reached.

    Turns and spending are those of all calls of the token, in whatever process. A turn is counted when it is over; so
    each of several calls at once may take one turn more than there were left.
    """

    def __init__(self, claims: Claims, cluster: Cluster, cost_usd: Cost) -> None:
        self.claims, self._cluster, self._cost_usd = claims, cluster, cost_usd
        self._counts = claims.limits.turns is not None or claims.limits.spend_usd is not None
        self._known: OrderedDict[str, tuple[int, int]] = OrderedDict()
        self._uncounted: dict[str, int] = {}
        self._news = asyncio.Event()

    def note(self, record: TurnRecord) -> None:
        """Take a turn's record, new or renewed. One without an outcome is still running."""
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
        """Count money that no turn bears."""
        if self._counts:
            self._owe("spend", round(usd * MICRO))
            self._news.set()

    async def check_entry(self) -> None:
        """Demand that something is left.

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
        """Count this session against those that the token may start; of several that want the last one, one gets it.

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

    async def run(self, call: Call) -> None:
        """End the call when a limit is reached, until cancelled."""
        while await self._news.wait():
            self._news.clear()
            try:
                await self._count()
                reached = limit_reached(self.claims.limits, await self._used())
            except Overload as busy:
                log_event("usage_uncounted", level=logging.WARNING, why=busy.why)
                await asyncio.sleep(RETRY_S)
                self._news.set()
                continue
            if reached is not None:
                call.end_after_turn(Ending("limit_reached", reached, POLICY_VIOLATION))

    async def settle(self) -> None:
        """Count what the call's end has brought."""
        try:
            await self._count()
        except Overload as busy:
            log_event("usage_lost", level=logging.ERROR, project=self.claims.project, why=busy.why)

    async def _count(self) -> None:
        """A call that is cancelled here was most likely counted: what it took along is not counted again."""
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
            f"This client secret has started the {self.claims.limits.max_sessions} sessions that it is good for. Let "
            "your backend mint another one.",
            code="token_used_up",
        )

    async def _add(self, what: str, amount: int) -> int:
        now_s = unix_s()
        name = counter(self.claims, what)
        # Calls outlive their tokens, but not by as long as this.
        tally = await self._cluster.count(name, amount, limit=None, until_s=now_s + LIFE_MAX_S, now_s=now_s)
        return tally.total


def _is_used(record: TurnRecord) -> bool:
    """Whether the turn cost anybody anything: the model was asked, or words were heard. A cough is no turn."""
    return bool(record.caller_text) or any(stage == "llm" for stage, _ in record.providers)
