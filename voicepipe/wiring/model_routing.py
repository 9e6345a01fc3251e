"""Build the LLM of each agent: a single model, or several as fallbacks of one another, by the settings."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from voicepipe import clock
from voicepipe.config.routing import POOL
from voicepipe.config.settings import LOCAL, Settings
from voicepipe.ports.model import Model
from voicepipe.providers.net.distance import distance_of
from voicepipe.registry import Spec
from voicepipe.router.build import build_pool
from voicepipe.router.candidate import Candidate
from voicepipe.router.health import Health, healths
from voicepipe.router.hedge_budget import HedgeBudget
from voicepipe.router.llm.model import RoutedModel, Routes
from voicepipe.router.llm.probe import Probes
from voicepipe.router.options import PoolOptions, RouterOptions
from voicepipe.router.pool import Pool, SharedStats
from voicepipe.router.saved_state import FILE, restore, save, state_of
from voicepipe.telemetry.log import log_event
from voicepipe.values import replace
from voicepipe.wiring.prices import price_of

UNKNOWN_TTFT_MS: Final = 400.0
UNKNOWN_TOKENS_PER_S: Final = 100.0
"""Assumed for a model without figures in the catalog; the real speed is learned within a few turns."""

DISTANCE_S: Final = 600.0
"""Interval in which the way to providers is measured: routes change seldom."""

CHECK_S: Final = 5.0
"""Interval in which a reload of the settings is noticed."""

DISTANCE_TRIES: Final = 3

SAVE_S: Final = 60.0
"""Interval in which the router's state is saved."""

GetModel = Callable[[Spec, str], Model]
"""(spec, the setting that names it) -> the model. Raises ConfigError."""


class Router:
    """Builds routed models; all share what the router learns."""

    def __init__(
        self,
        settings: Settings,
        get: GetModel,
        *,
        stats: SharedStats,
        probes: Probes,
        hedge_budgets: dict[str, HedgeBudget],
        n_processes: int = 1,
    ) -> None:
        """`stats`, `probes`, `hedge_budgets` by pool: those of the process; they outlast a reload of the settings.
        `n_processes`: those of the server, which share the hedge budgets.

        Raises ConfigError, naming the setting, for a model that can't be made.
        """
        self._settings, self._get = settings, get
        self._stats, self._probes, self._hedge_budgets = stats, probes, hedge_budgets
        self._n_processes = n_processes
        self._pools: dict[str, Pool] = {}
        self._is_restored = False
        routing = settings.routing
        self._routes = Routes(
            pools=self._pools,
            rules=routing.rules,
            experiments=routing.experiments,
            stats=self._stats,
            probes=self._probes,
            models=lambda spec: get(Spec.parse(spec), "models"),
            pool_for=self._requested,
        )
        for name in sorted(routing.reached):
            self.pool(name)

    def of_agent(self, name: str) -> RoutedModel:
        """Return the LLM of an agent.

        Raises:
            ConfigError: a model can't be made.
        """
        key, home = f"agents.{name}.llm", self._settings.pooled.get((name, "llm"), "")
        specs = self._settings.agents[name].specs("llm", key=key)
        first = self._get(specs[0], key)
        if home:
            self.pool(home)
        elif len(specs) > 1:
            home = key
            if home not in self._pools:
                self._add(self._made(home, specs, self._settings.router, key))
        return RoutedModel(first, home, self._routes, metadata={"agent": name})

    def of_pool(self, name: str) -> RoutedModel:
        """Return the models of a pool as one model.

        Raises:
            ConfigError: one of the models can't be made.
        """
        first = self._get(Spec.parse(self.pool(name).candidates[0].spec), f"pools.{name}.models")
        return RoutedModel(first, name, self._routes, metadata={})

    def of_spec(self, spec: Spec, *, key: str) -> RoutedModel:
        """Return one model; others are used only when a request names them.

        Raises:
            ConfigError: the model can't be made.
        """
        return RoutedModel(self._get(spec, key), "", self._routes, metadata={}, applies_rules=False)

    def healths(self) -> tuple[Health, ...]:
        """Return the health of each model that was called or is in a pool."""
        return healths(self._stats, "llm", clock.monotonic_ms())

    async def run_probes(self) -> None:
        """Own the probes of models whose circuit breakers are half open, until this is cancelled."""
        await self._probes.run()

    async def measure_distances(self) -> None:
        """Measure the round trips to the models of pools with the order `region`. Nothing is connected to without such
        a pool."""
        specs = {
            Spec.parse(each.spec)
            for pool in self._pools.values()
            if pool.options.order == "region"
            for each in pool.candidates
        }
        for provider in sorted({spec.provider for spec in specs}):
            if (round_trip_ms := await self._round_trip_ms(provider)) is not None:
                texts = (str(spec) for spec in specs if spec.provider == provider)
                self._stats.distances_ms.update(dict.fromkeys(texts, round_trip_ms))

    async def _round_trip_ms(self, provider: str) -> float | None:
        entry = self._settings.providers[provider]
        if entry.kind in LOCAL:
            return 0.0
        try:
            return (await distance_of(entry.base_url, tries=DISTANCE_TRIES)).round_trip_ms
        except (OSError, ValueError):  # its last distance holds: the circuit breaker judges its health
            return None

    async def keep_state(self, folder: Path, *, saves: bool) -> None:
        """Continue from the saved state. With `saves`, save it every `SAVE_S` and at the end, until this is cancelled:
        one process of a server does, since each would replace what the others have learned. A file that is damaged is
        logged, and the router starts fresh. Called again after an error, it continues from what is known by now."""
        if not self._is_restored:
            self._is_restored = True
            try:
                restore(folder, self._stats, self._pools)
            except (OSError, ValueError) as why:
                log_event("router_state_unreadable", level=logging.WARNING, file=FILE, why=str(why))
        if not saves:
            return
        try:
            while True:
                await asyncio.sleep(SAVE_S)
                await asyncio.to_thread(_save, folder, state_of(self._stats, self._pools))
        finally:
            _save(folder, state_of(self._stats, self._pools))

    def pool(self, name: str) -> Pool:
        """Return the pool of that name, built on first use."""
        if name not in self._pools:
            options = self._settings.routing.pools[name]
            key = f"pools.{name}.models"
            specs = tuple(Spec.parse(text, key=key) for text in options.specs)
            self._add(self._made(name, specs, options, key))
        return self._pools[name]

    def _add(self, pool: Pool) -> None:
        """Add a pool. Its hedges go on paying from what they had before a reload, if the cap is the same."""
        former = self._hedge_budgets.get(pool.name)
        if former is not None and former.cap_usd == pool.hedge_budget.cap_usd:
            pool.hedge_budget = former
        self._hedge_budgets[pool.name], self._pools[pool.name] = pool.hedge_budget, pool

    def _requested(self, specs: tuple[str, ...], like: str) -> Pool:
        options = self._pools[like].options if like else self._settings.router
        return self._made(like or POOL, tuple(Spec.parse(text, key="models") for text in specs), options, "models")

    def _made(self, name: str, specs: tuple[Spec, ...], options: RouterOptions, key: str) -> Pool:
        for spec in specs:
            self._get(spec, key)
        candidates = tuple(candidate_of(self._settings, spec) for spec in specs)
        options = replace(options, region=options.region or self._settings.cluster.region)
        judge = self._judge_of(name, options)
        return build_pool(name, candidates, options, self._stats, judge_candidate=judge, n_processes=self._n_processes)

    def _judge_of(self, pool: str, options: RouterOptions) -> Candidate | None:
        if not isinstance(options, PoolOptions) or not options.judge_model:
            return None
        key = f"pools.{pool}.judge_model"
        spec = Spec.parse(options.judge_model, key=key)
        self._get(spec, key)
        return candidate_of(self._settings, spec)


async def keep_distances(router: Callable[[], Router]) -> None:
    """Measure the round trips to providers every `DISTANCE_S`, and when a reload has put another router in force, until
    this is cancelled."""
    measured, due_s = None, 0.0
    while True:
        if router() is not measured or clock.loop_s() >= due_s:
            measured, due_s = router(), clock.loop_s() + DISTANCE_S
            await measured.measure_distances()
        await asyncio.sleep(CHECK_S)


_one_save: Final = threading.Lock()
"""The last save, on the event loop, may come while a thread still writes the file for a save that was cancelled."""


def _save(folder: Path, state: Mapping[str, Any]) -> None:
    try:
        with _one_save:
            save(folder, state)
    except OSError as why:
        log_event("router_state_write_failed", level=logging.WARNING, file=FILE, why=str(why))


def candidate_of(settings: Settings, spec: Spec) -> Candidate:
    """Return what is known of a model before its first request, from the settings and the catalog."""
    facts = settings.facts(spec)
    vendor = settings.vendor(spec.provider)
    return Candidate(
        spec=str(spec),
        prefills=vendor is not None and vendor.prefills(spec.model),
        price=price_of(settings, spec),
        ttft_p50_ms=float(facts.ttft_p50_ms or UNKNOWN_TTFT_MS),
        tokens_per_s=float(facts.tokens_per_s or UNKNOWN_TOKENS_PER_S),
        region=settings.providers[spec.provider].region,
    )
