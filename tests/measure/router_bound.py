"""The fewest late turns that hedging can reach at a cost: `python -m tests.measure.router_bound [--pool mid]`.

Of all plans for a pool (when to start which second and third model), the program finds those with the fewest turns over
the deadline at a given cost, in the world of `voicepipe simulate router`. They know more than any router: the law of
each model's times, whether a provider has a bad minute, the load of the hour, and the turn of each session. Money may
be spent at any time: no hedge budget, no window of turns. What they save is theirs too. `each hour` is the bound of a
router that holds its cap in every 500 turns, as the hedge budget does: it cannot save money from an hour of low load
for one of high load, so each load has the same budget.

A dynamic program over a session's turns (which models have read it, which providers have a bad minute) minimises
late turns + price x dollars. For each price on a dollar this is a bound on every plan: late turns >= optimum - price x
budget (weak duality). The price is the one at which the optimum costs the budget.

The loads are those of the turns that `simulate router` counts. `replaced at the deadline` is the router's own rule: a
model that is alone and still silent then is replaced, at any cost. With few `--draws` the program chooses plans that
suit just these draws, so the bound is lower than with many.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from voicepipe.bench.simulate_pools import PublishedPool, published_pools
from voicepipe.bench.simulate_world import HANG, WorldOptions
from voicepipe.cli.simulate import FIRST_TURNS
from voicepipe.router.candidate import CACHED_SHARE
from voicepipe.router.plan_table import HOLD_MARGIN_MS
from voicepipe.router.pool import USUAL_TOKENS
from voicepipe.turn.cost import Price

Floats = npt.NDArray[np.float64]

N_DRAWS: Final = 20_000
STEP_MS, COARSE_MS = 25, 75
"""Between the instants at which a second model may start; and, where there is a third, both."""

WORLD: Final = WorldOptions()


def loads(n: int = 4) -> tuple[float, ...]:
    """Return the load in the middle of each n-th of the turns that `simulate router` counts: they begin after the
    swing's peak, so they are faster than the mean of a swing."""
    turns = FIRST_TURNS + (WORLD.n_turns - FIRST_TURNS) * (np.arange(n) + 0.5) / n
    return tuple((1 + 0.25 * np.sin(2 * np.pi * turns / WORLD.turns_per_s / 86_400 * 6)).tolist())


LOADS: Final = loads()


@dataclass(frozen=True, slots=True)
class Plan:
    """Models in the order in which they start, the first at once."""

    models: tuple[int, ...]
    starts_ms: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a plan does in one state of the providers."""

    late: float
    written_usd: float
    reads: tuple[float, ...]
    """Of each model, the share of turns in which it reads the session."""

    read_sets: Floats
    """(2^k,), the share of turns that leave exactly this set of models having read."""


def draws(
    medians_ms: Sequence[float], bad: Sequence[bool], load: float, seed: int, n: int = N_DRAWS
) -> tuple[Floats, Floats]:
    """Return the times to the first token and to the failure, (k, n); infinite where there is none."""
    chance = np.random.default_rng(seed)
    answers, failures = [], []
    for median_ms, is_bad in zip(medians_ms, bad, strict=True):
        ms = load * median_ms * np.exp(WORLD.sigma * chance.standard_normal(n))
        late = chance.random(n) < WORLD.straggler_share
        ms[late] *= 1 + chance.pareto(WORLD.straggler_shape, late.sum())
        ms *= chance.uniform(3, 8, n) if is_bad else 1.0
        fails = chance.random(n) < (WORLD.incident_error_share if is_bad else WORLD.error_share)
        ms[(chance.random(n) < WORLD.hang_share) | fails] = HANG
        error_ms = WORLD.error_median_ms * np.exp(0.4 * chance.standard_normal(n))
        answers.append(ms)
        failures.append(np.where(fails, error_ms, HANG))
    return np.array(answers), np.array(failures)


class Turns:
    """The same turns for every plan."""

    def __init__(self, pool: PublishedPool, answers: Floats, failures: Floats, deadline_ms: float, hold: bool) -> None:
        self._pool, self._answers, self._failures = pool, answers, failures
        self._deadline_ms, self._hold_ms = deadline_ms, deadline_ms - HOLD_MARGIN_MS if hold else 0.0

    def run(self, plan: Plan) -> Outcome:
        """A failure brings the next start forward; no model starts after an answer is ready."""
        n, k = self._answers.shape[1], len(self._pool.models)
        ready: list[Floats] = []
        failed: list[Floats] = []
        started: list[npt.NDArray[np.bool_]] = []
        for place, (model, start_ms) in enumerate(zip(plan.models, plan.starts_ms, strict=True)):
            at = np.full(n, start_ms)
            if place:
                at = np.minimum(at, failed[-1])
                if place == 2:  # the first may fail while the second is running
                    at = np.minimum(at, np.where(failed[0] > plan.starts_ms[1], failed[0], HANG))
            runs = np.isfinite(at)
            if place:
                runs &= started[-1] & (np.min(ready, axis=0) > at)
            started.append(runs)
            ready.append(np.where(runs, at + self._answers[model], HANG))
            failed.append(np.where(runs, at + self._failures[model], HANG))
        return self._outcome(plan, np.array(ready), np.array(failed), np.array(started), k)

    def _outcome(self, plan: Plan, ready: Floats, failed: Floats, started: npt.NDArray[np.bool_], k: int) -> Outcome:
        held_until = np.minimum(self._hold_ms, failed[0])
        others = np.maximum(np.min(ready[1:], axis=0), held_until) if len(ready) > 1 else np.full(len(ready[0]), HANG)
        over = np.minimum(ready[0], others)
        winner = np.where(ready[0] <= others, 0, 1 + np.argmin(ready[1:], axis=0) if len(ready) > 1 else 0)
        read, written_usd, reads = np.zeros(len(over), np.int64), 0.0, [0.0] * k
        for place, model in enumerate(plan.models):
            facts = self._pool.models[model]
            billed = started[place] & ~(np.isfinite(failed[place]) & (failed[place] <= over))
            ends_ms = np.where(np.isfinite(over), over, 0.0)
            wrote_ms = np.maximum(0.0, ends_ms - ready[place])
            tokens = np.minimum(USUAL_TOKENS[1], facts.tokens_per_s * wrote_ms / 1_000)
            tokens = np.where((winner == place) & np.isfinite(over), USUAL_TOKENS[1], tokens)
            written_usd += float(np.mean(tokens * billed)) * facts.output_usd / 1e6
            reads[model] = float(np.mean(billed))
            read |= billed.astype(np.int64) << model
        sets = np.bincount(read, minlength=1 << k) / len(over)
        return Outcome(float(np.mean(over > self._deadline_ms)), written_usd, tuple(reads), sets)


def plans_of(first: int, k: int, deadline_ms: int, latest_ms: float = HANG) -> list[Plan]:
    """Return the plans that begin with this model: alone until it fails, or until `latest_ms`; with a second; with two
    more."""
    others = [each for each in range(k) if each != first]
    starts_ms = (0.0, latest_ms, HANG)
    plans = [Plan((first, *order), starts_ms[: 1 + len(order)]) for order in itertools.permutations(others)]
    for second, third in itertools.permutations(others, 2) if k > 2 else ():
        plans += [Plan((first, second, third), (0.0, float(t), HANG)) for t in range(0, deadline_ms, STEP_MS)]
        instants = range(0, deadline_ms, COARSE_MS)
        plans += [Plan((first, second, third), (0.0, float(t), float(u))) for t in instants for u in instants if u >= t]
    return plans


def outcomes_of(turns: Turns, first: int, k: int, deadline_ms: int, latest_ms: float) -> list[Outcome]:
    """Return what all plans that begin with this model do; and what it does alone while another one gets the request
    only to read the session (a keep-warm request)."""
    plans = plans_of(first, k, deadline_ms, latest_ms)
    outcomes = [turns.run(plan) for plan in plans]
    alone = [each for plan, each in zip(plans, outcomes, strict=True) if min(plan.starts_ms[1:]) >= deadline_ms]
    return outcomes + [with_warming(each, model) for each in alone for model in range(k) if model != first]


def with_warming(outcome: Outcome, model: int) -> Outcome:
    """Return this outcome if that model reads the session besides, and writes nothing."""
    reads = tuple(1.0 if i == model else share for i, share in enumerate(outcome.reads))
    sets = np.zeros_like(outcome.read_sets)
    np.add.at(sets, np.arange(len(sets)) | 1 << model, outcome.read_sets)
    return Outcome(outcome.late, outcome.written_usd, reads, sets)


class Bound:
    """The dynamic program of one pool."""

    def __init__(
        self,
        pool: PublishedPool,
        *,
        slower: float,
        deadline_ms: int,
        hold: bool,
        learned: bool,
        replaces: bool = False,
        n_draws: int = N_DRAWS,
    ) -> None:
        """`replaces`: a model that is alone and silent at the deadline is replaced, as the router does."""
        latest_ms = float(deadline_ms) if replaces else HANG
        self._k = k = len(pool.models)
        self._prices = [Price(each.input_usd, each.output_usd, each.cached_usd) for each in pool.models]
        self._states = list(itertools.product((False, True), repeat=k))
        bad_share = _bad_share()
        shares = [[bad_share if bad else 1 - bad_share for bad in state] for state in self._states]
        self._weights = np.prod(np.array(shares), axis=1)
        self._moves = _moves(self._states, bad_share)
        medians_ms = [slower * each for each in pool.medians_ms]
        self._tables = []
        self._single: list[list[Outcome]] = []
        for load in LOADS:
            tables, single = [], []
            for number, state in enumerate(self._states):
                turns = Turns(pool, *draws(medians_ms, state, load, number, n_draws), deadline_ms, hold)
                # In a bad minute of the first choice its circuit breaker may be open.
                firsts = range(k) if learned or state[0] else (0,)
                outcomes = [each for f in firsts for each in outcomes_of(turns, f, k, deadline_ms, latest_ms)]
                tables.append(self._table(outcomes))
                single.append(turns.run(Plan((0,), (0.0,))))
            self._tables.append(tables)
            self._single.append(single)

    @staticmethod
    def _table(outcomes: list[Outcome]) -> tuple[Floats, Floats, Floats, Floats]:
        columns = ([each.late for each in outcomes], [each.written_usd for each in outcomes])
        reads, sets = [each.reads for each in outcomes], [each.read_sets for each in outcomes]
        return np.array(columns[0]), np.array(columns[1]), np.array(reads), np.array(sets)

    def single_usd(self) -> float:
        """Return the mean cost of a turn with the first model alone."""
        cold, warm = (self._read_usd(0, warm=warm) for warm in (False, True))
        read_usd = (cold + (WORLD.turns_per_session - 1) * warm) / WORLD.turns_per_session
        usd = [[each.written_usd + each.reads[0] * read_usd for each in row] for row in self._single]
        return float(np.mean(np.array(usd) @ self._weights))

    def single_late(self) -> float:
        """Return the share of late turns with the first model alone."""
        return float(np.mean(np.array([[each.late for each in row] for row in self._single]) @ self._weights))

    def _read_usd(self, model: int, *, warm: bool) -> float:
        cached = CACHED_SHARE * USUAL_TOKENS[0] if warm else 0.0
        return self._prices[model].cost_usd(USUAL_TOKENS[0], 0.0, cached)

    def optimum(self, late_per_usd: float, loads: Sequence[int]) -> tuple[float, float]:
        """Return the share of late turns and the mean cost of a turn, of the plans that are best at this price."""
        sums = np.mean([self._session(self._tables[load], late_per_usd) for load in loads], axis=0)
        late, usd = sums / WORLD.turns_per_session
        return float(late), float(usd)

    def _session(self, tables: list[tuple[Floats, Floats, Floats, Floats]], late_per_usd: float) -> Floats:
        """Return the late turns and dollars of a session, from its last turn backwards."""
        n_sets = 1 << self._k
        value = np.zeros((len(self._states), n_sets, 2))
        for _ in range(WORLD.turns_per_session):
            following, value = np.tensordot(self._moves, value, 1), np.zeros_like(value)
            for state, (late, written_usd, reads, sets) in enumerate(tables):
                for read in range(n_sets):
                    price = np.array([self._read_usd(m, warm=bool(read >> m & 1)) for m in range(self._k)])
                    after = sets @ following[state][[read | each for each in range(n_sets)]]
                    lates, usds = late + after[:, 0], written_usd + reads @ price + after[:, 1]
                    best = np.argmin(lates + late_per_usd * usds)
                    value[state, read] = lates[best], usds[best]
        start: Floats = np.tensordot(self._weights, value[:, 0], 1)
        return start

    def at_cost_each_hour(self, factor: float) -> float:
        """Return the fewest late turns if the cost of each load is at most this multiple of the first model's."""
        return float(np.mean([self.at_cost(factor, (load,))[0] for load in range(len(LOADS))]))

    def at_cost(self, factor: float, loads: Sequence[int] = range(len(LOADS))) -> tuple[float, float]:
        """Return the fewest late turns at this multiple of the first model's cost, and the cost that they have."""
        budget_usd = factor * self.single_usd()
        low, high = 1e-1, 1e7
        for _ in range(22):
            middle = float(np.sqrt(low * high))
            low, high = (middle, high) if self.optimum(middle, loads)[1] > budget_usd else (low, middle)
        late, usd = self.optimum(high, loads)
        # Weak duality: below this line is no plan, not even one that mixes plans.
        return late + high * (usd - budget_usd), usd / self.single_usd()


def _bad_share() -> float:
    lasts_s = WORLD.incident_median_s * float(np.exp(0.8**2 / 2))
    return lasts_s / (lasts_s + 3_600 / WORLD.incidents_per_h)


def _moves(states: list[tuple[bool, ...]], bad_share: float) -> Floats:
    """Return the chance of each state at a session's next turn, (n_states, n_states)."""
    between_s = WORLD.sessions_at_once / WORLD.turns_per_s
    ends = 1 - np.exp(-between_s / (WORLD.incident_median_s * np.exp(0.8**2 / 2)))
    begins = ends * bad_share / (1 - bad_share)
    one = np.array([[1 - begins, begins], [ends, 1 - ends]])
    rows = [[np.prod([one[int(a), int(b)] for a, b in zip(old, new, strict=True)]) for new in states] for old in states]
    return np.array(rows)


ROWS: Final[Mapping[str, Mapping[str, bool]]] = {
    "given": {"hold": True, "learned": False},
    "given, replaced at the deadline": {"hold": True, "learned": False, "replaces": True},
    "first to speak": {"hold": False, "learned": False},
    "learned": {"hold": False, "learned": True},
}
"""The rules of each row of the table."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the bounds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pool", default="mid", choices=list(published_pools()))
    parser.add_argument("--slower", type=float, default=1.0)
    parser.add_argument("--deadline-ms", type=int, default=600)
    parser.add_argument("--row", action="append", choices=list(ROWS), help="only this one; may be repeated")
    parser.add_argument("--draws", type=int, default=N_DRAWS, help="of each state; few make the bound lower (20000)")
    parser.add_argument("--cost", type=float, nargs="+", default=[1.0, 1.1, 1.3])
    options = parser.parse_args(arguments)
    pool = published_pools()[options.pool]
    for name in options.row or ROWS:
        world = {"slower": options.slower, "deadline_ms": options.deadline_ms, "n_draws": options.draws}
        bound = Bound(pool, **world, **ROWS[name])
        line = [f"{pool.name}, {name}: one model {bound.single_late():.2%}"]
        for cost in options.cost:
            late, spent = bound.at_cost(cost)
            saved = f" (spends {spent:.2f})" if spent < cost - 0.005 else ""
            line.append(f"at cost {cost:.2f} at least {late:.2%}{saved}, each hour {bound.at_cost_each_hour(cost):.2%}")
        sys.stdout.write("; ".join(line) + "\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
