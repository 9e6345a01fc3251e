"""The port: opened, and closed in good order."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from voicepipe.errors import ConfigError
from voicepipe.server.app import build_app
from voicepipe.server.outliving import OUTLIVING
from voicepipe.server.parts import Parts
from voicepipe.stages.helpers import helpers

BACKLOG = 1_024
"""Handshakes that wait in the kernel: a thousand callers may come in one second."""

LAST_ANSWERS_S = 2.0
"""How long REST requests that are being answered may take once the sessions are over."""


@asynccontextmanager
async def listening(parts: Parts) -> AsyncIterator[str]:
    """Answer on the port of `parts.options` for as long as the block runs; gives the server's own address.

    Leaving takes no new connections, gives running sessions `drain_ms`, then says goodbye to those that are left.

    Raises:
        ConfigError: the address can't be listened on.
    """
    async with helpers() as outliving:
        app = build_app(parts)
        app[OUTLIVING] = outliving
        runner = web.AppRunner(
            app,
            access_log=None,
            handle_signals=False,
            handler_cancellation=True,
            shutdown_timeout=LAST_ANSWERS_S,
        )
        await runner.setup()
        try:
            site = await _opened(runner, parts)
            try:
                yield _address(runner, parts)
            finally:
                await site.stop()
                parts.resumptions.stop()
                await parts.lobby.empty(parts.options.drain_ms)
        finally:
            await runner.cleanup()


async def _opened(runner: web.AppRunner, parts: Parts) -> web.TCPSite:
    host, port = parts.options.host, parts.options.port
    site = web.TCPSite(runner, host, port, backlog=BACKLOG, ssl_context=parts.tls)
    try:
        await site.start()
    except OSError as problem:
        why = os.strerror(problem.errno or 0)
        raise ConfigError(
            f"server.port: expected a port that is free on {host}, got {port}: {why}; choose another one with --port"
        ) from problem
    return site


def _address(runner: web.AppRunner, parts: Parts) -> str:
    port, host = runner.addresses[0][1], parts.options.host
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # the wildcards are nothing to connect to
    scheme = "http" if parts.tls is None else "https"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
