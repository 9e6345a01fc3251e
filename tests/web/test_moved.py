"""The JavaScript module's session moves to another node with a question behind an answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest
from aiohttp import web

from tests.measure.node_set import NodeSet, node_set
from tests.measure.node_users import WORDS, WordMeter
from tests.web.node import json_from_node
from voicepipe.testing.redis import redis_server

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
WEB = HERE.parents[1] / "web"


async def moved(nodes: NodeSet) -> dict[str, Any]:
    """Return what came of `moved.mjs` at the first node, which dies, and at the second one."""
    first, second = nodes.nodes

    async def begin(_: web.Request) -> web.Response:
        await second.start()
        return web.Response()

    async def die(_: web.Request) -> web.Response:
        await first.kill()
        return web.Response()

    app = web.Application()
    app.add_routes([web.get("/begin", begin), web.get("/die", die)])
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        async with aiohttp.ClientSession() as http, http.post(f"{first.url}/v1/realtime/client_secrets") as minted:
            secret = (await minted.json())["value"]
        await second.kill()
        address, control = (
            f"{nodes.url.replace('http', 'ws')}/v1/realtime",
            f"http://127.0.0.1:{runner.addresses[0][1]}",
        )
        result: dict[str, Any] = await json_from_node(str(HERE / "moved.mjs"), str(WEB), address, secret, control)
        return result
    finally:
        await runner.cleanup()


async def test_a_question_behind_an_answer_is_answered_once(tmp_path: Path) -> None:
    """Its node dies while the answer is spoken and the request waits in the client: no word is lost or comes twice."""
    with redis_server("redis") as store:
        async with node_set(tmp_path, store, n_nodes=2) as nodes:
            result = await moved(nodes)
    assert result["waited"], "the request was not behind an answer"
    assert result["states"] == ["connecting", "open", "resuming", "open", "closed"]
    meter = WordMeter()
    for item_id, levels in result["sounds"]:
        meter.take(item_id, np.array(levels, dtype=np.int16))
    assert meter.received == [*range(1, len(WORDS) + 1)] * 2
    assert (result["answers"], result["left"]) == (2, 0), "the node has both requests by what the client names"
    assert result["types"].count("error") == 1, "nothing was requested again"
