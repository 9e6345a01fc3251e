"""Probes: one request beside a turn tells whether a provider that failed answers again."""

from __future__ import annotations

from typing import Any

import pytest

from tests.router.requests import HI
from voicepipe import clock
from voicepipe.errors import StageRefused
from voicepipe.ports.model import Attempted
from voicepipe.router.candidate import Candidate
from voicepipe.router.llm.probe import Probes
from voicepipe.testing.fakes.cues import Hang, Hold, LlmCue, Status
from voicepipe.testing.fakes.script import soon
from voicepipe.testing.waiting import eventually


async def test_a_slower_first_choice_comes_back_by_one_probe(pool: Any) -> None:
    """Its rate limit is over; the second answers at once, and its answer is over before the probe has a token."""
    pooled = await pool(2, order="given")
    hold = Hold(after=0)
    pooled.vendors[0].llm.usual = LlmCue(tokens=("First",), hold=hold)
    pooled.vendors[1].llm.usual = LlmCue(tokens=("Second",))
    limit = StageRefused("llm", provider="v0/m", why="HTTP 429", retryable=True, status=429, retry_after_ms=0)
    breaker = pooled.stats.breaker_of("v0/m")
    breaker.failed(limit, clock.monotonic_ms() - 20_000)
    assert breaker.state(clock.monotonic_ms()) == "half_open"
    for _ in range(3):
        assert (await pooled.request(HI)).text == "Second"
    assert len(pooled.vendors[0].llm.received) == 1
    hold.release.set()
    await soon((await pooled.vendors[0].llm.nth(0)).ended)

    async def closed() -> bool | None:
        return None if breaker.is_tripped else True

    await eventually(closed)
    came = await pooled.request(HI)
    assert (came.text, came.attempts) == ("First", [("v0/m", "primary", "spoke")])
    assert set(pooled.stats.running.values()) == {0}


async def test_a_probe_is_billed_in_its_turn(pool: Any) -> None:
    pooled = await pool(2, order="given")
    pooled.vendors[0].llm.usual = LlmCue(fault=Hang())
    pooled.vendors[1].llm.usual = LlmCue(input_tokens=400)
    limit = StageRefused("llm", provider="v0/m", why="HTTP 429", retryable=True, status=429, retry_after_ms=0)
    pooled.stats.breaker_of("v0/m").failed(limit, clock.monotonic_ms() - 20_000)
    came = await pooled.request(HI)
    assert came.attempts == [("v1/m", "primary", "spoke"), ("v0/m", "probe", "lost")]
    probe = next(event for event in came.events if isinstance(event, Attempted) and event.role == "probe")
    assert probe.cost_usd == pytest.approx(400 * 0.3 / 1e6)


@pytest.mark.parametrize(
    ("cue", "kind"),
    [(LlmCue(fault=Hang()), "timeout"), (LlmCue(fault=Status(503)), "refused"), (LlmCue(tokens=(" ",)), "broken")],
    ids=["silent", "refused", "empty"],
)
async def test_a_probe_that_fails_opens_the_circuit_breaker_again(pool: Any, cue: LlmCue, kind: str) -> None:
    pooled = await pool(1)
    pooled.vendors[0].llm.usual = cue
    limit = StageRefused("llm", provider="v0/m", why="HTTP 429", retryable=True, status=429, retry_after_ms=0)
    breaker, candidate = pooled.stats.breaker_of("v0/m"), Candidate(spec="v0/m")
    breaker.failed(limit, clock.monotonic_ms() - 20_000)
    timeout_ms = 20.0 if kind == "timeout" else 60_000.0
    model, probes = pooled.model._first, pooled.model._routes.probes
    attempt = probes.start(candidate, model, HI, timeout_ms=timeout_ms)
    assert pooled.stats.running == {"v0/m": 1}

    async def ended() -> bool | None:
        return None if attempt.ended_ms is None else True

    await eventually(ended)
    assert (attempt.state, attempt.timed_out, attempt.first_ms) == ("failed", kind == "timeout", None)
    assert (breaker.state(clock.monotonic_ms()), breaker.errors) == ("open", {"rate_limit": 1, kind: 1})
    assert pooled.stats.running == {"v0/m": 0}


async def test_a_server_that_ends_starts_no_probe(pool: Any) -> None:
    pooled = await pool(1)
    candidate, probes = Candidate(spec="v0/m"), Probes(pooled.stats)
    assert probes.start(candidate, pooled.model._first, HI, timeout_ms=100) is None
    assert (pooled.stats.running, pooled.vendors[0].llm.received) == ({}, [])
