"""Policies that select the models and their order: each is pure, has one rule, and composes with the others.

A policy gets the candidates in the order so far and returns them in its own order. Candidates that it leaves out get
the request only when all others have failed. Present statistics come as `PolicyStats`.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, Protocol

from msgspec import Struct

from voicepipe.router.candidate import Candidate
from voicepipe.turn.record.arm import NO_ARM, Arm

Candidates = tuple[Candidate, ...]

MAX_LOAD: Final = 1.25
"""Load of a replica, relative to the mean, above which its sessions overflow to the next. Source: Mirrokni, Thorup,
Zadimoghaddam, "Consistent Hashing with Bounded Loads" (2016), whose bound is any factor above 1."""

NEAR_MS: Final = 5.0
"""Round trips that differ by less are alike: the next measurement may have them the other way round."""

Complexity = Literal["easy", "medium", "hard"]
CLASSES: Final[tuple[Complexity, ...]] = ("easy", "medium", "hard")

CandidateOrder = Literal["learned", "given", "price", "ttft", "region", "sticky"]


class RoutingQuery(NamedTuple):
    """The part of a request that policies read: one is made for each request."""

    session: str = ""
    user: str = ""
    metadata: Mapping[str, str] = MappingProxyType({})
    text: str = ""
    """The user's latest words."""

    input_tokens: float = 0.0
    """Estimated tokens of the whole request; 0: not known."""

    n_functions: int = 0
    deadline_ms: int | None = None
    """Deadline of the first speakable token; None: the pool's deadline."""

    complexity: Complexity | None = None
    """The class that a judge has found; None: the pool's heuristic judges."""

    @property
    def key(self) -> str:
        """Return the key that keeps a choice stable: the user if one is named, else the session."""
        return self.user or self.session


class PolicyStats(Protocol):
    """The present statistics that policies read."""

    def ttft_ms(self, candidate: Candidate) -> float:
        """Return its median time to the first token, learned, in ms."""
        ...

    def in_flight(self, candidate: Candidate) -> int:
        """Return its number of running calls."""
        ...

    def distance_ms(self, candidate: Candidate) -> float | None:
        """Return the round trip to its address, in ms; None: not measured."""
        ...


Policy = Callable[[Candidates, RoutingQuery, PolicyStats], Candidates]


def chain(*policies: Policy) -> Policy:
    """Return a policy that applies these one after the other."""
    if len(policies) == 1:
        return policies[0]

    def all_of_them(candidates: Candidates, query: RoutingQuery, stats: PolicyStats) -> Candidates:
        for policy in policies:
            candidates = policy(candidates, query, stats)
        return candidates

    return all_of_them


def given(candidates: Candidates, query: RoutingQuery, stats: PolicyStats) -> Candidates:
    """Return the candidates in the order in which they were written."""
    return candidates


def by_price(candidates: Candidates, query: RoutingQuery, stats: PolicyStats) -> Candidates:
    """Return the cheapest first, by a usual turn of a voice agent: long input, short output."""
    return tuple(sorted(candidates, key=lambda each: each.answer_usd(1_500, 80, warm=False)))


def by_ttft(candidates: Candidates, query: RoutingQuery, stats: PolicyStats) -> Candidates:
    """Return the one with the shortest recent time to the first token first."""
    return tuple(sorted(candidates, key=stats.ttft_ms))


def by_region(region: str) -> Policy:
    """Return a policy that puts the nearest first: by the measured round trip, in steps of `NEAR_MS`; else, and where
    they are alike, the region with the most leading words in common with the server's. What was not measured is
    last."""

    def near(candidates: Candidates, query: RoutingQuery, stats: PolicyStats) -> Candidates:
        def rank(each: Candidate) -> tuple[float, int]:
            distance_ms = stats.distance_ms(each)
            steps = math.inf if distance_ms is None else distance_ms // NEAR_MS
            return steps, -_words_shared(each.region, region)

        return tuple(sorted(candidates, key=rank))

    return near


def sticky(candidates: Candidates, query: RoutingQuery, stats: PolicyStats) -> Candidates:
    """Return the same candidate first for the same user or session, while it is there and not overloaded: its cache
    is warm.

    Rendezvous hashing: when a candidate is removed, only its own sessions move.
    """
    ordered = sorted(candidates, key=lambda each: _digest(f"{query.key}\0{each.spec}"), reverse=True)
    n_running = sum(map(stats.in_flight, candidates)) + 1
    most = math.ceil(MAX_LOAD * n_running / max(1, len(candidates)))
    return tuple(sorted(ordered, key=lambda each: stats.in_flight(each) >= most))


def cascade(easy: frozenset[str], medium: frozenset[str], class_of: Callable[[RoutingQuery], Complexity]) -> Policy:
    """Return a policy that sends easy questions to the models in `easy`, medium ones to those in `medium`, and all
    others to the rest. A class without models gets those of the next harder one; the hardest, all."""

    def tiers(candidates: Candidates, query: RoutingQuery, stats: PolicyStats) -> Candidates:
        groups: dict[Complexity, Candidates] = {
            "easy": tuple(each for each in candidates if each.spec in easy),
            "medium": tuple(each for each in candidates if each.spec in medium),
            "hard": tuple(each for each in candidates if each.spec not in easy and each.spec not in medium),
        }
        complexity = query.complexity or class_of(query)
        harder = CLASSES[CLASSES.index(complexity) :]
        return next((groups[each] for each in harder if groups[each]), candidates)

    return tiers


class Rule(Struct, frozen=True):
    """Requests that meet all of `when` go to `pool`."""

    name: str
    when: tuple[tuple[str, tuple[str, ...]], ...]
    """(name, values): the metadata's value must be one of these; `*` is any."""

    pool: str

    def applies(self, metadata: Mapping[str, str]) -> bool:
        """Return whether a request with this metadata meets the rule."""
        return all(_is_one_of(metadata.get(name), values) for name, values in self.when)


class Experiment(Struct, frozen=True):
    """Requests that meet all of `when` are split by percentage; a session or user never changes its arm."""

    name: str
    when: tuple[tuple[str, tuple[str, ...]], ...]
    split: tuple[tuple[str, float], ...]
    """(pool, percent); the rest to 100 keeps its pool."""

    def arm(self, query: RoutingQuery) -> Arm:
        """Return the arm of this request; `NO_ARM`: it takes no part."""
        if not all(_is_one_of(query.metadata.get(name), values) for name, values in self.when):
            return NO_ARM
        at = 100.0 * _digest(f"{self.name}\0{query.key}") / 2**64
        for pool, percent in self.split:
            at -= percent
            if at < 0:
                return Arm(self.name, pool)
        return NO_ARM


class PoolChoice(Struct, frozen=True):
    """The pool of one request."""

    pool: str
    """Empty: the agent has no pool."""

    why: str = ""
    """The reason, for an operator; empty: it is the agent's own."""

    arm: Arm = NO_ARM
    """The arm of an experiment."""


def pool_of(
    query: RoutingQuery, home: PoolChoice, rules: tuple[Rule, ...], experiments: tuple[Experiment, ...]
) -> PoolChoice:
    """Return the pool of a request: an experiment's arm, else the first matching rule's, else `home`, its agent's."""
    for experiment in experiments:
        if arm := experiment.arm(query):
            return PoolChoice(arm.pool, f"experiment {arm.experiment}: {arm.pool}", arm)
    for rule in rules:
        if rule.applies(query.metadata):
            return PoolChoice(rule.pool, f"rule {rule.name}")
    return home


def _is_one_of(value: str | None, values: tuple[str, ...]) -> bool:
    return value is not None and ("*" in values or value.lower() in values)


def _words_shared(one: str, other: str) -> int:
    shared = 0
    for a, b in zip(one.lower().split("-"), other.lower().split("-"), strict=False):
        if not a or a != b:
            break
        shared += 1
    return shared


def _digest(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())
