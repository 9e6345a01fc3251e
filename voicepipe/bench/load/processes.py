"""Start servers and providers for a measurement, each in its own process, and end them with the block."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

START_S: Final = 60.0
"""A cold start on a busy machine takes some seconds."""

END_S: Final = 10.0

LISTENS: Final = re.compile(r"(http://127\.0\.0\.1:\d+)")


@dataclass(frozen=True, slots=True)
class Started:
    """A process that has started to serve."""

    url: str
    """`http://127.0.0.1:PORT`."""

    pid: int


@contextlib.asynccontextmanager
async def started(*arguments: str, core: int | None = None, log: Path | None = None) -> AsyncIterator[Started]:
    """Run `python -m ARGUMENTS` until the block is left; the process has started once it has printed its address.

    `core` pins it to one core (Linux). Its output after the address is written to `log`.

    Raises:
        RuntimeError: it ended, or printed no address in time; the text has its output.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        if core is not None:
            os.sched_setaffinity(process.pid, {core})
        url = await _address(process)
        async with asyncio.TaskGroup() as group:
            draining = group.create_task(_drain(process, log), name="drain")
            yield Started(url, process.pid)
            draining.cancel()
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                async with asyncio.timeout(END_S):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()


async def _address(process: asyncio.subprocess.Process) -> str:
    output = ""
    assert process.stdout is not None
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(START_S):
            while line := (await process.stdout.readline()).decode(errors="replace"):
                output += line
                if found := LISTENS.search(line):
                    return found[1]
    raise RuntimeError(f"expected an address, got: {output.strip() or 'nothing'}")


async def _drain(process: asyncio.subprocess.Process, log: Path | None) -> None:
    """Read the process's further output, since a full pipe would block it."""
    assert process.stdout is not None
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(log.open("ab", buffering=0)) if log is not None else None
        while output := await process.stdout.read(1 << 16):
            if file is not None:
                file.write(output)


def write_settings(
    folder: Path, providers: str, *, speculate: bool = True, head_room: bool = False, agent: str = ""
) -> Path:
    """Write the settings of a voicepipe server that uses the bench's providers; return the file.

    Without `head_room` every session is admitted. `agent` has further lines for the agent.
    """
    where = providers.removeprefix("http://")
    path = folder / "voicepipe.toml"
    path.write_text(
        f"""
[server]
port = 0
data_dir = "{folder / "data"}"
max_sessions = 10000
head_room = {str(head_room).lower()}
workers = 1
drain_ms = 0

[providers.stt]
kind = "deepgram"
base_url = "ws://{where}/v1"

[providers.others]
kind = "openai"
base_url = "http://{where}/v1"

[agents.default]
stt = "stt/nova-3"
llm = "others/model"
tts = "others/voice"
speculate = {str(speculate).lower()}
{agent}
"""
    )
    return path
