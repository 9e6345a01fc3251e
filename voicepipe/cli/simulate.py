"""`voicepipe simulate`: what a policy would do with a pool, without any cost; what a number of users needs."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from voicepipe.bench.simulate_pools import PublishedPool, published_pools, read_latencies
from voicepipe.bench.simulate_report import HEAD, PolicyResult, line_of, line_text, write_csv
from voicepipe.bench.simulate_world import World, WorldOptions, draw_world, resample_world
from voicepipe.cli import simulate_capacity
from voicepipe.cli.options import CapacityOptions, SimulateOptions
from voicepipe.config import Settings, load
from voicepipe.errors import ConfigError
from voicepipe.registry import Spec
from voicepipe.router.build import build_pool
from voicepipe.router.candidate import Candidate
from voicepipe.router.hedge_budget import WINDOW_TURNS
from voicepipe.router.options import RouterOptions
from voicepipe.router.policies import Candidates
from voicepipe.router.pool import USUAL_TOKENS, SharedStats
from voicepipe.router.simulation import Draw, DrawnTurn, SimulatedResult, simulate_turns
from voicepipe.turn.cost import Price
from voicepipe.values import replace
from voicepipe.wiring.model_routing import candidate_of

NO_LIMIT_USD: Final = 10.0
"""`late_turn_usd` of a cap that counts alone: the most that the setting takes."""

FIRST_TURNS: Final = 5_000
"""Learning phase of every policy; these turns are not counted, or a quarter when there are fewer."""

SINGLE: Final = "single"

POLICIES: Final[Mapping[str, Mapping[str, object]]] = {
    SINGLE: {"policy": "single"},
    "fallback": {"policy": "fallback"},
    "race": {"policy": "race"},
    "race-3": {"policy": "race", "race_width": 3},
    "hedge": {"policy": "hedge"},
    "hedge-learned": {"policy": "hedge", "order": "learned"},
    "hedge-first-to-speak": {"policy": "hedge", "prefer_first": False},
}
"""Each policy as the settings express it; everything else is taken from `[router]`."""


@dataclass(frozen=True, slots=True)
class Scene:
    """A pool, and the world in which it is simulated."""

    name: str
    candidates: Candidates
    world: World
    options: RouterOptions
    cached_factor: float = 1.0
    """Factor of the time to the first token of a model that has the session in its cache."""


def run(options: SimulateOptions | CapacityOptions) -> int:
    """Simulate every policy with every pool, or the capacity, and print the results.

    Raises:
        ConfigError: there is no such pool or policy, or an option is wrong.
    """
    if isinstance(options, CapacityOptions):
        return simulate_capacity.run(options)
    settings = load(options.config, overrides=options.overrides())
    for flag, factor in (("--slower", options.slower), ("--cached-factor", options.cached_factor)):
        if not 0.1 <= factor <= 10:
            raise ConfigError(f"{flag}: expected 0.1 to 10, got {factor:g}")
    names = options.policy or tuple(POLICIES)
    for name in names:
        if name not in POLICIES:
            raise ConfigError(f"--policy: expected one of {', '.join(POLICIES)}, got {name!r}")
    lines: list[PolicyResult] = []
    for scene in _scenes(options, settings):
        _print_line(f"\n{scene.name}: {', '.join(each.spec for each in scene.candidates)}")
        _print_line(f"a word by {scene.options.deadline_ms} ms, hedges for {_money(scene)}\n{HEAD}")
        for line in _lines(scene, names):
            lines.append(line)
            _print_line(line_text(line))
    if options.csv is not None:
        write_csv(options.csv, lines)
    return 0


def _lines(scene: Scene, names: Sequence[str]) -> Iterator[PolicyResult]:
    single = _line(scene, SINGLE, None)
    for name in names:
        yield single if name == SINGLE else _line(scene, name, single.usd_per_turn)


def _line(scene: Scene, name: str, single_usd: float | None) -> PolicyResult:
    turns = simulated(scene, name)
    counted = turns[min(FIRST_TURNS, len(turns) // 4) :]
    return line_of(
        scene.name,
        name,
        [turn.ttft_ms for turn in counted],
        deadline_ms=scene.options.deadline_ms,
        calls=[turn.n_calls for turn in counted],
        usd=[turn.usd for turn in counted],
        lost_usd=[turn.lost_usd for turn in counted],
        failover_usd=[turn.failover_usd for turn in counted],
        speakers=[turn.speaker for turn in counted],
        most_spent=most_spent(turns, scene.options.hedge_budget_usd),
        single_usd=single_usd,
    )


def simulated(scene: Scene, name: str) -> list[SimulatedResult]:
    """Run all turns of the scene with that policy; `single` has the first model and no other."""
    options = replace(scene.options, **POLICIES[name])  # type: ignore[arg-type]
    candidates = scene.candidates[:1] if name == SINGLE else scene.candidates
    stats = SharedStats()
    pool = build_pool(scene.name, candidates, options, stats)
    turns = drawn_turns(scene.world, len(candidates))
    return list(simulate_turns(pool, stats, turns, cached_factor=scene.cached_factor))


def drawn_turns(world: World, n_models: int) -> Iterator[DrawnTurn]:
    """Yield the world's turns, with what its first `n_models` would do."""
    read, written = (round(n) for n in USUAL_TOKENS)
    for i, at_s in enumerate(world.at_s):
        draws = zip(world.after_ms[i, :n_models], world.fails[i, :n_models], strict=True)
        yield DrawnTurn(
            at_ms=1_000 * float(at_s),
            session=str(world.session[i]),
            draws=tuple(Draw(float(after_ms), bool(fails)) for after_ms, fails in draws),
            input_tokens=read,
            output_tokens=written,
        )


def published_candidates(pool: PublishedPool) -> Candidates:
    """Return the models of a built-in pool, with their published figures."""
    return tuple(
        Candidate(
            spec=each.name,
            price=Price(each.input_usd, each.output_usd, each.cached_usd),
            ttft_p50_ms=each.ttft_p50_ms,
            tokens_per_s=each.tokens_per_s,
        )
        for each in pool.models
    )


def most_spent(turns: Sequence[SimulatedResult], cap_usd: float) -> float:
    """Return the most that hedges cost in `WINDOW_TURNS` turns in a row, from the first turn on, as a multiple of the
    cap. Failovers are not in it."""
    spent_usd = np.cumsum([0.0, *(turn.extra_usd - turn.failover_usd for turn in turns)])
    n = min(WINDOW_TURNS, len(turns))
    return float(np.max(spent_usd[n:] - spent_usd[:-n])) / (n * cap_usd) if cap_usd else math.nan


def _scenes(options: SimulateOptions, settings: Settings) -> Iterator[Scene]:
    published = published_pools()
    world = WorldOptions(n_turns=_turns(options), seed=options.seed)
    own = {name: settings.routing.pools[name] for name in settings.model_pools}
    for name in options.pool or tuple(own) or tuple(published):
        if name in own:
            specs = (Spec.parse(text) for text in own[name].specs)
            candidates = tuple(candidate_of(settings, spec) for spec in specs)
            drawn = _world(options, candidates, [c.ttft_p50_ms for c in candidates], world)
            yield Scene(name, candidates, drawn, own[name], options.cached_factor)
        elif name in published:
            candidates = published_candidates(published[name])
            drawn = _world(options, candidates, published[name].medians_ms, world)
            yield Scene(name, candidates, drawn, _capped(settings, candidates), options.cached_factor)
        else:
            raise ConfigError(f"--pool: expected one of {', '.join((*own, *published))}, got {name!r}")


def _turns(options: SimulateOptions) -> int:
    if not 100 <= options.turns <= 1_000_000:
        raise ConfigError(f"--turns: expected 100 to 1000000, got {options.turns}")
    return options.turns


def _world(options: SimulateOptions, candidates: Candidates, medians_ms: Sequence[float], drawn: WorldOptions) -> World:
    if options.latencies is None:
        return draw_world([options.slower * median_ms for median_ms in medians_ms], drawn)
    recorded = read_latencies(options.latencies, [each.spec for each in candidates])
    return resample_world([options.slower * times_ms for times_ms in recorded], drawn)


def _capped(settings: Settings, candidates: Candidates) -> RouterOptions:
    """Return the settings' options; without a cost setting, a tenth of what the first model costs caps hedges alone."""
    if "router.hedge_budget_usd" in settings.origins:
        return settings.router
    limit_usd = settings.router.late_turn_usd if "router.late_turn_usd" in settings.origins else NO_LIMIT_USD
    cap_usd = 0.1 * candidates[0].answer_usd(*USUAL_TOKENS, warm=True)
    return replace(settings.router, hedge_budget_usd=cap_usd, late_turn_usd=limit_usd)


def _money(scene: Scene) -> str:
    single_usd = scene.candidates[0].answer_usd(*USUAL_TOKENS, warm=True)
    cap_usd = scene.options.hedge_budget_usd
    share = f" ({100 * cap_usd / single_usd:.0f}% of what one costs)" if single_usd else ""
    return f"at most ${cap_usd:.6f} a turn{share}"


def _print_line(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
