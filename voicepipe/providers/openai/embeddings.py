"""Embeddings behind OpenAI's API: OpenAI, Mistral, vLLM, llama.cpp, Ollama and similar servers.

Source of the wire: OpenAI API reference, "Create embeddings".
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from voicepipe.knowledge.vectors import Vectors, unit
from voicepipe.protocol.embeddings import EmbeddingRequest, ProviderEmbeddings
from voicepipe.providers.net import failures, http
from voicepipe.providers.net.address import ProviderAddress
from voicepipe.providers.openai.options import OpenAiOptions
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.values import replace

ANSWER_BYTES: Final = 16 << 20
"""Maximum size of an answer: 32 vectors of 8,192 numbers, of 20 characters each, and three times that."""

ERROR_BYTES: Final = 65_536
"""The part of an answer without vectors that is searched for an error."""

MAX_DIMENSIONS: Final = 8_192


class _Embedding(msgspec.Struct):
    index: int
    embedding: list[float]


class _Answer(msgspec.Struct):
    data: list[_Embedding] | None = None


class OpenAiEmbedder:
    """An embedding model at a server with OpenAI's API."""

    def __init__(self, spec: Spec, settings: ProviderSettings) -> None:
        """Raises ConfigError when a setting of the provider is missing or wrong."""
        options = OpenAiOptions.of(spec, settings)
        self.name, self._model = str(spec), spec.model
        self._address = ProviderAddress.of("llm", spec, settings, auth_scheme=options.auth_scheme)

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Return a vector of length 1 for each text.

        Raises:
            StageError: the vendor refused, stalled or broke, or sent something else.
        """
        request = {"model": self._model, "input": list(texts), "encoding_format": "float"}
        async with http.post(self._address, "/embeddings", json=msgspec.json.encode(request)) as answer:
            body = await answer.body(limit_bytes=ANSWER_BYTES)
        if len(texts) == 1:
            return self._read(body, 1)
        return await asyncio.to_thread(self._read, body, len(texts))  # 32 vectors take some 10 ms

    async def pass_on(self, request: EmbeddingRequest) -> ProviderEmbeddings:
        """Send a client's request on, and return the answer with its vectors unread.

        Raises:
            StageError: the vendor refused, stalled or broke, or sent something else.
        """
        written = msgspec.json.encode(replace(request, model=self._model))
        async with http.post(self._address, "/embeddings", json=written) as answer:
            body = await answer.body(limit_bytes=ANSWER_BYTES)
        try:
            return await asyncio.to_thread(msgspec.json.decode, body, type=ProviderEmbeddings)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise failures.in_band(self._address, body[:ERROR_BYTES]) from None

    def _read(self, body: bytes, n_texts: int) -> Vectors:
        try:
            data = msgspec.json.decode(body, type=_Answer).data
        except (msgspec.DecodeError, UnicodeDecodeError):
            quoted = failures.quote(self._address, body[:80].decode(errors="replace"))
            raise failures.broken(self._address, f"expected JSON with vectors, got {quoted!r}") from None
        if data is None:
            raise failures.in_band(self._address, body)
        ordered = sorted(data, key=lambda each: each.index)
        lengths = {len(each.embedding) for each in ordered}
        whole = [each.index for each in ordered] == list(range(n_texts))
        if not whole or len(lengths) != 1 or not 0 < max(lengths) <= MAX_DIMENSIONS:
            what = f"{len(data)} of {sorted(lengths)[:4]} numbers"
            raise failures.broken(self._address, f"expected {n_texts} vectors of the same length, got {what}")
        with np.errstate(over="ignore"):
            vectors = np.array([each.embedding for each in ordered]).astype(np.float32)
        if not np.isfinite(vectors).all():
            raise failures.broken(self._address, "expected numbers, got one that is infinite")
        return unit(vectors)
