"""Save what the router has learned, so that it outlives a restart: the shapes and usual paces of models, and the
hedge budgets of pools.

One JSON file, replaced as a whole. Times of the clock are not in it: after a start every model has its usual pace.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from voicepipe.router.hedge_budget import HedgeBudget
from voicepipe.router.pool import Pool, SharedStats

FILE: Final = "router.json"
VERSION: Final = 1

MAX_MODELS: Final = 1_000
"""Models that are saved; of more, those that were used first."""

MAX_BYTES: Final = 8_000_000
"""A larger file is not ours: 1000 models take about 4 MB."""


def state_of(stats: SharedStats, pools: Mapping[str, Pool]) -> dict[str, Any]:
    """Return what is saved, as JSON values."""
    learned = stats.latency.survivals()
    budgets = {name: pool.hedge_budget for name, pool in pools.items()}
    return {
        "version": VERSION,
        "models": {spec: survival.learned() for spec, survival in list(learned.items())[:MAX_MODELS]},
        "pools": {name: {"level_usd": each.level_usd, "weight": each.weight} for name, each in budgets.items()},
    }


def save(folder: Path, state: Mapping[str, Any]) -> None:
    """Replace the file. A process that dies meanwhile leaves the former one.

    Raises:
        OSError: it can't be written.
    """
    path = folder / FILE
    written = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        with written.open("w", encoding="utf-8") as file:
            json.dump(state, file)
            file.flush()
            os.fsync(file.fileno())
        written.replace(path)
    finally:
        written.unlink(missing_ok=True)


def restore(folder: Path, stats: SharedStats, pools: Mapping[str, Pool]) -> bool:
    """Continue from the file: models and pools that it doesn't name start fresh. Return False if there is no file.

    Raises:
        OSError: it can't be read.
        ValueError: it is damaged, or of another version; then nothing is changed.
    """
    path = folder / FILE
    if not path.exists():
        return False
    if (size := path.stat().st_size) > MAX_BYTES:
        raise ValueError(f"expected at most {MAX_BYTES} bytes, got {size}")
    state = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(state, dict) or state.get("version") != VERSION:
        raise ValueError(f"expected version {VERSION}")
    try:
        survivals = {str(spec): _counts(learned) for spec, learned in state["models"].items()}
        budgets = {str(name): (float(of["level_usd"]), float(of["weight"])) for name, of in state["pools"].items()}
    except (KeyError, TypeError, AttributeError) as problem:
        raise ValueError(f"expected models and pools ({type(problem).__name__})") from None
    for level_usd, weight in budgets.values():
        HedgeBudget(0.0).restore(level_usd, weight)
    stats.latency.restore(survivals)
    for name in budgets.keys() & pools.keys():
        pools[name].hedge_budget.restore(*budgets[name])
    return True


def _counts(learned: Mapping[str, list[float]]) -> dict[str, list[float]]:
    """Return the counts of one model as numbers.

    Raises:
        ValueError: one is no number.
    """
    return {str(name): [float(each) for each in counts] for name, counts in learned.items()}
