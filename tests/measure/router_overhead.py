"""Measure the CPU time of routing itself: `python -m tests.measure.router_overhead [--answers 3000]`.

A model in the process that answers at once is asked directly and through a pool. Its first hedge is planned and not
started, as in most turns. CPU time is what other work of the machine moves least, but it moves too: work of the same
median that is no router's, measured in between, shows how far a p99 is the machine's (`plain work`). `collections` is
the share of answers during which the garbage collector ran, `tables` that during which the planner's table was rebuilt:
once a second, and here before the first token, since the model answers at once. A p99 with more than 1 % of them is
theirs; the row `no pause` leaves both out.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import uvloop

from tests.router.measure import PRICES, routed
from voicepipe.ports.model import Finished, Model, ModelEvent, ModelRequest, Said, Text, TextDelta
from voicepipe.router.candidate import Candidate
from voicepipe.router.hedging import Planner
from voicepipe.router.options import RouterOptions

FIRST_ANSWERS: Final = 500
"""Not counted: what is imported, compiled and cached at first use."""

WARM_UP: Final = 200
"""Answers by whose median the plain work is sized."""


PROMPT: Final = "You answer questions about the museum. " * 150
WORDS: Final = (" word" * 16,) * 4
"""A usual turn: with prompts of a few tokens a hedge would cost nothing, and each turn would be a race."""


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
    """Print the table."""
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


def report(n: int, rows: dict[str, npt.NDArray[np.float64]], plain_us: npt.NDArray[np.float64]) -> None:
    """Print the table of these answers: (n, 4), as from `one`, and whether a table was rebuilt."""
    routed = rows["routed"]
    rows = {**rows, "no pause": routed[(routed[:, 2] == 0) & (routed[:, 3] == 0)]}
    sys.stdout.write(f"{n} answers each, in turns; microseconds of CPU time\n")
    sys.stdout.write(
        f"{'':<12}{'first token p50':>16}{'p90':>7}{'p99':>7}{'whole p50':>11}{'p99':>7}  collections  tables\n"
    )
    for name, each in rows.items():
        first_us, whole_us, collected, rebuilt = each.T
        cells = "".join(
            f"{value:>{w}.0f}" for value, w in zip(np.percentile(first_us, (50, 90, 99)), (16, 7, 7), strict=True)
        )
        whole = "".join(f"{value:>{w}.0f}" for value, w in zip(np.percentile(whole_us, (50, 99)), (11, 7), strict=True))
        sys.stdout.write(f"{name:<12}{cells}{whole}{collected.mean():>13.1%}{rebuilt.mean():>8.1%}\n")
    p50, p90, p99 = np.percentile(plain_us, (50, 90, 99))
    sys.stdout.write(f"{'plain work':<12}{p50:>16.0f}{p90:>7.0f}{p99:>7.0f}\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--answers", type=int, default=3_000)
    uvloop.run(main(parser.parse_args().answers))  # as the server does
