"""What the router has learned outlives a restart; a bad file does no harm."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from voicepipe.router.build import build_pool
from voicepipe.router.candidate import Candidate
from voicepipe.router.options import RouterOptions
from voicepipe.router.pool import Pool, SharedStats
from voicepipe.router.saved_state import FILE, MAX_BYTES, restore, save, state_of

A = Candidate(spec="a/m", ttft_p50_ms=250.0)
B = Candidate(spec="b/m", ttft_p50_ms=250.0)


def router() -> tuple[SharedStats, dict[str, Pool]]:
    stats = SharedStats()
    return stats, {"p": build_pool("p", (A, B), RouterOptions(), stats)}


def taught() -> tuple[SharedStats, dict[str, Pool]]:
    """A is four times as slow as published, for half an hour; the pool is in debt."""
    stats, pools = router()
    for i in range(1_800):
        stats.latency.survival(A).spoke(1_000.0, 1_000.0 * i)
    pools["p"].hedge_budget.spent(0.01)
    return stats, pools


def test_a_restart_forgets_neither_a_models_times_nor_a_pools_debt(tmp_path: Path) -> None:
    stats, pools = taught()
    save(tmp_path, state_of(stats, pools))
    after, pools_after = router()
    assert restore(tmp_path, after, pools_after)
    assert after.latency.quantile_ms(A, 0.5, 0.0) == pytest.approx(1_000, rel=0.15)
    assert after.latency.quantile_ms(B, 0.5, 0.0) == pytest.approx(250, rel=0.1)
    assert pools_after["p"].hedge_budget.level_usd == pytest.approx(pools["p"].hedge_budget.level_usd)
    assert [each.name for each in tmp_path.iterdir()] == [FILE]


def test_models_that_are_known_already_continue_too(tmp_path: Path) -> None:
    save(tmp_path, state_of(*taught()))
    after, pools = router()
    after.latency.survival(A)
    assert restore(tmp_path, after, pools)
    assert after.latency.quantile_ms(A, 0.5, 0.0) == pytest.approx(1_000, rel=0.15)


def test_without_a_file_it_starts_fresh(tmp_path: Path) -> None:
    assert not restore(tmp_path, *router())


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "[]",
        "{",
        {"version": 99},
        {"models": []},
        {"models": {"a/m": {"silent": [1.0]}}},
        {"models": {"a/m": {"silent": [-1.0] * 71, "spoke": [0.0] * 71, "stayed_ms": [0.0] * 55}}},
        {"models": {"a/m": {"silent": ["x"]}}},
        {"pools": {"p": {}}},
        {"pools": {"p": {"level_usd": float("nan"), "weight": 1.0}}},
        " " * (MAX_BYTES + 1),
    ],
)
def test_a_bad_file_is_refused_and_changes_nothing(tmp_path: Path, bad: str | dict[str, Any]) -> None:
    """A text in place of the state, or a state with other values."""
    (tmp_path / FILE).write_text(bad if isinstance(bad, str) else json.dumps({**state_of(*taught()), **bad}))
    stats, pools = router()
    with pytest.raises(ValueError):  # noqa: PT011  json's own error, or one of ours
        restore(tmp_path, stats, pools)
    assert state_of(stats, pools) == state_of(*router())


def test_a_write_that_fails_leaves_the_former_file(tmp_path: Path) -> None:
    save(tmp_path, state_of(*taught()))
    before = (tmp_path / FILE).read_text()
    with pytest.raises(TypeError):
        save(tmp_path, {"version": object()})
    assert (tmp_path / FILE).read_text() == before
    assert [each.name for each in tmp_path.iterdir()] == [FILE]
