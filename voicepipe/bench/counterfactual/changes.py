"""Changes of a recorded session's settings, by their documented names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, Final

from voicepipe.protocol.session_types import ADAPTIVE_MIDDLE
from voicepipe.turn.endpointing.strategies import SILENCE
from voicepipe.turn.journal import Opening
from voicepipe.turn.settings import BudgetLimits, CoreSettings, Deadlines, TurnSettings
from voicepipe.values import replace

AGENT_OPTIONS: Final = (
    *("silence_ms", "end_of_turn", "interruption", "speculate", "filler", "apology"),
    *("speculate_max_starts", "speculate_max_wasted_tokens", "speculate_max_wasted_share"),
    "speculate_ms_per_1000_tokens",
)
"""Options of `[agents.NAME]` that the core uses. Others choose providers, for which a journal has no alternatives."""

SECTIONS: Final[Mapping[str, type]] = MappingProxyType({"budget": BudgetLimits, "deadlines": Deadlines})

SPELLINGS: Final = MappingProxyType(
    {"turn_detection.silence_duration_ms": "silence_ms", "endpoint.min_silence_ms": "silence_ms"}
)
"""The wire's and the documentation's names."""

_OF_SPECULATION: Final = "speculate_"


def option_named(key: str) -> str | None:
    """Return the option for a key: `silence_ms` for `agents.sales.silence_ms`, `budget.total_ms` as it is.

    None if there is no such option, or if a replay cannot show its effect.
    """
    section, _, name = key.partition(".")
    if section in SECTIONS:
        return key if name in {each.name for each in fields(SECTIONS[section])} else None
    option = SPELLINGS.get(key) or (key.split(".")[2] if section == "agents" and key.count(".") == 2 else key)
    return option if option in AGENT_OPTIONS else None


@dataclass(frozen=True, slots=True)
class Changes:
    """Other values for some options, by the names that `option_named` returns."""

    values: Mapping[str, Any] = field(default_factory=dict)

    def of_opening(self, opening: Opening) -> Opening:
        """Return the core's initial settings with these."""
        return replace(opening, settings=self.of_turns(opening.settings), core=self.of_core(opening.core))

    def of_turns(self, settings: TurnSettings) -> TurnSettings:
        """Return a session's turn settings with these."""
        strategy = self.values.get("end_of_turn", settings.end_of_turn)
        shortest_ms = self.values.get("silence_ms")
        if shortest_ms is None:
            shortest_ms = round(settings.silence_ms / _lengthened(settings.end_of_turn))
        if "silence_ms" in self.values or strategy != settings.end_of_turn:
            silence_ms = round(_lengthened(strategy) * shortest_ms)
            settings = replace(settings, silence_ms=silence_ms, end_of_turn=strategy)
        return replace(settings, interruption=self.values.get("interruption", settings.interruption))

    def of_core(self, core: CoreSettings) -> CoreSettings:
        """Return the operator's settings with these."""
        limits = {
            name.removeprefix(_OF_SPECULATION): value
            for name, value in self.values.items()
            if name.startswith(_OF_SPECULATION)
        }
        apology: dict[str, Any] = {}
        if "apology" in self.values:
            requested = self.values["apology"]
            apology = {"apology": requested or "", "apologises": requested is None}
        return replace(
            core,
            budget=replace(core.budget, **self._of("budget")),
            deadlines=replace(core.deadlines, **self._of("deadlines")),
            speculate=self.values.get("speculate", core.speculate),
            speculation=replace(core.speculation, **limits),
            budget_actions=replace(
                core.budget_actions, filler=self.values.get("filler", core.budget_actions.filler), **apology
            ),
        )

    def _of(self, section: str) -> dict[str, Any]:
        start = f"{section}."
        return {key.removeprefix(start): value for key, value in self.values.items() if key.startswith(start)}


def _lengthened(strategy: str) -> float:
    """Return a strategy's wait without evidence, as a multiple of the setting `silence_ms`."""
    return 1 if strategy == SILENCE else ADAPTIVE_MIDDLE


NO_CHANGES: Final = Changes()
