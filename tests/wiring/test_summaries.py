"""The summary of a call in the store: once its turns are there, and an error is logged."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from voicepipe.telemetry.store.port import StoreError
from voicepipe.telemetry.store.sqlite import SqliteTurnStore
from voicepipe.testing.conformance.turn_store import stored_turn
from voicepipe.wiring import store as wiring_store
from voicepipe.wiring.store import store_summary


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tries follow one another at once."""
    monkeypatch.setattr(wiring_store, "SUMMARY_PAUSES_S", (0, 0))


class LateStore:
    """A store that has the session's turns at the second try, or fails."""

    def __init__(self, *results: Any) -> None:
        self.results = list(results)

    async def store_summary(self, project: str, session: str, summary: str) -> bool:
        result = self.results.pop(0)
        if isinstance(result, Exception):
            raise result
        return bool(result)


async def test_it_is_stored_with_its_session(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is logged of that."""
    store = await SqliteTurnStore.open(tmp_path / "turns.sqlite3")
    await store.store([stored_turn("a", session="s1")])
    await store_summary(store, "p", "s1", "They called.")
    assert await store.summary("p", "s1") == "They called."
    await store.close()
    assert caplog.records == []


@pytest.mark.parametrize(
    ("results", "n_left", "why"),
    [
        ((False, True, True), 1, None),
        ((False, False), 0, "its turns are not stored"),
        ((StoreError("the disk is full"),), 0, "the disk is full"),
    ],
)
async def test_it_waits_for_its_turns(
    results: tuple[Any, ...], n_left: int, why: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """The store gets them in batches; after the last try, or an error, the summary is lost."""
    caplog.set_level(logging.WARNING)
    store: Any = LateStore(*results)
    await store_summary(store, "p", "s1", "They called.")
    assert len(store.results) == n_left
    assert [getattr(each, "fields", {})["why"] for each in caplog.records] == ([] if why is None else [why])
