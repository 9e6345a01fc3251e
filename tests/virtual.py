"""Tests in virtual time: their waits take none, and no busy machine can make them late."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import ExitStack

import pytest

from voicepipe.clock import VirtualClock, virtual_time
from voicepipe.evals.virtual_time import VirtualTimeLoop


class VirtualTestLoop(VirtualTimeLoop):
    """The loop of one test and its fixtures; the clock is virtual until the loop is closed."""

    def __init__(self) -> None:
        virtual, self._entered = VirtualClock(), ExitStack()
        self._entered.enter_context(virtual_time(virtual))
        super().__init__(virtual)

    def close(self) -> None:
        """Close the loop, and read this machine's clock again."""
        super().close()
        self._entered.close()


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Return the loop of a test: a virtual one with the mark `virtual_time`. A `conftest.py` imports this hook."""
    if item.get_closest_marker("virtual_time") is not None:
        return {"virtual": VirtualTestLoop}
    return {"real": asyncio.new_event_loop}
