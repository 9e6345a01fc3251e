"""The providers of the servers under attack: `python -m attack.vendors` prints the addresses of two.

One is the project's own fake vendor, which answers at once; the other misbehaves (`bad_vendors`). They have a process
of their own, since neither is to be slow because an attack is busy.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aiohttp import web

from attack import bad_vendors
from voicepipe.testing.fakes.cues import TtsCue
from voicepipe.testing.fakes.vendor import FakeVendor


async def serve() -> None:
    """Serve until standard input ends, which is when the parent process ends."""
    runner = web.AppRunner(bad_vendors.app(), handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    async with FakeVendor() as good:
        good.tts.usual = TtsCue(ms_per_char=5)  # a short answer, which is soon played to its end
        print(json.dumps({"good": good.base_url, "bad": f"http://127.0.0.1:{runner.addresses[0][1]}/v1"}), flush=True)
        await asyncio.to_thread(sys.stdin.read)
    await runner.cleanup()


@contextmanager
def vendors() -> Iterator[dict[str, str]]:
    """The base addresses of both, `good` and `bad`, while the block runs."""
    folder = str(Path(__file__).parents[1])
    process = subprocess.Popen(
        [sys.executable, "-m", "attack.vendors"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": folder},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())
    finally:
        process.stdin.close()
        process.stdout.close()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


if __name__ == "__main__":
    asyncio.run(serve())
