"""Answer the queries that other workers send to this one."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
from aiohttp import web

from voicepipe.server.api.deletion import delete_events
from voicepipe.server.api.item_audio import own_item_audio
from voicepipe.server.api.metrics import own_metrics
from voicepipe.server.api.providers import own_providers
from voicepipe.server.api.settings import own_reload, reload_line, reloaded
from voicepipe.server.api.stream_state import own_state
from voicepipe.server.connections import CONNECTIONS
from voicepipe.server.context import ServerContext
from voicepipe.server.detached import DETACHED_TASKS
from voicepipe.server.webrtc.calls import RtcCallLookup
from voicepipe.server.workers.messages import ConnectionClosed, TerminalLine
from voicepipe.server.workers.peers import Workers
from voicepipe.server.workers.relay import serve_relay

_json: Final = msgspec.json.Encoder()


def answer_queries(workers: Workers, context: ServerContext, app: web.Application) -> None:
    """Set the link's handlers of queries, which it drops at the end of `handling`."""
    link, live, tasks = workers.link, context.live_sessions, app[DETACHED_TASKS]

    async def sessions(data: bytes) -> bytes:
        return _json.encode([each.plain() for each in live.of(msgspec.json.decode(data, type=str | None))])

    async def session(data: bytes) -> bytes:
        return _json.encode(live.find(data.decode()) is not None)

    async def item_audio(data: bytes) -> bytes:
        return await own_item_audio(context, *msgspec.json.decode(data, type=tuple[str | None, str, str]))

    async def metrics(_: bytes) -> bytes:
        return await own_metrics(context, app[CONNECTIONS])

    async def delete_session(data: bytes) -> bytes:
        await delete_events(context, *msgspec.json.decode(data, type=tuple[str, str]))
        return b""

    async def reload(_: bytes) -> bytes:
        return _json.encode(await own_reload(context))

    async def reload_all() -> None:
        link.send(TerminalLine(reload_line(await reloaded(context), link.n_workers)))

    async def call(data: bytes) -> bytes:
        found = context.rtc_calls.find(msgspec.json.decode(data, type=RtcCallLookup))
        return b"" if found is None else found.live.grant.session_id.encode()

    async def hang_up(data: bytes) -> bytes:
        found = context.rtc_calls.find(msgspec.json.decode(data, type=RtcCallLookup))
        if found is not None:
            found.hang_up()
        return _json.encode(found is not None)

    link.on_reload = reload_all
    link.answers |= {
        "reload": reload,
        "sessions": sessions,
        "session": session,
        "item_audio": item_audio,
        "metrics": metrics,
        "delete_session": delete_session,
        "call": call,
        "hang_up": hang_up,
        "head_room": _returning(live.load),
        "state": _returning(lambda: own_state(context)),
        "providers": _returning(lambda: own_providers(context)),
    }

    def relay(end: socket.socket, _: str) -> None:
        tasks.start(serve_relay(end, live, context.resumptions, context.rtc_calls), name="relay")

    link.on_relay = relay
    app[CONNECTIONS].on_closed = lambda: link.send(ConnectionClosed())


def _returning(value: Callable[[], Any]) -> Callable[[bytes], Awaitable[bytes]]:
    async def answer(_: bytes) -> bytes:
        return _json.encode(value())

    return answer
