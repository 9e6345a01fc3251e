"""WebSocket frames as no client sends them, on bare connections."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Callable

from attack.target import HANG_S, Sent, Target

LINES = 144
AT_ONCE = 24
MAX_FRAMES = 5
READ_S, MAX_READ_S = 0.2, 1.0

GOOD = b'{"type":"input_audio_buffer.clear"}'
HANDSHAKE = (
    "GET /v1/realtime HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    "Authorization: Bearer {secret}\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
    "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n\r\n"
)

TEXT, BINARY, CLOSE, PING, REST = 1, 2, 8, 9, 0
RESERVED = (3, 4, 5, 6, 7, 11, 12, 15)
CLOSE_CODES = (0, 999, 1_004, 1_005, 1_006, 5_000, 65_535)

Odd = Callable[[random.Random], bytes]


def frame(
    chance: random.Random,
    opcode: int,
    data: bytes,
    *,
    last: bool = True,
    reserved: int = 0,
    masked: bool = True,
    says_bytes: int | None = None,
) -> bytes:
    """One frame (RFC 6455, 5.2); its length field may lie."""
    n_bytes = len(data) if says_bytes is None else says_bytes
    head, mask_bit = bytes([last << 7 | reserved << 4 | opcode]), 0x80 if masked else 0
    if n_bytes < 126:
        head += bytes([mask_bit | n_bytes])
    else:
        wide = n_bytes > 0xFFFF
        head += bytes([mask_bit | (127 if wide else 126)]) + struct.pack(">Q" if wide else ">H", n_bytes)
    if not masked:
        return head + data
    mask = chance.randbytes(4)
    return head + mask + bytes(byte ^ mask[at % 4] for at, byte in enumerate(data))


ODD: tuple[Odd, ...] = (
    lambda c: frame(c, TEXT, GOOD),
    lambda c: frame(c, TEXT, GOOD[:9], last=False) + frame(c, REST, GOOD[9:]),
    lambda c: b"".join(
        frame(c, REST if at else TEXT, GOOD[at : at + 1], last=at == len(GOOD) - 1) for at in range(len(GOOD))
    ),
    lambda c: frame(c, TEXT, b"\xff\xfe"),
    lambda c: frame(c, TEXT, GOOD, reserved=c.randrange(1, 8)),
    lambda c: frame(c, c.choice(RESERVED), b"x"),
    lambda c: frame(c, PING, bytes(126)),
    lambda c: frame(c, PING, b"x", last=False),
    lambda c: b"".join(frame(c, PING, b"p") for _ in range(500)),
    lambda c: frame(c, TEXT, GOOD, masked=False),
    lambda c: frame(c, REST, b"x"),
    lambda c: frame(c, TEXT, b"a", last=False) + frame(c, TEXT, b"b"),
    lambda c: frame(c, TEXT, b"", says_bytes=2**63 - 1),
    lambda c: frame(c, TEXT, b"x", says_bytes=2**64 - 1),
    lambda c: frame(c, TEXT, b"x" * 1_000, says_bytes=17 << 20),
    lambda c: frame(c, CLOSE, b"\x03"),
    lambda c: frame(c, CLOSE, struct.pack(">H", c.choice(CLOSE_CODES)) + b"\xff"),
    lambda c: frame(c, BINARY, c.randbytes(c.randrange(60))),
    lambda c: c.randbytes(c.randrange(1, 400)),
)
"""The kinds of frames; the first three are well made, in one, two and many pieces."""


async def frames(target: Target) -> Sent:
    """Lines with a few odd frames each."""
    chance, sent = random.Random(target.seed), Sent()
    n_lines = round(LINES * target.scale)
    for _ in range(0, n_lines, AT_ONCE):
        data = [b"".join(chance.choice(ODD)(chance) for _ in range(chance.randint(1, MAX_FRAMES)))]
        data += [b"".join(chance.choice(ODD)(chance) for _ in range(chance.randint(1, MAX_FRAMES))) for _ in range(23)]
        await asyncio.gather(*(_one_line(target, sent, each) for each in data))
    return sent


async def _one_line(target: Target, sent: Sent, data: bytes) -> None:
    reader, writer = await target.tcp()
    try:
        writer.write(HANDSHAKE.format(host=target.host, port=target.port, secret=target.secret).encode())
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), HANG_S)
        status = head.split(b" ", 2)[1].decode()
        if status != "101":
            sent.seen[f"handshake {status}"] += 1
            return
        sent.write(writer, data)
        await writer.drain()
        sent.seen[await _end(reader)] += 1
    except (ConnectionError, asyncio.IncompleteReadError):
        sent.seen["reset"] += 1
    finally:
        writer.transport.abort()


async def _end(reader: asyncio.StreamReader) -> str:
    """Read what comes until nothing does; 1011 among it is a fault of the server's."""
    data = b""
    try:
        async with asyncio.timeout(MAX_READ_S):
            while piece := await asyncio.wait_for(reader.read(65_536), READ_S):
                data += piece
    except TimeoutError:
        return "open"
    return "closed 1011" if b"\x88" in data and struct.pack(">H", 1_011) in data[-130:] else "closed"
