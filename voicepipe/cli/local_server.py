"""Find a server to talk to: the named one, the one that runs here, or a temporary one."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from voicepipe.cli.options import StageOptions, TalkOptions
from voicepipe.client import answers, until_ready
from voicepipe.config import Settings, load
from voicepipe.errors import ConfigError

_EVERYWHERE = frozenset({"0.0.0.0", "::", ""})


@asynccontextmanager
async def reachable_server(options: TalkOptions, print_line: Callable[[str], None]) -> AsyncIterator[str]:
    """Yield the address of a server that accepts sessions; a server started here stops when the block is left.

    Args:
        options: `--url` names a server; without it the settings' own address is tried, unless models were named.
        print_line: gets progress lines, one at a time.

    Raises:
        ServerUnreachable: the named server does not answer, or never becomes ready.
        ConfigError: the settings are wrong; alone or in a group.
    """
    if options.url is not None:
        refuse_python_file(options)
        await until_ready(options.url, print_line)
        yield options.url
        return
    settings = load(options.config, overrides=options.overrides())
    usual = usual_url(settings)
    if not options.picks_models and await answers(usual):
        await until_ready(usual, print_line)
        yield usual
        return
    print_line("starting a server for this call" if options.picks_models else f"no server at {usual}: starting one")
    async with _own_server(options, print_line) as url:
        yield url


def refuse_python_file(options: StageOptions) -> None:
    """Refuse a Python file for a server that runs already.

    Raises:
        ConfigError: one was named.
    """
    if options.file is not None:
        raise ConfigError(f"--url: expected no Python file, since that server has its own agents; got {options.file}")


def usual_url(settings: Settings) -> str:
    """Return the address of these settings' server as seen from this machine."""
    host = "127.0.0.1" if settings.server.host in _EVERYWHERE else settings.server.host
    scheme = "https" if settings.server.has_tls else "http"
    return f"{scheme}://[{host}]:{settings.server.port}" if ":" in host else f"{scheme}://{host}:{settings.server.port}"


@asynccontextmanager
async def _own_server(options: TalkOptions, print_line: Callable[[str], None]) -> AsyncIterator[str]:
    from voicepipe.telemetry.log import logging_to
    from voicepipe.wiring import running
    from voicepipe.wiring.terminal import function_warnings

    plain = {"server.tls_dev": "false", "server.tls_cert": "", "server.tls_key": ""}  # traffic stays on this machine
    here = {"server.host": "127.0.0.1", "server.port": "0", **plain}
    settings = load(options.config, overrides=options.overrides() | here, agents=options.agents())
    for warning in function_warnings(settings):
        print_line(warning)
    with logging_to(style="human", level=logging.ERROR):
        async with running(settings, print_line=print_line) as server:
            await server.ready.wait()
            yield server.base_url
