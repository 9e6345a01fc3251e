"""Measure the CPU time of routing itself: `python -m tests.measure.router_overhead [--answers 5000]`.

A model in the process that answers at once is asked directly, through a router without a pool (`alone`), and through a
pool (`routed`). The pool's first hedge is planned and not started, as in most turns. Sessions of `TURNS` turns take
turns, `SESSIONS` at a time. CPU time is what other work of the machine moves least, but it moves too: the same plain
work, measured in between, shows how far a p99 is the machine's. `as plain` divides by the plain work's figure of the
same column: compare that figure of two runs.

A second table tells what the slow answers did: of all answers and of the slowest 1 %, the share in which before the
first token the garbage collector ran, the planner's table was rebuilt (once a second; here before the first token,
since the model answers at once), plans were made, a sketch was read, a log line was written, the thread was preempted,
or a page was missing. The row `no pause` of the first table leaves out what is the machine's: preempted answers, and
those with a missing page.

A second pass measures the parts of a routed answer: the choice (request, plan, budget), the start (call, task, timer),
the change to the winner, the record (tokens, cost, hedge budget) and the learning. `slowest` is the part's mean in the
slowest 1 % of answers above its median: what the slow answers do.

A last pass refreshes the pool's table before each answer, as it is where requests come a second apart.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import resource
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
from voicepipe import clock
from voicepipe.ports.model import Content, Finished, Model, ModelEvent, ModelRequest, Text, TextDelta
from voicepipe.router.build import build_pool
from voicepipe.router.candidate import Candidate
from voicepipe.router.hedging import Planner
from voicepipe.router.latency_stats import TokenGaps
from voicepipe.router.llm.model import RoutedModel, Routes
from voicepipe.router.llm.probe import Probes
from voicepipe.router.llm.request import RoutedAnswer
from voicepipe.router.options import RouterOptions
from voicepipe.router.plan_table import PlanTable
from voicepipe.router.pool import REBUILD_MS, SharedStats

FIRST_ANSWERS: Final = 500
"""Not counted: what is imported, compiled and cached at first use."""

SESSIONS: Final = 50
TURNS: Final = 8

PLAIN_OBJECTS: Final = 400
"""Objects of the plain work: about as long as a routed answer takes to its first token."""

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


def alone(model: Model) -> Model:
    """Return a router of an agent that has one model and no pool."""
    stats = SharedStats()
    routes = Routes(
        pools={},
        rules=(),
        experiments=(),
        stats=stats,
        probes=Probes(stats),
        models={model.name: model}.__getitem__,
        pool_for=lambda specs, like: build_pool("p", (), RouterOptions(), stats),
    )
    return RoutedModel(model, "", routes, metadata={})


def pooled(models: dict[str, Model]) -> RoutedModel:
    """Return a pool of these models, whose first is well known to be fast."""
    candidates = tuple(
        Candidate(spec=spec, price=PRICES[i], ttft_p50_ms=60.0 * (i + 1)) for i, spec in enumerate(models)
    )
    return routed(models, RouterOptions(), candidates)


class Causes:
    """Counts what may make an answer slow."""

    NAMES: Final = ("collector", "table", "plans", "sketch", "log", "preempted", "page")

    def __init__(self) -> None:
        self._n = dict.fromkeys(self.NAMES, 0)

    def counts(self) -> tuple[int, ...]:
        """Return how often each of `NAMES` has happened so far, in this thread."""
        usage = resource.getrusage(resource.RUSAGE_THREAD)
        self._n["preempted"], self._n["page"] = usage.ru_nivcsw, usage.ru_minflt
        return tuple(self._n.values())

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count while the block runs."""
        watched = ((Planner, "rebuild"), (PlanTable, "_make"), (TokenGaps, "_renew"), (logging.Logger, "handle"))
        with ExitStack() as stack:
            for cause, (owner, name) in zip(("table", "plans", "sketch", "log"), watched, strict=True):
                stack.enter_context(patch.object(owner, name, self._counted(cause, getattr(owner, name))))
            gc.callbacks.append(self._collected)
            stack.callback(gc.callbacks.remove, self._collected)
            yield

    def _counted(self, cause: str, function: Callable[..., object]) -> Callable[..., object]:
        def run(*arguments: object, **named: object) -> object:
            self._n[cause] += 1
            return function(*arguments, **named)

        return run

    def _collected(self, phase: str, info: dict[str, int]) -> None:
        self._n["collector"] += phase == "start"


MEASURED: Final = ("first", "whole", *Causes.NAMES)
"""Columns of an answer: the CPU time to its first token and to its end in microseconds, and how often each cause came
before the first token."""


async def one(model: Model, session: str, causes: Causes) -> tuple[float, ...]:
    """Ask once; return the row `MEASURED`."""
    messages = (Content("system", (Text(PROMPT),)), Content("user", (Text("When does it open?"),)))
    request = ModelRequest(model="m", messages=messages, session=session)
    before, at_first = causes.counts(), tuple[int, ...]()
    first_ns, began_ns = 0, time.thread_time_ns()
    async with model.open(request) as events:
        async for event in events:
            if not first_ns and isinstance(event, TextDelta):
                first_ns = time.thread_time_ns() - began_ns
                at_first = causes.counts()
    whole_ns = time.thread_time_ns() - began_ns
    return first_ns / 1e3, whole_ns / 1e3, *(float(now > was) for now, was in zip(at_first, before, strict=True))


def session_of(answer: int) -> str:
    """Return the session of an answer: so many sessions of so many turns take turns."""
    return f"s{answer // (SESSIONS * TURNS)}-{answer % SESSIONS}"


def plain_work() -> float:
    """Return the CPU time of some work on small objects, in microseconds."""
    began_ns = time.thread_time_ns()
    {i: str(i) for i in range(PLAIN_OBJECTS)}
    return (time.thread_time_ns() - began_ns) / 1e3


async def main(n: int) -> None:
    """Print the tables."""
    models: dict[str, Model] = {f"v{i}/m": AtOnce(f"v{i}/m") for i in range(3)}
    pool = pooled(models)
    ways: dict[str, Model] = {"directly": models["v0/m"], "alone": alone(models["v0/m"]), "routed": pool}
    gc.collect()
    gc.freeze()  # as `voicepipe serve` does
    # Filled in place: tuples that stay would call the collector more often than a router's work does.
    rows = {name: np.zeros((n + FIRST_ANSWERS, len(MEASURED))) for name in ways}
    plain_us, causes = np.zeros(n + FIRST_ANSWERS), Causes()
    with causes.counting():
        for i in range(n + FIRST_ANSWERS):
            for name, model in ways.items():
                rows[name][i] = await one(model, session_of(i), causes)
            plain_us[i] = plain_work()
    rows = {name: each[FIRST_ANSWERS:] for name, each in rows.items()}
    report(rows, plain_us[FIRST_ANSWERS:])
    report_causes(rows["routed"])
    report_parts(await parts(pool, n))
    report_rare(await rare(models, n))


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
    spent_us, causes = dict.fromkeys(names, 0.0), Causes()
    with timed_parts(spent_us):
        for i in range(n):
            spent_us.update(dict.fromkeys(names, 0.0))
            times_us["whole"][i] = (await one(model, session_of(i), causes))[1]
            for name in names:
                times_us[name][i] = spent_us[name]
    return times_us


async def rare(models: dict[str, Model], n: int) -> npt.NDArray[np.float64]:
    """Return the CPU time to the first token in microseconds, of requests that each come after a refresh."""
    model = pooled(models)
    (pool,) = model._routes.pools.values()
    first_us, causes = np.zeros(n + FIRST_ANSWERS), Causes()
    for i in range(n + FIRST_ANSWERS):
        pool.refresh(clock.monotonic_ms() + 2 * REBUILD_MS * i)
        first_us[i] = (await one(model, session_of(i), causes))[0]
    return first_us[FIRST_ANSWERS:]


def report_rare(first_us: npt.NDArray[np.float64]) -> None:
    """Print the line of the requests that are rare."""
    sys.stdout.write(f"\n{'rare':<12}{_cells(first_us)}\n")


def report(rows: dict[str, npt.NDArray[np.float64]], plain_us: npt.NDArray[np.float64]) -> None:
    """Print the table of these answers, as from `one`."""
    routed = rows["routed"]
    of_machine = routed[:, MEASURED.index("preempted")] + routed[:, MEASURED.index("page")]
    sys.stdout.write(f"{len(plain_us)} answers each, in turns; microseconds of CPU time\n")
    sys.stdout.write(f"{'':<12}{'first token p50':>16}{'p90':>7}{'p99':>7}{'p99.9':>7}{'whole p50':>11}{'p99':>7}\n")
    for name, each in {**rows, "no pause": routed[of_machine == 0]}.items():
        whole_us = each[:, 1]
        whole = "".join(f"{value:>{w}.0f}" for value, w in zip(np.percentile(whole_us, (50, 99)), (11, 7), strict=True))
        sys.stdout.write(f"{name:<12}{_cells(each[:, 0])}{whole}\n")
    sys.stdout.write(f"{'plain work':<12}{_cells(plain_us)}\n")
    times = np.percentile(routed[:, 0], QUANTILES) / np.percentile(plain_us, QUANTILES)
    sys.stdout.write(f"{'as plain':<12}" + "".join(f"{t:>{w}.2f}" for t, w in zip(times, WIDTHS, strict=True)) + "\n")


def report_causes(routed: npt.NDArray[np.float64]) -> None:
    """Print what the slow answers did before their first token."""
    first_us = routed[:, 0]
    slowest = routed[first_us >= np.percentile(first_us, 99)]
    sys.stdout.write(f"\n{'cause':<12}{'all answers':>16}{'slowest 1 %':>14}{'mean with it':>14}\n")
    for i, name in enumerate(MEASURED[2:], 2):
        has_it = routed[:, i] > 0
        mean = f"{first_us[has_it].mean():.0f}" if has_it.any() else "none"
        sys.stdout.write(f"{name:<12}{has_it.mean():>16.1%}{(slowest[:, i] > 0).mean():>14.1%}{mean:>14}\n")
    sys.stdout.write(f"{'none':<12}{(routed[:, 2:].sum(axis=1) == 0).mean():>16.1%}")
    sys.stdout.write(f"{(slowest[:, 2:].sum(axis=1) == 0).mean():>14.1%}\n")


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
