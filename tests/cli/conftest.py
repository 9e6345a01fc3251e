"""The command line in a process of its own, as people run it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

import voicepipe as package

MAX_WAIT_S = 60
ROOT = str(Path(package.__file__).parents[1])


@dataclass(frozen=True)
class Ran:
    """What came of it."""

    status: int
    out: str
    err: str


Run = Callable[..., Awaitable[Ran]]


@pytest.fixture
def voicepipe(tmp_path: Path) -> Run:
    """`await voicepipe("talk", path)`: home, data and working folder are the test's own."""

    async def run(*arguments: object, **environ: str) -> Ran:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("VOICEPIPE_", "XDG_"))}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "voicepipe", *map(str, arguments)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=tmp_path,
            env={**inherited, "PYTHONPATH": ROOT, "HOME": str(tmp_path), "COLUMNS": "200", **environ},
        )
        try:
            async with asyncio.timeout(MAX_WAIT_S):
                out, err = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.returncode is not None
        return Ran(process.returncode, out.decode(), err.decode())

    return run
