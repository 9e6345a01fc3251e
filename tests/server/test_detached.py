"""Sessions go on when their connection is lost; everything else is cancelled with it."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

from aiohttp import ClientError, ClientSession, web
from aiohttp.test_utils import TestServer

from voicepipe.errors import ProtocolError
from voicepipe.server.detached import DETACHED_TASKS, detached
from voicepipe.session.socket import ClientSocket
from voicepipe.tasks import background_tasks
from voicepipe.testing.fakes.script import soon


async def test_a_session_goes_on_when_its_connection_is_lost(serve: Any) -> None:
    began, lost, go, done = (asyncio.Event() for _ in range(4))

    async def talk(socket: ClientSocket) -> None:
        began.set()
        assert await socket.receive() is None
        lost.set()
        await go.wait()
        done.set()

    async with serve() as server:
        server.talks.append(talk)
        async with server.connect() as line:
            await soon(began)
            line._response.connection.transport.abort()
            await soon(lost)
        go.set()
        await soon(done)


async def test_what_comes_of_the_work_is_what_the_route_gives() -> None:
    """An answer, an error, and, when the server ends, neither."""
    began = asyncio.Event()

    async def work(request: web.Request) -> web.StreamResponse:
        if "wait" in request.query:
            began.set()
            await asyncio.Event().wait()
        if "fail" in request.query:
            raise ProtocolError("no")
        return web.Response(text="done")

    failures = []

    @web.middleware
    async def note(request: web.Request, handler: Any) -> Any:
        try:
            return await handler(request)
        except ProtocolError as error:
            failures.append(error.why)
            return web.Response(status=400)

    app = web.Application(middlewares=[note])
    app.router.add_route("*", "/", detached(work))
    async with AsyncExitStack() as ends_last, asyncio.TaskGroup() as group:
        ends_first = AsyncExitStack()
        app[DETACHED_TASKS] = await ends_first.enter_async_context(background_tasks())
        server = await ends_last.enter_async_context(TestServer(app))
        http = await ends_last.enter_async_context(ClientSession(server.make_url("/")))
        async with http.get("/") as answer:
            assert await answer.text() == "done"
        async with http.get("/?fail=1") as answer:
            assert (answer.status, failures) == (400, ["no"])
        waiting = group.create_task(_outcome(http))
        await soon(began)
        await ends_first.aclose()
        assert await waiting == "cut"


async def _outcome(http: ClientSession) -> str:
    try:
        async with http.post("/?wait=1") as answer:  # the library would repeat a GET whose connection is cut
            return str(answer.status)
    except ClientError:
        return "cut"
