"""`voicepipe serve`: run the server in a terminal until it is stopped."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Final

from voicepipe import __version__
from voicepipe.config.settings import Settings
from voicepipe.errors import ConfigError
from voicepipe.telemetry.log import logging_to
from voicepipe.wiring.server import Running, running
from voicepipe.wiring.signals import on_hang_up, stop_signals
from voicepipe.wiring.terminal import first_notes, greet, print_to_terminal

COLLECTED_AFTER: Final = (10_000, 20, 20)
"""Containers that more come than go until the youngest generation is collected (Python: 700), and how many of its
collections precede one of the next generation (10). Sessions leave few cycles, so little is found; with 80 of them the
default's collections took 4 % of the CPU. An earlier middle collection blocks the loop for less time, but cycles then
wait for the oldest one, and memory grows (see "Pauses of the garbage collector" in web/docs/measured.md)."""


def run(
    settings: Settings, print_line: Callable[[str], None] | None = None, *, read: Callable[[], Settings] | None = None
) -> None:
    """Serve until SIGINT or SIGTERM, on uvloop when it is installed; a second signal ends the server at once.
    SIGHUP has `read` read the settings again.

    Raises:
        VoicepipeError: the server or its local models could not start; the text has the reason.
    """
    exempt_from_gc()  # most of it is there already, and no event loop to block
    with asyncio.Runner(loop_factory=loop_factory()) as runner, logging_to():
        runner.run(serve(settings, print_line or print_to_terminal, read))


async def serve(
    settings: Settings, print_line: Callable[[str], None], read: Callable[[], Settings] | None = None
) -> None:
    """Serve until the process is stopped; `print_line` gets the lines for the operator at the terminal.

    Raises:
        VoicepipeError: as `run` does.
    """
    reload_requested = asyncio.Event()
    # From the beginning: a SIGHUP that came while the server starts or stops would end it.
    with on_hang_up(reload_requested.set):
        async with running(settings, print_line=print_line, read=read) as server:
            print_line(f"voicepipe {__version__} listens on {server.base_url}")
            for line in first_notes(settings):
                print_line(line)
            await _until_stopped(settings, server, print_line, reload_requested)


async def _until_stopped(
    settings: Settings, server: Running, print_line: Callable[[str], None], reload_requested: asyncio.Event
) -> None:
    with stop_signals() as stopped:
        async with asyncio.TaskGroup() as group:
            greeter = group.create_task(_serve_ready(settings, server, print_line), name="greeter")
            reloads = group.create_task(_reload_on_request(server, print_line, reload_requested), name="reloads")
            await stopped.wait()
            greeter.cancel()
            reloads.cancel()
    print_line("stopping ...")


async def _reload_on_request(server: Running, print_line: Callable[[str], None], requested: asyncio.Event) -> None:
    """Reload the settings at each request, until cancelled."""
    while True:
        await requested.wait()
        requested.clear()
        try:
            print_line(f"settings reloaded, agents: {', '.join(await server.reload())}")
        except ConfigError as why:
            print_line(f"settings not reloaded, the old ones stay in force: {why}")


async def _serve_ready(settings: Settings, server: Running, print_line: Callable[[str], None]) -> None:
    await greet(
        settings,
        server.base_url,
        server.ready,
        is_open=server.is_open,
        print_line=print_line,
        before=exempt_from_gc,
    )


def exempt_from_gc() -> None:
    """Exempt modules and settings from garbage collection, since they last as long as the process, and collect more
    rarely.

    A collection of the oldest generation blocks the event loop. With all modules it takes 100 ms and more, after
    every few sessions; without them it takes a few ms.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTED_AFTER)


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
