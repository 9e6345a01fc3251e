"""Every way in which a provider fails, on real sockets: who listens gets an answer, or an error with a type."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from voicepipe.errors import StageBroken, StageError, StageRefused, StageTimeout
from voicepipe.testing.fakes.cues import Cut, Fault, Hang, InBandError, LlmCue, Malformed, NoEnd, Stall, Status
from voicepipe.testing.waiting import WAIT_S

ANSWER = LlmCue(tokens=("I am", " well", ",", " thank you", "."))
LONG = tuple(f" word{i}" for i in range(60))

KEEP_ALIVE = b": keep-alive\n\n"
PING = b'event: ping\ndata: {"choices":[]}\n\n'
ROLE = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}\n\n'
ENDLESS = 10_000

DEADLINE_MS = 400

BEFORE: dict[str, tuple[LlmCue, type[StageError]]] = {
    "hangs before headers": (LlmCue(fault=Hang()), StageTimeout),
    "headers, a role, keep-alives for ever": (
        LlmCue(raw=(ROLE, *(KEEP_ALIVE for _ in range(ENDLESS))), fault=Stall(ENDLESS)),
        StageTimeout,
    ),
    "storm of pings": (LlmCue(raw=tuple(PING for _ in range(ENDLESS)), fault=Stall(ENDLESS)), StageTimeout),
    "malformed line": (LlmCue(fault=Malformed(0)), StageBroken),
    "error in band": (LlmCue(fault=InBandError(0)), StageBroken),
    "429 with Retry-After": (LlmCue(fault=Status(429, retry_after="7")), StageRefused),
    "500": (LlmCue(fault=Status(500)), StageRefused),
    "closes without [DONE]": (LlmCue(tokens=(), fault=NoEnd(0)), StageBroken),
    "401": (LlmCue(fault=Status(401)), StageRefused),
}
"""Faults before anything was said, and what a user without another model gets."""

AFTER: dict[str, tuple[Fault, type[StageError]]] = {
    "cut after 40 tokens": (Cut(40), StageBroken),
    "stall of 30 s after 20": (Stall(20), StageTimeout),
    "malformed line after 20": (Malformed(20), StageBroken),
    "error in band after 20": (InBandError(20), StageBroken),
    "closes without [DONE] after 20": (NoEnd(20), StageBroken),
}
"""Faults in the middle of an answer."""


@pytest.mark.parametrize("name", BEFORE)
@pytest.mark.parametrize("policy", ["single", "fallback", "hedge", "race"])
async def test_another_answers_for_one_that_fails_before_it_speaks(pool: Any, name: str, policy: str) -> None:
    """No exception reaches the code that opened the request, whichever model fails and however."""
    pooled = await pool(
        2, policy=policy, order="given", deadline_ms=DEADLINE_MS, attempt_timeout_ms=2_000, fallback_after_ms=300
    )
    pooled.vendors[0].llm.usual = BEFORE[name][0]
    pooled.vendors[1].llm.usual = ANSWER
    async with asyncio.timeout(WAIT_S):
        came = await pooled.request()
    assert (came.text, came.failure) == ("I am well, thank you.", None)
    assert came.routes == ["v1/m"]
    assert came.attempts[0][:2] == ("v0/m", "primary")
    assert came.attempts[0][2] in ("failed", "lost")
    assert came.attempts[1][2] == "spoke"


@pytest.mark.parametrize("name", BEFORE)
async def test_alone_it_ends_in_a_typed_failure(pool: Any, name: str) -> None:
    """Keep-alives and pings are no answer, however many come."""
    cue, expected = BEFORE[name]
    # A provider that answers has time to: a busy machine is no stall.
    pooled = await pool(1, attempt_timeout_ms=300 if expected is StageTimeout else 5_000)
    pooled.vendors[0].llm.usual = cue
    async with asyncio.timeout(WAIT_S):
        came = await pooled.request()
    assert type(came.failure) is expected
    assert came.text == ""
    assert came.attempts == [("v0/m", "primary", "failed")]


@pytest.mark.parametrize("name", AFTER)
@pytest.mark.parametrize("policy", ["single", "fallback", "hedge"])
async def test_another_goes_on_with_an_answer_that_breaks(pool: Any, name: str, policy: str) -> None:
    """Nothing is said twice, and the words join."""
    pooled = await pool(2, policy=policy, order="given", idle_timeout_ms=2_000)
    fault = AFTER[name][0]
    pooled.vendors[0].llm.usual = LlmCue(tokens=LONG, fault=fault)
    said = "".join(LONG[: fault.after])  # type: ignore[union-attr]
    pooled.vendors[1].llm.usual = LlmCue(tokens=(said[-12:], " and", " so on."))
    async with asyncio.timeout(WAIT_S):
        came = await pooled.request()
    assert came.text == f"{said} and so on."
    assert came.failure is None
    assert came.routes == ["v0/m", "v1/m"]
    assert came.attempts[-1] == ("v1/m", "continuation", "spoke")


@pytest.mark.parametrize("name", AFTER)
async def test_alone_a_broken_answer_is_a_typed_failure(pool: Any, name: str) -> None:
    """What was said before it stays said."""
    pooled = await pool(1, idle_timeout_ms=600)
    fault, expected = AFTER[name]
    pooled.vendors[0].llm.usual = LlmCue(tokens=LONG, fault=fault)
    async with asyncio.timeout(WAIT_S):
        came = await pooled.request()
    assert type(came.failure) is expected
    assert came.text == "".join(LONG[: fault.after])  # type: ignore[union-attr]
