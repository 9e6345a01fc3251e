"""Where the records of turns are stored, and how they describe the route of a reply."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from voicepipe.config import load
from voicepipe.errors import ConfigError
from voicepipe.router.policies import PoolChoice, RoutingQuery, pool_of
from voicepipe.telemetry.rollups.retention import Retention
from voicepipe.testing.conformance.turn_store import stored_turn
from voicepipe.testing.fakes.vendor import FakeVendor
from voicepipe.testing.postgres import postgres
from voicepipe.testing.waiting import WAIT_S
from voicepipe.turn.record.arm import Arm
from voicepipe.wiring import running
from voicepipe.wiring.store import open_turns, retention_of, turns_file

ROUTED = """
[agents.default]
llm = "pool/home"
[agents.plain]
llm = "local/smollm2-135m"
[pools.home]
models = ["local/smollm2-135m"]
[pools.fast]
models = ["local/smollm2-135m"]
[pools.new]
models = ["local/smollm2-135m"]
[rules.short]
when = ["agent=default"]
pool = "fast"
[experiments.summer]
split = ["new=100"]
when = ["user=*"]
"""


def written(tmp_path: Path, text: str) -> Path:
    """A settings' file."""
    path = tmp_path / "voicepipe.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("agent", "metadata", "expected"),
    [
        ("default", {}, PoolChoice("home")),
        ("default", {"agent": "default"}, PoolChoice("fast", "rule short")),
        (
            "default",
            {"agent": "default", "user": "ann"},
            PoolChoice("new", "experiment summer: new", Arm("summer", "new")),
        ),
        ("plain", {}, PoolChoice("")),
    ],
)
def test_the_router_chooses_the_pool_and_the_arm(
    agent: str, metadata: dict[str, str], expected: PoolChoice, tmp_path: Path
) -> None:
    """An experiment goes before a rule, and both before the agent's own pool."""
    settings = load(str(written(tmp_path, ROUTED)), environ={"HOME": str(tmp_path)})
    query = RoutingQuery(session="s", user="u", metadata=metadata)
    home, routing = settings.pooled.get((agent, "llm"), ""), settings.routing
    assert pool_of(query, PoolChoice(home), routing.rules, routing.experiments) == expected


async def test_records_are_stored_in_the_data_folder_unless_a_database_is_named(tmp_path: Path) -> None:
    """The file is made there, and a database that can't be reached is refused at the start."""
    settings = load(overrides={"server.data_dir": str(tmp_path)}, environ={})
    async with open_turns(settings) as store:
        await store.store([stored_turn("a")])
    assert turns_file(settings).parent == tmp_path
    assert turns_file(settings).exists()
    elsewhere = load(overrides={"records.url": "postgresql://me:x@/db?host=/nowhere"}, environ={"HOME": str(tmp_path)})
    with pytest.raises(ConfigError, match=r"records\.url"):
        async with open_turns(elsewhere):
            pass


def test_nothing_set_is_a_month_and_two_gigabytes_and_0_is_no_limit(tmp_path: Path) -> None:
    """As the settings say."""
    usual, free = (
        retention_of(load(overrides=overrides, environ={"HOME": str(tmp_path)}).records)
        for overrides in ({}, {"records.keep_days": 0, "records.max_mb": 0})
    )
    assert usual == Retention(keep_days=30, max_bytes=2_000_000_000)
    assert free == Retention(keep_days=None, max_bytes=None)


@pytest.fixture(scope="module")
def postgres_url() -> Iterator[str]:
    """A database for one server after another."""
    with postgres() as url:
        yield url


async def chat(line: aiohttp.ClientWebSocketResponse, text: str) -> str:
    """One reply in text to a written question; gives the turn's id."""
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
    await line.send_json({"type": "conversation.item.create", "item": item})
    await line.send_json({"type": "response.create", "response": {"output_modalities": ["text"]}})
    async with asyncio.timeout(WAIT_S):
        while (event := json.loads(await line.receive_str()))["type"] != "response.done":
            assert event["type"] != "error", event
    return str(event["response"]["metadata"]["voicepipe_turn"])


@pytest.mark.slow
async def test_a_server_keeps_its_turns_in_postgres_and_says_whose_they_are(tmp_path: Path, postgres_url: str) -> None:
    """The next server, elsewhere, has them: by language and pool, and in its figures."""
    async with FakeVendor() as vendor, aiohttp.ClientSession() as http:

        def settings_in(folder: str) -> Any:
            return load(
                overrides={
                    "server.port": 0,
                    "server.data_dir": str(tmp_path / folder),
                    "server.drain_ms": 0,
                    "records.url": postgres_url,
                    "providers.fake.base_url": vendor.base_url,
                    "agents.default.stt": "fake/stt",
                    "agents.default.llm": "pool/fast",
                    "agents.default.tts": "fake/tts",
                    "agents.default.language": "de",
                    "pools.fast.models": ["fake/llm", "fake/better-mind"],
                },
                environ={"HOME": str(tmp_path)},
                folder=tmp_path,
            )

        async with running(settings_in("one")) as server, http.ws_connect(f"{server.base_url}/v1/realtime") as line:
            id_ = await chat(line, "Hello?")
        async with running(settings_in("two")) as server:
            async with http.get(f"{server.base_url}/v1/turns?language=de&route=fast") as answer:
                (turn,) = (await answer.json())["data"]
            async with http.get(f"{server.base_url}/v1/stats?model=fake/llm") as answer:
                stats = await answer.json()
    assert (turn["id"], turn["language"], turn["pool"], turn["outcome"]) == (id_, "de", "fast", "completed")
    assert stats["turns"] == 1
    assert not (tmp_path / "one" / "turns.sqlite3").exists()
