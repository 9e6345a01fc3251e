"""A site of its own: an example's backend on another origin, with pages that load the scripts of a voicepipe server."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import aiohttp

from tests.web.conftest import TalkPage
from tests.web.node import NODE
from voicepipe.auth.apikeys import ApiKeys
from voicepipe.clock import unix_s
from voicepipe.testing.waiting import eventually

EXAMPLES = Path(__file__).parents[2] / "web" / "examples"
PLACEHOLDER = "https://voice.example"
"""The voicepipe server, in the examples."""

POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' http://127.0.0.1:*; connect-src http://127.0.0.1:* ws://127.0.0.1:*"
)
"""A page's own policy, as the guide has it, where all servers are on this machine. Its own script is inline."""

Language = Literal["python", "node"]

HOST = "document.querySelector('voicepipe-call')"


class ElementPage(TalkPage):
    """A page with the element."""

    async def inside(self, script: str) -> Any:
        """The value of a script in which `$` finds an element of the shadow tree by its id."""
        return await self.evaluate(f"(($) => {script})((id) => {HOST}.shadowRoot.querySelector('#' + id))")

    async def press_button(self, name: str) -> None:
        """Click a button of the element by its id; it counts as the user's."""
        await self.inside(f"$('{name}').click()")

    async def state(self, *expected: str) -> str:
        """Wait until the element shows one of the states."""
        try:
            return str(await self.until(f"{list(expected)}.includes({HOST}.dataset.state) && {HOST}.dataset.state"))
        except TimeoutError:
            at = await self.evaluate(f"[{HOST}.dataset.state, {HOST}.shadowRoot.querySelector('#words').textContent]")
            raise AssertionError(f"expected one of {expected}, got {at}, {self.complaints}") from None

    async def help_text(self, part: str) -> str:
        """The message of what is wrong, once `part` is in it."""
        words = f"{HOST}.shadowRoot.querySelector('#words').textContent"
        return str(await self.until(f"{words}.includes({part!r}) && {words}"))

    async def entries(self, who: str) -> list[str]:
        """The texts of the transcript."""
        items = f"{HOST}.shadowRoot.querySelectorAll('li[part~={who}]')"
        return list(await self.evaluate(f"[...{items}].map((item) => item.textContent)"))


@dataclass(frozen=True)
class Site:
    """A running backend, and its folder, with what it serves in `public`."""

    origin: str
    folder: Path


def write_site(
    folder: Path, server_url: str, *, text: bool = True, source: Path = EXAMPLES / "public" / "index.html"
) -> None:
    """Write an example's page for that server; `text`: whether the element has a line to write."""
    (folder / "public").mkdir(parents=True, exist_ok=True)
    page = source.read_text(encoding="utf-8").replace(PLACEHOLDER, server_url)
    page = re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL)
    page = page.replace("<head>", f'<head><meta http-equiv="Content-Security-Policy" content="{POLICY}" />')
    (folder / "public" / source.name).write_text(page if text else page.replace(" transcript text>", " transcript>"))


@asynccontextmanager
async def backend(
    folder: Path, server: Any, port: int, language: Language = "node", key: str = ""
) -> AsyncIterator[Site]:
    """Run an example's backend in `folder`, as it stands, with a key of the server, or with `key`."""
    made = await asyncio.to_thread(ApiKeys(server.folder / "data").create, "default", now_s=unix_s())
    program, name = (NODE, "backend.mjs") if language == "node" else (sys.executable, "backend.py")
    (folder / name).write_text((EXAMPLES / name).read_text(encoding="utf-8"))
    variables = {"VOICEPIPE_URL": server.url, "VOICEPIPE_KEY": key or made.text, "PORT": str(port)}
    process = await asyncio.create_subprocess_exec(*(str(program), name), cwd=folder, env=os.environ | variables)
    origin = f"http://127.0.0.1:{port}"
    try:
        await eventually(lambda: _answers(origin, process))
        yield Site(origin, folder)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _answers(url: str, process: asyncio.subprocess.Process) -> bool | None:
    assert process.returncode is None, f"the backend for {url} ended with {process.returncode}; above is its error"
    try:
        async with aiohttp.ClientSession() as http, http.get(url) as answer:
            return answer.status < 500 or None
    except aiohttp.ClientConnectorError:
        return None
