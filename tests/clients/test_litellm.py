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

Outcome = Callable[[str], dict[str, Any]]


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Any]:
    """The results of the driver's ways, once it has run."""
    return {}


@pytest.fixture
async def outcome(
    outcomes: dict[str, Any], tmp_path: Path, fake_server: Any, drive: Any, litellm_py: list[str], model: Any
) -> Outcome:
    """Returns what came of one of the driver's ways, and fails when that way did.

    The driver goes all ways in the first test that asks: litellm takes 6 s of CPU to import. So the checks of every
    test look at its sessions, too.
    """
    if not outcomes:
        async with fake_server() as server:
            ApiKeys(tmp_path / "guarded").create("acme", now_s=1)
            async with fake_server({"server.data_dir": str(tmp_path / "guarded")}) as guarded:
                server.vendor.llm.usual = model
                flags = ("--guarded-url", f"{guarded.url}/v1", "--models", ",".join(MODELS))
                result = await drive(litellm_py, server.url, *flags, **OFFLINE)
        outcomes.update(result["ways"])

    def of(way: str) -> dict[str, Any]:
        result: dict[str, Any] = outcomes[way]
        assert result["error"] is None, result
        return result

    return of


def test_chat(outcome: Outcome) -> None:
    """As a whole and as a stream."""
    said = outcome("chat")["said"]
    assert list(said) == MODELS
    for whole, streamed in said.values():
        assert whole == streamed != ""


def test_a_function(outcome: Outcome, answer: str) -> None:
    """Its call, and the answer that follows its output."""
    result = outcome("tool")
    assert (result["call"], result["said"]) == (["get_weather", {"place": "Paris"}], answer)


def test_speech_and_transcriptions(outcome: Outcome) -> None:
    """`verbose_json` as the published type has it, too."""
    result = outcome("audio")
    assert (result["wav"], result["text"]) == ("RIFF", TRANSCRIPT)


def test_realtime(outcome: Outcome, answer: str) -> None:
    """A turn through its proxy for the Realtime API."""
    assert outcome("realtime")["said"] == answer


def test_a_wrong_key(outcome: Outcome) -> None:
    """litellm takes a refusal for one of the key by the words `Incorrect API key provided`, or by the status."""
    result = outcome("wrong-key")
    assert (result["chat"], result["speech"]) == ("AuthenticationError", "AuthenticationError")
