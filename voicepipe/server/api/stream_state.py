"""The figures of the live stream beside turns: of this process, or of all workers of the server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from voicepipe.server.context import ServerContext
from voicepipe.server.workers.peers import WorkerState
from voicepipe.telemetry.storage_log import failing_stores_plain


def own_state(context: ServerContext) -> WorkerState:
    """Return the figures of this process."""
    lag = None
    if context.loop is not None:
        figures = context.loop.figures()
        quantiles = {"lag_p50_ms": figures.lag_p50_ms, "lag_p99_ms": figures.lag_p99_ms}
        lag = {name: round(ms, 3) for name, ms in {**quantiles, "lag_max_ms": figures.lag_max_ms}.items()}
    return WorkerState(
        open=Counter(each.grant.project for each in context.live_sessions.of(None)),
        storage=failing_stores_plain(context.storage),
        records_lost=context.records_lost(),
        lag=lag,
    )


async def server_state(context: ServerContext) -> WorkerState:
    """Return the figures of the server: sums, each failing store once, and the lag of the slowest event loop."""
    if context.workers is None:
        return own_state(context)
    return _together(await context.workers.state())


def open_sessions(state: WorkerState, project: str | None) -> int:
    """Return the number of open sessions of a project, or of all."""
    return sum(state.open.values()) if project is None else state.open.get(project, 0)


def _together(states: Sequence[WorkerState]) -> WorkerState:
    sessions: Counter[str] = Counter()
    storage: dict[str, dict[str, Any]] = {}
    for state in states:
        sessions.update(state.open)
        for failing in state.storage:
            before = storage.setdefault(failing["store"], failing)
            storage[failing["store"]] = min(before, failing, key=lambda each: str(each["since"]))
    return WorkerState(
        open=sessions,
        storage=[*storage.values()],
        records_lost=sum(state.records_lost for state in states),
        lag=_largest(state.lag for state in states if state.lag is not None),
    )


def _largest(lags: Iterable[dict[str, float]]) -> dict[str, float] | None:
    found = [*lags]
    return {name: max(lag[name] for lag in found) for name in found[0]} if found else None
