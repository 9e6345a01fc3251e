"""`voicepipe serve`: run the server in a terminal until it is stopped."""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final
from urllib.parse import urlsplit

from voicepipe import __version__
from voicepipe.audio.compiled import WHY_NUMPY
from voicepipe.config.settings import LOCAL, STAGES, Settings
from voicepipe.errors import ConfigError
from voicepipe.server.tls import lan_address
from voicepipe.telemetry.log import logging_to
from voicepipe.wiring import local_servers
from voicepipe.wiring.server import Running, running

USUAL = "http://127.0.0.1:8080"
"""The default address of `voicepipe talk`."""

EVERYWHERE = frozenset({"0.0.0.0", "::", ""})
"""Hosts that mean every address of this machine."""

COLLECTED_AFTER: Final = (10_000, 20, 20)
"""Containers that more come than go until the youngest generation is collected (Python: 700), and how many of its
collections precede one of the next generation (10). Sessions leave no cycles, so little is found; with 80 of them the
default's collections took 4 % of the CPU."""

VERBS = {"stt": "transcribes with", "llm": "answers with", "tts": "speaks with"}


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


@contextmanager
def on_hang_up(call: Callable[[], None]) -> Iterator[None]:
    """Call this at each SIGHUP, for the duration of the block."""
    loop = asyncio.get_running_loop()
    with suppress(NotImplementedError, AttributeError):  # Windows has no such signal
        loop.add_signal_handler(signal.SIGHUP, call)
    try:
        yield
    finally:
        with suppress(NotImplementedError, AttributeError):
            loop.remove_signal_handler(signal.SIGHUP)


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


async def greet(
    settings: Settings,
    base_url: str,
    ready: asyncio.Event,
    *,
    is_open: bool,
    print_line: Callable[[str], None],
    before: Callable[[], None] = lambda: None,
) -> None:
    """Print the greeting when the server is ready; `before` is called first."""
    found = await local_servers.offer(settings)
    await ready.wait()
    before()
    for line in greeting(settings, base_url=base_url, is_open=is_open, found=found):
        print_line(line)


def exempt_from_gc() -> None:
    """Exempt modules and settings from garbage collection, since they last as long as the process, and collect more
    rarely.

    A collection of the oldest generation blocks the event loop. With all modules it takes 100 ms and more, after
    every few sessions; without them it takes a few ms.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTED_AFTER)


@contextmanager
def stop_signals() -> Iterator[asyncio.Event]:
    """Yield an event that the first SIGINT or SIGTERM sets; the second signal has its default effect."""
    stopped, loop = asyncio.Event(), asyncio.get_running_loop()
    signals = (signal.SIGINT, signal.SIGTERM)

    def restore_handlers() -> None:
        for each in signals:
            with suppress(NotImplementedError):
                loop.remove_signal_handler(each)

    def stop() -> None:
        stopped.set()
        restore_handlers()

    for each in signals:
        with suppress(NotImplementedError):  # not available on Windows, where Ctrl-C raises KeyboardInterrupt
            loop.add_signal_handler(each, stop)
    try:
        yield stopped
    finally:
        restore_handlers()


def greeting(settings: Settings, *, base_url: str, is_open: bool, found: str | None = None) -> Iterator[str]:
    """Yield the lines printed when the server is ready: the agents, and commands that can be copied to talk to it.

    `found` offers an LLM server that runs on this machine.
    """
    yield f"ready, {'without a key for this machine' if is_open else 'with an API key or a client secret'}:"
    for name, agent in settings.agents.items():
        stages = (f"{VERBS[stage]} {' or '.join(map(str, agent.specs(stage)))}" for stage in STAGES)
        functions = settings.functions_of(name)
        yield f"  agent {name}: " + ", ".join((*stages, *([f"calls {', '.join(functions)}"] if functions else ())))
    if found is not None:
        yield found
    if not is_open:
        yield "clients need a key: `voicepipe keys create` makes one, `voicepipe token` one for a browser."
    yield "talk to it in a browser:"
    yield f"  {base_url}/talk"
    lan = lan_address() if settings.server.tls_dev and settings.server.host in EVERYWHERE else None
    if lan is not None:
        yield f"  https://{lan}:{urlsplit(base_url).port}/talk#ek_...  on a phone, with what `voicepipe token` prints"
    yield "or from another terminal:"
    yield f"  voicepipe talk question.wav --out answer.wav{'' if base_url == USUAL else f' --url {base_url}'}"
    yield "or from Python, with openai[realtime]:"
    yield f'  client = openai.AsyncOpenAI(base_url="{base_url}/v1", api_key="{"any" if is_open else "YOUR KEY"}")'
    yield '  async with client.realtime.connect(model="default") as call: ...'
    yield "see where each millisecond went:"
    yield f"  {base_url}/dashboard" + ("" if is_open else "  with the key of `voicepipe keys create --scope operate`")
    yield "Ctrl-C stops it."


def first_notes(settings: Settings) -> Iterator[str]:
    """Yield what the operator should know of the settings and the installation, to be printed first."""
    yield from settings_warnings(settings)
    if WHY_NUMPY:
        yield (
            f"The loops over samples run in numpy ({WHY_NUMPY}): a session takes more CPU. Install voicepipe again, "
            "where there are a C compiler and Python's headers."
        )


def settings_warnings(settings: Settings) -> Iterator[str]:
    """Yield warnings about dangerous settings."""
    server = settings.server
    if not settings.on_loopback and not server.has_tls and not server.trusted_proxies:
        yield (
            f"WARNING: {server.host} can be reached from other machines without encryption: keys and speech can be "
            "read on the way. Use --tls-cert and --tls-key, or put a proxy with TLS in front, listen on 127.0.0.1 and "
            "name it with --trust-proxy."
        )
    if server.tls_dev:
        yield "The certificate is for testing: browsers warn once, and no other machine should trust it."
    yield from function_warnings(settings)


def function_warnings(settings: Settings) -> Iterator[str]:
    """Yield a warning for each agent with functions that its LLM cannot call."""
    for name, agent in settings.agents.items():
        llms = agent.specs("llm")
        if settings.functions_of(name) and all(settings.providers[llm.provider].kind in LOCAL for llm in llms):
            yield (
                f"WARNING: agent {name} has functions ({', '.join(settings.functions_of(name))}), and "
                f"{' or '.join(map(str, llms))} can call none: it will invent answers. Choose another LLM with --llm."
            )


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def print_to_terminal(line: str) -> None:
    """Print a line for the operator at the terminal."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
