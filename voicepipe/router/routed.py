"""A model made of models: it answers as the pool of a request decides."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final

from voicepipe import clock
from voicepipe.errors import ConfigError, StageRefused
from voicepipe.router.policies import Ask, Experiment, Rule, pool_of
from voicepipe.router.pool import Experience, Pool
from voicepipe.router.running import Running
from voicepipe.stages.model import Model, ModelEvent, ModelRequest, Said, Text

MOST_WISHES: Final = 64
"""Pools that requests name with their own `models`; a further one makes the oldest go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Routes:
    """What all routed models of a server share."""

    pools: Mapping[str, Pool]
    rules: tuple[Rule, ...]
    experiments: tuple[Experiment, ...]
    experience: Experience
    models: Callable[[str], Model]
    """Spec -> the model itself. Raises ConfigError for one that can't be made."""

    pool_for: Callable[[tuple[str, ...]], Pool]
    """Specs -> a pool of them. Raises ConfigError likewise."""


class RoutedModel:
    """Meets the port `Model`. One for each agent; they learn from one another."""

    def __init__(self, name: str, home: str, routes: Routes, *, metadata: Mapping[str, str]) -> None:
        self.name = name
        self._home, self._routes, self._metadata = home, routes, metadata
        self._wishes: OrderedDict[tuple[str, ...], Pool] = OrderedDict()

    def open(self, request: ModelRequest) -> AbstractAsyncContextManager[AsyncIterator[ModelEvent]]:
        """Ask as many as it takes. What fails before it has spoken is never heard of while another may answer.

        Raises:
            StageRefused: the request names a model that there is not.
            StageError: from the iterator: nobody answered; it is the error of the first that was asked. Or the speaker
                broke, and nobody could go on.
        """
        return self._open(request)

    @asynccontextmanager
    async def _open(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[ModelEvent]]:
        running = self._running(request)
        try:
            async with asyncio.TaskGroup() as group:
                try:
                    running.begin(group)
                    yield running
                finally:
                    running.close()
        except BaseExceptionGroup as failures:
            # Calls raise nothing: the group holds what was raised by whoever listens, and it comes out as it was.
            raise failures.exceptions[0] from None

    async def warm(self, request: ModelRequest) -> None:
        """Open the connections of whoever would be asked first, and of its hedge. Fails in silence."""
        ask, pool, _ = self._route(request)
        now_ms = clock.monotonic_ms()
        pool.refresh(now_ms)
        plan = pool.decide(ask, now_ms).plan
        specs = (plan.first.spec, *(each.candidate.spec for each in plan.later[:1]))
        async with asyncio.TaskGroup() as group:
            for spec in specs:
                wanted = replace(request, model=spec.partition("/")[2])
                group.create_task(self._routes.models(spec).warm(wanted), name=f"warm-{spec}")

    def _running(self, request: ModelRequest) -> Running:
        ask, pool, why = self._route(request)
        decision = pool.decide(ask, clock.monotonic_ms())
        routes = self._routes
        return Running(
            _capped(request, pool.options.max_output_tokens),
            ask,
            decision,
            pool=pool,
            experience=routes.experience,
            models=routes.models,
            why=why,
        )

    def _route(self, request: ModelRequest) -> tuple[Ask, Pool, str]:
        ask = Ask(
            session=request.session,
            user=request.user,
            metadata={**self._metadata, **dict(request.metadata)},
            text=_latest_words(request),
            n_functions=len(request.functions),
            deadline_ms=request.deadline_ms,
        )
        if request.models:
            return ask, self._wished(request.models), "as asked for"
        name, why = pool_of(ask, self._home, self._routes.rules, self._routes.experiments)
        return ask, self._routes.pools[name], why

    def _wished(self, specs: tuple[str, ...]) -> Pool:
        pool = self._wishes.get(specs)
        if pool is None:
            try:
                pool = self._routes.pool_for(specs)
            except ConfigError as why:
                raise StageRefused("llm", provider=self.name, why=str(why), retryable=False, status=404) from None
            self._wishes[specs] = pool
            if len(self._wishes) > MOST_WISHES:
                self._wishes.popitem(last=False)
        return pool


def _capped(request: ModelRequest, most_tokens: int | None) -> ModelRequest:
    asked = request.max_output_tokens
    if most_tokens is None or (asked is not None and asked <= most_tokens):
        return request
    return replace(request, max_output_tokens=most_tokens)


def _latest_words(request: ModelRequest) -> str:
    """What the caller said last."""
    for message in reversed(request.messages):
        if isinstance(message, Said) and message.role == "user":
            return " ".join(part.text for part in message.parts if isinstance(part, Text))
    return ""
