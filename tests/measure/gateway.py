"""Measure the overhead of a gateway on a chat completion: `python -m tests.measure.gateway --litellm ENVIRONMENT`.

The same requests go to a vendor directly, through this server, and through LiteLLM's proxy, in turns, so that other
load on the machine affects all alike. The report has the medians and tails of the first token and of the whole answer,
the median overhead over the direct way, and the CPU time of each process per answer, which other load
hardly changes. ENVIRONMENT is a virtual environment with `litellm[proxy]`; without one its line is left out, and
the report notes that.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import aiohttp
import numpy as np

from tests.measure.gateway_peers import Peer, litellm, ourselves, vendor
from voicepipe.clock import loop_s
from voicepipe.errors import VoicepipeError

WARM: Final = 20
"""Number of warm-up answers that are not counted: connections are opened, and caches filled."""


@dataclass(slots=True)
class Measured:
    """The measurements of one way."""

    peer: Peer
    first_ms: list[float] = field(default_factory=list)
    """From the request to the first token."""

    whole_ms: list[float] = field(default_factory=list)
    cpu_ms: float = 0.0
    """CPU time of the process, per answer."""


async def measure_request(http: aiohttp.ClientSession, peer: Peer) -> tuple[float, float]:
    """Send one request; return the times to the first token and to the end of the answer, in ms.

    Raises:
        VoicepipeError: the answer is incomplete.
    """
    question = {"role": "user", "content": "Which mountain is the tallest, and how tall is it?"}
    body = {"model": peer.model, "messages": [question], "stream": True}
    began_s, first_s, seen = loop_s(), None, b""
    async with http.post(f"{peer.url}/chat/completions", json=body, headers=peer.headers) as answer:
        async for piece in answer.content.iter_any():
            seen += piece
            if first_s is None and b"word0" in seen:
                first_s = loop_s()
    if first_s is None or b"[DONE]" not in seen:
        raise VoicepipeError(f"{peer.name}: expected a whole answer, got status {answer.status} and {seen[:300]!r}")
    return 1_000 * (first_s - began_s), 1_000 * (loop_s() - began_s)


async def measure(peers: Sequence[Peer], n_answers: int, at_once: int) -> list[Measured]:
    """Send requests to all peers in turns, `at_once` at a time."""
    ways = [Measured(peer) for peer in peers]
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        for way in ways:
            for _ in range(WARM):
                await measure_request(http, way.peer)
        for _ in range(n_answers // at_once):
            for way in ways:
                before_ms = way.peer.cpu_ms()
                for first_ms, whole_ms in await asyncio.gather(
                    *(measure_request(http, way.peer) for _ in range(at_once))
                ):
                    way.first_ms.append(first_ms)
                    way.whole_ms.append(whole_ms)
                way.cpu_ms += way.peer.cpu_ms() - before_ms
    for way in ways:
        way.cpu_ms /= len(way.first_ms)
    return ways


def table(ways: Sequence[Measured]) -> Iterator[str]:
    """Yield the report, line by line, in Markdown. The first way is the direct one."""
    yield "| way | first token p50 | p95 | added p50 | whole answer p50 | added p50 | CPU an answer |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    direct = ways[0]
    for way in ways:
        first, last = np.percentile(way.first_ms, (50, 95)), np.percentile(way.whole_ms, 50)
        added = (first[0] - np.percentile(direct.first_ms, 50), last - np.percentile(direct.whole_ms, 50))
        added_cells = ("-", "-") if way is direct else tuple(f"{each:.2f} ms" for each in added)
        cpu = "-" if way is direct else f"{way.cpu_ms:.2f} ms"
        figures = (f"{first[0]:.2f} ms", f"{first[1]:.2f} ms", added_cells[0], f"{last:.2f} ms", added_cells[1], cpu)
        yield f"| {way.peer.name} | {' | '.join(figures)} |"


@asynccontextmanager
async def peers(environment: Path | None, n_tokens: int) -> AsyncIterator[list[Peer]]:
    """Start all peers; yield them, the vendor first."""
    async with AsyncExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory()))
        behind = await running.enter_async_context(vendor(n_tokens))
        found = [behind, await running.enter_async_context(ourselves(behind, folder))]
        if environment is not None:
            found.append(await running.enter_async_context(litellm(behind, folder, environment)))
        yield found


async def compare(options: argparse.Namespace) -> None:
    """Measure, and print a table for each number of concurrent requests."""
    async with peers(options.litellm, options.tokens) as found:
        for at_once in options.at_once:
            sys.stdout.write(f"{options.n} answers of {options.tokens} tokens each way, {at_once} at once:\n\n")
            sys.stdout.writelines(f"{line}\n" for line in table(await measure(found, options.n, at_once)))
            sys.stdout.write("\n")
            sys.stdout.flush()


def main() -> int:
    """Run the comparison, and report what could not be compared."""
    parser = argparse.ArgumentParser(prog="python -m tests.measure.gateway", description=__doc__)
    parser.add_argument("--litellm", type=Path, help="a virtual environment with litellm[proxy]")
    parser.add_argument("--n", type=int, default=200, help="answers each way (200)")
    parser.add_argument("--tokens", type=int, default=20, help="tokens of each answer (20)")
    parser.add_argument("--at-once", type=int, nargs="+", default=[1, 8], help="questions at a time (1 8)")
    options = parser.parse_args()
    if options.litellm is None:
        sys.stderr.write("NOT COMPARED WITH LITELLM: name a virtual environment that has it with --litellm.\n")
    elif not (options.litellm / "bin" / "litellm").is_file():
        sys.stderr.write(f"--litellm: expected a virtual environment with bin/litellm, got {options.litellm}\n")
        return 2
    try:
        asyncio.run(compare(options))
    except VoicepipeError as why:
        sys.stderr.write(f"{why}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
