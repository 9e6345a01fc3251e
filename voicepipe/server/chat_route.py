"""The models that chat completions may be asked of: what the server needs of whoever wires them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from voicepipe.stages.model import Model, Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRoute:
    """Where the questions to one name go."""

    name: str
    """What is asked for: an agent, a pool (`pool/fast`) or a spec."""

    agent: str | None
    """The agent whose model it is; None for a pool or a spec."""

    specs: tuple[str, ...]
    """Who answers, `groq/llama-3.3-70b`, best first."""

    reached: tuple[str, ...]
    """Who else may answer, when a rule or an experiment has it so."""

    model: Model
    model_name: str
    """Its name at its provider."""

    @property
    def owner(self) -> str:
        """Whose model it is, as a list of models has it."""
        return "voicepipe" if self.agent is not None else self.specs[0].partition("/")[0]


class ChatModels(Protocol):
    """Everything that can be asked for."""

    def find(self, name: str) -> ChatRoute | None:
        """The route of that name; None: there is none."""
        ...

    def listed(self) -> tuple[ChatRoute, ...]:
        """All of them, agents first."""
        ...

    def cost_usd(self, spec: str, usage: Usage) -> float | None:
        """What an answer of that provider cost; None: no price is known."""
        ...
