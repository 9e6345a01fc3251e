"""Wait, within a limit, for a state that is only visible from outside; fail when it does not come."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

WAIT_S = 60.0
"""Limit of every wait of a test. Only a hang reaches it, also where a hypervisor stops the machine for seconds."""

PROBE_S = 0.05


async def eventually(probe: Callable[[], Awaitable[T | None]], *, within_s: float = WAIT_S) -> T:
    """Return the first result of `probe` that is not None, calling it repeatedly.

    Raises:
        TimeoutError: there was none within `within_s`.
    """
    async with asyncio.timeout(within_s):
        while True:
            found = await probe()
            if found is not None:
                return found
            await asyncio.sleep(PROBE_S)
