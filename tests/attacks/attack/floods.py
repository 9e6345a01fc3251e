"""One user who sends as fast as the line takes it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from attack.bystanders import spoken_frames, spoken_pcm
from attack.target import Event, Sent, Target, count_events, session_update, until, user_item
from voicepipe.protocol.binary import user_frame

BREATH = 50
"""Messages between two turns of the attacker's own loop."""

FLOOD_S = 8.0
"""A flood ends after this time, however slowly the server reads it."""


async def junk(target: Target) -> Sent:
    """30,000 events that are none."""
    return await _flood(target, itertools.repeat("[]", 30_000))


async def pings(target: Target) -> Sent:
    """20,000 WebSocket pings."""
    sent = Sent()
    async with _reading(target, sent) as line:
        for n in range(20_000):
            await line.ping(str(n))
            sent.events += 1
            sent.n_bytes += 6 + len(str(n))
    return sent


async def sound(target: Target) -> Sent:
    """Five minutes of speech at once: 3,000 events of 100 ms."""
    frames = spoken_frames(100)
    return await _flood(target, itertools.islice(itertools.cycle(frames), 3_000))


async def binary_sound(target: Target) -> Sent:
    """The same in binary frames of 20 ms."""
    pcm, sent = spoken_pcm(), Sent()
    frames = itertools.cycle([user_frame(pcm[at : at + 960]) for at in range(0, len(pcm) - 960, 960)])
    async with _reading(target, sent) as line:
        await sent.send(line, session_update(providerData={"voicepipe": {"binary_audio": True}}))
        await _send_all(sent, line, itertools.islice(frames, 15_000))
    return sent


async def responses(target: Target) -> Sent:
    """400 responses, each asked for while another runs."""
    request: Event = {"type": "response.create", "response": {"conversation": "none", "input": []}}
    return await _flood(target, itertools.repeat(request, 400))


async def updates(target: Target) -> Sent:
    """2,000 updates of the session with 3 kB of instructions."""
    return await _flood(target, itertools.repeat(session_update(instructions="x" * 3_000), 2_000))


async def voices(target: Target) -> Sent:
    """300 times another voice and speed."""
    changes = (session_update(audio={"output": {"speed": 0.5 + n / 1_000, "voice": f"v{n}"}}) for n in range(300))
    return await _flood(target, changes)


async def small_items(target: Target) -> Sent:
    """20,000 small items of the conversation."""
    return await _flood(target, (user_item([{"type": "input_text", "text": f"word {n}"}]) for n in range(20_000)))


async def pictures(target: Target) -> Sent:
    """40 pictures of 8 MB."""
    url = "data:image/png;base64," + "A" * (8 << 20)
    return await _flood(target, itertools.repeat(user_item([{"type": "input_image", "image_url": url}]), 40))


async def twenty_at_once(target: Target) -> Sent:
    """20 users with 2,000 small events each, so that each one's share of the loop adds up."""
    sents = await asyncio.gather(*(_flood(target, itertools.repeat("[]", 2_000)) for _ in range(20)))
    total = Sent(sum(s.events for s in sents), sum(s.n_bytes for s in sents))
    for sent in sents:
        total.seen += sent.seen
    return total


async def _flood(target: Target, messages: Iterable[str | bytes | Event]) -> Sent:
    sent = Sent()
    async with _reading(target, sent) as line:
        await _send_all(sent, line, messages)
    return sent


async def _send_all(sent: Sent, line: ClientConnection, messages: Iterable[str | bytes | Event]) -> None:
    for n, message in enumerate(messages):
        await sent.send(line, message)
        if n % BREATH == 0:
            await asyncio.sleep(0)


@asynccontextmanager
async def _reading(target: Target, sent: Sent) -> AsyncIterator[ClientConnection]:
    """A line whose events are read and counted. At its end all that was sent has been taken, or `FLOOD_S` are over."""
    line = await target.line()
    await until(line, "session.created")
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(count_events(line, sent))
        with suppress(ConnectionClosed, TimeoutError):
            async with asyncio.timeout(FLOOD_S):
                yield line
                await (await line.ping())  # its pong comes after all that was sent before
        line.transport.abort()
        await reading
