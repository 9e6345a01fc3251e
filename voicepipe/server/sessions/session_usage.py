"""Count what one session uses of its client secret, and end the session when nothing is left."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from contextlib import suppress
from typing import Final

from voicepipe.clock import monotonic_ms
from voicepipe.errors import Overload
from voicepipe.server.revocations import RETRY_S, Revocable
from voicepipe.server.usage_limits import Countable, UsageLimits, micro_usd
from voicepipe.session.shutdown import POLICY_VIOLATION, Ending
from voicepipe.tasks import AsyncEvent
from voicepipe.telemetry.log import log_event
from voicepipe.turn.record.values import TurnRecord

TIME_S: Final = 15
"""Interval in which the time of a session is counted where a quota limits it: the most by which one session exceeds
it."""

RECENT_TURNS: Final = 64
"""Turns whose cost may still change: a record is renewed when late words or audio arrive."""


class SessionUsage:
    """Counts what one session uses, and ends the session when a limit of its client secret is reached.

    Turns and spending are those of all sessions of the secret, in all processes. A turn is counted when it is over. So
    each of several concurrent sessions may take one turn more than were left.
    """

    def __init__(self, limits: UsageLimits) -> None:
        self.limits = limits
        self._known: OrderedDict[str, tuple[int, int]] = OrderedDict()  # full: the oldest can no longer be renewed
        self._uncounted: dict[Countable, int] = {}
        self._timed_ms: int | None = None
        """Until when the session's time is counted; None before it runs."""

        self._changed = AsyncEvent()

    def count_turn(self, record: TurnRecord) -> None:
        """Count a turn's record, new or renewed. A record without an outcome is still running."""
        if record.outcome is None:
            return
        turns, spent = int(_is_used(record)), micro_usd(record.cost.usd)
        turns_before, spent_before = self._known.pop(record.id, (0, 0))
        self._add("turns", turns - turns_before)
        self._add("spend", spent - spent_before)
        self._known[record.id] = turns, spent
        if len(self._known) > RECENT_TURNS:
            self._known.popitem(last=False)
        self._changed.set()

    def charge(self, usd: float) -> None:
        """Count a cost that belongs to no turn."""
        self._add("spend", micro_usd(usd))
        self._changed.set()

    async def run(self, session: Revocable) -> None:
        """End the session when a limit is reached, until cancelled."""
        self._timed_ms = monotonic_ms()
        while True:
            await self._wait()
            self._changed.clear()
            self._add_time()
            try:
                await self._count()
                reached = await self.limits.reached()
            except Overload as busy:
                log_event("usage_update_failed", level=logging.WARNING, why=busy.why)
                await asyncio.sleep(RETRY_S)
                self._changed.set()
                continue
            if reached is not None:
                session.end_after_turn(Ending("limit_reached", reached, POLICY_VIOLATION))

    async def add_rest(self) -> None:
        """Count the session's last seconds, and the costs that arrive at its end."""
        self._add_time()
        for what in tuple(self._uncounted):
            await self.limits.add_or_log(what, self._uncounted.pop(what, 0))

    async def add_late_cost(self, usd: float) -> None:
        """Count a cost that comes after the session's end."""
        if usd and self.limits.limits("spend"):
            await self.limits.add_or_log("spend", micro_usd(usd))

    async def _wait(self) -> None:
        """Wait until there is something to count: a turn, a cost, or time where a quota limits it."""
        with suppress(TimeoutError):
            async with asyncio.timeout(TIME_S if self.limits.limits("seconds") else None):
                await self._changed.wait()

    def _add_time(self) -> None:
        """Add the whole seconds since the session began that are not counted yet."""
        if self._timed_ms is not None:
            seconds = (monotonic_ms() - self._timed_ms) // 1_000
            self._timed_ms += 1_000 * seconds
            self._add("seconds", seconds)

    async def _count(self) -> None:
        """Skip amounts in flight when cancelled: they were most likely counted, and are not counted again."""
        for what in tuple(self._uncounted):
            amount = self._uncounted.pop(what, 0)
            try:
                await self.limits.add(what, amount)
            except Overload:
                self._add(what, amount)
                raise

    def _add(self, what: Countable, amount: int) -> None:
        amount += self._uncounted.pop(what, 0)
        if amount and self.limits.limits(what):
            self._uncounted[what] = amount


def _is_used(record: TurnRecord) -> bool:
    """Return whether the turn caused a cost: the model was called, or words were transcribed. A cough is no turn."""
    return bool(record.user_text) or any(stage == "llm" for stage, _ in record.providers)
