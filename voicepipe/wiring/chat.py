"""The models that chat completions may use: the agents', the pools, and those that the settings name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from voicepipe.config.routing import POOL
from voicepipe.config.settings import Settings
from voicepipe.ports.model import Model, Usage
from voicepipe.registry import Spec
from voicepipe.server.chat_ports import ChatRoute
from voicepipe.wiring.prices import price_of
from voicepipe.wiring.stages import Stages

KEY = "server.chat_models"


class Chat:
    """Implements the port `ChatModels`. Builds all at the start: a wrong spec is found then, not by the first
    client.
    """

    def __init__(self, settings: Settings, stages: Stages) -> None:
        """Raises ConfigError, naming the setting, for a provider that is not there or lacks its key."""
        self._settings, self._stages = settings, stages
        self._routes = {route.name: route for route in (*self._agents(), *self._pools(), *self._specs())}

    def find(self, name: str) -> ChatRoute | None:
        """Return the route of an agent's name or alias, or of a spec."""
        return self._routes.get(self._settings.agent_named(name) or name)

    def listed(self) -> tuple[ChatRoute, ...]:
        """Return all routes, agents first."""
        return tuple(self._routes.values())

    def cost_usd(self, spec: str, usage: Usage) -> float | None:
        """As `answer_usd`."""
        return answer_usd(self._settings, Spec.parse(spec), usage)

    def _agents(self) -> Iterator[ChatRoute]:
        for name, agent in self._settings.agents.items():
            specs = tuple(map(str, agent.specs("llm")))
            yield self._route(name, self._stages.router.of_agent(name), specs, agent=name)

    def _pools(self) -> Iterator[ChatRoute]:
        for name in self._settings.model_pools:
            yield self._route(f"{POOL}/{name}", self._stages.router.of_pool(name), self._of(name))

    def _specs(self) -> Iterator[ChatRoute]:
        named = {
            str(spec): f"agents.{name}.llm"
            for name, agent in self._settings.agents.items()
            for spec in agent.specs("llm")
        }
        for text, key in (named | dict.fromkeys(self._settings.server.chat_models, KEY)).items():
            yield self._route(text, self._stages.router.of_spec(Spec.parse(text, key=key), key=key), (text,))

    def _of(self, pool: str) -> tuple[str, ...]:
        return self._settings.routing.pools[pool].specs

    def _route(self, name: str, model: Model, specs: Sequence[str], *, agent: str | None = None) -> ChatRoute:
        # A rule or an experiment may send an agent's request to any configured pool.
        reached = self._settings.routing.reached if agent is not None else ()
        return ChatRoute(
            name=name,
            agent=agent,
            specs=tuple(specs),
            reached=tuple(spec for pool in reached for spec in self._of(pool)),
            model=model,
            model_name=Spec.parse(specs[0]).model,
        )


def answer_usd(settings: Settings, spec: Spec, usage: Usage) -> float | None:
    """Return the cost of an answer at the prices of the settings and the catalog; None: no price is known. Local models
    are free.
    """
    price = price_of(settings, spec)
    tokens = (usage.input_tokens, usage.output_tokens, usage.cached_tokens, usage.cache_write_tokens)
    return None if price is None else price.cost_usd(*tokens)
