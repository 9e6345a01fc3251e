"""litellm comes by vendors' usual model names, unmodified: it only has the server's address."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from voicepipe.auth.apikeys import ApiKeys

pytestmark = pytest.mark.slow

TRANSCRIPT = "what time is it"
MODELS = ["openai/gpt-4o", "openai/gpt-4o-mini", "openai/gpt-5-mini"]
OFFLINE = {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}
"""It fetches its table of prices otherwise."""


@pytest.fixture
async def outcome(
    tmp_path: Path, fake_server: Any, drive: Any, litellm_py: list[str], model: Any
) -> Callable[[str], dict[str, Any]]:
    """Returns what came of one of the driver's ways, and fails when that way did."""
    async with fake_server() as server:
        ApiKeys(tmp_path / "guarded").create("acme", now_s=1)
        async with fake_server({"server.data_dir": str(tmp_path / "guarded")}) as guarded:
            server.vendor.llm.usual = model
            flags = ("--guarded-url", f"{guarded.url}/v1", "--models", ",".join(MODELS))
            ways = (await drive(litellm_py, server.url, *flags, **OFFLINE))["ways"]

    def of(way: str) -> dict[str, Any]:
        result: dict[str, Any] = ways[way]
        assert result["error"] is None, result
        return result

    return of


@pytest.mark.long
def test_every_way_of_litellm(outcome: Callable[[str], dict[str, Any]], answer: str, subtests: pytest.Subtests) -> None:
    """One test, since each process of a run would start litellm and its proxy again: 12 s of CPU time."""
    with subtests.test("chat, as a whole and as a stream"):
        said = outcome("chat")["said"]
        assert list(said) == MODELS
        for whole, streamed in said.values():
            assert whole == streamed != ""
    with subtests.test("a function's call, and the answer that follows its output"):
        result = outcome("tool")
        assert (result["call"], result["said"]) == (["get_weather", {"place": "Paris"}], answer)
    with subtests.test("speech, and transcriptions with `verbose_json` as the published type has it"):
        result = outcome("audio")
        assert (result["wav"], result["text"]) == ("RIFF", TRANSCRIPT)
    with subtests.test("a turn through its proxy for the Realtime API"):
        assert outcome("realtime")["said"] == answer
    with subtests.test("a wrong key, which litellm knows by `Incorrect API key provided` or by the status"):
        result = outcome("wrong-key")
        assert (result["chat"], result["speech"]) == ("AuthenticationError", "AuthenticationError")
