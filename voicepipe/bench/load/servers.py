"""The servers that the load bench measures: this one with several settings, or any that runs already."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from voicepipe.bench.load.concurrent_users import LoadTarget
from voicepipe.bench.load.processes import started, write_settings
from voicepipe.bench.load.wire_protocols import RATE_HZ
from voicepipe.client.address import Address
from voicepipe.errors import ConfigError

PROVIDERS: Final = "voicepipe.bench.load.providers"
PROFILED: Final = "voicepipe.bench.load.profiled_server"

SERVER_CORE: Final = 0
OTHERS_CORE: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """Settings of this server, and the end of turn that its users request."""

    speculate: bool = True
    agent: str = ""
    """Further settings of the agent."""

    detects: Callable[[int], Mapping[str, Any] | None]
    """Returns the `turn_detection` for a silence in ms; None: the agent's own."""

    has_minimum: bool = True
    """Whether the least latency follows from the providers' delays and the silence."""


def _exact(silence_ms: int) -> Mapping[str, Any]:
    return {"type": "server_vad", "silence_duration_ms": silence_ms}


def _own(_silence_ms: int) -> None:
    return None


VARIANTS: Final = {
    "voicepipe": Variant(detects=_exact),
    "defaults": Variant(detects=_own, has_minimum=False),
    "no-speculation": Variant(detects=_exact, speculate=False),
}
"""Server by name: with an exact silence, as it ships (`soft`), and without replies in advance."""


def session(detection: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the users' settings: speech both ways, and their end of turn."""
    pcm = {"type": "audio/pcm", "rate": RATE_HZ}
    input_audio: dict[str, Any] = {"format": pcm}
    if detection is not None:
        input_audio["turn_detection"] = dict(detection)
    audio = {"input": input_audio, "output": {"format": pcm}}
    return {"type": "realtime", "output_modalities": ["audio"], "audio": audio}


def variant(name: str) -> Variant:
    """Return the server of that name.

    Raises:
        ConfigError: there is none.
    """
    if name not in VARIANTS:
        raise ConfigError(f"--server: expected one of {', '.join(VARIANTS)}, got {name!r}")
    return VARIANTS[name]


@contextlib.asynccontextmanager
async def fake_providers(*, pin: bool, port: int = 0) -> AsyncIterator[str]:
    """Run providers with known delays; yield their address."""
    async with started(PROVIDERS, "--port", str(port), core=OTHERS_CORE if pin else None) as providers:
        yield providers.url


@contextlib.asynccontextmanager
async def own_server(
    name: str,
    providers: str,
    folder: Path,
    *,
    silence_ms: int,
    pin: bool = False,
    head_room: bool = False,
    profile: Path | None = None,
    overrides: tuple[str, ...] = (),
) -> AsyncIterator[LoadTarget]:
    """Run this server with the settings of that name and `overrides` (`KEY=VALUE`); yield it when it is ready.

    With `profile` it runs under the profiler; see `switch_profile`.
    """
    kind = variant(name)
    settings = write_settings(folder, providers, speculate=kind.speculate, head_room=head_room, agent=kind.agent)
    command = ("voicepipe",) if profile is None else (PROFILED, str(profile))
    core, options = SERVER_CORE if pin else None, [part for each in overrides for part in ("--set", each)]
    async with started(*command, "serve", "--config", str(settings), *options, core=core) as server:
        url = Address.parse(server.url).websocket
        yield LoadTarget(name=name, url=url, pid=server.pid, session=session(kind.detects(silence_ms)))


def switch_profile(target: LoadTarget) -> None:
    """Begin the profile of a server that runs under the profiler; at the second call, write it."""
    if target.pid is not None:
        os.kill(target.pid, signal.SIGUSR2)
