"""What calls cost, by what their providers counted."""

from __future__ import annotations

import pytest

from voicepipe.ports.model import Usage
from voicepipe.router.candidate import Candidate
from voicepipe.router.llm.usage import attempted, cached_share, summed
from voicepipe.router.race import Attempt
from voicepipe.turn.pricing import Price

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


def test_a_share_of_nothing_is_unknown() -> None:
    assert cached_share(Usage(input_tokens=0, output_tokens=5)) is None
    assert cached_share(Usage(input_tokens=1_000, output_tokens=5, cached_tokens=250)) == 0.25


def test_without_prices_of_their_own_they_cost_what_others_do() -> None:
    assert Price(1.0, 10.0).cost_usd(1_000, 0, 300, 600) == pytest.approx(1_000 / 1e6)


def test_counts_that_come_in_parts_are_one() -> None:
    part = Usage(input_tokens=10, output_tokens=1, cached_tokens=2, cache_write_tokens=3)
    whole = Usage(input_tokens=20, output_tokens=2, cached_tokens=4, cache_write_tokens=6)
    assert summed(summed(None, part), part) == whole
