"""Print for the operator at the terminal: warnings, and the greeting of a server that is ready."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

from voicepipe.audio.compiled import WHY_NUMPY
from voicepipe.config.settings import LOCAL, STAGES, Settings
from voicepipe.server.tls import lan_address
from voicepipe.wiring import local_servers

USUAL = "http://127.0.0.1:8080"
"""The default address of `voicepipe talk`."""

EVERYWHERE = frozenset({"0.0.0.0", "::", ""})
"""Hosts that mean every address of this machine."""

VERBS = {"stt": "transcribes with", "llm": "answers with", "tts": "speaks with"}


def print_to_terminal(line: str) -> None:
    """Print a line for the operator at the terminal."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


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
