"""LLM servers that run on this machine are found on real sockets, and offered in one line."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from voicepipe.config import Settings, load
from voicepipe.testing.waiting import WAIT_S
from voicepipe.values import replace
from voicepipe.wiring import local_servers
from voicepipe.wiring.local_servers import MAX_BYTES, USUAL, UsualAddress, offer
from voicepipe.wiring.terminal import greeting

OLLAMA, LM_STUDIO, LLAMA_CPP, VLLM = USUAL


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a second is too short on a busy machine; the test of a server that hangs sets its own limit."""
    monkeypatch.setattr(local_servers, "TIMEOUT_S", WAIT_S)


def settings_with(folder: Path, environ: dict[str, str] | None = None, **overrides: object) -> Settings:
    dotted = {key.replace("__", "."): value for key, value in overrides.items()}
    return load(overrides=dotted, environ={"HOME": "/h", **(environ or {})}, folder=folder)


@asynccontextmanager
async def fake(at: UsualAddress, answer: Any, requests: list[str] | None = None) -> AsyncIterator[UsualAddress]:
    """The address of a server on a free port that lists its models as `answer`: JSON, or a whole response."""

    async def models(request: web.Request) -> web.StreamResponse:
        if requests is not None:
            requests.append(request.path)
        return answer if isinstance(answer, web.Response) else web.json_response(answer)

    app = web.Application()
    app.router.add_get("/v1/models", models)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        yield replace(at, base_url=f"http://127.0.0.1:{port}/v1")
    finally:
        await runner.cleanup()


def listed(*names: str, owned_by: str = "library") -> dict[str, Any]:
    return {"object": "list", "data": [{"id": name, "object": "model", "owned_by": owned_by} for name in names]}


def closed(at: UsualAddress, port: int) -> UsualAddress:
    return replace(at, base_url=f"http://127.0.0.1:{port}/v1")


async def test_ollama_is_found_with_its_first_model_that_can_talk(tmp_path: Path, unused_tcp_port: int) -> None:
    async with fake(OLLAMA, listed("nomic-embed-text:latest", "llama3.2:3b", "qwen3")) as at:
        found = await offer(settings_with(tmp_path), (closed(VLLM, unused_tcp_port), at))
    assert found == "Ollama runs here: to answer with it, add --llm ollama/llama3.2:3b"


async def test_a_model_for_embeddings_is_not_proposed(tmp_path: Path) -> None:
    """Many of them have no such word in their name."""
    names = ("bge-m3:latest", "all-minilm:33m", "paraphrase-multilingual", "multilingual-e5-large", "gemma3:4b")
    async with fake(OLLAMA, listed(*names)) as at:
        found = await offer(settings_with(tmp_path), (at,))
    assert found == "Ollama runs here: to answer with it, add --llm ollama/gemma3:4b"


async def test_the_options_can_be_pasted(tmp_path: Path) -> None:
    """llama.cpp names a model by its file, which may have a space."""
    async with fake(LLAMA_CPP, listed("/my models/a.gguf", owned_by="llamacpp")) as at:
        found = await offer(settings_with(tmp_path), (at,))
    assert found is not None
    assert found.endswith("--llm 'llamacpp//my models/a.gguf'")


async def test_others_are_found_with_their_address(tmp_path: Path) -> None:
    for kind, owner in ((LM_STUDIO, "organization_owner"), (LLAMA_CPP, "llamacpp")):
        async with fake(kind, listed("qwen2.5-7b", owned_by=owner)) as at:
            found = await offer(settings_with(tmp_path), (at,))
        setting = f"--set providers.{kind.provider}.base_url={at.base_url}"
        assert found == f"{kind.title} runs here: to answer with it, add {setting} --llm {kind.provider}/qwen2.5-7b"
        assert found is not None
        _, _, line = found.partition("add --set ")
        key, _, value = line.partition(" --llm ")[0].partition("=")
        spec = line.partition(" --llm ")[2]
        assert settings_with(tmp_path, None, **{key.replace(".", "__"): value, "agents__default__llm": spec}).agents


async def test_the_first_in_the_list_is_named(tmp_path: Path) -> None:
    async with fake(OLLAMA, listed("a")) as first, fake(VLLM, listed("b", owned_by="vllm")) as second:
        assert "ollama/a" in (await offer(settings_with(tmp_path), (first, second)) or "")
        assert "vllm/b" in (await offer(settings_with(tmp_path), (second, first)) or "")


@pytest.mark.parametrize(
    "answer",
    [
        listed("gpt-4o", owned_by="somebody"),
        {"data": []},
        {"models": ["a"]},
        ["a"],
        web.Response(status=404),
        web.Response(status=307, headers={"Location": "http://127.0.0.1:9/"}),
        web.Response(text="<html>a development server</html>"),
        web.Response(body=b"\xff\xfe"),
        web.Response(body=b" " * (MAX_BYTES + 1)),
    ],
    ids=["owner", "none", "shape", "list", "missing", "redirect", "page", "bytes", "endless"],
)
async def test_another_program_at_the_port_is_left_alone(tmp_path: Path, answer: Any) -> None:
    async with fake(LLAMA_CPP, answer) as at:
        assert await offer(settings_with(tmp_path), (at,)) is None


async def test_a_silent_port_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_servers, "TIMEOUT_S", 0.5)
    accepted: list[asyncio.StreamWriter] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.append(writer)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        at = closed(OLLAMA, server.sockets[0].getsockname()[1])
        assert await offer(settings_with(tmp_path), (at,)) is None
        assert accepted
    finally:
        for writer in accepted:
            writer.close()
        server.close()


@pytest.mark.parametrize(
    ("environ", "overrides"),
    [
        ({"GROQ_API_KEY": "gsk"}, {}),
        ({}, {"agents__default__llm": "openai/gpt-4.1-mini", "providers__openai__api_key": "sk"}),
        ({}, {"agents__default__llm": "local/smollm2-135m"}),
        ({"VOICEPIPE_AGENTS__SUPPORT__LLM": "local/smollm2-135m"}, {}),
    ],
)
async def test_no_server_is_queried_where_an_llm_was_chosen(
    tmp_path: Path, environ: dict[str, str], overrides: dict[str, object]
) -> None:
    requests: list[str] = []
    async with fake(OLLAMA, listed("llama3.2"), requests) as at:
        assert await offer(settings_with(tmp_path, environ, **overrides), (at,)) is None
        assert requests == []
        assert await offer(settings_with(tmp_path), (at,)) is not None
        assert requests == ["/v1/models"]


def test_only_this_machine_is_queried() -> None:
    assert all(at.base_url.startswith("http://127.0.0.1:") for at in USUAL)


def test_the_offer_is_one_line_of_the_greeting(tmp_path: Path) -> None:
    lines = list(greeting(settings_with(tmp_path), base_url="http://127.0.0.1:1", is_open=True, found="Ollama runs"))
    assert lines.count("Ollama runs") == 1
