"""Reference figures that the dashboard compares with measured figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from voicepipe.providers.catalog.facts import ModelFacts
from voicepipe.turn.settings import BudgetLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceFigures:
    """Reference figures."""

    limits: BudgetLimits = field(default_factory=BudgetLimits)
    over_allowed: float = 0.05
    """The share of turns that may exceed their total limit."""

    published: Mapping[str, ModelFacts] = field(default_factory=lambda: MappingProxyType({}))
    """Spec -> published figures of a model."""
