"""What the router does for real calls: `python tests/router/measure.py [--turns 2000]`.

Vendors on sockets of this machine draw their times to the first token (lognormal, stragglers, errors, hangs) from
one world; the same turns are asked with one model, with a fallback and with a hedge. Time is compressed by asking many
sessions at once, not by shortening anything.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import uvloop

from voicepipe.bench.simulate_world import World, WorldOptions, draw_world
from voicepipe.errors import StageError
from voicepipe.ports.model import (
    Attempted,
    Content,
    Model,
    ModelRequest,
    Text,
    TextDelta,
)
from voicepipe.providers.net import http
from voicepipe.providers.openai.model import open_model
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.router.build import build_pool
from voicepipe.router.candidate import Candidate
from voicepipe.router.llm.model import RoutedModel, Routes
from voicepipe.router.llm.probe import Probes
from voicepipe.router.options import RouterOptions
from voicepipe.router.pool import Pool, SharedStats
from voicepipe.testing.fakes.cues import Hang, LlmCue, Status
from voicepipe.testing.fakes.vendor import FakeVendor
from voicepipe.turn.cost import Price

MEDIANS_MS = (250.0, 320.0, 280.0)
PRICES = (Price(0.30, 2.50, 0.03), Price(0.25, 2.00, 0.025), Price(0.28, 0.42, 0.028))
INPUT_TOKENS, CACHED_TOKENS = 1_500, 1_200
WORDS = tuple(f" word{i}" for i in range(40))
TURNS_PER_SESSION = 8
PROMPT = "word " * 1_200  # 1500 tokens
DEADLINE_MS = 600
CAP_SHARE = 0.1

POLICIES: dict[str, dict[str, object]] = {
    "one model": {"policy": "single"},
    "fallback 2 s": {"policy": "fallback"},
    "hedge": {"policy": "hedge"},
}


@dataclass
class Came:
    """What came of all turns."""

    ttfts_ms: list[float] = field(default_factory=list)
    n_failed: int = 0
    n_calls: int = 0
    usd: float = 0.0


def routed(models: dict[str, Model], options: RouterOptions, candidates: tuple[Candidate, ...]) -> RoutedModel:
    stats = SharedStats()

    def pool_for(specs: tuple[str, ...], like: str) -> Pool:
        return build_pool("p", tuple(each for each in candidates if each.spec in specs), options, stats)

    specs = tuple(each.spec for each in candidates)
    pools = {"p": pool_for(specs, "")}
    routes = Routes(
        pools=pools,
        rules=(),
        experiments=(),
        stats=stats,
        probes=Probes(stats),
        models=models.__getitem__,
        pool_for=pool_for,
    )
    return RoutedModel(models[specs[0]], "p", routes, metadata={})


# --- live -----------------------------------------------------------------------------------------


def cue_of(world: World, vendor: int) -> Callable[[dict[str, Any]], LlmCue]:
    """What that vendor does with a turn, whose number is the question."""
    known: set[int] = set()

    def cue(request: dict[str, Any]) -> LlmCue:
        turn = int(request["messages"][-1]["content"])
        session = turn // TURNS_PER_SESSION
        warm = session in known
        known.add(session)
        after_ms = float(world.after_ms[turn, vendor])
        if math.isinf(after_ms):
            return LlmCue(fault=Hang())
        if world.fails[turn, vendor]:
            return LlmCue(fault=Status(503))
        cached = CACHED_TOKENS if warm else 0
        return LlmCue(ttft_ms=round(after_ms), tokens=WORDS, input_tokens=INPUT_TOKENS, cached_tokens=cached)

    return cue


async def live(world: World, policy: dict[str, object], at_once: int, *, slower: float = 1.0) -> Came:
    """Ask the turns of a world on sockets: see `request_all`."""
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(http.lifetime())
        models: dict[str, Model] = {}
        for i in range(n_models(policy)):
            vendor = await stack.enter_async_context(FakeVendor())
            vendor.llm.usual = cue_of(world, i)
            connection = ProviderSettings(kind="openai", base_url=vendor.base_url)
            models[f"v{i}/m"] = open_model(Spec(f"v{i}", "m"), connection)
        return await request_all(models, len(world.at_s), policy, at_once, slower=slower)


def n_models(policy: dict[str, object]) -> int:
    """Return how many models a policy has."""
    return 1 if policy["policy"] == "single" else len(MEDIANS_MS)


async def request_all(
    models: dict[str, Model], n_turns: int, policy: dict[str, object], at_once: int, *, slower: float = 1.0
) -> Came:
    """Ask a pool of these models so many turns. `slower`: the factor of the world's times, and so of the deadline and
    the published medians."""
    alone_usd = PRICES[0].cost_usd(INPUT_TOKENS, len(WORDS), CACHED_TOKENS)
    deadline_ms = round(slower * DEADLINE_MS)
    options = RouterOptions(hedge_budget_usd=CAP_SHARE * alone_usd, deadline_ms=deadline_ms, **policy)  # type: ignore[arg-type]
    came, sessions = Came(), iter(range(n_turns // TURNS_PER_SESSION))
    candidates = tuple(
        Candidate(spec=spec, price=PRICES[i], ttft_p50_ms=slower * MEDIANS_MS[i]) for i, spec in enumerate(models)
    )
    model = routed(models, options, candidates)
    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(user(model, sessions, came))
    return came


async def user(model: RoutedModel, sessions: Iterator[int], came: Came) -> None:
    """Has one session after the other, and in each one turn after the other."""
    for session in sessions:
        for turn in range(session * TURNS_PER_SESSION, (session + 1) * TURNS_PER_SESSION):
            messages = (Content("system", (Text(PROMPT),)), Content("user", (Text(str(turn)),)))
            await send_request(model, ModelRequest(model="m", messages=messages, session=f"s{session}"), came)


async def send_request(model: RoutedModel, request: ModelRequest, came: Came) -> None:
    now_s, ttft_ms = asyncio.get_running_loop().time, math.inf
    began_s = now_s()
    try:
        async with model.open(request) as events:
            async for event in events:
                if isinstance(event, TextDelta) and math.isinf(ttft_ms):
                    ttft_ms = 1_000 * (now_s() - began_s)
                if isinstance(event, Attempted):
                    came.n_calls += 1
                    came.usd += event.cost_usd or 0.0
    except StageError:
        came.n_failed += 1
    came.ttfts_ms.append(ttft_ms)


async def live_table(n_turns: int, at_once: int) -> None:
    # No bad minutes: the whole run lasts less than one of them.
    world = draw_world(MEDIANS_MS, WorldOptions(n_turns=n_turns, incidents_per_h=1e-6))
    say(f"\nlive: {n_turns} turns, {at_once} at once, a word by {DEADLINE_MS} ms, hedges for {CAP_SHARE:.0%} more")
    say(f"{'':<14}{'p50 ms':>8}{'p95':>8}{'p99':>8}{'missed':>9}{'failed':>8}{'calls':>7}{'cost':>7}")
    alone_usd = 0.0
    for name, policy in POLICIES.items():
        came = await live(world, policy, at_once)
        alone_usd = alone_usd or came.usd
        times = np.minimum(np.array(came.ttfts_ms), 10_500.0)
        p50, p95, p99 = np.percentile(times, (50, 95, 99))
        missed = float(np.mean(times > DEADLINE_MS))
        calls = came.n_calls / n_turns
        say(
            f"{name:<14}{p50:>8.0f}{p95:>8.0f}{p99:>8.0f}{missed:>9.2%}{came.n_failed:>8}{calls:>7.2f}"
            f"{came.usd / alone_usd:>7.2f}"
        )


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=2_000)
    parser.add_argument("--at-once", type=int, default=16)
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)  # of vendors that fail on cue
    uvloop.run(live_table(options.turns, options.at_once))  # as the server does
