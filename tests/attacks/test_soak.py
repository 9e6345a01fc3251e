"""The soak, for seconds: it runs, and reports what it saw."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


async def test_a_short_soak_finds_nothing_wrong() -> None:
    """Users speak, write, have a tool called, interrupt and are cut off.

    Every turn that they were notified of is stored, no session is left, nothing crashed.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "tests/attacks/soak.py", "--minutes", "0.2", "--users", "6", "--think-s", "0.1"),
        cwd=Path(__file__).parents[2],
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()[-4_000:]
    counted = said.decode()
    for action in ("'calls'", "'completed'"):
        assert action in counted, counted
    # An utterance in the agent's last words may count as a backchannel, and get no answer of its own.
    for failure in ("broke:", "turns failed"):
        assert failure not in counted, counted
