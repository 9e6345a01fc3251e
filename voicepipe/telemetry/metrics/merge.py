"""Merge the texts of `/metrics` of several processes that serve one port.

`prometheus.Metrics` wrote all texts: a sample has the same name and labels in each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from voicepipe.telemetry.metrics.catalog import BY_NAME, FAMILIES, Sample

_START_TIME: Final = "process_start_time_seconds"
_MERGED_BY_MAX: Final = frozenset(family.full_name for family in FAMILIES if family.merge_by == "max")


class _Family:
    """The samples of one metric."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.comments: list[str] = []
        self.kind = ""
        self.values: dict[str, float] = {}
        """Name and labels -> value."""

    def add(self, sample: str, value: float) -> None:
        known = self.values.get(sample)
        self.values[sample] = value if known is None else self._merge()((known, value))

    def _merge(self) -> Callable[[Iterable[float]], float]:
        if self.name == _START_TIME:
            return min
        return max if self.name in _MERGED_BY_MAX else sum

    def lines(self) -> Iterable[str]:
        yield from self.comments
        yield from (f"{sample} {value!r}" for sample, value in self.values.items())


def merged(texts: Sequence[bytes]) -> bytes:
    """Return one text: counters, histograms and most gauges are summed; of limits and states the largest value counts.

    Takes milliseconds: call it from a worker thread.
    """
    return _text(_families(texts))


def counters(text: bytes) -> bytes:
    """Return the counters and histograms of a text: they count on after the process has ended."""
    return _text(family for family in _families([text]) if family.kind in ("counter", "histogram"))


def sample_text(sample: Sample) -> bytes:
    """Return the text of one sample without labels."""
    family = BY_NAME[sample.name]
    kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    metric = kind(family.full_name, family.help)
    metric.add_metric((), sample.value)
    registry = CollectorRegistry(auto_describe=False)
    registry.collect = lambda: iter([metric])  # type: ignore[method-assign]
    return generate_latest(registry)


def _families(texts: Sequence[bytes]) -> Iterable[_Family]:
    families: dict[str, _Family] = {}
    for text in texts:
        family = _Family("")
        for line in text.decode().splitlines():
            if line.startswith("# "):
                _, what, name, *rest = line.split(" ", 3)
                family = families.setdefault(name, _Family(name))
                if what == "TYPE":
                    family.kind = rest[0]
                if len(family.comments) < 2:
                    family.comments.append(line)
            elif line:
                sample, _, value = line.rpartition(" ")
                family.add(sample, float(value))
    return families.values()


def _text(families: Iterable[_Family]) -> bytes:
    return "".join(f"{line}\n" for family in families for line in family.lines()).encode()
