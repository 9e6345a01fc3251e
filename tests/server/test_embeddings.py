"""Embeddings with the `openai` package, against a server with a fake vendor behind it."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from voicepipe.errors import ConfigError
from voicepipe.testing.fakes.cues import EmbeddingCue, Status

SETTINGS = {"server.embedding_models": ("fake/embed-small",), "providers.fake.embedding_usd_per_million": 2}

PRICES = {
    "providers.fake.input_usd_per_million": 1,
    "providers.fake.output_usd_per_million": 1,
    "providers.fake.tts_usd_per_million_chars": 1,
    "providers.fake.stt_usd_per_minute": 1,
}


@pytest.fixture
async def server(fake_server: Any) -> Any:
    async with fake_server(SETTINGS) as opened:
        yield opened


@pytest.fixture
async def client(server: Any) -> Any:
    async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0) as opened:
        yield opened


def answer(usage: Any) -> bytes:
    return b'{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.5,1]}],"usage":%s}' % usage


async def test_vectors_come_as_the_provider_made_them(server: Any, client: Any) -> None:
    server.vendor.embeddings.usual = EmbeddingCue(raw=answer(b'{"prompt_tokens":1000,"total_tokens":1000}'))
    raw = await client.embeddings.with_raw_response.create(
        model="fake/embed-small", input=["a dog", "a cat"], dimensions=2, user="anna", encoding_format="float"
    )
    made = raw.parse()
    assert (made.data[0].embedding, made.model, made.usage.prompt_tokens) == ([0.5, 1], "fake/embed-small", 1_000)
    assert made.model_dump()["voicepipe"] == {"route": "fake/embed-small", "cost_usd": 0.002, "estimated": False}
    assert raw.headers["X-Voicepipe-Route"] == "fake/embed-small"
    sent = (await server.vendor.embeddings.nth(0)).question
    assert sent == {
        "model": "embed-small",
        "input": ["a dog", "a cat"],
        "dimensions": 2,
        "user": "anna",
        "encoding_format": "float",
    }


@pytest.mark.parametrize(
    ("texts", "n_tokens"), [("four chars, twelve", 5), (["abcd", "efgh"], 2), ([1, 2, 3], 3), ([[1, 2], [3]], 3)]
)
async def test_tokens_are_estimated_where_the_provider_counts_none(
    server: Any, client: Any, texts: Any, n_tokens: int
) -> None:
    server.vendor.embeddings.usual = EmbeddingCue(raw=answer(b"null"))
    made = await client.embeddings.create(model="fake/embed-small", input=texts, encoding_format="float")
    assert made.usage.prompt_tokens == n_tokens
    assert made.model_dump()["voicepipe"]["estimated"] is True


async def test_another_model_is_not_found(client: Any) -> None:
    with pytest.raises(openai.NotFoundError) as refused:
        await client.embeddings.create(model="text-embedding-3-small", input="a")
    assert refused.value.code == "model_not_found"


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        ({"model": "fake/embed-small"}, "input", "missing_required_parameter"),
        ({"model": "fake/embed-small", "input": []}, "input", None),
        ({"model": "fake/embed-small", "input": "a", "dimension": 3}, "dimension", "unknown_parameter"),
    ],
)
async def test_a_wrong_request_names_the_field(client: Any, body: Any, param: str, code: str | None) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        await client.post("/embeddings", body=body, cast_to=object)
    assert refused.value.param == param
    assert code in (None, refused.value.code)


@pytest.mark.parametrize(
    ("cue", "status"),
    [
        (EmbeddingCue(fault=Status(429)), 429),
        (EmbeddingCue(raw=b'{"error":{"message":"no"}}'), 502),
        (EmbeddingCue(raw=b"<html>"), 502),
    ],
)
async def test_a_provider_that_fails_gives_a_status(server: Any, client: Any, cue: Any, status: int) -> None:
    server.vendor.embeddings.usual = cue
    with pytest.raises(openai.APIStatusError) as failed:
        await client.embeddings.create(model="fake/embed-small", input="a")
    assert failed.value.status_code == status


async def test_a_client_secret_reaches_the_models_that_it_names(fake_server: Any) -> None:
    settings = SETTINGS | PRICES | {"providers.fake.embedding_usd_per_million": 1_000}
    async with (
        fake_server(settings) as server,
        openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0) as key,
    ):
        ours = {"scopes": ["chat"], "limits": {"models": ["fake/embed-small"], "spend_usd": 0.000_001}}
        for limits, code in ((ours, "limit_reached"), ({"scopes": ["chat"]}, "model_not_allowed")):
            minted: Any = await key.post("/realtime/client_secrets", body={"voicepipe": limits}, cast_to=object)
            url = f"{server.url}/v1"
            async with openai.AsyncOpenAI(base_url=url, api_key=minted["value"], max_retries=0) as page:
                if limits is ours:
                    await page.embeddings.create(model="fake/embed-small", input="a dog")
                with pytest.raises(openai.PermissionDeniedError) as refused:
                    await page.embeddings.create(model="fake/embed-small", input="a dog")
                assert refused.value.code == code


async def test_the_model_of_an_agents_documents_has_the_agents_name(fake_server: Any, tmp_path: Any) -> None:
    (tmp_path / "documents").mkdir()
    (tmp_path / "documents" / "a.md").write_text("# Dogs\n\nA dog barks.\n")
    documents = {
        "agents.default.knowledge": str(tmp_path / "documents"),
        "agents.default.knowledge_embedding": "fake/embed-small",
    }
    async with (
        fake_server(documents) as server,
        openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0) as client,
    ):
        made = await client.embeddings.create(model="default", input="a dog", encoding_format="float")
        assert len(made.data[0].embedding) == 64
        assert made.model_dump()["voicepipe"]["cost_usd"] is None


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"server.embedding_models": ("nowhere/embed",)}, "server.embedding_models"),
        (
            {"server.embedding_models": ("fake/embed",), "quotas.project_usd_per_day": 1},
            "needs all prices",
        ),
    ],
)
async def test_wrong_settings_are_refused_at_the_start(fake_server: Any, more: Any, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        async with fake_server({**PRICES, **more}):
            pass
