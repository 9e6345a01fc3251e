"""Embeddings over OpenAI's API: what is sent, what is read, and each way in which a vendor may fail."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import numpy as np
import pytest

from voicepipe.errors import ConfigError, StageBroken, StageError, StageRefused, StageTimeout
from voicepipe.providers.net import http
from voicepipe.providers.openai.embeddings import OpenAiEmbedder
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.testing.fakes.cues import EmbeddingCue, Hang, HangUp, Status
from voicepipe.testing.fakes.vendor import FakeVendor

SPEC = Spec("fake", "embed-small")


def embedder(vendor: FakeVendor, **more: Any) -> OpenAiEmbedder:
    settings = {"kind": "openai", "base_url": vendor.base_url, "api_key": "k-1", "idle_timeout_ms": 200, **more}
    return OpenAiEmbedder(SPEC, ProviderSettings(**settings))


async def test_texts_become_vectors_of_length_1_in_their_order() -> None:
    """Whatever the order in which the vendor sends them."""
    async with http.lifetime(), FakeVendor() as vendor:
        vendor.embeddings.usual = EmbeddingCue(meanings=(("dog", "hound"),))
        vectors = await embedder(vendor).embed(["a dog", "the moon", "a hound"])
        request = await vendor.embeddings.nth(0)
    assert request.question == {
        "model": "embed-small",
        "input": ["a dog", "the moon", "a hound"],
        "encoding_format": "float",
    }
    assert request.headers["Authorization"] == "Bearer k-1"
    assert vectors.shape == (3, 64)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1)
    assert vectors[0] @ vectors[2] == pytest.approx(1)
    assert vectors[0] @ vectors[1] < 0.9


def answer(*vectors: Any, first: int = 0) -> bytes:
    data = [{"index": n, "embedding": vector} for n, vector in enumerate(vectors, start=first)]
    return json.dumps({"data": data}).encode()


@pytest.mark.parametrize(
    ("cue", "error", "why"),
    [
        (EmbeddingCue(fault=Status(401)), StageRefused, "401"),
        (EmbeddingCue(fault=Status(500)), StageRefused, "500"),
        (EmbeddingCue(fault=Hang()), StageTimeout, "fake/embed-small"),
        (EmbeddingCue(fault=HangUp()), StageBroken, "fake/embed-small"),
        (EmbeddingCue(raw=b"<html>Bad gateway</html>"), StageBroken, "expected JSON with vectors"),
        (EmbeddingCue(raw=b'{"data": [{"index": 0, "embedding": "AAAA"}]}'), StageBroken, "expected JSON"),
        (EmbeddingCue(raw=b'{"error": {"message": "no such model"}}'), StageError, "no such model"),
        (EmbeddingCue(raw=answer([1.0])), StageBroken, "expected 2 vectors"),
        (EmbeddingCue(raw=answer([1.0], [1.0], first=1)), StageBroken, "expected 2 vectors"),
        (EmbeddingCue(raw=answer([1.0], [1.0, 2.0])), StageBroken, "expected 2 vectors"),
        (EmbeddingCue(raw=answer([], [])), StageBroken, "expected 2 vectors"),
        (EmbeddingCue(raw=answer([1.0], [1e300])), StageBroken, "infinite"),
    ],
)
async def test_what_is_no_answer_is_an_error(cue: EmbeddingCue, error: type[StageError], why: str) -> None:
    """A refusal, a stall, a broken connection, garbage, and vectors that cannot be compared."""
    async with http.lifetime(), FakeVendor() as vendor:
        vendor.embeddings.usual = cue
        with pytest.raises(error, match=why):
            await embedder(vendor).embed(["one", "two"])


async def test_a_request_that_is_cancelled_closes_its_connection() -> None:
    """The deadline of a query costs the vendor's server no more than that."""
    async with http.lifetime(), FakeVendor() as vendor:
        vendor.embeddings.usual = EmbeddingCue(fault=Hang())
        query = asyncio.create_task(embedder(vendor, idle_timeout_ms=60_000).embed(["one"]))
        received = await vendor.embeddings.nth(0)
        query.cancel()
        with pytest.raises(asyncio.CancelledError):
            await query
        await received.gone.wait()


def test_a_provider_without_an_address_is_refused() -> None:
    """By the name of its setting."""
    with pytest.raises(ConfigError, match=r"providers\.fake\.base_url"):
        OpenAiEmbedder(SPEC, ProviderSettings(kind="openai"))
