"""The sketch of latencies: its error is bounded, and merging loses nothing."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicepipe.quantile import MAX_MS, MIN_MS, RELATIVE_ERROR, Sketch, state_of_one

durations_ms = st.floats(min_value=0, max_value=MAX_MS, allow_subnormal=False).filter(lambda v: v == 0 or v >= MIN_MS)
samples = st.lists(durations_ms, max_size=200)
quantiles = st.floats(min_value=0, max_value=1)


def true_quantile(values: list[float], q: float) -> float:
    """By its definition: the smallest that at least this share does not exceed."""
    within = (value for n, value in enumerate(sorted(values), 1) if n >= q * len(values) - 1e-9)
    return next(within)


def test_of_few_values_the_highest_quantiles_are_the_largest() -> None:
    """If 95 % of the turns are reported to be within a time, a fifth of them can't be above it."""
    sketch = Sketch([100, 200, 300, 400, 1_000])
    assert sketch.p95_ms == sketch.p99_ms == pytest.approx(1_000, rel=RELATIVE_ERROR)
    assert sketch.p50_ms == pytest.approx(300, rel=RELATIVE_ERROR)
    assert sketch.quantile(0) == 100


@given(value_ms=durations_ms)
def test_a_sketch_of_one_value_is_known_without_making_it(value_ms: float) -> None:
    assert state_of_one(value_ms) == Sketch([value_ms]).state


def test_the_promised_error_is_at_most_one_percent() -> None:
    """The bound that the docstring states."""
    assert 0.005 < RELATIVE_ERROR <= 0.01


@given(values=samples.filter(len), q=quantiles)
def test_every_quantile_is_within_the_relative_error(values: list[float], q: float) -> None:
    """Whatever the values, the reported quantile is as near to the true one as promised."""
    estimate, true = Sketch(values).quantile(q), true_quantile(values, q)
    assert estimate is not None
    assert abs(estimate - true) <= RELATIVE_ERROR * true * (1 + 1e-9)


@given(parts=st.lists(samples, max_size=5))
def test_merged_parts_equal_the_whole(parts: list[list[float]]) -> None:
    """Merging sketches is the same as having counted everything in one."""
    merged = Sketch()
    for part in parts:
        merged.merge(Sketch(part))
    assert merged.to_bytes() == Sketch(value for part in parts for value in part).to_bytes()


@given(left=samples, right=samples)
def test_merging_does_not_depend_on_order(left: list[float], right: list[float]) -> None:
    """Left into right, or right into left."""
    one, other = Sketch(left), Sketch(right)
    one.merge(Sketch(right))
    other.merge(Sketch(left))
    assert one.to_bytes() == other.to_bytes()


@given(values=samples, q=quantiles)
def test_bytes_bring_the_sketch_back(values: list[float], q: float) -> None:
    """A sketch that was stored answers as before and still counts."""
    sketch = Sketch(values)
    again = Sketch.from_bytes(sketch.to_bytes())
    assert (again.count, again.quantile(q), again.to_bytes()) == (sketch.count, sketch.quantile(q), sketch.to_bytes())


def test_one_value_is_exact() -> None:
    """A single turn's figure is its own figure, not a bucket's."""
    sketch = Sketch([512])
    assert (sketch.p50_ms, sketch.p95_ms, sketch.p99_ms) == (512, 512, 512)


def test_an_empty_sketch_has_no_quantiles() -> None:
    """No turns: no figure, rather than zero."""
    assert Sketch().p50_ms is None


def test_memory_stays_bounded() -> None:
    """A hundred thousand different values take no more buckets than the range has."""
    sketch = Sketch(MIN_MS * 1.0003**i for i in range(100_000))
    assert len(sketch.to_bytes()) < 15_000


@pytest.mark.parametrize("value", [-1, -0.001, math.nan, -math.inf])
def test_what_is_no_duration_is_refused(value: float) -> None:
    """Negative time and nonsense raise and count nothing."""
    sketch = Sketch()
    with pytest.raises(ValueError, match="0 ms or more"):
        sketch.add(value)
    assert sketch.count == 0


def test_more_than_the_ceiling_counts_as_the_ceiling() -> None:
    """An endless wait doesn't grow the sketch."""
    assert Sketch([math.inf]).p50_ms == MAX_MS


@pytest.mark.parametrize("q", [-0.1, 1.1, math.nan])
def test_a_quantile_outside_zero_and_one_is_refused(q: float) -> None:
    """95 instead of 0.95 is an error, not an answer."""
    with pytest.raises(ValueError, match="from 0 to 1"):
        Sketch([1]).quantile(q)


@pytest.mark.parametrize(
    "data", [b"", b"nope", b"nope" + bytes(40), Sketch([1, 2]).to_bytes()[:-1], Sketch([1]).to_bytes() + b"x"]
)
def test_foreign_bytes_are_refused(data: bytes) -> None:
    """Bytes that are no sketch raise, with what was expected."""
    with pytest.raises(ValueError, match="expected"):
        Sketch.from_bytes(data)


def test_bands_count_each_value_once() -> None:
    """The last one has no bound."""
    sketch = Sketch([0, 100, 350, 450, 450, 5_000])
    assert sketch.bands((200, 400, 1_000)) == (2, 1, 2, 1)
    assert sum(sketch.bands(())) == 6
    assert Sketch().bands((200, 400)) == (0, 0, 0)
