"""Reference figures that the dashboard compares with measured figures."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct, field

from voicepipe.providers.catalog.facts import ModelFacts
from voicepipe.turn.settings import BudgetLimits


class ReferenceFigures(Struct, frozen=True, kw_only=True):
    """Reference figures."""

    limits: BudgetLimits = field(default_factory=BudgetLimits)
    over_allowed: float = 0.05
    """The share of turns that may exceed their total limit."""

    published: Mapping[str, ModelFacts] = field(default_factory=lambda: MappingProxyType({}))
    """Spec -> published figures of a model."""
