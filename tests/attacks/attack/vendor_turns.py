"""Turns with each provider that misbehaves."""

from __future__ import annotations

import asyncio
import json

from websockets.exceptions import ConnectionClosed

from attack.bad_vendors import ACCOUNT, CHATS, OTHER_CHATS, PROVIDER_KEY, SLOW, VOICES
from attack.target import HANG_S, Sent, Target, session_update, until, user_item

AT_ONCE = 6


async def bad_chats(target: Target) -> Sent:
    """A written turn with each language model that answers wrongly, too much, or not to the end."""
    return await _turns(target, [name for name in (*CHATS, *OTHER_CHATS) if name not in SLOW])


async def silent_chats(target: Target) -> Sent:
    """The same with those that never say anything, or never end."""
    return await _turns(target, sorted(SLOW))


async def bad_voices(target: Target) -> Sent:
    """The same with each voice."""
    return await _turns(target, list(VOICES))


async def _turns(target: Target, names: list[str]) -> Sent:
    sent, room = Sent(), asyncio.Semaphore(AT_ONCE)

    async def one(name: str) -> None:
        async with room:
            sent.seen[f"{name}: {await _turn(target, sent, name)}"] += 1

    await asyncio.gather(*(one(name) for name in names))
    return sent


async def _turn(target: Target, sent: Sent, name: str) -> str:
    """One turn with that agent; how its response ended, or the line."""
    line = await target.line(f"agent={name}")
    words: list[str] = []
    try:
        await until(line, "session.created")
        await sent.send(line, session_update(providerData={"voicepipe": {"turn_events": True}}))
        await sent.send(line, user_item([{"type": "input_text", "text": "hi"}]))
        await sent.send(line, {"type": "response.create"})
        async with asyncio.timeout(HANG_S):
            while True:
                message = str(await line.recv())
                words.append(message if len(message) < 100_000 else "")
                event = json.loads(message)
                sent.seen["audio bytes"] += len(event["delta"]) * 3 // 4 if "output_audio.delta" in event["type"] else 0
                if event["type"] == "response.done":
                    return str(event["response"]["status"])
    except TimeoutError:
        return "no end"
    except ConnectionClosed as closed:
        return f"closed {closed.rcvd.code if closed.rcvd else None}"
    finally:
        sent.seen["words about our account"] += any(ACCOUNT in each or PROVIDER_KEY in each for each in words)
        line.transport.abort()
