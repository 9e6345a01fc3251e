"""Ports for the models of chat completions, which the wiring implements."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from voicepipe.ports.model import Model, Usage
from voicepipe.registry import Spec


class ChatRoute(Struct, frozen=True, kw_only=True):
    """The route of the requests to one name."""

    name: str
    """The requested name: an agent, a pool (`pool/fast`) or a spec."""

    agent: str | None
    """The agent whose model it is; None for a pool or a spec."""

    specs: tuple[str, ...]
    """Specs that answer, such as `groq/llama-3.3-70b`, best first."""

    reached: tuple[str, ...]
    """Further specs that may answer, when a rule or an experiment selects them."""

    model: Model
    model_name: str
    """The model's name at its provider."""

    @property
    def owner(self) -> str:
        """The owner of the model, as a list of models shows it."""
        return "voicepipe" if self.agent is not None else Spec.read(self.specs[0]).provider


class ChatModels(Protocol):
    """The models and agents that requests may name."""

    def find(self, name: str) -> ChatRoute | None:
        """Return the route of that name; None: there is none."""
        ...

    def listed(self) -> tuple[ChatRoute, ...]:
        """Return all routes, agents first."""
        ...

    def cost_usd(self, spec: str, usage: Usage) -> float | None:
        """Return the price of an answer of that provider; None: unknown."""
        ...
