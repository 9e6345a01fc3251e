"""Who could think, at what price and how fast; and do they answer?"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from voicepipe.cli.probe import CLAUSE
from voicepipe.cli.providers import Line, table
from voicepipe.cli.turns_measured import Measured, measured
from voicepipe.config import load
from voicepipe.errors import ConfigError
from voicepipe.providers.catalog import ModelFacts
from voicepipe.telemetry.sqlite import SqliteTurnStore
from voicepipe.telemetry.store import KeptTurn
from voicepipe.testing.fakes import cartesia_voice, deepgram
from voicepipe.testing.fakes.cartesia_voice import FakeCartesia
from voicepipe.testing.fakes.cues import LlmCue, Status, SttCue
from voicepipe.testing.fakes.deepgram import FakeDeepgram
from voicepipe.testing.fakes.vendor import FakeVendor
from voicepipe.testing.records import MARKS, turn_record


async def keep(folder: Path, *ttfts_ms: int, project: str = "default", itl_ms: float | None = 4.0) -> None:
    """Turns in the store whose model took so long."""
    store = await SqliteTurnStore.open(folder / "turns.sqlite3")
    asked = dict(MARKS)["asked"]
    turns = [
        turn_record(
            tuple((mark, asked + ttft_ms if mark == "first_delta" else at) for mark, at in MARKS),
            id=f"turn_{project}_{number}",
            providers=(("llm", "groq/openai/gpt-oss-120b"),),
            itl_ms=None if itl_ms is None else itl_ms + number % 3,
        )
        for number, ttft_ms in enumerate(ttfts_ms)
    ]
    await store.keep(
        [KeptTurn(record=record, project=project, agent="default", started_at_ms=i) for i, record in enumerate(turns)]
    )
    await store.close()


async def test_what_this_server_measured_is_told_by_model_and_project(tmp_path: Path) -> None:
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
    line = Line(
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
    here = Measured(turns=3, ttft_p50_ms=200, ttft_p95_ms=300, itl_p50_ms=5.0, tokens_per_s=200.0)
    assert " ".join(list(table([replace(used, measured=here)]))[1].split()).endswith(" 200/300 ms, 3 turns - 200 x")


async def test_every_vendor_has_its_line(voicepipe: Any, tmp_path: Path) -> None:
    ran = await voicepipe("providers", "--json", "--set", "agents.default.llm=groq/openai/gpt-oss-120b")
    assert (ran.status, ran.err) == (0, ""), ran.err
    lines = json.loads(ran.out)
    assert len({line["provider"] for line in lines if line["stage"] == "llm"}) == 26
    spoken = {line["provider"] for line in lines if line["stage"] == "tts"}
    assert spoken == {"local", "cartesia", "elevenlabs", "deepgram", "inworld", "rime", "openai"}
    first = lines[0]
    assert (first["provider"], first["model"], first["in_use"], first["key"]) == (
        "groq",
        "openai/gpt-oss-120b",
        True,
        "$GROQ_API_KEY missing",
    )
    assert (first["input_usd_per_million"], first["evidence"]) == (0.15, "documented")
    assert "LiteLLM" in first["source"]


async def test_who_could_be_asked_is_connected_to(voicepipe: Any, tmp_path: Path, ears: FakeDeepgram) -> None:
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
        base_url = "{ears.base_url}"
        api_key_env = "EAR_KEY"
        [providers.nobody]
        kind = "openai"
        base_url = "{closed}"
        """
    )
    ran = await voicepipe("providers", "mine", "nobody", "--json", EAR_KEY="not-to-be-seen")
    assert (ran.status, "not-to-be-seen" in ran.out) == (0, False)
    told = {line["provider"]: line["reached"] for line in json.loads(ran.out)}
    assert told["nobody"] == "no: refused"
    assert re.fullmatch(r"\d+ ms", told["mine"])
    assert ears.calls == []
    ran = await voicepipe("providers", "mine", "--json")
    assert [(line["key"], line["reached"]) for line in json.loads(ran.out)] == [("$EAR_KEY missing", "")]


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


async def test_a_probe_asks_each_whose_key_is_set_and_no_other(voicepipe: Any, tmp_path: Path) -> None:
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
            f'[providers.yard]\ntitle = "y"\nkey_env = ["YARD_KEY"]\nyours = true\n{row}'
        )
        vendor.models = ("big", "huge", "smaller")
        vendor.llm.usual = lambda question: (
            LlmCue(fault=Status(404, "no such model"))
            if question["model"] == "small"
            else LlmCue(tokens=("Hello", "."))
        )
        ran = await voicepipe("providers", "--probe", CORNER_KEY="k-1", YARD_KEY="k-2")
        assert sorted(asked.question["model"] for asked in vendor.llm.asked) == ["big", "small"]
    assert ran.status == 1
    probes = [line for line in ran.out.splitlines() if line.startswith("    ")]
    assert len(probes) == 2
    assert "FAILED  corner/small" in probes[0]
    assert "no such model" in probes[0]
    assert probes[0].endswith("; it lists smaller")
    assert probes[1].startswith("    ok  yard/big  first after ")
    assert probes[1].endswith("Hello.")


@pytest.fixture
async def ears() -> AsyncIterator[FakeDeepgram]:
    async with FakeDeepgram() as vendor:
        yield vendor


@pytest.fixture
async def voices() -> AsyncIterator[FakeCartesia]:
    async with FakeCartesia() as vendor:
        yield vendor


def write_speech_settings(folder: Path, ears: FakeDeepgram, voices: FakeCartesia) -> None:
    (folder / "voicepipe.toml").write_text(
        f"""
        [agents.default]
        stt = "mine/nova-3"
        tts = "theirs/sonic-3"
        [providers.mine]
        kind = "deepgram"
        base_url = "{ears.base_url}"
        api_key_env = "EAR_KEY"
        hearing_usd_per_minute = 6.0
        [providers.theirs]
        kind = "cartesia"
        base_url = "{voices.base_url}"
        api_key_env = "VOICE_KEY"
        """
    )


async def test_a_probe_has_ears_hear_and_voices_speak(
    voicepipe: Any, tmp_path: Path, ears: FakeDeepgram, voices: FakeCartesia
) -> None:
    """One sentence each; what that costs is told before, as far as it is known."""
    write_speech_settings(tmp_path, ears, voices)
    ears.desk.usual = SttCue(text="The quick brown fox.")
    chosen = ("providers", "mine", "theirs", "--probe")
    ran = await voicepipe(*chosen, EAR_KEY=deepgram.KEY, VOICE_KEY=cartesia_voice.KEY)
    assert ran.status == 0, ran.out
    assert "asking 0 models, 1 ears and 1 voices, for about 0.3075 USD, and 1 of which no price" in ran.err
    told = [line.split() for line in ran.out.splitlines() if line.startswith("    ")]
    assert [line[:2] for line in told] == [["ok", "mine/nova-3"], ["ok", "theirs/sonic-3"]]
    assert " ".join(told[0]).endswith('heard "The quick brown fox."')
    assert " ".join(told[1]).endswith("s of speech")
    assert voices.desk.asked[0].question["input"].strip() == CLAUSE


async def test_a_key_that_is_wrong_and_an_ear_that_mishears_read_well(
    voicepipe: Any, tmp_path: Path, ears: FakeDeepgram, voices: FakeCartesia
) -> None:
    write_speech_settings(tmp_path, ears, voices)
    ears.desk.usual = SttCue(text="Good morning!")
    ran = await voicepipe("providers", "mine", "theirs", "--probe", EAR_KEY=deepgram.KEY, VOICE_KEY="wrong")
    assert ran.status == 1
    told = [line.strip() for line in ran.out.splitlines() if line.startswith("    ")]
    assert told[0].endswith(f'heard "Good morning!", not "{CLAUSE}"')
    refused = "tts by theirs/sonic-3: HTTP 401: the key was refused; it was sent $VOICE_KEY"
    assert told[1] == f"FAILED  theirs/sonic-3  {refused}"


async def test_nobody_is_asked_without_a_probe(
    voicepipe: Any, tmp_path: Path, ears: FakeDeepgram, voices: FakeCartesia
) -> None:
    write_speech_settings(tmp_path, ears, voices)
    ran = await voicepipe("providers", "--json", EAR_KEY="k", VOICE_KEY="k")
    lines = [line for line in json.loads(ran.out) if line["provider"] in ("mine", "theirs") and line["stage"] != "llm"]
    assert [(line["stage"], line["key"], line["usd"]) for line in lines] == [("stt", "set", 6.0), ("tts", "set", None)]
    assert (ears.calls, voices.calls) == ([], [])


async def test_what_the_running_server_has_against_a_model_is_shown(voicepipe: Any) -> None:
    """Asked with the key of the environment."""
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
    assert marked == ["    NOW left alone for 41 s; somebody must act: 401: no such key"]


def test_a_wrong_name_is_refused_before_anything_else(tmp_path: Path) -> None:
    from voicepipe.cli.options import ProvidersOptions
    from voicepipe.cli.providers import run

    with pytest.raises(ConfigError, match="got 'nobody'"):
        run(ProvidersOptions(command="providers", names=("nobody",), data_dir=str(tmp_path)))
