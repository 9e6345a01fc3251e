"""The plans of one pool for one deadline: computed from the latest statistics when the router first needs them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from operator import itemgetter
from typing import Final

from voicepipe.router.decision import PlanOptions, PricedPlan
from voicepipe.router.hedge_budget import HedgeBudget
from voicepipe.router.hedging import Hedge, PlanBasis, Planner
from voicepipe.router.options import RouterOptions
from voicepipe.router.policies import Candidates
from voicepipe.router.race import Later, RacePlan

HOLD_MARGIN_MS: Final = 10
"""A held answer is released this long before the deadline."""

MAX_REBUILT: Final = 16
"""Kinds of requests whose first plans are made again after a rebuild: the latest of them."""

Ordered = tuple[int, ...]
"""Candidates in the order of the policies, each as its index in the pool."""

Kind = tuple[Ordered, int, int, int | None, int | None]
"""What a request's plans depend on: the arguments of `PlanTable.plans`."""


class PlanList:
    """Plans, best first. Each is made when it is first reached: nearly every request takes the first one."""

    def __init__(self, rest: Iterator[PricedPlan]) -> None:
        self._made: list[PricedPlan] = []
        self._rest = _remembered(rest, self._made)

    def __iter__(self) -> Iterator[PricedPlan]:
        return chain(self._made, self._rest)

    def affordable(self, budget: HedgeBudget, share: float) -> tuple[RacePlan, float]:
        """Return the first plan that the hedge budget can pay for, else the cheapest; and its worst-case cost.

        `share`: the input of the request, as a multiple of the usual one.
        """
        available_usd = budget.available_usd
        for each in self:
            worst_usd = each.worst_usd(share)
            if worst_usd <= 0:
                return each.plan, 0.0
            # A small investment leaves enough for the others.
            reserved_usd = budget.reserved_usd if each.warms_cache and worst_usd > budget.cap_usd else 0.0
            if worst_usd <= available_usd - reserved_usd:
                return each.plan, worst_usd
        worst_usd, cheapest = min(((each.worst_usd(share), each) for each in self), key=itemgetter(0))
        return cheapest.plan, max(0.0, worst_usd)


class PlanTable:
    """The plans of a pool for one deadline. `rebuild` it off the hot path."""

    def __init__(self, candidates: Candidates, options: RouterOptions, deadline_ms: int) -> None:
        self.hold_until_ms = float(deadline_ms - HOLD_MARGIN_MS) if options.prefers_first else None
        self.planner = Planner(candidates, deadline_ms, self.hold_until_ms or 0.0)
        self.bounds = PlanOptions(float(deadline_ms), float(options.attempt_timeout_ms))
        self.built_ms = 0.0
        """When it was rebuilt."""

        self._candidates, self._learns = candidates, options.order == "learned"
        self._prefers_first = options.prefers_first
        self._plans: dict[Kind, PlanList] = {}
        self._former: list[Kind] = []
        """The kinds of requests before the latest rebuild."""

        self._read_usd: tuple[list[float], list[float]] = ([], [])
        """Of a usual turn, each candidate's price of the input where its cache is cold, and where it is warm."""

        self._written_usd: list[float] = []
        """Of a usual turn, each candidate's price of the answer."""

    def price(self, tokens: tuple[float, float]) -> None:
        """Compute the prices of a usual turn. `tokens`: its input and its output tokens."""
        cold, warm = ([each.read_usd(tokens[0], warm=warm) for each in self._candidates] for warm in (False, True))
        self._read_usd = cold, warm
        self._written_usd = [each.answer_usd(0.0, tokens[1], warm=False) for each in self._candidates]

    def cheapest_hedge_usd(self) -> float:
        """Return the most that the cheapest hedge of the first choice costs, of a usual turn that is not cached."""
        hedges = ((0, each) for each in range(1, len(self._candidates)))
        return min(sum(self._worst_usd(each, 0, is_known=False)) for each in hedges)

    def rebuild(self, basis: PlanBasis) -> None:
        """Drop all plans: the next ones follow from this basis, and from the latest prices."""
        self.planner.rebuild(basis)
        self._former = list(self._plans)[-MAX_REBUILT:]
        self._plans.clear()
        self.built_ms = basis.now_ms

    def make_again(self) -> None:
        """Make the first plan of each kind of request that came before the rebuild, so that the next one finds it."""
        for kind in self._former:
            next(iter(self._list(kind)))

    def plans(self, ordered: Ordered, warm: int, turn: int, *, last: int | None, due: int | None) -> PlanList:
        """Return the plans for these candidates, best first; the last one is within any budget.

        Args:
            warm: the candidates that have the session in their cache, as a bit mask.
            turn: turns of the session before this one.
            last: the candidate that answered last, of a pool that learns its order.
            due: the candidate to begin with, of such a pool.
        """
        return self._list((ordered, warm, turn, last, due))

    def _list(self, kind: Kind) -> PlanList:
        known = self._plans.get(kind)
        if known is None:
            known = self._plans[kind] = PlanList(self._make(*kind))
        return known

    def _make(self, ordered: Ordered, warm: int, turn: int, last: int | None, due: int | None) -> Iterator[PricedPlan]:
        allowed = _mask(ordered)
        firsts = ordered[:1]
        if self._learns:
            scored = sorted(ordered, key=lambda i: self.planner.score(i, warm, allowed, turn, last=last))
            firsts = tuple(scored) if due is None else (due, *scored)
        for first in firsts:
            yield from self._from(first, ordered, warm, allowed, turn)

    def _from(self, first: int, ordered: Ordered, warm: int, allowed: int, turn: int) -> Iterator[PricedPlan]:
        """Return the plans that begin with this candidate: the best hedge, the second best, ..., none."""
        while True:
            hedge = self.planner.hedge(first, warm, allowed, turn)
            yield from self._with(hedge, first, ordered, warm)
            if hedge.second is None:
                return
            allowed &= ~(1 << hedge.second)

    def _with(self, hedge: Hedge, first: int, ordered: Ordered, warm: int) -> Iterator[PricedPlan]:
        """Return the plans with this hedge: with a third candidate at the deadline where that pays, and without."""
        planner, chosen = self.planner, self._candidates[first]
        second = hedge.second if hedge.after_ms < self.bounds.deadline_ms else None
        reserve = [each for each in ordered if each not in (first, second)]
        if second is None and reserve:
            # Silent at the deadline, the first is replaced, whatever the budget holds: by the best for that time.
            late = planner.replacement(first, warm, _mask(reserve))
            reserve.sort(key=lambda each: each != late)
        planned = (first,) if second is None else (first, second)
        later = () if second is None else (Later(self._candidates[second], hedge.after_ms),)
        warms_cache = second is not None and not warm >> second & 1
        is_late = second is not None and bool(reserve) and planner.pays_late(first, hedge, reserve[0], warm)
        for starts_late in (True, False) if is_late else (False,):
            plan = self.bounds.plan(
                chosen,
                later=later,
                reserve=tuple(self._candidates[each] for each in reserve),
                hold_until_ms=self.hold_until_ms,
                starts_late=starts_late,
            )
            calls = (*planned, reserve[0]) if starts_late else planned
            yield PricedPlan(plan, *self._worst_usd(calls, warm, is_known=bool(warm)), warms_cache)

    def _worst_usd(self, calls: Ordered, warm: int, *, is_known: bool) -> tuple[float, float]:
        """Return the most that these calls cost above the first choice alone, for input and for output: all read, and
        the most expensive answers. A held hedge may have written its answer too."""
        reads = sum(self._read_usd[warm >> each & 1][each] for each in calls)
        answers = [self._written_usd[each] for each in calls]
        answers_usd = sum(answers) if self._prefers_first else max(answers)
        return reads - self._read_usd[is_known][0], answers_usd - self._written_usd[0]


def _remembered(plans: Iterator[PricedPlan], made: list[PricedPlan]) -> Iterator[PricedPlan]:
    for each in plans:
        made.append(each)
        yield each


def _mask(candidates: tuple[int, ...] | list[int]) -> int:
    mask = 0
    for each in candidates:
        mask |= 1 << each
    return mask
