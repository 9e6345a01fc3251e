"""What a session uses is counted once, however busy the shared store is."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

import pytest

from voicepipe.cluster.revocation import Revocation
from voicepipe.errors import Overload
from voicepipe.server import revocations
from voicepipe.server.sessions import session_usage
from voicepipe.server.sessions.session_usage import SessionUsage
from voicepipe.server.usage_limits import UsageLimits
from voicepipe.session.shutdown import Ending
from voicepipe.testing.waiting import WAIT_S, eventually


class Limits:
    """Limits of a client secret in a store that is busy for a while."""

    def __init__(self, *limited: str, n_busy: int = 0) -> None:
        self.limited, self.n_busy = limited, n_busy
        self.counted: Counter[str] = Counter()
        self.added: Counter[str] = Counter()
        self.why: str | None = None

    def limits(self, what: str) -> bool:
        return what in self.limited

    async def add(self, what: str, amount: int) -> None:
        if self.n_busy:
            self.n_busy -= 1
            raise Overload("The store is busy.")
        self.counted[what] += amount

    async def add_or_log(self, what: str, amount: int) -> None:
        self.added[what] += amount

    async def reached(self) -> str | None:
        return self.why


class Session:
    def __init__(self) -> None:
        self.endings: list[Ending] = []

    def end_now(self, ending: Ending) -> None:
        raise AssertionError("it ends after its turn")

    def end_after_turn(self, ending: Ending) -> None:
        self.endings.append(ending)


def usage_of(limits: Limits) -> SessionUsage:
    return SessionUsage(cast("UsageLimits", limits))


async def test_what_a_busy_store_did_not_count_is_counted_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once; then the limit that it reaches ends the session."""
    monkeypatch.setattr(session_usage, "RETRY_S", 0)
    limits, session = Limits("spend", n_busy=3), Session()
    usage = usage_of(limits)
    limits.why = "All is spent."
    running = asyncio.create_task(usage.run(session))
    usage.charge(0.5)

    async def ended() -> bool | None:
        return bool(session.endings) or None

    await eventually(ended)
    running.cancel()
    assert (dict(limits.counted), limits.n_busy) == ({"spend": 500_000}, 0)
    assert {(ending.code, ending.why) for ending in session.endings} == {("limit_reached", "All is spent.")}
    await usage.add_rest()
    assert limits.added == Counter()


async def test_what_was_not_counted_is_added_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also the last seconds of a session whose time is limited, and costs that come after it."""
    now_ms = 10_000
    monkeypatch.setattr(session_usage, "monotonic_ms", lambda: now_ms)
    limits, session = Limits("spend", "seconds"), Session()
    usage = usage_of(limits)
    running = asyncio.create_task(usage.run(session))
    await asyncio.sleep(0)
    running.cancel()
    now_ms += 2_500
    usage.charge(0.25)
    await usage.add_rest()
    await usage.add_late_cost(0.125)
    await usage.add_late_cost(0.0)
    assert limits.added == Counter({"spend": 375_000, "seconds": 2})


async def test_a_session_that_never_ran_used_no_time() -> None:
    limits = Limits("seconds")
    await usage_of(limits).add_rest()
    assert limits.added == Counter()
    await usage_of(limits).add_late_cost(0.5)
    assert limits.added == Counter(), "spending is not limited"


async def test_revocations_are_read_again_after_the_store_was_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(revocations, "RETRY_S", 0)
    revoked, ended = cast("Revocation", object()), asyncio.Event()

    class Store:
        n_read = 0

        async def revocations(self) -> AsyncIterator[Revocation]:
            self.n_read += 1
            if self.n_read == 1:
                raise Overload("The store is busy.")
            yield revoked

    class Registry:
        seen: Sequence[Revocation] = ()

        def end_revoked(self, revocation: Revocation) -> None:
            self.seen = (*self.seen, revocation)
            ended.set()

    registry = Registry()
    watching = asyncio.create_task(revocations.watch_revocations(cast("Any", Store()), [registry]))
    async with asyncio.timeout(WAIT_S):
        await ended.wait()
    watching.cancel()
    assert registry.seen[0] is revoked
