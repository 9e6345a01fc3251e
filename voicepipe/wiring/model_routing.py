"""Build the LLM of each agent: a single model, or several as fallbacks of one another, as the settings say."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from voicepipe import clock
from voicepipe.config.routing import POOL
from voicepipe.config.settings import Settings
from voicepipe.ports.model import Model
from voicepipe.registry import Spec
from voicepipe.router.build import build_pool
from voicepipe.router.candidate import Candidate
from voicepipe.router.health import Health, healths
from voicepipe.router.llm.model import RoutedModel, Routes
from voicepipe.router.llm.probe import Probes
from voicepipe.router.options import RouterOptions
from voicepipe.router.pool import Pool, SharedStats
from voicepipe.router.saved_state import FILE, restore, save, state_of
from voicepipe.telemetry.log import log_event
from voicepipe.wiring.prices import price_of

UNKNOWN_TTFT_MS: Final = 400.0
UNKNOWN_TOKENS_PER_S: Final = 100.0
"""Assumed for a model without figures in the catalog; the real speed is learned within a few turns."""

SAVE_S: Final = 60.0
"""Interval in which the router's state is saved."""

GetModel = Callable[[Spec, str], Model]
"""(spec, the setting that names it) -> the model. Raises ConfigError."""


class Router:
    """Builds routed models; all share what the router learns."""

    def __init__(self, settings: Settings, get: GetModel) -> None:
        """Raises ConfigError, naming the setting, for a model that can't be made."""
        self._settings, self._get = settings, get
        self._stats = SharedStats()
        self._probes = Probes(self._stats)
        self._pools: dict[str, Pool] = {}
        routing = settings.routing
        self._routes = Routes(
            pools=self._pools,
            rules=routing.rules,
            experiments=routing.experiments,
            stats=self._stats,
            probes=self._probes,
            models=lambda spec: get(Spec.parse(spec), "models"),
            pool_for=self._wished,
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
                self._pools[home] = self._made(home, specs, self._settings.router, key)
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
        return RoutedModel(self._get(spec, key), "", self._routes, metadata={}, ruled=False)

    def healths(self) -> tuple[Health, ...]:
        """Return the health of each model that was asked or is in a pool."""
        return healths(self._stats, "llm", clock.monotonic_ms())

    async def run_probes(self) -> None:
        """Own the probes of models whose circuit breakers are half open, until this is cancelled."""
        await self._probes.run()

    async def keep_state(self, folder: Path, *, saves: bool) -> None:
        """Continue from the saved state. With `saves`, save it every `SAVE_S` and at the end, until this is cancelled:
        one process of a server does, since each would replace what the others have learned. A file that is damaged is
        logged, and the router starts fresh."""
        try:
            restore(folder, self._stats, self._pools)
        except (OSError, ValueError) as why:
            log_event("router_state_unreadable", level=logging.WARNING, file=FILE, why=str(why))
        if not saves:
            return
        try:
            while True:
                await asyncio.sleep(SAVE_S)
                self._save(folder)
        finally:
            self._save(folder)

    def _save(self, folder: Path) -> None:
        try:
            save(folder, state_of(self._stats, self._pools))
        except OSError as why:
            log_event("router_state_write_failed", level=logging.WARNING, file=FILE, why=str(why))

    def pool(self, name: str) -> Pool:
        """Return the pool of that name, built on first use."""
        if name not in self._pools:
            options = self._settings.routing.pools[name]
            key = f"pools.{name}.models"
            specs = tuple(Spec.parse(text, key=key) for text in options.specs)
            self._pools[name] = self._made(name, specs, options, key)
        return self._pools[name]

    def _wished(self, specs: tuple[str, ...], like: str) -> Pool:
        options = self._pools[like].options if like else self._settings.router
        return self._made(like or POOL, tuple(Spec.parse(text, key="models") for text in specs), options, "models")

    def _made(self, name: str, specs: tuple[Spec, ...], options: RouterOptions, key: str) -> Pool:
        for spec in specs:
            self._get(spec, key)
        return build_pool(name, tuple(candidate_of(self._settings, spec) for spec in specs), options, self._stats)


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
