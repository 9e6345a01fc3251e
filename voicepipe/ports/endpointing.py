"""Find end-of-turn strategies by name: the built-in ones, and those that installed packages bring.

The port itself is part of the core: `voicepipe.turn.endpointing.strategy`.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import entry_points
from typing import Final

from voicepipe.errors import ConfigError
from voicepipe.turn.endpointing.built_in import BUILT_IN
from voicepipe.turn.endpointing.strategy import Strategies, StrategyFactory

ENTRY_POINT_GROUP: Final = "voicepipe.endpointing"
"""Third parties add strategies here: name as in `end_of_turn`, value `module:factory`."""


def strategy_names() -> tuple[str, ...]:
    """Return the names of all strategies that can be used, the built-in ones first."""
    installed = {entry.name for entry in entry_points(group=ENTRY_POINT_GROUP)}
    return (*BUILT_IN, *sorted(installed - BUILT_IN.keys()))


def strategy_named(name: str, *, key: str) -> StrategyFactory:
    """Import and return the factory of a strategy. A built-in name can't be replaced.

    Raises:
        ConfigError: naming `key`, when there is no such strategy, or its package can't be imported.
    """
    if name in BUILT_IN:
        return BUILT_IN[name]
    for entry in entry_points(group=ENTRY_POINT_GROUP, name=name):
        try:
            loaded: StrategyFactory = entry.load()
        except Exception as why:
            raise ConfigError(
                f"{key}: expected {entry.value} to be importable, got {type(why).__name__}: {why}"
            ) from why
        return loaded
    raise ConfigError(f"{key}: expected one of {', '.join(strategy_names())}, got {name!r}")


def strategies_named(names: Iterable[str], *, key: str) -> Strategies:
    """Return the built-in strategies and those of these names.

    Raises:
        ConfigError: as `strategy_named`.
    """
    return {**BUILT_IN, **{name: strategy_named(name, key=key) for name in names}}
