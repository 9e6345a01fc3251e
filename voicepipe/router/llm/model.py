"""A model made of models: it answers as the pool of a request decides."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Final

from msgspec import Struct

from voicepipe import clock
from voicepipe.errors import ConfigError, StageRefused
from voicepipe.freeing import FreeingTaskGroup
from voicepipe.ports.model import Content, Model, ModelEvent, ModelRequest, Text, text_chars
from voicepipe.router.llm.probe import Probes
from voicepipe.router.llm.request import RoutedAnswer
from voicepipe.router.policies import Experiment, PoolChoice, RoutingQuery, Rule, pool_of
from voicepipe.router.pool import Pool, SharedStats
from voicepipe.router.single import single_answer
from voicepipe.turn.cost import estimated_tokens
from voicepipe.values import replace

MAX_REQUESTED_POOLS: Final = 64
"""Pools that requests name with their own `models`; when full, the oldest is dropped."""


class Routes(Struct, frozen=True, kw_only=True):
    """The state that all routed models of a server share."""

    pools: Mapping[str, Pool]
    rules: tuple[Rule, ...]
    experiments: tuple[Experiment, ...]
    stats: SharedStats
    probes: Probes
    models: Callable[[str], Model]
    """Spec -> the model itself. Raises ConfigError for one that can't be made."""

    pool_for: Callable[[tuple[str, ...], str], Pool]
    """(specs, the pool whose options it gets, or none) -> a pool of them. Raises ConfigError likewise."""


class RoutedModel:
    """Meets the port `Model`. One for each agent; all share what they learn."""

    def __init__(
        self, first: Model, home: str, routes: Routes, *, metadata: Mapping[str, str], applies_rules: bool = True
    ) -> None:
        """Route requests to the pool `home`, or, without one, to `first` alone, unless a rule or experiment applies.

        Args:
            metadata: what rules may read beside a request's own.
            applies_rules: False: no rule and no experiment counts, since the client named this pool or model.
        """
        self.name = first.name
        self._first, self._routes, self._metadata = first, routes, metadata
        self._home = PoolChoice(home)
        self._rules, self._experiments = (routes.rules, routes.experiments) if applies_rules else ((), ())
        self._requested_pools: OrderedDict[tuple[str, ...], Pool] = OrderedDict()

    def open(self, request: ModelRequest) -> AbstractAsyncContextManager[AsyncIterator[ModelEvent]]:
        """Start the models of the plan. A failure before the first token is not raised while another model may
        answer.

        Raises:
            StageRefused: the request names a model that does not exist.
            StageError: from the iterator: no model answered; it is the error of the first model. Or the
                answering model broke, and no other could continue.
        """
        pool, query, choice = self._route(request)
        if pool is None:
            return single_answer(self._first, request, self._routes.stats)
        return _OpenedAnswer(self._answer(request, pool, query, choice))

    async def warm(self, request: ModelRequest) -> None:
        """Open the connections of the first choice, and of its hedge, also if the hedge's money is still to be earned.
        Errors are ignored.
        """
        pool, query, _ = self._route(request)
        if pool is None:
            await self._first.warm(request)
            return
        now_ms = clock.monotonic_ms()
        pool.refresh(now_ms)
        plan = pool.decide(query, now_ms, within_budget=False).plan
        async with FreeingTaskGroup() as group:
            for candidate in (plan.first, *(each.candidate for each in plan.later[:1])):
                warming = self._routes.models(candidate.spec).warm(replace(request, model=candidate.model))
                group.create_task(warming, name=f"warm-{candidate.spec}")

    def _answer(self, request: ModelRequest, pool: Pool, query: RoutingQuery, choice: PoolChoice) -> RoutedAnswer:
        return RoutedAnswer(
            request if pool.options.max_output_tokens is None else _capped(request, pool.options.max_output_tokens),
            query,
            pool.decide(query, clock.monotonic_ms()),
            pool=pool,
            stats=self._routes.stats,
            models=self._routes.models,
            probes=self._routes.probes,
            choice=choice,
        )

    def _route(self, request: ModelRequest) -> tuple[Pool | None, RoutingQuery, PoolChoice]:
        """Return the pool that answers (None: the first model alone), what policies read, and the choice of that
        pool."""
        routes = self._routes
        # Positional: with names, making a named tuple takes three times longer.
        query = RoutingQuery(
            request.session,
            request.user,
            {**self._metadata, **dict(request.metadata)} if request.metadata else self._metadata,
            "",
            estimated_tokens(text_chars(request)),
            len(request.functions),
            request.deadline_ms,
        )
        choice = self._home
        if self._rules or self._experiments:
            choice = pool_of(query, choice, self._rules, self._experiments)
        if request.models:
            pool = self._requested_pool(choice.pool, request.models)
        elif choice.pool:
            pool = routes.pools[choice.pool]
        else:
            return None, query, choice
        if pool.reads_words:
            query = query._replace(text=latest_words(request))
        return pool, query, choice

    def _requested_pool(self, name: str, more: tuple[str, ...]) -> Pool:
        """Return the pool, or the one model, followed by the models that the request names."""
        own = tuple(each.spec for each in self._routes.pools[name].candidates) if name else (self._first.name,)
        specs = tuple(dict.fromkeys((*own, *more)))
        pool = self._requested_pools.get((name, *specs))
        if pool is None:
            try:
                pool = self._routes.pool_for(specs, name)
            except ConfigError as why:
                raise StageRefused("llm", provider=self.name, why=str(why), retryable=False, status=404) from None
            self._requested_pools[name, *specs] = pool
            if len(self._requested_pools) > MAX_REQUESTED_POOLS:
                self._requested_pools.popitem(last=False)
        return pool


class _OpenedAnswer(AbstractAsyncContextManager[AsyncIterator[ModelEvent]]):
    """The context of a routed answer, with the task group of its calls. A class: each answer enters one, and a
    generator takes several times longer."""

    __slots__ = ("_answer", "_group")

    def __init__(self, answer: RoutedAnswer) -> None:
        self._answer, self._group = answer, FreeingTaskGroup()

    async def __aenter__(self) -> AsyncIterator[ModelEvent]:
        await self._group.__aenter__()
        try:
            self._answer.begin(self._group)
        except BaseException as failure:
            await self.__aexit__(type(failure), failure, failure.__traceback__)
            raise
        return self._answer

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._answer.close()
        # The group has to get a cancellation, which may be its own. Anything else that the consumer has raised
        # comes out as it was: the group would wrap it.
        is_cancelled = isinstance(error, asyncio.CancelledError)
        try:
            await self._group.__aexit__(*((kind, error, trace) if is_cancelled else (None, None, None)))
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None  # what a call has raised


def _capped(request: ModelRequest, max_tokens: int) -> ModelRequest:
    requested = request.max_output_tokens
    if requested is not None and requested <= max_tokens:
        return request
    return replace(request, max_output_tokens=max_tokens)


def latest_words(request: ModelRequest) -> str:
    """Return the user's latest words."""
    for message in reversed(request.messages):
        if isinstance(message, Content) and message.role == "user":
            return " ".join([part.text for part in message.parts if isinstance(part, Text)])
    return ""
