"""The docs' example of a vendor of one's own: installed as it is written there, and spoken with."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import tomllib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests import docs
from voicepipe.audio.files import read_sound
from voicepipe.ports.synthesizer import Synthesizer
from voicepipe.providers.built_in import factory
from voicepipe.providers.net import http
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.testing.conformance.synthesizer import SynthesizerConformance
from voicepipe.testing.fakes.cues import LlmCue, tokens
from voicepipe.testing.fakes.tone import tone
from voicepipe.testing.user import calling

SECTION = docs.section("Add a vendor")
BLOCKS = dict(re.findall(r"```(?:toml|python)(?: package)?\n# ([\w.]+)[^\n]*\n(.*?)```", SECTION, re.DOTALL))


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pip has put the package, from the docs' two files."""
    folder = tmp_path_factory.mktemp("parrot")
    for name in ("pyproject.toml", "parrot.py"):
        (folder / name).write_text(BLOCKS[name], encoding="utf-8")
    target = folder / "installed"
    pip = ("-m", "pip", "--disable-pip-version-check", "install", "--no-index", "--no-deps", "--no-build-isolation")
    subprocess.run([sys.executable, *pip, "--target", str(target), str(folder)], check=True, capture_output=True)
    return target


@pytest.fixture
def package(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It can be imported, and its entry points found."""
    monkeypatch.syspath_prepend(str(installed))
    importlib.invalidate_caches()


@asynccontextmanager
async def parrots() -> AsyncIterator[tuple[str, list[dict[str, str]]]]:
    """Serve the vendor: yield its address and the requests that it received."""
    received: list[dict[str, str]] = []

    async def say(request: web.Request) -> web.Response:
        received.append(await request.json())
        return web.Response(body=tone(received[-1]["text"], rate_hz=16_000).tobytes())

    app = web.Application()
    app.router.add_post("/say", say)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        yield f"http://{host}:{port}", received
    finally:
        await runner.cleanup()


@pytest.mark.usefixtures("package")
class TestItsVoice(SynthesizerConformance):
    @pytest.fixture
    async def synthesizer(self) -> AsyncIterator[Synthesizer]:
        async with parrots() as (url, _), http.lifetime():
            made = factory("parrot", "tts", key="agents.default.tts")
            yield made(Spec("parrot", "grey"), ProviderSettings(kind="parrot", base_url=url))


@pytest.mark.usefixtures("package")
async def test_a_turn_is_spoken_by_it(fake_server: Any, question: Path) -> None:
    """With the docs' settings, but for the address."""
    written = tomllib.loads(BLOCKS["voicepipe.toml"])
    async with parrots() as (url, received):
        settings = {
            "agents.default.tts": written["agents"]["default"]["tts"][0],
            "providers.parrot.kind": written["providers"]["parrot"]["kind"],
            "providers.parrot.base_url": url,
        }
        async with fake_server(settings) as server, calling(server.url) as user:
            server.vendor.llm.usual = LlmCue(tokens=tokens("It is noon."))
            await user.speak(read_sound(question, 24_000), then_silence_ms=1_000)
            done = await user.until("response.done")
    assert done["response"]["status"] == "completed"
    assert received == [{"text": "It is noon.", "bird": "grey"}]
