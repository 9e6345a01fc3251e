"""Bad credentials, foreign pages, and lines that break: none of them shuts out who has a good one."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Any

import aiohttp
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import InvalidStatus, WebSocketException

from attack.target import HANG_S, Event, Sent, Target, session_update, until

BAD = 30
N_SILENT_CLIENTS = 80
BROKEN = 8
PINGS = 30
"""On their way when the line breaks: the server's pongs fail."""

FOREIGN = "https://evil.example"


async def bad_keys(target: Target) -> Sent:
    """Unknown keys and tokens from the address of a good user."""
    sent = Sent()
    async with _http() as http:
        for n in range(BAD):
            bad = f"vp_acme_{n:051d}" if n % 2 else "ek_a.b.c"
            sent.seen[f"bad {await _models(http, target, bad)}"] += 1
            sent.events += 1
        sent.seen[f"good key {await _models(http, target, target.key)}"] += 1
    await _good_line(target, sent)
    return sent


async def foreign_pages(target: Target) -> Sent:
    """WebSockets that a foreign page opens in its visitor's browser with a made-up token."""
    sent = Sent()
    for _ in range(BAD):
        protocols = ["realtime", "openai-insecure-api-key.ek_a.b.c"]
        sent.seen[f"foreign {await _refusal(target, subprotocols=protocols, origin=FOREIGN)}"] += 1
        sent.events += 1
    async with _http() as http:
        sent.seen[f"good key {await _models(http, target, target.key)}"] += 1
    await _good_line(target, sent)
    return sent


async def resume_slots(target: Target) -> Sent:
    """Strangers who say that they come back keep doing so; one whose line has broken comes back with the secret."""
    sent = Sent()
    line, came_back_with = await _resumable(target)
    async with asyncio.TaskGroup() as group:
        silent_clients = [group.create_task(_silent_client(target, sent)) for _ in range(N_SILENT_CLIENTS)]
        await asyncio.sleep(0.5)  # that they are there first is what is tried
        line.transport.abort()
        sent.seen[await _resume(target, came_back_with)] += 1
        for task in silent_clients:
            task.cancel()
    return sent


async def broken_pings(target: Target) -> Sent:
    """Lines that are reset while pings of the client are on their way; each comes back."""
    sent = Sent()

    async def one() -> None:
        line, came_back_with = await _resumable(target)
        for _ in range(PINGS):
            await line.ping()
            sent.events += 1
        reset(line)
        sent.seen[await _resume(target, came_back_with)] += 1

    for _ in range(BROKEN):
        await one()
    return sent


def reset(line: ClientConnection) -> None:
    """Break a line as a dying network does: with a TCP reset."""
    kernel: socket.socket = line.transport.get_extra_info("socket")
    kernel.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    line.transport.abort()


async def _resumable(target: Target) -> tuple[ClientConnection, Event]:
    """A call that may be resumed, and what its client sends to do so."""
    line = await target.line(credential=target.key)
    session_id = (await until(line, "session.created"))["session"]["id"]
    await line.send(_json(session_update(providerData={"voicepipe": {"resume": True}})))
    updated = await until(line, "session.updated")
    secret = updated["session"]["providerData"]["voicepipe"]["resume_secret"]
    request = {"session_id": session_id, "secret": secret, "last_event_id": updated["event_id"]}
    return line, {"type": "voicepipe.resume", **request}


async def _resume(target: Target, request: Event) -> str:
    """Resume as the clients do: again and again while the server waits; what came of it in the end."""
    found = "not tried"
    for _ in range(20):
        try:
            async with await target.line("resume=1", credential=target.key) as line:
                await line.send(_json(request))
                event = await until(line, "voicepipe.resumed", "error")
        except (OSError, WebSocketException) as why:
            found = _name(why)
            await asyncio.sleep(0.2)
            continue
        return "resumed" if event["type"] == "voicepipe.resumed" else str(event["error"]["code"])
    return found


async def _silent_client(target: Target, sent: Sent) -> None:
    while True:
        try:
            await target.line("resume=1", credential="")
            await asyncio.Event().wait()
        except (OSError, WebSocketException) as why:
            sent.seen[f"a stranger {_name(why)}"] += 1
            await asyncio.sleep(0.05)
        finally:
            sent.events += 1


async def _good_line(target: Target, sent: Sent) -> None:
    sent.seen[f"good call {await _refusal(target, credential=target.key)}"] += 1


async def _refusal(target: Target, **more: Any) -> str:
    """The status of a call's handshake: `101` when it was let in."""
    try:
        async with await target.line(**{"credential": "", **more}):
            return "101"
    except WebSocketException as why:
        return _name(why)


async def _models(http: aiohttp.ClientSession, target: Target, credential: str) -> int:
    async with http.get(f"{target.url}/v1/models", headers=target.headers(credential)) as answer:
        return answer.status


def _http() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=HANG_S), connector=aiohttp.TCPConnector(limit=0))


def _json(event: Event) -> str:
    import json

    return json.dumps(event)


def _name(why: Exception) -> str:
    return f"{why.response.status_code}" if isinstance(why, InvalidStatus) else type(why).__name__
