"""What calls cost, by what their providers counted."""

from __future__ import annotations

import pytest

from voicepipe.ports.model import Usage
from voicepipe.router.candidate import Candidate
from voicepipe.router.llm.usage import attempted, cached_share, failover_usd, summed
from voicepipe.router.race import Attempt, AttemptRole, AttemptState
from voicepipe.turn.cost import Price

PRICE = Price(1.0, 10.0, 0.1, 1.25)


def test_tokens_from_and_for_the_cache_have_their_own_prices() -> None:
    spoke = Attempt(0, Candidate(spec="a/m", price=PRICE), "primary", 0.0, state="spoke", first_ms=90.0)
    usage = Usage(input_tokens=1_000, output_tokens=50, cached_tokens=300, cache_write_tokens=600)
    attempt = attempted(spoke, (1_000.0, 50.0), usage, None, began_ms=0.0, cached_share=0.3)
    assert attempt.cost_usd == pytest.approx((100 * 1.0 + 300 * 0.1 + 600 * 1.25 + 50 * 10.0) / 1e6)


@pytest.mark.parametrize(("share", "read_usd"), [(0.0, 1_000 * 1.0), (0.9, 100 * 1.0 + 900 * 0.1)])
def test_a_loser_is_charged_by_what_its_provider_counted_before(share: float, read_usd: float) -> None:
    """It was closed before its provider counted; a cache that never answered is none."""
    lost = Attempt(0, Candidate(spec="a/m", price=PRICE), "hedge", 0.0, state="lost", ended_ms=90.0)
    attempt = attempted(lost, (1_000.0, 50.0), None, None, began_ms=0.0, cached_share=share)
    assert attempt.cost_usd == pytest.approx(read_usd / 1e6)


DEAR, CHEAP = Candidate(spec="dear/m"), Candidate(spec="cheap/m")


def call(
    number: int, role: AttemptRole, state: AttemptState, *, of: Candidate = CHEAP, began_ms: float = 0.0
) -> Attempt:
    return Attempt(number, of, role, began_ms, state=state, ended_ms=began_ms + 100.0)


@pytest.mark.parametrize(
    ("costs", "extra_usd", "expected_usd"),
    [
        ([(call(0, "primary", "lost", of=DEAR), 0.4), (call(1, "hedge", "spoke"), 0.8)], 0.2, 0.0),
        (
            [(call(0, "primary", "lost", of=DEAR), 0.4), (call(1, "replacement", "spoke", began_ms=600.0), 0.8)],
            0.2,
            0.2,
        ),
        (
            [(call(0, "primary", "failed", of=DEAR), 0.0), (call(1, "replacement", "spoke", began_ms=100.0), 0.8)],
            -0.2,
            0.0,
        ),
        (
            [
                (call(0, "primary", "failed", of=DEAR), 0.0),
                (call(1, "hedge", "lost"), 0.5),
                (call(2, "replacement", "spoke", began_ms=100.0), 0.9),
            ],
            0.4,
            0.4,
        ),
        (
            [
                (call(0, "primary", "lost", of=DEAR), 0.4),
                (call(1, "hedge", "lost"), 0.5),
                (call(2, "replacement", "spoke", began_ms=600.0), 0.9),
            ],
            0.8,
            0.0,
        ),
        ([(call(0, "primary", "spoke", of=DEAR), 1.3)], 0.3, 0.3),
        ([(call(0, "primary", "spoke", of=DEAR), 1.0), (call(1, "probe", "lost"), 0.2)], 0.2, 0.2),
    ],
    ids=["hedge", "late", "cheaper", "hedge and failure", "third", "cache lost", "probe"],
)
def test_a_failover_is_no_hedge(costs: list[tuple[Attempt, float]], extra_usd: float, expected_usd: float) -> None:
    assert failover_usd(costs, extra_usd, first=DEAR, is_down=False) == pytest.approx(expected_usd)


@pytest.mark.parametrize(("is_down", "expected_usd"), [(False, 0.0), (True, 0.5)])
def test_another_primary_is_a_failover_while_the_first_choice_is_down(is_down: bool, expected_usd: float) -> None:
    costs = [(call(0, "primary", "spoke"), 1.5)]
    assert failover_usd(costs, 0.5, first=DEAR, is_down=is_down) == pytest.approx(expected_usd)


def test_a_share_of_nothing_is_unknown() -> None:
    assert cached_share(Usage(input_tokens=0, output_tokens=5)) is None
    assert cached_share(Usage(input_tokens=1_000, output_tokens=5, cached_tokens=250)) == 0.25


def test_without_prices_of_their_own_they_cost_what_others_do() -> None:
    assert Price(1.0, 10.0).cost_usd(1_000, 0, 300, 600) == pytest.approx(1_000 / 1e6)


def test_counts_that_come_in_parts_are_one() -> None:
    part = Usage(input_tokens=10, output_tokens=1, cached_tokens=2, cache_write_tokens=3)
    whole = Usage(input_tokens=20, output_tokens=2, cached_tokens=4, cache_write_tokens=6)
    assert summed(summed(None, part), part) == whole
