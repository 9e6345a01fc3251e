"""A routed model over fake vendors on real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass

import pytest

from voicepipe.errors import StageError
from voicepipe.ports.model import Attempted, Content, Finished, ModelEvent, ModelRequest, Routed, Text, TextDelta
from voicepipe.providers.net import http
from voicepipe.providers.openai.model import open_model
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.router.build import build_pool
from voicepipe.router.candidate import Candidate
from voicepipe.router.llm.model import RoutedModel, Routes
from voicepipe.router.llm.probe import Probes
from voicepipe.router.options import RouterOptions
from voicepipe.router.pool import SharedStats
from voicepipe.tasks import background_tasks
from voicepipe.testing.fakes.vendor import FakeVendor
from voicepipe.turn.cost import Price
from voicepipe.values import replace

HI = ModelRequest(model="any", messages=(Content("user", (Text("Hi"),)),))


@dataclass(frozen=True, slots=True)
class Came:
    """All that a routed answer gave."""

    events: tuple[ModelEvent, ...]
    failure: StageError | None

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, TextDelta))

    @property
    def routes(self) -> list[str]:
        return [event.provider for event in self.events if isinstance(event, Routed)]

    @property
    def attempts(self) -> list[tuple[str, str, str]]:
        return [(each.provider, each.role, each.outcome) for each in self.events if isinstance(each, Attempted)]

    @property
    def is_whole(self) -> bool:
        return self.failure is None and any(isinstance(event, Finished) for event in self.events)


@dataclass(frozen=True, slots=True)
class Pooled:
    """A routed model, and who is behind it."""

    model: RoutedModel
    vendors: tuple[FakeVendor, ...]
    stats: SharedStats

    async def request(self, request: ModelRequest = HI) -> Came:
        """One whole answer, or what came of it."""
        events: list[ModelEvent] = []
        try:
            async with self.model.open(request) as stream:
                async for event in stream:
                    events.append(event)  # noqa: PERF401  a comprehension would lose what came before the error
        except StageError as failure:
            return Came(tuple(events), failure)
        return Came(tuple(events), None)


Pool = Callable[..., Awaitable[Pooled]]


@pytest.fixture
async def pool() -> AsyncIterator[Pool]:
    """`pool(n, policy="hedge", ...)`: a routed model over `v0/m`, `v1/m`, ...; needs `await`."""
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(http.lifetime())
        tasks = await stack.enter_async_context(background_tasks())

        async def make(
            n: int,
            *,
            idle_timeout_ms: int = 15_000,
            prefills: bool = False,
            cached_usd: float | None = None,
            **options: object,
        ) -> Pooled:
            vendors = [await stack.enter_async_context(FakeVendor()) for _ in range(n)]
            made = {
                f"v{i}/m": open_model(
                    Spec(f"v{i}", "m"),
                    ProviderSettings(kind="openai", base_url=vendor.base_url, idle_timeout_ms=idle_timeout_ms),
                )
                for i, vendor in enumerate(vendors)
            }
            stats = SharedStats()
            probes = Probes(stats)
            tasks.start(probes.run(), name="probes")
            await asyncio.sleep(0)  # it runs from here on
            chosen = RouterOptions(**options)  # type: ignore[arg-type]

            def pool_for(specs: tuple[str, ...], like: str):  # type: ignore[no-untyped-def]
                price = Price(0.3, 2.5, cached_usd)
                usual = Candidate(spec="", price=price, ttft_p50_ms=100.0, prefills=prefills)
                candidates = tuple(replace(usual, spec=spec) for spec in specs)
                return build_pool("voice", candidates, chosen, stats)

            routes = Routes(
                pools={"voice": pool_for(tuple(made), "")},
                rules=(),
                experiments=(),
                stats=stats,
                probes=probes,
                models=made.__getitem__,
                pool_for=pool_for,
            )
            return Pooled(RoutedModel(made["v0/m"], "voice", routes, metadata={}), tuple(vendors), stats)

        yield make
