"""A real Prometheus reads a real server, and answers every question of the dashboard."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from voicepipe.testing.waiting import eventually

Answer = dict[str, Any]


@asynccontextmanager
async def prometheus(folder: Path) -> AsyncIterator[str]:
    """Run it with the files in `folder`, on a port that the kernel picks; gives its address."""
    program = shutil.which("prometheus")
    assert program is not None, "prometheus is not installed: deploy/up.py test does that"
    arguments = (f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/tsdb")
    log = folder / "log"
    with log.open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(
            program, *arguments, "--web.listen-address=127.0.0.1:0", stderr=stderr
        )

    async def address() -> str | None:
        found = re.search(r'"Listening on" address=(\S+)', log.read_text())
        assert process.returncode is None, log.read_text()
        return found and found[1]

    try:
        yield f"http://{await eventually(address)}"
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


@pytest.fixture
def files(root: Path, tmp_path: Path) -> Path:
    """The scrape job and the alerts as they are shipped; only the port and the pace are others."""
    folder = tmp_path / "prometheus"
    folder.mkdir()
    shutil.copy(root / "deploy" / "prometheus" / "alerts.yml", folder)
    return folder


@pytest.mark.slow
async def test_every_panel_is_answered_and_no_alert_fires(root: Path, files: Path, fake_server: Any) -> None:
    board = json.loads((root / "deploy" / "grafana" / "voicepipe.json").read_text())
    job = (root / "deploy" / "prometheus" / "prometheus.yml").read_text()
    async with fake_server({"server.metrics_allow": ["127.0.0.1"]}) as server:
        where = server.url.removeprefix("http://")
        (files / "prometheus.yml").write_text(job.replace("localhost:8080", where).replace("15s", "200ms"))
        async with prometheus(files) as address, aiohttp.ClientSession() as http:

            async def query(expression: str) -> list[Answer]:
                async with http.get(f"{address}/api/v1/query", params={"query": expression}) as answer:
                    response = await answer.json()
                assert response["status"] == "success", (expression, response)
                found: list[Answer] = response["data"]["result"]
                return found

            async def scraped() -> list[Answer] | None:
                async with http.get(f"{address}/-/ready") as answer:
                    is_ready = answer.status == 200
                return (await query("up == 1") or None) if is_ready else None

            assert await eventually(scraped)
            limits = await query("voicepipe_limit_seconds")
            for panel in board["panels"]:
                for target in panel.get("targets", ()):
                    await query(re.sub(r'"\$\w+"', '".*"', target["expr"].replace("$__rate_interval", "5s")))
            firing = await query('ALERTS{alertstate="firing"}')
    assert {each["metric"]["stage"] for each in limits} >= {"total", "llm_ttft", "playback"}
    assert firing == []
