"""The server warns an operator about the agents' models before the first session."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from voicepipe.config import Settings, load
from voicepipe.errors import StageBroken, StageRefused
from voicepipe.ports.transcriber import TranscriberCapabilities
from voicepipe.providers.llm import list_models
from voicepipe.providers.net import http
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.testing.fakes.vendor import FakeVendor
from voicepipe.testing.fakes.vendor_rules import VENDOR_RULES
from voicepipe.wiring import startup_checks

LONG = "Answer like a clerk of the town hall. " * 160


def settings(folder: Path, llm: str, *, instructions: str = "Be brief.", **environ: str) -> Settings:
    overrides = {"agents.default.llm": llm, "agents.default.instructions": instructions}
    return load(overrides=overrides, environ={"HOME": "/h", **environ}, folder=folder)


def warnings(caplog: pytest.LogCaptureFixture) -> dict[str, dict[str, object]]:
    return {record.getMessage(): record.fields for record in caplog.records}  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("llm", "environ", "checked"),
    [
        ("groq/openai/gpt-oss-20b", {"GROQ_API_KEY": "k"}, True),
        ("groq/openai/gpt-oss-20b", {}, False),
        ("cohere/command-a-03-2025", {"COHERE_API_KEY": "k"}, False),
        ("ollama/llama3.2", {"OLLAMA_API_KEY": "k"}, False),
        ("local/smollm2-135m", {}, False),
    ],
)
def test_names_are_checked_where_a_list_is_and_a_key(
    tmp_path: Path, llm: str, environ: dict[str, str], checked: bool
) -> None:
    """Not on this machine, not without a key, not where no list is."""
    assert startup_checks.checkable(settings(tmp_path, llm, **environ)) == ([Spec.parse(llm)] if checked else [])


async def test_an_unknown_model_name_is_logged_with_similar_names(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def listed(spec: Spec, connection: ProviderSettings) -> frozenset[str]:
        assert connection.api_key == "k"
        return frozenset({"llama-3.3-70b-versatile", "openai/gpt-oss-20b", "whisper-large-v3"})

    monkeypatch.setattr(list_models, "listed", listed)
    with caplog.at_level(logging.WARNING):
        await startup_checks.check_models(settings(tmp_path, "groq/llama-3.3-70b", GROQ_API_KEY="k"))
        assert warnings(caplog) == {
            "model_unknown": {"provider": "groq/llama-3.3-70b", "near": "llama-3.3-70b-versatile"}
        }
        caplog.clear()
        await startup_checks.check_models(settings(tmp_path, "groq/openai/gpt-oss-20b", GROQ_API_KEY="k"))
    assert not caplog.records


async def test_a_vendor_that_gives_no_list_is_no_reason_to_stop(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def listed(spec: Spec, connection: ProviderSettings) -> frozenset[str]:
        raise StageRefused("llm", provider=str(spec), why="HTTP 401", retryable=False, status=401)

    monkeypatch.setattr(list_models, "listed", listed)
    with caplog.at_level(logging.WARNING):
        await startup_checks.check_models(settings(tmp_path, "groq/x", GROQ_API_KEY="k"))
    assert warnings(caplog).keys() == {"model_list_failed"}


async def test_a_prompt_that_is_never_cached_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """1500 tokens on Haiku 4.5 never reach its minimum; on Sonnet 4.5 they do, and a short one is not worth a word."""
    with caplog.at_level(logging.WARNING):
        await startup_checks.check_models(settings(tmp_path, "anthropic/claude-haiku-4-5", instructions=LONG))
    warning = warnings(caplog)["prompt_never_cached"]
    assert (warning["setting"], warning["min_tokens"]) == ("agents.default.instructions", 4_096)
    for llm, text in (("anthropic/claude-sonnet-4-5", LONG), ("anthropic/claude-haiku-4-5", "Be brief.")):
        assert list(startup_checks.never_cached(settings(tmp_path, llm, instructions=text))) == []


@pytest.mark.parametrize("vendor_name", ["groq", "anthropic", "gemini"])
async def test_lists_of_every_dialect_are_read(vendor_name: str) -> None:
    rules = VENDOR_RULES[vendor_name]
    kind = "openai" if vendor_name == "groq" else vendor_name
    async with FakeVendor() as vendor, http.lifetime():
        vendor.rules, vendor.models = rules, ("one", "two")
        connection = ProviderSettings(kind=kind, base_url=vendor.base_url, api_key=rules.key)
        assert await list_models.listed(Spec(vendor_name, "x"), connection) == {"one", "two"}


async def test_what_is_no_list_is_broken() -> None:
    async with FakeVendor() as vendor, http.lifetime():
        connection = ProviderSettings(kind="openai", base_url=vendor.base_url.removesuffix("/v1"))
        with pytest.raises((StageBroken, StageRefused)):
            await list_models.listed(Spec("mine", "x"), connection)


def test_variants_are_the_same_model() -> None:
    assert list_models.has("deepseek/deepseek-v4:nitro", {"deepseek/deepseek-v4"})
    assert list_models.has("llama3.2", {"llama3.2:latest"})
    assert not list_models.has("llama", {"llama3.2"})


def test_neighbours_are_those_that_hold_the_name_then_those_that_look_alike() -> None:
    known = ["gpt-4.1-mini", "gpt-5-mini", "gpt-5-mini-2025-08-07", "whisper-1"]
    assert list_models.nearest("gpt-5-mini-2025", known)[0] == "gpt-5-mini-2025-08-07"
    assert list_models.nearest("zzz", known) == ()


ENGLISH = TranscriberCapabilities(rate_hz=16_000, streams=False, english_only=True, reports_language=False)
SILENT = TranscriberCapabilities(rate_hz=16_000, streams=False, reports_language=False)
REPORTING = TranscriberCapabilities(rate_hz=16_000, streams=True)
ENGLISH_STT = "it transcribes English only, and the agent has de: choose a vendor's STT"
SILENT_STT = "it does not report the language that it detects: the agent can't follow it"
ENGLISH_TTS = "it speaks English only, and the agent has de: choose a vendor's TTS"


@pytest.mark.parametrize(
    ("options", "stt", "limits"),
    [
        ({}, ENGLISH, []),
        ({"language": "en-US"}, ENGLISH, []),
        ({"language": "de"}, ENGLISH, [("stt", ENGLISH_STT), ("tts", ENGLISH_TTS)]),
        ({"language": "de", "tts": "openai/tts"}, SILENT, []),
        ({"interpret": ["en", "de"], "tts": "openai/tts"}, ENGLISH, [("stt", ENGLISH_STT)]),
        ({"interpret": ["en", "de"], "tts": "openai/tts"}, SILENT, [("stt", SILENT_STT)]),
        ({"languages.de.voice": "Anna"}, SILENT, [("stt", SILENT_STT), ("tts", ENGLISH_TTS)]),
        ({"languages.de.voice": "Anna"}, REPORTING, [("tts", ENGLISH_TTS)]),
        ({"languages.en.voice": "Emma"}, SILENT, [("stt", SILENT_STT)]),
    ],
)
def test_what_no_stt_and_tts_can_serve_is_logged(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    options: dict[str, object],
    stt: TranscriberCapabilities,
    limits: list[tuple[str, str]],
) -> None:
    overrides = {f"agents.default.{name}": value for name, value in options.items()}
    loaded = load(overrides=overrides, environ={"HOME": str(tmp_path)}, folder=tmp_path)
    with caplog.at_level(logging.WARNING):
        startup_checks.log_language_limits(loaded, lambda agent: stt)
    logged = [record.fields for record in caplog.records]  # type: ignore[attr-defined]
    assert logged == [{"setting": f"agents.default.{stage}", "why": why} for stage, why in limits]
