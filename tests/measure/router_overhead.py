"""Measure the CPU time of routing itself: `python -m tests.measure.router_overhead [--answers 5000]`.

A model in the process that answers at once is asked directly and through a pool. Its first hedge is planned and not
started, as in most turns. CPU time is what other work of the machine moves least, but it moves too: work of the same
median that is no router's, measured in between, shows how far a p99 is the machine's (`plain work`). `collections` is
the share of answers during which the garbage collector ran, `tables` that during which the planner's table was rebuilt:
once a second, and here before the first token, since the model answers at once. A p99 with more than 1 % of them is
theirs; the row `no pause` leaves both out. `as plain` divides by the plain work's figure of the same column: what is
above 1 is the router's and not the machine's.

A second pass measures the parts of a routed answer: the choice (request, plan, ledger), the start (call, task, timer),
the change to the winner, the record (tokens, cost, ledger) and the learning. `slowest` is the part's mean in the
slowest 1 % of answers above its median: what the slow answers do.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from typing import Final
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import uvloop

from tests.router.measure import PRICES, routed
from voicepipe.ports.model import Finished, Model, ModelEvent, ModelRequest, Said, Text, TextDelta
from voicepipe.router.candidate import Candidate
from voicepipe.router.hedging import Planner
from voicepipe.router.llm.model import RoutedModel
from voicepipe.router.llm.request import RoutedAnswer
from voicepipe.router.options import RouterOptions

FIRST_ANSWERS: Final = 500
"""Not counted: what is imported, compiled and cached at first use."""

WARM_UP: Final = 200
"""Answers by whose median the plain work is sized."""


PROMPT: Final = "You answer questions about the museum. " * 150
WORDS: Final = (" word" * 16,) * 4
"""A usual turn: with prompts of a few tokens a hedge would cost nothing, and each turn would be a race."""


PARTS: Final[tuple[tuple[str, type, str], ...]] = (
    ("choice", RoutedModel, "_route"),
    ("choice", RoutedModel, "_answer"),
    ("start", RoutedAnswer, "begin"),
    ("winner", RoutedAnswer, "let_speak"),
    ("record", RoutedAnswer, "_account"),
    ("learning", RoutedAnswer, "_learn"),
)
"""The parts of a routed answer, and the functions in which they happen; none is inside another."""


class AtOnce:
    """A model that answers at once, each word in a turn of the loop of its own, as from a socket."""

    def __init__(self, name: str) -> None:
        self.name = name

    @asynccontextmanager
    async def open(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[ModelEvent]]:
        yield self._events()

    async def _events(self) -> AsyncIterator[ModelEvent]:
        for word in WORDS:
            yield TextDelta(word)
            await asyncio.sleep(0)
        yield Finished("stop")

    async def warm(self, request: ModelRequest) -> None:
        """Nothing to open."""


def pooled(models: dict[str, Model]) -> Model:
    """Return a pool of these models, whose first is well known to be fast."""
    candidates = tuple(
        Candidate(spec=spec, price=PRICES[i], ttft_p50_ms=60.0 * (i + 1)) for i, spec in enumerate(models)
    )
    return routed(models, RouterOptions(), candidates)


async def one(model: Model, session: str) -> tuple[float, float, float]:
    """Ask once; return the CPU time to the first token and to the end in microseconds, and 1 if the collector ran."""
    messages = (Said("system", (Text(PROMPT),)), Said("user", (Text("When does it open?"),)))
    request = ModelRequest(model="m", messages=messages, session=session)
    before, began_ns = collections(), time.thread_time_ns()
    first_ns = 0
    async with model.open(request) as events:
        async for event in events:
            if not first_ns and isinstance(event, TextDelta):
                first_ns = time.thread_time_ns() - began_ns
    return first_ns / 1e3, (time.thread_time_ns() - began_ns) / 1e3, float(collections() > before)


def collections() -> int:
    """Return how often the garbage collector has run."""
    return sum(each["collections"] for each in gc.get_stats())


def plain_work(n: int) -> float:
    """Return the CPU time of work on `n` small objects, in microseconds."""
    began_ns = time.thread_time_ns()
    {i: str(i) for i in range(n)}
    return (time.thread_time_ns() - began_ns) / 1e3


async def main(n: int) -> None:
    """Print the tables."""
    models: dict[str, Model] = {f"v{i}/m": AtOnce(f"v{i}/m") for i in range(3)}
    ways: dict[str, Model] = {"directly": models["v0/m"], "routed": pooled(models)}
    gc.collect()
    gc.freeze()  # as `voicepipe serve` does
    # Filled in place: tuples that stay would call the collector more often than a router's work does.
    rows = {name: np.zeros((n + FIRST_ANSWERS, 4)) for name in ways}
    plain_us = np.zeros(n + FIRST_ANSWERS)
    size = 300
    with patch.object(Planner, "rebuild", autospec=True, side_effect=Planner.rebuild) as rebuilt:
        for i in range(n + FIRST_ANSWERS):
            for name, model in ways.items():
                n_before = rebuilt.call_count
                rows[name][i, :3] = await one(model, f"s{i % 50}")
                rows[name][i, 3] = rebuilt.call_count > n_before
            plain_us[i] = plain_work(size)
            if i == WARM_UP:
                target_us = float(np.median(rows["routed"][:i, 0]))
                size = round(size * target_us / float(np.median(plain_us[:i])))
    report(n, {name: each[FIRST_ANSWERS:] for name, each in rows.items()}, plain_us[FIRST_ANSWERS:])
    report_parts(await parts(ways["routed"], n))


@contextmanager
def timed_parts(spent_us: dict[str, float]) -> Iterator[None]:
    """Add the CPU time of each part to `spent_us`."""

    def timed(part: str, function: Callable[..., object]) -> Callable[..., object]:
        def run(*arguments: object, **named: object) -> object:
            began_ns = time.thread_time_ns()
            try:
                return function(*arguments, **named)
            finally:
                spent_us[part] += (time.thread_time_ns() - began_ns) / 1e3

        return run

    with ExitStack() as stack:
        for part, owner, name in PARTS:
            stack.enter_context(patch.object(owner, name, timed(part, getattr(owner, name))))
        yield


async def parts(model: Model, n: int) -> dict[str, npt.NDArray[np.float64]]:
    """Return the CPU time of each part of every answer, and of the whole, in microseconds."""
    names = list(dict.fromkeys(part for part, _, _ in PARTS))
    times_us = {name: np.zeros(n) for name in (*names, "whole")}
    spent_us = dict.fromkeys(names, 0.0)
    with timed_parts(spent_us):
        for i in range(n):
            spent_us.update(dict.fromkeys(names, 0.0))
            _, times_us["whole"][i], _ = await one(model, f"s{i % 50}")
            for name in names:
                times_us[name][i] = spent_us[name]
    return times_us


def report(n: int, rows: dict[str, npt.NDArray[np.float64]], plain_us: npt.NDArray[np.float64]) -> None:
    """Print the table of these answers: (n, 4), as from `one`, and whether a table was rebuilt."""
    routed = rows["routed"]
    rows = {**rows, "no pause": routed[(routed[:, 2] == 0) & (routed[:, 3] == 0)]}
    sys.stdout.write(f"{n} answers each, in turns; microseconds of CPU time\n")
    sys.stdout.write(
        f"{'':<12}{'first token p50':>16}{'p90':>7}{'p99':>7}{'p99.9':>7}{'whole p50':>11}{'p99':>7}"
        "  collections  tables\n"
    )
    for name, each in rows.items():
        first_us, whole_us, collected, rebuilt = each.T
        whole = "".join(f"{value:>{w}.0f}" for value, w in zip(np.percentile(whole_us, (50, 99)), (11, 7), strict=True))
        sys.stdout.write(f"{name:<12}{_cells(first_us)}{whole}{collected.mean():>13.1%}{rebuilt.mean():>8.1%}\n")
    sys.stdout.write(f"{'plain work':<12}{_cells(plain_us)}\n")
    times = np.percentile(routed[:, 0], QUANTILES) / np.percentile(plain_us, QUANTILES)
    sys.stdout.write(f"{'as plain':<12}" + "".join(f"{t:>{w}.2f}" for t, w in zip(times, WIDTHS, strict=True)) + "\n")


def report_parts(times_us: dict[str, npt.NDArray[np.float64]]) -> None:
    """Print the table of the parts."""
    whole_us = times_us["whole"]
    slow = whole_us >= np.percentile(whole_us, 99)
    rest_us = whole_us - sum(times_us[name] for name in times_us if name != "whole")
    sys.stdout.write(f"\n{'part':<12}{'p50':>16}{'p90':>7}{'p99':>7}{'p99.9':>7}{'slowest':>11}\n")
    for name, each_us in {**times_us, "rest": rest_us}.items():
        more_us = each_us[slow].mean() - np.median(each_us)
        sys.stdout.write(f"{name:<12}{_cells(each_us)}{more_us:>11.0f}\n")


QUANTILES: Final = (50, 90, 99, 99.9)
WIDTHS: Final = (16, 7, 7, 7)


def _cells(us: npt.NDArray[np.float64]) -> str:
    return "".join(f"{value:>{w}.0f}" for value, w in zip(np.percentile(us, QUANTILES), WIDTHS, strict=True))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--answers", type=int, default=5_000)
    uvloop.run(main(parser.parse_args().answers))  # as the server does
