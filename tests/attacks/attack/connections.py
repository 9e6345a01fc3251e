"""Connections of strangers: silent, slow, broken, many. None of them shows a credential that is good for anything."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import aiohttp
from websockets.exceptions import InvalidStatus, WebSocketException

from attack.target import HANG_S, Sent, Target, until, written_turn

SILENT = 1_000
TRICKLING = 200
TRICKLE_S, TRICKLES = 0.3, 20
UPLOADS = 16
GARBAGE = 300

HEADERS_BEGUN = b"GET /v1/realtime HTTP/1.1\r\nHost: 127.0.0.1\r\n"
FORM_BEGUN = (
    b"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\n"
    b"Content-Type: multipart/form-data; boundary=x\r\nContent-Length: 1000000\r\n\r\n--x\r\n"
)
TLS_HELLO = bytes.fromhex("16030100c8010000c40303") + bytes(192)


async def silent(target: Target) -> Sent:
    """1,000 connections on which nothing is sent; a good call begins meanwhile."""
    sent = Sent()
    held = await _held(target, sent, SILENT, lambda: b"")
    await _good_call(target, sent)
    _drop(held)
    return sent


async def slow_headers(target: Target) -> Sent:
    """200 requests whose headers never end, a line now and then; a good call begins meanwhile."""
    sent = Sent()
    held = await _held(target, sent, TRICKLING, lambda: HEADERS_BEGUN)
    for n in range(TRICKLES):
        for writer in held:
            if not writer.transport.is_closing():
                sent.write(writer, b"X-%d: b\r\n" % n)
        await asyncio.sleep(TRICKLE_S)
    await _good_call(target, sent)
    _drop(held)
    return sent


async def slow_uploads(target: Target) -> Sent:
    """As many uploads as the server has slots for, whose bodies never come; a good one is sent meanwhile."""
    sent = Sent()
    begun = FORM_BEGUN % target.secret.encode()
    held = await _held(target, sent, UPLOADS, lambda: begun)
    await asyncio.sleep(1)  # that their headers are read before the good one's is what is tried
    form = aiohttp.FormData({"model": "default"})
    form.add_field("file", _wav(), filename="a.wav")
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=HANG_S)) as http,
        http.post(f"{target.url}/v1/audio/transcriptions", data=form, headers=target.headers(target.key)) as answer,
    ):
        sent.seen[f"a good upload {answer.status}"] += 1
    _drop(held)
    return sent


async def garbage(target: Target) -> Sent:
    """TLS to a port without it, and bytes that are no HTTP."""
    chance, sent = random.Random(target.seed), Sent()

    def odd() -> bytes:
        return chance.choice(
            (TLS_HELLO, chance.randbytes(200), b"GET\r\n\r\n", b"\x00" * 64, b"PRI * HTTP/2.0\r\n\r\n")
        )

    held = await _held(target, sent, GARBAGE, odd)
    await _good_call(target, sent)
    _drop(held)
    return sent


async def connection_flood(target: Target) -> Sent:
    """400 calls that begin and break: at once, after the first event, or with a goodbye."""
    sent = Sent()

    async def one(n: int) -> None:
        try:
            line = await target.line()
            sent.events += 1
            if n % 3 == 1:
                await until(line, "session.created")
            if n % 3 == 2:
                await line.close()
            line.transport.abort()
        except (OSError, WebSocketException) as why:
            sent.seen[_name(why)] += 1

    for first in range(0, 400, 20):
        await asyncio.gather(*(one(first + n) for n in range(20)))
    return sent


async def _held(
    target: Target, sent: Sent, n_connections: int, first: Callable[[], bytes]
) -> list[asyncio.StreamWriter]:
    """Open connections and leave them open."""
    held: list[asyncio.StreamWriter] = []
    for _ in range(n_connections):
        try:
            _, writer = await target.tcp()
        except OSError as why:
            sent.seen[_name(why)] += 1
            continue
        sent.write(writer, first())
        held.append(writer)
    return held


def _drop(held: list[asyncio.StreamWriter]) -> None:
    for writer in held:
        writer.transport.abort()


async def _good_call(target: Target, sent: Sent) -> None:
    """Call with an API key, and have one turn."""
    try:
        async with await target.line(credential=target.key) as line:
            status, _ = await written_turn(line)
    except (OSError, WebSocketException) as why:
        status = _name(why)
    sent.seen[f"a good call {status}"] += 1


def _name(why: Exception) -> str:
    return f"HTTP {why.response.status_code}" if isinstance(why, InvalidStatus) else type(why).__name__


def _wav() -> bytes:
    """A tenth of a second of silence."""
    sound = bytes(3_200)
    head = b"RIFF" + (36 + len(sound)).to_bytes(4, "little") + b"WAVEfmt " + (16).to_bytes(4, "little")
    fields = bytes.fromhex("0100010080 3e0000 007d0000 0200 1000".replace(" ", ""))
    return head + fields + b"data" + len(sound).to_bytes(4, "little") + sound
