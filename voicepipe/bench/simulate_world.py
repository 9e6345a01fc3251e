"""Draw the latencies for router simulations once, so that every policy gets the same ones.

Only medians are known of real providers; the rest are assumptions, stated here. Each model is independent. Times to
the first token are lognormal around its median, with some stragglers (a Pareto tail: queues, cold replicas).
About once an hour come a few bad minutes: several times slower and often failing. Fast errors are rare, hangs rarer,
and load swings slowly. A voice agent's sessions of a few turns are interleaved.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

HANG: Final = math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldOptions:
    """The parameters of a world."""

    n_turns: int = 20_000
    seed: int = 7
    turns_per_s: float = 1.5
    sigma: float = 0.5
    """Sigma of the lognormal."""

    straggler_share: float = 0.03
    straggler_shape: float = 1.5
    """Shape of the Pareto law whose value, plus one, multiplies a straggler's time."""

    incidents_per_h: float = 1.0
    incident_median_s: float = 120.0
    incident_error_share: float = 0.15
    error_share: float = 0.005
    error_median_ms: float = 120.0
    hang_share: float = 0.0015
    sessions_at_once: int = 24
    turns_per_session: int = 8


@dataclass(frozen=True, slots=True)
class World:
    """The latency and outcome of every model in every turn."""

    at_s: Floats
    """(n_turns,)"""

    session: npt.NDArray[np.int64]
    """(n_turns,)"""

    after_ms: Floats
    """(n_turns, n_models): to the first token with a cold cache, or to the failure; infinite: it hangs."""

    fails: npt.NDArray[np.bool_]
    """(n_turns, n_models)"""


def draw_world(medians_ms: Sequence[float], options: WorldOptions) -> World:
    """Draw a world for models with these medians."""
    chance = np.random.default_rng(options.seed)
    at_s = np.cumsum(chance.exponential(1 / options.turns_per_s, options.n_turns))
    models = [_model(median_ms, at_s, chance, options) for median_ms in medians_ms]
    after_ms, fails = (np.stack(each, axis=1) for each in zip(*models, strict=True))
    return World(at_s, _sessions(chance, options), after_ms, fails)


def resample_world(recorded_ms: Sequence[Floats], options: WorldOptions) -> World:
    """Draw a world from recorded times; NaN means a failure.

    Args:
        recorded_ms: for each model (n,), any n.
    """
    chance = np.random.default_rng(options.seed)
    at_s = np.cumsum(chance.exponential(1 / options.turns_per_s, options.n_turns))
    after_ms = np.stack([chance.choice(each, options.n_turns) for each in recorded_ms], axis=1)
    fails = np.isnan(after_ms)
    after_ms[fails] = options.error_median_ms
    return World(at_s, _sessions(chance, options), after_ms, fails)


def _model(
    median_ms: float, at_s: Floats, chance: np.random.Generator, options: WorldOptions
) -> tuple[Floats, npt.NDArray[np.bool_]]:
    n = options.n_turns
    swing = 1 + 0.25 * np.sin(2 * np.pi * at_s / 86_400 * 6)
    after_ms = median_ms * np.exp(options.sigma * chance.standard_normal(n)) * swing
    stragglers = chance.random(n) < options.straggler_share
    after_ms[stragglers] *= 1 + chance.pareto(options.straggler_shape, stragglers.sum())
    slower, bad = _incidents(at_s, chance, options)
    after_ms *= slower
    fails = chance.random(n) < np.where(bad, options.incident_error_share, options.error_share)
    hangs = (chance.random(n) < options.hang_share) & ~fails
    after_ms[fails] = options.error_median_ms * np.exp(0.4 * chance.standard_normal(fails.sum()))
    after_ms[hangs] = HANG
    return after_ms, fails


def _incidents(
    at_s: Floats, chance: np.random.Generator, options: WorldOptions
) -> tuple[Floats, npt.NDArray[np.bool_]]:
    slower, bad = np.ones(len(at_s)), np.zeros(len(at_s), bool)
    between_s = 3_600 / options.incidents_per_h
    begins_s = chance.exponential(between_s)
    while begins_s < at_s[-1]:
        lasts_s = options.incident_median_s * math.exp(0.8 * chance.standard_normal())
        inside = (at_s >= begins_s) & (at_s < begins_s + lasts_s)
        slower[inside] = chance.uniform(3, 8)
        bad |= inside
        begins_s += lasts_s + chance.exponential(between_s)
    return slower, bad


def _sessions(chance: np.random.Generator, options: WorldOptions) -> npt.NDArray[np.int64]:
    """Return sessions of equal length, a fixed number at once; the next speaker is random."""
    live, left = list(range(options.sessions_at_once)), [options.turns_per_session] * options.sessions_at_once
    session, n_begun = np.empty(options.n_turns, np.int64), options.sessions_at_once
    for turn, at in enumerate(chance.integers(0, options.sessions_at_once, options.n_turns)):
        session[turn] = live[at]
        left[at] -= 1
        if not left[at]:
            live[at], left[at], n_begun = n_begun, options.turns_per_session, n_begun + 1
    return session
