"""Clients that others wrote hold a spoken turn with a running server, unmodified: they only have its address."""

from __future__ import annotations

from typing import Any

import pytest

from voicepipe.testing.fakes.cues import LlmCue, TtsCue, tokens

pytestmark = pytest.mark.slow

TRANSCRIPT = "what time is it"


@pytest.mark.parametrize(
    "flags",
    [
        ("--strict", "--vad", "server_vad"),
        ("--strict", "--vad", "semantic_vad"),
        ("--strict", "--vad", "none"),
        ("--strict", "--tool"),
        ("--strict", "--mint"),
        ("--strict", "--flavour", "beta"),
        ("--strict", "--flavour", "beta", "--tool"),
        ("--flavour", "azure"),
    ],
    ids=" ".join,
)
async def test_openai_for_python(
    fake_server: Any, drive: Any, openai_py: list[str], model: Any, answer: str, flags: tuple[str, ...]
) -> None:
    """Its client for the published events, the one of the beta, and the one for Azure."""
    async with fake_server() as server:
        server.vendor.llm.usual = model
        result = await drive(openai_py, server.url, *flags)
    assert (result["transcript"], result["said"]) == (TRANSCRIPT, answer)
    assert result.get("call") == (
        {"name": "get_weather", "arguments": {"place": "Paris"}} if "--tool" in flags else None
    )
    assert result.get("minted") == ("ek_" if "--mint" in flags else None)


@pytest.mark.parametrize("flags", [(), ("--tool",), ("--barge-in", "0.3")], ids=" ".join)
async def test_openai_agents_for_python(
    fake_server: Any, drive: Any, agents_py: list[str], model: Any, answer: str, flags: tuple[str, ...]
) -> None:
    """Its history is what was said, its function runs once, and speech over the answer cuts it."""
    async with fake_server() as server:
        server.vendor.llm.usual = model
        result = await drive(agents_py, server.url, *flags)
    assert result["calls"] == (["Paris"] if "--tool" in flags else [])
    assert result["history"][0] == ["user", TRANSCRIPT]
    assert result["history"][-1] == ["assistant", answer]
    if "--barge-in" in flags:
        assert result["interrupted"] == 1
        cut = result["history"][1][1]
        assert [role for role, _ in result["history"]] == ["user", "assistant", "user", "assistant"]
        assert answer.startswith(cut)
        assert len(cut) < len(answer)


@pytest.mark.parametrize("flags", [(), ("--native",), ("--mint",)], ids=" ".join)
async def test_openai_for_javascript(
    fake_server: Any, drive: Any, openai_js: list[str], model: Any, answer: str, flags: tuple[str, ...]
) -> None:
    """In Node over the ws package, and as browsers have it; it opens only `wss:`, so the server speaks that."""
    async with fake_server({"server.tls_dev": True}) as server:
        server.vendor.llm.usual = model
        certificate = server.folder / "data" / "tls-dev" / "cert.pem"
        result = await drive(openai_js, server.url, *flags, NODE_EXTRA_CA_CERTS=str(certificate))
    assert (result["transcript"], result["said"]) == (TRANSCRIPT, answer)
    assert result["path"] == "/v1/realtime?model=gpt-realtime"
    assert result.get("minted") == ("ek_" if "--mint" in flags else None)


@pytest.mark.parametrize("client", ["openai_py", "agents_py", "openai_js", "openai_js --native"])
async def test_a_user_who_goes_on_takes_back_an_answer_that_began_softly(
    fake_server: Any,
    drive: Any,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    answer: str,
    client: str,
) -> None:
    """0.1 s after its first sound. The client drops it and gets one answer, to one message of all that was said; no
    audio of the first comes once the client was told of the voice.
    """
    # A busy machine may hold the client, and so the user, for longer than the second in which an answer is reversible,
    # and the text of the user's voice for longer than it is awaited.
    monkeypatch.setattr("voicepipe.turn.endpointing.strategies._REVERSIBLE_MS", 3_000)
    monkeypatch.setattr("voicepipe.turn.endpointing.strategies.MAX_REVERSIBLE_MS", 3_000)
    monkeypatch.setattr("voicepipe.turn.soft_start.WORDS_DUE_MS", 20_000)
    name, *flags = client.split()
    command = request.getfixturevalue(name)
    gap = ("--barge-in", "0.1") if name == "agents_py" else ("--go-on", "0.1")
    more: dict[str, object] = {"server.tls_dev": True} if name == "openai_js" else {}
    async with fake_server(more) as server:
        llm = server.vendor.llm
        llm.usual = LlmCue(tokens=tokens(answer), ttft_ms=100)
        server.vendor.tts.usual = TtsCue(gap_ms=80)  # the answer is not complete when the user goes on
        certificate = server.folder / "data" / "tls-dev" / "cert.pem"
        result = await drive(
            command, server.url, "--vad", "semantic_vad", *gap, *flags, NODE_EXTRA_CA_CERTS=str(certificate)
        )
    *taken_back, last = result["statuses"]
    # A busy machine may hold up the client's frames in the middle of a sentence as well, which ends with another pause.
    assert taken_back
    assert {*taken_back} == {"cancelled"}
    assert last == "completed"
    assert result["late_ms"] == 0
    messages = llm.received[-1].question["messages"]
    said = " ".join([TRANSCRIPT] * len(result["statuses"]))
    assert [each["content"] for each in messages if each["role"] != "system"] == [said]
