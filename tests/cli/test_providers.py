"""Which models could serve, at what price and how fast; and whether they answer."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from voicepipe.cli import main, providers
from voicepipe.cli.measured_latency import MeasuredModel, measured
from voicepipe.cli.probe import CLAUSE
from voicepipe.cli.providers import ModelLine, table
from voicepipe.config import load
from voicepipe.errors import ConfigError
from voicepipe.providers import catalog
from voicepipe.providers.catalog import ModelFacts
from voicepipe.telemetry.store.port import StoredTurn
from voicepipe.telemetry.store.sqlite import SqliteTurnStore
from voicepipe.testing.fakes import cartesia_tts, deepgram_stt
from voicepipe.testing.fakes.cartesia_tts import FakeCartesia
from voicepipe.testing.fakes.cues import LlmCue, Status, SttCue
from voicepipe.testing.fakes.deepgram_stt import FakeDeepgram
from voicepipe.testing.fakes.vendor import FakeVendor
from voicepipe.testing.records import MARKS, turn_record
from voicepipe.values import replace


async def keep(folder: Path, *ttfts_ms: int, project: str = "default", itl_ms: float | None = 4.0) -> None:
    """Store turns with these times to the first token."""
    store = await SqliteTurnStore.open(folder / "turns.sqlite3")
    requested_ms = dict(MARKS)["llm_requested"]
    turns = [
        turn_record(
            tuple((mark, requested_ms + ttft_ms if mark == "first_delta" else at) for mark, at in MARKS),
            id=f"turn_{project}_{number}",
            providers=(("llm", "groq/openai/gpt-oss-120b"),),
            itl_ms=None if itl_ms is None else itl_ms + number % 3,
        )
        for number, ttft_ms in enumerate(ttfts_ms)
    ]
    await store.store(
        [StoredTurn(record=record, project=project, agent="default", started_at_ms=i) for i, record in enumerate(turns)]
    )
    await store.close()


async def test_measurements_are_listed_by_model_and_project(tmp_path: Path) -> None:
    settings = load(overrides={"server.data_dir": str(tmp_path)}, environ={})
    assert await measured(settings, "default") == {}
    await keep(tmp_path, *range(100, 350))
    await keep(tmp_path, 900, project="shop", itl_ms=None)
    here = (await measured(settings, "default"))["groq/openai/gpt-oss-120b"]
    assert here.turns == 250
    assert here.ttft_p50_ms == pytest.approx(225, rel=0.02)
    assert here.ttft_p95_ms == pytest.approx(337, rel=0.02)
    assert here.itl_p50_ms == pytest.approx(5, rel=0.02)
    assert here.tokens_per_s == pytest.approx(200, rel=0.02)
    shop = (await measured(settings, "shop"))["groq/openai/gpt-oss-120b"]
    assert (shop.turns, shop.itl_p50_ms, shop.tokens_per_s) == (1, None, None)
    assert await measured(settings, "nobody") == {}


def test_what_is_not_known_is_a_dash() -> None:
    line = ModelLine(
        provider="flo2",
        model="",
        in_use=False,
        key="$K missing",
        evidence="x",
        facts=ModelFacts(name=""),
        measured=None,
    )
    _, row, _ = table([line])
    assert row.split() == ["flo2/...", "$K", "missing", "-", "-/-/-", "-", "-", "-", "-", "x"]
    used = replace(line, model="fast", in_use=True, facts=ModelFacts(name="fast", input_usd_per_million=0.075))
    assert list(table([used]))[1].startswith("* flo2/fast")
    here = MeasuredModel(turns=3, ttft_p50_ms=200, ttft_p95_ms=300, itl_p50_ms=5.0, tokens_per_s=200.0)
    assert " ".join(list(table([replace(used, measured=here)]))[1].split()).endswith(" 200/300 ms, 3 turns - 200 x")


def test_figures_of_publications_that_differ() -> None:
    """The router's own figure first."""
    facts = catalog.load().providers["anthropic"].model("claude-opus-4-6")
    line = ModelLine(provider="a", model="m", in_use=False, key="set", evidence="x", facts=facts, measured=None)
    _, row, _ = table([line])
    assert "1100 ms or 320 ms" in row
    assert "48 or 40" in row


async def test_every_vendor_has_its_line(voicepipe: Any, tmp_path: Path) -> None:
    ran = await voicepipe("providers", "--json", "--set", "agents.default.llm=groq/openai/gpt-oss-120b")
    assert (ran.status, ran.err) == (0, ""), ran.err
    lines = json.loads(ran.out)
    assert len({line["provider"] for line in lines if line["stage"] == "llm"}) == len(catalog.load().providers)
    spoken = {line["provider"] for line in lines if line["stage"] == "tts"}
    assert spoken == {"local", "cartesia", "elevenlabs", "deepgram", "inworld", "rime", "together", "openai"}
    first = lines[0]
    assert (first["provider"], first["model"], first["in_use"], first["key"]) == (
        "groq",
        "openai/gpt-oss-120b",
        True,
        "$GROQ_API_KEY missing",
    )
    assert (first["input_usd_per_million"], first["evidence"]) == (0.15, "documented")
    assert "LiteLLM" in first["source"]


async def test_usable_providers_are_connected_to(voicepipe: Any, tmp_path: Path, stt: FakeDeepgram) -> None:
    """Nothing is said over that connection; whose key is missing is left alone."""
    with socket.create_server(("127.0.0.1", 0)) as held:
        closed = f"http://127.0.0.1:{held.getsockname()[1]}/v1"
    (tmp_path / "voicepipe.toml").write_text(
        f"""
        [agents.default]
        stt = "mine/nova-3"
        llm = "nobody/m"
        [providers.mine]
        kind = "deepgram"
        base_url = "{stt.base_url}"
        api_key_env = "STT_KEY"
        [providers.nobody]
        kind = "openai"
        base_url = "{closed}"
        """
    )
    ran = await voicepipe("providers", "mine", "nobody", "--json", STT_KEY="not-to-be-seen")
    assert (ran.status, "not-to-be-seen" in ran.out) == (0, False)
    results = {line["provider"]: line["reached"] for line in json.loads(ran.out)}
    assert results["nobody"] == "no: refused"
    assert re.fullmatch(r"\d+ ms", results["mine"])
    assert stt.calls == []
    ran = await voicepipe("providers", "mine", "--json")
    assert [(line["key"], line["reached"]) for line in json.loads(ran.out)] == [("$STT_KEY missing", "")]


async def test_all_models_of_those_that_are_named(voicepipe: Any) -> None:
    ran = await voicepipe("providers", "gemini", "flo2")
    assert ran.status == 0
    assert "gemini/gemini-2.5-flash-lite" in ran.out
    assert "gemini/gemini-2.5-pro" in ran.out
    assert "$FLO2_API_KEY missing" in ran.out
    assert "groq/" not in ran.out
    ran = await voicepipe("providers", "gemeni")
    assert ran.status == 2
    assert "got 'gemeni'" in ran.err


async def test_probe_calls_each_provider_with_a_key(voicepipe: Any, tmp_path: Path) -> None:
    async with FakeVendor() as vendor:
        (tmp_path / "voicepipe.toml").write_text(
            f"""
            [catalog]
            file = "{tmp_path / "mine.toml"}"
            [agents.default]
            llm = "corner/small"
            """
        )
        row = (
            f'base_url = "{vendor.base_url}"\nevidence = "documented"\n'
            'source = "s"\ncached_tokens = "-"\naffinity = "-"\n'
        )
        (tmp_path / "mine.toml").write_text(
            f'[providers.corner]\ntitle = "c"\nkey_env = ["CORNER_KEY"]\n{row}'
            f'[providers.square]\ntitle = "s"\nkey_env = ["SQUARE_KEY"]\n{row}'
            f'[providers.yard]\ntitle = "y"\nkey_env = ["YARD_KEY"]\nself_hosted = true\n{row}'
        )
        vendor.models = ("big", "huge", "smaller")
        vendor.llm.usual = lambda question: (
            LlmCue(fault=Status(404, "no such model"))
            if question["model"] == "small"
            else LlmCue(tokens=("Hello", "."))
        )
        ran = await voicepipe("providers", "--probe", CORNER_KEY="k-1", YARD_KEY="k-2")
        assert sorted(request.question["model"] for request in vendor.llm.received) == ["big", "small"]
    assert ran.status == 1
    probes = [line for line in ran.out.splitlines() if line.startswith("    ")]
    assert len(probes) == 2
    assert "FAILED  corner/small" in probes[0]
    assert "no such model" in probes[0]
    assert probes[0].endswith("; the provider lists smaller")
    assert probes[1].startswith("    ok  yard/big  first after ")
    assert probes[1].endswith("Hello.")


@pytest.fixture
async def stt() -> AsyncIterator[FakeDeepgram]:
    async with FakeDeepgram() as vendor:
        yield vendor


@pytest.fixture
async def voices() -> AsyncIterator[FakeCartesia]:
    async with FakeCartesia() as vendor:
        yield vendor


def write_speech_settings(folder: Path, stt: FakeDeepgram, voices: FakeCartesia) -> None:
    (folder / "voicepipe.toml").write_text(
        f"""
        [agents.default]
        stt = "mine/nova-3"
        tts = "theirs/sonic-3"
        [providers.mine]
        kind = "deepgram"
        base_url = "{stt.base_url}"
        api_key_env = "STT_KEY"
        stt_usd_per_minute = 6.0
        [providers.theirs]
        kind = "cartesia"
        base_url = "{voices.base_url}"
        api_key_env = "VOICE_KEY"
        """
    )


async def test_probe_calls_stt_and_tts(voicepipe: Any, tmp_path: Path, stt: FakeDeepgram, voices: FakeCartesia) -> None:
    """The probe sends one sentence to each; it prints the cost before, as far as the cost is known."""
    write_speech_settings(tmp_path, stt, voices)
    stt.script.usual = SttCue(text="The quick brown fox.")
    chosen = ("providers", "mine", "theirs", "--probe")
    ran = await voicepipe(*chosen, STT_KEY=deepgram_stt.KEY, VOICE_KEY=cartesia_tts.KEY)
    assert ran.status == 0, ran.out
    assert "probing 0 models, 1 STTs and 1 TTSs, for about 0.3075 USD, plus 1 without a known price" in ran.err
    results = [line.split() for line in ran.out.splitlines() if line.startswith("    ")]
    assert [line[:2] for line in results] == [["ok", "mine/nova-3"], ["ok", "theirs/sonic-3"]]
    assert " ".join(results[0]).endswith('transcribed "The quick brown fox."')
    assert " ".join(results[1]).endswith("s of speech")
    assert voices.script.received[0].question["input"].strip() == CLAUSE


async def test_wrong_key_and_wrong_transcript_are_explained(
    voicepipe: Any, tmp_path: Path, stt: FakeDeepgram, voices: FakeCartesia
) -> None:
    write_speech_settings(tmp_path, stt, voices)
    stt.script.usual = SttCue(text="Good morning!")
    ran = await voicepipe("providers", "mine", "theirs", "--probe", STT_KEY=deepgram_stt.KEY, VOICE_KEY="wrong")
    assert ran.status == 1
    results = [line.strip() for line in ran.out.splitlines() if line.startswith("    ")]
    assert results[0].endswith(f'transcribed "Good morning!", not "{CLAUSE}"')
    refused = "tts by theirs/sonic-3: HTTP 401: the key was refused; it was sent $VOICE_KEY"
    assert results[1] == f"FAILED  theirs/sonic-3  {refused}"


async def test_no_provider_is_called_without_probe(
    voicepipe: Any, tmp_path: Path, stt: FakeDeepgram, voices: FakeCartesia
) -> None:
    write_speech_settings(tmp_path, stt, voices)
    ran = await voicepipe("providers", "--json", STT_KEY="k", VOICE_KEY="k")
    lines = [line for line in json.loads(ran.out) if line["provider"] in ("mine", "theirs") and line["stage"] != "llm"]
    assert [(line["stage"], line["key"], line["usd"]) for line in lines] == [("stt", "set", 6.0), ("tts", "set", None)]
    assert (stt.calls, voices.calls) == ([], [])


async def test_unhealthy_models_of_the_running_server_are_listed(voicepipe: Any) -> None:
    """ReceivedRequest with the key of the environment."""
    keys: list[str | None] = []

    async def healthz(request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def providers(request: web.Request) -> web.Response:
        keys.append(request.headers.get("Authorization"))
        refused = {"id": "groq/m", "state": "open", "retry_in_ms": 41_500, "alert": "401: no such key"}
        well = {"id": "openai/gpt-4.1-mini", "state": "closed", "retry_in_ms": 0, "alert": None}
        return web.json_response({"object": "list", "data": [refused, well]})

    app = web.Application()
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/v1/providers", providers)
    async with TestServer(app) as server:
        chosen = ("--set", "agents.default.llm=groq/m", "--set", f"server.port={server.port}")
        ran = await voicepipe("providers", *chosen, GROQ_API_KEY="k", VOICEPIPE_KEY="vp-operator")
    assert ran.status == 0, ran.err
    assert keys == ["Bearer vp-operator"]
    marked = [line for line in ran.out.splitlines() if line.startswith("    NOW")]
    assert marked == ["    NOW circuit breaker open for 41 s; operator action needed: 401: no such key"]


def test_a_wrong_name_is_refused_before_anything_else(tmp_path: Path) -> None:
    from voicepipe.cli.options import ProvidersOptions
    from voicepipe.cli.providers import run

    with pytest.raises(ConfigError, match="got 'nobody'"):
        run(ProvidersOptions(command="providers", names=("nobody",), data_dir=str(tmp_path)))


def test_speech_is_reached_at_its_own_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Together serves STT and TTS elsewhere than its LLMs."""

    async def connected(base_urls: Iterable[str]) -> dict[str, str]:
        return {url: f"to {url}" for url in base_urls}

    monkeypatch.setattr(providers, "reached", connected)
    monkeypatch.setenv("TOGETHER_API_KEY", "any")
    main(["providers", "together", "--json", "--data-dir", str(tmp_path)])
    found = {(line["stage"], line["reached"]) for line in json.loads(capsys.readouterr().out)}
    speech = "to wss://api.together.ai/v1"
    assert found == {("llm", "to https://api.together.xyz/v1"), ("stt", speech), ("tts", speech)}
