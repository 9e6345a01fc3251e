"""How far the providers' addresses are, and what follows from it."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

from voicepipe.cli.regions import LocatedAddress, advice, places_of, table
from voicepipe.config import load
from voicepipe.providers.net.distance import Distance
from voicepipe.testing.fakes.cues import LlmCue, Status
from voicepipe.testing.fakes.vendor import FakeVendor
from voicepipe.values import replace


def place(provider: str, round_trip_ms: float | None, *, in_use: bool = True, host: str = "here") -> LocatedAddress:
    distance = None if round_trip_ms is None else Distance(round_trip_ms, 3 * round_trip_ms)
    why = "" if distance else "refused"
    return LocatedAddress(
        provider=provider, base_url=f"https://{host}.example/v1", region="", in_use=in_use, distance=distance, why=why
    )


def test_a_nearer_address_of_the_same_vendor_is_named() -> None:
    lines = list(advice([place("shop", 90), place("shop", 20, in_use=False, host="eu"), place("other", 12)]))
    assert lines == [
        "shop: https://eu.example/v1 is 70 ms nearer (providers.shop.base_url); its keys may belong to one region",
        "The agents' 2 addresses are 102 ms of round trips away, of a budget of 1000 ms.",
    ]


def test_a_provider_that_is_far_needs_another_place() -> None:
    far, total = advice([place("shop", 120), place("shop", 110, in_use=False, host="eu"), place("near", 3)])
    assert far == "shop: each request travels 120 ms; a node nearer to it would save most of that in each turn"
    assert total.startswith("The agents' 2 addresses are 123 ms")


def test_nothing_is_advised_without_a_distance() -> None:
    assert list(advice([place("shop", None), place("idle", 300, in_use=False)])) == []


def test_what_is_out_of_reach_has_its_reason() -> None:
    _, row, unused, _ = table([place("shop", None), place("idle", 31.6, in_use=False)])
    assert row.split() == ["*", "shop", "https://here.example/v1", "-", "no:", "refused", "-", "-", "-"]
    assert unused.split() == ["idle", "https://here.example/v1", "-", "32", "ms", "95", "ms", "-", "-"]


def test_speech_is_measured_at_its_own_address(tmp_path: Path) -> None:
    """Together serves STT and TTS elsewhere than its LLMs."""
    agent = "[agents.default]\nllm = 'groq/openai/gpt-oss-20b'\ntts = 'together/hexgrad/Kokoro-82M'\n"
    (tmp_path / "voicepipe.toml").write_text(agent)
    found = list(places_of(load(environ={"HOME": "/h"}, folder=tmp_path), ("together",)))
    assert [(each.base_url, each.in_use) for each in found] == [
        ("wss://api.together.ai/v1", True),
        ("https://api.together.xyz/v1", False),
    ]
    away = [replace(region, distance=Distance(ms, ms)) for region, ms in zip(found, (90, 20), strict=True)]
    assert not any("nearer (providers" in line for line in advice(away))  # `base_url` is not that of the speech


def settings_text(vendor: FakeVendor, closed: int) -> str:
    return f"""
        [agents.default]
        stt = "gone/stt"
        llm = "fake/llm"
        tts = "fake/tts"
        [providers.fake]
        base_url = "{vendor.base_url}"
        region = "eu-west"
        [providers.gone]
        base_url = "http://127.0.0.1:{closed}/v1"
        """


async def test_the_agents_providers_are_measured(voicepipe: Any, tmp_path: Path) -> None:
    """Whatever an agent uses comes first; one of them can't be reached, so the status says so."""
    with socket.create_server(("127.0.0.1", 0)) as held:
        closed = held.getsockname()[1]
    async with FakeVendor() as vendor:
        vendor.llm.usual = LlmCue(tokens=("Hello.",))
        (tmp_path / "voicepipe.toml").write_text(settings_text(vendor, closed))
        ran = await voicepipe("regions", "--json", "--tries", "1", "--probe")
        assert (ran.status, ran.err) == (1, "")
        fake, gone = json.loads(ran.out)
        assert (fake["provider"], fake["region"], fake["in_use"]) == ("fake", "eu-west", True)
        assert fake["distance"]["round_trip_ms"] > 0
        assert fake["ttft"]["ok"]
        assert (gone["provider"], gone["distance"], gone["ttft"]) == ("gone", None, None)
        assert gone["why"] == "refused"
        assert len(vendor.llm.received) == 1
        vendor.llm.usual = LlmCue(fault=Status(503))
        text = await voicepipe("regions", "fake", "--tries", "1", "--probe")
        assert text.status == 0
        assert "FAILED" in text.out


def test_a_vendor_with_several_addresses_has_a_line_for_each() -> None:
    settings = load(overrides={"agents.default.llm": "openrouter/any"}, environ={"OPENROUTER_API_KEY": "k"})
    found = list(places_of(settings, ("openrouter",)))
    assert len(found) == 3
    assert [each.in_use for each in found] == [True, False, False]
    (deepseek, *_) = places_of(settings, ("deepseek",))
    assert deepseek.published.startswith("fastest from China")


async def test_wrong_options(voicepipe: Any) -> None:
    ran = await voicepipe("regions", "nowhere")
    assert ran.status == 2
    assert "regions: expected one of" in ran.err
    ran = await voicepipe("regions", "--tries", "0")
    assert ran.err == "voicepipe: --tries: expected 1 to 100, got 0\n"
