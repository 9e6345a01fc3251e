"""Embeddings of the fake vendor: words are dimensions, and words of the same meaning are the same dimension."""

from __future__ import annotations

import json
import re
import zlib

from aiohttp import web

from voicepipe.testing.fakes.cues import EmbeddingCue
from voicepipe.testing.fakes.script import ReceivedRequest


async def answer(request: web.Request, received: ReceivedRequest, cue: EmbeddingCue) -> web.StreamResponse:
    """Answer as OpenAI does, in no order: clients must read `index`."""
    if cue.hold is not None:
        cue.hold.reached.set()
        await cue.hold.release.wait()
    if cue.raw is not None:
        return web.Response(body=cue.raw, content_type="application/json")
    data = [
        {"object": "embedding", "index": index, "embedding": vector_of(text, cue)}
        for index, text in enumerate(received.question["input"])
    ]
    body = {"object": "list", "model": received.question["model"], "data": data[::-1], "usage": {"total_tokens": 1}}
    return web.Response(body=json.dumps(body).encode(), content_type="application/json")


def vector_of(text: str, cue: EmbeddingCue) -> list[float]:
    """Return how often each meaning comes."""
    same = {word: words[0] for words in cue.meanings for word in words}
    vector = [0.0] * cue.dimensions
    for word in re.findall(r"\w+", text.lower()):
        vector[zlib.crc32(same.get(word, word).encode()) % cue.dimensions] += 1.0
    return vector
