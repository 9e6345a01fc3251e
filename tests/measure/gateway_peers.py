"""The processes of the gateway's bench: the vendor, this server, and LiteLLM's proxy."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import aiohttp

from voicepipe.errors import ConfigError
from voicepipe.testing.free_port import free_port

START_S: Final = 90.0
"""Timeout for a server's first answer. LiteLLM's imports alone take 15 s on a busy machine."""

STOP_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Peer:
    """A server of chat completions."""

    name: str
    url: str
    """The URL up to and with `/v1`."""

    headers: Mapping[str, str]
    model: str
    pid: int

    def cpu_ms(self) -> float:
        """Return the CPU time of its process so far, in ms. Source: proc(5), `/proc/PID/stat`, fields 14 and 15."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return 1_000 * (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@asynccontextmanager
async def vendor(n_tokens: int) -> AsyncIterator[Peer]:
    """Start the vendor behind all others."""
    arguments = ("-m", "tests.measure.chat_provider", "--tokens", str(n_tokens))
    async with _process(sys.executable, *arguments, piped=True) as process:
        assert process.stdout is not None
        port = int(await process.stdout.readline())
        yield Peer("vendor, directly", f"http://127.0.0.1:{port}/v1", {}, "bench", process.pid)


@asynccontextmanager
async def ourselves(behind: Peer, folder: Path) -> AsyncIterator[Peer]:
    """Start `voicepipe serve` before that vendor, used with an API key."""
    port = free_port()
    data_dir = ("--data-dir", str(folder / "data"))
    key = await _output(sys.executable, "-m", "voicepipe", "keys", "create", *data_dir)
    settings = (
        f"providers.bench.base_url={behind.url}",
        *(f"agents.default.{stage}=bench/bench" for stage in ("stt", "llm", "tts")),
    )
    chosen = [word for each in settings for word in ("--set", each)]
    arguments = ("-m", "voicepipe", "serve", "--workers", "1", "--port", str(port), *data_dir, *chosen)
    async with _process(sys.executable, *arguments) as process:
        url = f"http://127.0.0.1:{port}"
        await _answers(f"{url}/readyz", process)
        yield Peer("voicepipe", f"{url}/v1", _bearer(_key_in(key)), "default", process.pid)


@asynccontextmanager
async def litellm(behind: Peer, folder: Path, environment: Path) -> AsyncIterator[Peer]:
    """Start LiteLLM's proxy before that vendor, from its own virtual environment, used with its master key.

    Its download of prices and its telemetry are disabled: nothing leaves this machine.
    """
    port, key = free_port(), f"sk-{secrets.token_hex(24)}"
    parameters = {"model": "openai/bench", "api_base": behind.url, "api_key": "none"}
    config = {
        "model_list": [{"model_name": "bench", "litellm_params": parameters}],
        "litellm_settings": {"telemetry": False},
    }
    path = folder / "litellm.yaml"
    path.write_text(json.dumps(config))  # JSON is YAML
    own = {"LITELLM_MASTER_KEY": key, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR"}
    arguments = ("--config", str(path), "--host", "127.0.0.1", "--port", str(port))
    async with _process(str(environment / "bin" / "litellm"), *arguments, environ=own) as process:
        url = f"http://127.0.0.1:{port}"
        await _answers(f"{url}/health/liveliness", process)
        yield Peer("LiteLLM", f"{url}/v1", _bearer(key), "bench", process.pid)


@asynccontextmanager
async def _process(
    program: str, *arguments: str, piped: bool = False, environ: Mapping[str, str] | None = None
) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *(program, *arguments),
        stdin=asyncio.subprocess.PIPE if piped else asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE if piped else asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, **(environ or {})},
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        try:
            async with asyncio.timeout(STOP_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


async def _answers(url: str, process: asyncio.subprocess.Process) -> None:
    """Wait until the URL answers with 200."""
    try:
        async with asyncio.timeout(START_S), aiohttp.ClientSession() as http:
            while process.returncode is None:
                try:
                    async with http.get(url) as answer:
                        if answer.status == 200:
                            return
                except aiohttp.ClientError:
                    pass
                await asyncio.sleep(0.2)
    except TimeoutError:
        raise ConfigError(f"expected an answer of {url} within {START_S:g} s, got none") from None
    raise ConfigError(f"expected a server at {url}, got an exit with status {process.returncode}")


async def _output(program: str, *arguments: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *(program, *arguments), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    out, _ = await process.communicate()
    if process.returncode != 0:
        raise ConfigError(f"{' '.join(arguments)}: expected exit status 0, got {process.returncode}")
    return out.decode()


def _key_in(text: str) -> str:
    return next(word for word in text.split() if word.startswith("vp_"))


def _bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}
