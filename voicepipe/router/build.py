"""Build a pool from its options."""

from __future__ import annotations

from collections.abc import Callable

from voicepipe.router.candidate import Candidate
from voicepipe.router.options import PoolOptions, RouterOptions
from voicepipe.router.policies import (
    Candidates,
    Complexity,
    Policy,
    RoutingQuery,
    by_price,
    by_region,
    by_ttft,
    cascade,
    chain,
    given,
    sticky,
)
from voicepipe.router.pool import Pool, SharedStats


def build_pool(
    name: str,
    candidates: Candidates,
    options: RouterOptions,
    stats: SharedStats,
    *,
    judge_candidate: Candidate | None = None,
    n_processes: int = 1,
) -> Pool:
    """Return a pool of these candidates, best first; `judge_candidate` judges how hard a question is. The
    `n_processes` of the server share its hedge budget.

    Raises:
        ConfigError: `options.complexity` names no heuristic.
    """
    key = f"pools.{name}.complexity"
    class_of = _judge(options, key) if isinstance(options, PoolOptions) and options.has_classes else None
    policy = policy_of(options, key=key)
    return Pool(
        name,
        candidates,
        options,
        policy,
        stats,
        class_of=class_of,
        judge=judge_candidate,
        n_processes=n_processes,
    )


def policy_of(options: RouterOptions, *, key: str) -> Policy:
    """Return the order in the options as one policy.

    Raises:
        ConfigError: naming `key`, as `build_pool`.
    """
    policies = [_order(options)]
    if isinstance(options, PoolOptions) and options.has_classes:
        groups = frozenset(options.easy_models), frozenset(options.medium_models)
        policies.append(cascade(*groups, _judge(options, key)))
    return chain(*policies)


def _judge(options: PoolOptions, key: str) -> Callable[[RoutingQuery], Complexity]:
    # Imported late: it compiles long patterns, and few pools have classes.
    from voicepipe.router.complexity import judge

    return judge(options.complexity, key=key)


def _order(options: RouterOptions) -> Policy:
    match options.order:
        case "price":
            return by_price
        case "ttft":
            return by_ttft
        case "region":
            return by_region(options.region)
        case "sticky":
            return sticky
        case "given" | "learned":
            return given
