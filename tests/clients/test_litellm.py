"""litellm comes by vendors' usual model names, unmodified: it only has the server's address."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from voicepipe.auth.apikeys import ApiKeys

pytestmark = pytest.mark.slow

TRANSCRIPT = "what time is it"
OFFLINE = {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}
"""It fetches its table of prices otherwise."""


async def test_chat(fake_server: Any, drive: Any, litellm_py: list[str]) -> None:
    """As a whole and as a stream. One process for all models: litellm takes 8 s of CPU to start."""
    models = ["openai/gpt-4o", "openai/gpt-4o-mini", "openai/gpt-5-mini"]
    async with fake_server() as server:
        result = await drive(litellm_py, server.url, "--way", "chat", "--model", ",".join(models), **OFFLINE)
    assert list(result["said"]) == models
    for whole, streamed in result["said"].values():
        assert whole == streamed != ""


async def test_a_function(fake_server: Any, drive: Any, litellm_py: list[str], model: Any, answer: str) -> None:
    """Its call, and the answer that follows its output."""
    async with fake_server() as server:
        server.vendor.llm.usual = model
        result = await drive(litellm_py, server.url, "--way", "tool", **OFFLINE)
    assert (result["call"], result["said"]) == (["get_weather", {"place": "Paris"}], answer)


async def test_speech_and_transcriptions(fake_server: Any, drive: Any, litellm_py: list[str]) -> None:
    """`verbose_json` as the published type has it, too."""
    async with fake_server() as server:
        result = await drive(litellm_py, server.url, "--way", "audio", **OFFLINE)
    assert (result["wav"], result["text"]) == ("RIFF", TRANSCRIPT)


async def test_realtime(fake_server: Any, drive: Any, litellm_py: list[str], model: Any, answer: str) -> None:
    """A turn through its proxy for the Realtime API."""
    async with fake_server() as server:
        server.vendor.llm.usual = model
        result = await drive(litellm_py, server.url, "--way", "realtime", "--model", "openai/gpt-realtime", **OFFLINE)
    assert result["said"] == answer


async def test_a_wrong_key(tmp_path: Path, fake_server: Any, drive: Any, litellm_py: list[str]) -> None:
    """litellm takes a refusal for one of the key by the words `Incorrect API key provided`, or by the status."""
    ApiKeys(tmp_path / "data").create("acme", now_s=1)
    async with fake_server() as server:
        result = await drive(litellm_py, server.url, "--way", "wrong-key", "--key", "sk-wrong", **OFFLINE)
    assert (result["chat"], result["speech"]) == ("AuthenticationError", "AuthenticationError")
