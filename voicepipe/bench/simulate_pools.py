"""The published pools for router simulations, and the reader for recorded latencies."""

from __future__ import annotations

import csv
import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Final

import numpy as np

from voicepipe.bench.simulate_world import Floats
from voicepipe.errors import ConfigError

FILE: Final = "simulate_pools.toml"

CACHED_PART: Final = 0.1
"""Price of a cached token as a share of the full price: the most common published value."""

WRONG: Final = "-wrong"
"""Suffix of a pool's name: the same pool in a world where its published medians are wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedModel:
    """The published figures of one model."""

    name: str
    ttft_p50_ms: float
    tokens_per_s: float
    input_usd: float
    """Per million tokens; so are the others."""

    output_usd: float
    cached_usd: float


@dataclass(frozen=True, slots=True)
class PublishedPool:
    """Models of which any may answer."""

    name: str
    models: tuple[PublishedModel, ...]
    wrong_by: tuple[float, ...]
    """Factor of each model's true latency over the published one; 1 is as published."""

    @property
    def medians_ms(self) -> tuple[float, ...]:
        """Return the true medians."""
        return tuple(m.ttft_p50_ms * wrong for m, wrong in zip(self.models, self.wrong_by, strict=True))


def published_pools() -> Mapping[str, PublishedPool]:
    """Return voicepipe's built-in pools, by name."""
    tree = tomllib.loads(resources.files("voicepipe.bench").joinpath(FILE).read_text(encoding="utf-8"))
    known = {name: _model(name, row) for name, row in tree["models"].items()}
    pools: dict[str, PublishedPool] = {}
    for name, members in tree["pools"].items():
        models = tuple(known[each] for each in members)
        pools[name] = PublishedPool(name, models, (1.0,) * len(models))
        if wrong := tree["wrong_by"].get(name):
            pools[name + WRONG] = PublishedPool(name + WRONG, models, tuple(wrong))
    return pools


def _model(name: str, row: Mapping[str, float]) -> PublishedModel:
    return PublishedModel(name=name, cached_usd=CACHED_PART * row["input_usd"], **row)


def read_latencies(path: Path, names: Iterable[str]) -> list[Floats]:
    """Read recorded times to the first token for each of these models; NaN means a failure.

    The file is CSV with the columns `model` and `ttft_ms`, a line for each answer, as `voicepipe bench llm` writes it;
    an empty time is a failure, `inf` a call that hung.

    Raises:
        ConfigError: the file has another format, or lacks one of the models.
    """
    times: dict[str, list[float]] = {name: [] for name in names}
    try:
        with path.open(newline="", encoding="utf-8") as file:
            for line in csv.DictReader(file):
                if line["model"] in times:
                    times[line["model"]].append(float(line["ttft_ms"] or math.nan))
    except (OSError, KeyError, ValueError) as problem:
        why = f"no column {problem}" if isinstance(problem, KeyError) else str(problem)
        raise ConfigError(f"--latencies: expected CSV with the columns model and ttft_ms, got {path} ({why})") from None
    missing = next((name for name, known in times.items() if not known), None)
    if missing is not None:
        raise ConfigError(f"--latencies: expected answers of {missing}, got none in {path}")
    return [np.array(known) for known in times.values()]
