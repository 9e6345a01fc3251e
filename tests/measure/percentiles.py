"""Write the spread of measured times as a line."""

from __future__ import annotations


def times(values: list[int]) -> str:
    """Return the number of values, the median, the 95th percentile and the largest."""
    if not values:
        return "none"
    ordered = sorted(values)
    p50, p95 = (ordered[min(len(ordered) - 1, len(ordered) * share // 100)] for share in (50, 95))
    return f"n {len(values)}, p50 {p50}, p95 {p95}, max {ordered[-1]}"
