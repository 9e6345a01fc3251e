"""Which clients may read `/metrics`, and that the whole server's own counts are in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from voicepipe.audio.files import read_sound
from voicepipe.client import connect
from voicepipe.errors import ConfigError
from voicepipe.server.options import ServerSettings
from voicepipe.testing.waiting import eventually


def parsed(text: str) -> dict[str, Metric]:
    return {family.name: family for family in text_string_to_metric_families(text)}


def values(found: dict[str, Metric], name: str) -> dict[tuple[str, ...], float]:
    samples = [sample for family in found.values() for sample in family.samples if sample.name == f"voicepipe_{name}"]
    return {tuple(sample.labels[label] for label in sorted(sample.labels)): sample.value for sample in samples}


async def test_it_needs_an_operator_of_all_projects(serve: Any) -> None:
    """As Prometheus sends it, in `Authorization: Bearer`. The figures are those of all customers."""
    async with serve() as server:
        for scopes, status in ((("turns",), 403), (("operate",), 403), (("operate_all",), 200)):
            key = server.new_key("acme", scopes=scopes)
            async with server.http.get(f"{server.base}/metrics", headers=key) as answer:
                assert answer.status == status, scopes
        async with server.http.get(f"{server.base}/metrics") as answer:
            assert answer.status == 401


async def test_a_new_server_shows_metrics_to_its_own_machine(serve: Any) -> None:
    async with serve(max_sessions=7) as server, server.http.get(f"{server.base}/metrics") as answer:
        assert answer.status == 200
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        assert answer.headers["Cache-Control"] == "no-store"
        found = parsed(await answer.text())
    assert values(found, "sessions_limit") == {(): 7}
    assert values(found, "ready") == {(): 1}
    assert values(found, "provider_state")["openai/small", "llm", "open"] == 1
    assert values(found, "provider_state")["openai/small", "llm", "closed"] == 0
    assert values(found, "provider_alert") == {("groq/fast", "llm"): 0, ("openai/small", "llm"): 1}
    assert values(found, "provider_errors_total") == {
        ("rate_limit", "openai/small", "llm"): 2,
        ("refused", "openai/small", "llm"): 1,
    }


async def test_an_address_may_be_let_in_without_a_key(serve: Any) -> None:
    """And to nothing else."""
    async with serve(metrics_allow=("127.0.0.0/8", "10.1.2.3")) as server:
        server.new_key("acme")
        async with server.http.get(f"{server.base}/metrics") as answer:
            assert answer.status == 200
        async with server.http.get(f"{server.base}/v1/providers") as answer:
            assert answer.status == 401


async def test_another_address_is_not_let_in(serve: Any) -> None:
    async with serve(metrics_allow=("10.1.2.3",)) as server:
        server.new_key("acme")
        async with server.http.get(f"{server.base}/metrics") as answer:
            assert answer.status == 401


def test_addresses_must_be_addresses() -> None:
    with pytest.raises(ConfigError, match=r"server\.metrics_allow: .*'prometheus'"):
        ServerSettings(metrics_allow=("prometheus",))


async def test_sessions_are_counted_while_they_last(serve: Any, gate: Any) -> None:
    async with serve() as server:
        server.talks.append(gate)
        async with server.connect():
            await gate.began.wait()
            async with server.http.get(f"{server.base}/metrics") as answer:
                found = parsed(await answer.text())
            assert values(found, "sessions") == {(): 1}
            assert values(found, "sessions_opened_total") == {(): 1}
            gate.go.set()


@pytest.mark.slow
async def test_a_whole_server_counts_a_conversation(fake_server: Any, question: Path) -> None:
    """The metrics count its turn, its providers and its event loop; nothing was dropped or stuck."""
    async with fake_server() as server, connect(server.url) as call, aiohttp.ClientSession() as http:
        await call.turn(read_sound(question, 24_000))

        async def counted() -> dict[str, Metric] | None:
            async with http.get(f"{server.url}/metrics") as answer:
                found = parsed(await answer.text())
            return found if sum(values(found, "turns_total").values()) else None

        found = await eventually(counted)
    assert values(found, "turns_total") == {("default", "vad", "completed"): 1}
    assert values(found, "turn_latency_seconds_count") == {("default",): 1}
    assert values(found, "provider_calls_total") == {("fake/stt", "stt"): 1, ("fake/llm", "llm"): 1} | {
        ("fake/tts", "tts"): 1
    }
    assert values(found, "sessions") == {(): 1}
    assert values(found, "event_loop_lag_seconds_count")[()] > 0
    assert set(values(found, "gc_pauses_total")) == {("0",), ("1",), ("2",)}
    for name in ("records_dropped_total", "records_lost_total", "sessions_stuck_total", "turns_unattributed_total"):
        assert values(found, name) == {(): 0}, name
