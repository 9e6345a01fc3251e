"""Users who make the server speak and do not listen."""

from __future__ import annotations

import asyncio

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from attack.target import HANG_S, Event, Sent, Target, session_update, until, user_item

ITEM_CHARS = 149_000
"""Of a control character, which JSON writes in six bytes: the longest answer for the shortest question."""

N_REQUESTS = 2_000
INSTRUCTIONS_CHARS = (8 << 20, 1 << 20, 256 << 10, 60 << 10)
"""The first that is taken is used."""

READ_EVERY_S = 0.25
READS = 40


async def retrieve_unread(target: Target) -> Sent:
    """Have one long item read out again and again, and read nothing."""
    sent, line = Sent(), await target.line()
    await _long_item(sent, line)
    await _send_unread(sent, line, {"type": "conversation.item.retrieve", "item_id": "big"})
    return sent


async def retrieve_slowly_read(target: Target) -> Sent:
    """The same, reading one event now and then, which keeps the line."""
    sent, line = Sent(), await target.line(max_queue=1)
    await _long_item(sent, line)
    async with asyncio.TaskGroup() as group:
        sending = group.create_task(
            _send_requests(sent, line, {"type": "conversation.item.retrieve", "item_id": "big"})
        )
        for _ in range(READS):
            await asyncio.sleep(READ_EVERY_S)
            try:
                await line.recv()
            except ConnectionClosed:
                break
            sent.seen["read"] += 1
        sending.cancel()
    line.transport.abort()
    return sent


async def session_echo(target: Target) -> Sent:
    """Long instructions once, then small updates, each of which is answered with the whole session; unread."""
    sent, line = Sent(), await target.line()
    await until(line, "session.created")
    for n_chars in INSTRUCTIONS_CHARS:
        await sent.send(line, session_update(instructions="x" * n_chars))
        if (await until(line, "session.updated", "error"))["type"] == "session.updated":
            sent.seen[f"instructions of {n_chars} characters"] += 1
            break
    await _send_unread(sent, line, session_update(audio={"output": {"speed": 1.0}}))
    return sent


async def error_echo(target: Target) -> Sent:
    """Events that nobody knows, with long names, each of which is answered with an `error`; unread."""
    sent, line = Sent(), await target.line()
    await until(line, "session.created")
    await _send_unread(sent, line, {"type": "x" * 2_000, "event_id": "e" * 500}, n=20_000)
    return sent


async def _long_item(sent: Sent, line: ClientConnection) -> None:
    await sent.send(line, user_item([{"type": "input_text", "text": "\u0001" * ITEM_CHARS}], id="big"))
    await until(line, "conversation.item.added", "conversation.item.created", "error")


async def _send_requests(sent: Sent, line: ClientConnection, question: Event, n: int = N_REQUESTS) -> None:
    try:
        for _ in range(n):
            await sent.send(line, question)
    except ConnectionClosed:
        sent.seen["closed while it asked"] += 1


async def _send_unread(sent: Sent, line: ClientConnection, question: Event, n: int = N_REQUESTS) -> None:
    """Ask, and wait until the server has dropped the line."""
    transport = line.transport
    transport.pause_reading()
    try:
        async with asyncio.timeout(HANG_S):
            await _send_requests(sent, line, question, n)
            transport.resume_reading() if sent.seen["closed while it asked"] else await _dropped(line)
        sent.seen["dropped"] += 1
    except TimeoutError:
        sent.seen["kept"] += 1
    transport.abort()


async def _dropped(line: ClientConnection) -> None:
    """Wait until the other end is gone: writing a ping to it fails."""
    while True:
        try:
            await line.ping()
        except ConnectionClosed:
            return
        if line.transport.is_closing():
            return
        await asyncio.sleep(0.2)
