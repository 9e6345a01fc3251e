"""The models that chat completions may be asked of: the agents', and those that the settings name."""

from __future__ import annotations

from collections.abc import Iterator

from voicepipe.config.settings import Settings
from voicepipe.registry import Spec
from voicepipe.server.chat_route import ChatRoute
from voicepipe.stages.model import Usage
from voicepipe.wiring.stages import LOCAL, Stages

KEY = "server.chat_models"


class Chat:
    """Meets the port `ChatModels`. All are made at the start: a wrong spec is found then, not by the first client."""

    def __init__(self, settings: Settings, stages: Stages) -> None:
        """Raises ConfigError, naming the setting, for a provider that is not there or lacks its key."""
        self._settings, self._stages = settings, stages
        self._routes = {route.name: route for route in (*self._agents(), *self._specs())}

    def find(self, name: str) -> ChatRoute | None:
        """By an agent's name or alias, or a spec."""
        return self._routes.get(self._settings.agent_named(name) or name)

    def listed(self) -> tuple[ChatRoute, ...]:
        """Agents first."""
        return tuple(self._routes.values())

    def cost_usd(self, spec: str, usage: Usage) -> float | None:
        """As `answer_usd`."""
        return answer_usd(self._settings, Spec.parse(spec), usage)

    def _agents(self) -> Iterator[ChatRoute]:
        for name in self._settings.agents:
            stages = self._stages.of_agent(name)
            yield ChatRoute(
                name=name, agent=name, specs=(stages.model.name,), model=stages.model, model_name=stages.llm_model
            )

    def _specs(self) -> Iterator[ChatRoute]:
        named = [(f"agents.{name}.llm", agent.llm) for name, agent in self._settings.agents.items()]
        for key, text in (*named, *((KEY, text) for text in self._settings.server.chat_models)):
            spec = Spec.parse(text, key=key)
            model = self._stages.get("llm", spec, key=key)
            yield ChatRoute(name=text, agent=None, specs=(text,), model=model, model_name=spec.model)


def answer_usd(settings: Settings, spec: Spec, usage: Usage) -> float | None:
    """What an answer cost at the prices in the settings and the catalog; None: none is known. Local ones are free."""
    if settings.providers[spec.provider].kind == LOCAL:
        return 0.0
    return settings.facts(spec).cost_usd(
        input_tokens=usage.input_tokens, output_tokens=usage.output_tokens, cached_tokens=usage.cached_tokens
    )
