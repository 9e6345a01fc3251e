"""The appointment desk of the guide: what its page prints is built, started by its commands, and used in a browser."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.docs import PAGES, ROOT
from tests.web.browsers import Browsers
from tests.web.foreign import HOST, ElementPage
from voicepipe.audio.files import read_sound
from voicepipe.testing.chromium import Browser
from voicepipe.testing.waiting import WAIT_S

PAGE = PAGES[ROOT / "web/docs/desk.md"]
QUESTION = "Is there a free slot on the first of December?"
FREE = "Nine and half past ten are free."

pytestmark = pytest.mark.slow


def files() -> dict[str, str]:
    """Name -> text of each file that the page prints whole."""
    return dict(re.findall(r"^```\w+ ([\w./]+)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE))


def commands() -> list[str]:
    """The lines for the terminal that are no other model's, in their order."""
    blocks = re.findall(r"^```(?:sh|console)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    lines = [line for each in blocks for line in each.splitlines()]
    return [line for line in lines if not re.search(r"--llm (?!scripted)|^(mkdir|export) ", line)]


class Clinic:
    """The folder of the guide, with its commands against ports that are free."""

    def __init__(self, folder: Path, server: int, site: int) -> None:
        self.folder = folder
        self.ports = {"8555": str(server), "3000": str(site)}
        for name, text in files().items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(self.here(text))

    def here(self, text: str) -> str:
        """The same with these ports."""
        for port, free in self.ports.items():
            text = text.replace(port, free)
        return text

    async def start(self, line: str, *, key: str = "") -> asyncio.subprocess.Process:
        """Start a command as the page has it, with `key` in place of its `vp_...`."""
        words = shlex.split(self.here(line).replace("vp_...", key))
        variables = dict(word.split("=", 1) for word in words if re.match(r"[A-Z_]+=", word))
        program, *arguments = words[len(variables) :]
        known = {"voicepipe": (sys.executable, "-m", "voicepipe"), "python": (sys.executable,)}
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("VOICEPIPE_", "XDG_"))}
        places = {"HOME": str(self.folder), "PYTHONPATH": str(ROOT), "COLUMNS": "200", "PYTHONUNBUFFERED": "1"}
        return await asyncio.create_subprocess_exec(
            *known.get(program, (program,)),
            *arguments,
            cwd=self.folder,
            env=inherited | places | variables,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    async def run(self, line: str, *, key: str = "") -> str:
        """Run a command to its end, and return what it printed."""
        process = await self.start(line, key=key)
        async with asyncio.timeout(WAIT_S):
            out, err = await process.communicate()
        assert process.returncode == 0, f"{line}\n{out.decode()}\n{err.decode()}"
        return out.decode()

    @asynccontextmanager
    async def running(self, line: str, *, key: str = "") -> AsyncIterator[asyncio.subprocess.Process]:
        """Run a command for the duration of the block."""
        process = await self.start(line, key=key)
        try:
            yield process
        finally:
            process.terminate()
            await process.communicate()


async def ready(server: asyncio.subprocess.Process) -> str:
    """What the server prints until it is ready."""
    assert server.stdout is not None
    lines: list[str] = []
    async with asyncio.timeout(WAIT_S):
        while line := (await server.stdout.readline()).decode():
            lines.append(line)
            if line.startswith("Ctrl-C"):
                break
    return "".join(lines)


@pytest.mark.long
async def test_the_clinic_of_the_guide(
    tmp_path: Path, unused_tcp_port_factory: Callable[[], int], browsers: Browsers
) -> None:
    """Its eval passes, its server answers with the tool's result by text and by voice, its keys lock, and its page has
    an answer with a function call.
    """
    clinic = Clinic(tmp_path, unused_tcp_port_factory(), unused_tcp_port_factory())
    judge, serve, speak, write, play, backend_key, own_key, cancel, backend = commands()
    assert "1 of 1" in await clinic.run(judge)
    async with clinic.running(serve) as server:
        greeting = await ready(server)
        assert "NOTE: answers come from the script slots.yaml" in greeting
        assert "calls find_slots, book, cancel" in greeting
        await clinic.run(speak)
        assert len(read_sound(tmp_path / "question.wav", 24_000)) > 24_000
        assert f"agent  {FREE}\n" in await clinic.run(write)
        assert f"agent  {FREE}\n" in await clinic.run(play)
        key = (await clinic.run(backend_key)).strip()
        mine = (await clinic.run(own_key)).strip()
        locked = await clinic.start(write)
        _, why = await locked.communicate()
        assert b"Expected a credential" in why
        assert "agent  I am sorry, that is not possible.\n" in await clinic.run(cancel, key=mine)
        origin = f"http://127.0.0.1:{clinic.ports['3000']}"
        async with clinic.running(backend, key=key) as site, browsers.browser(has_microphone=False) as browser:
            assert site.stdout is not None
            async with asyncio.timeout(WAIT_S):
                assert f"Open {origin} in a browser" in (await site.stdout.readline()).decode()
            await called(browser, origin)


async def called(browser: Browser, origin: str) -> None:
    """Hold a call on the page."""
    async with browser.page(origin, kind=ElementPage) as page:
        await page.until(f"{HOST}?.dataset.state === 'idle'")
        await page.press_button("call")
        await page.state("listening", "speaking")
        await page.inside(f"($('input').value = '{QUESTION}', $('send').click())")
        last = f"[...{HOST}.shadowRoot.querySelectorAll('li')].at(-1)?.textContent"
        await page.until(f"{last} === '{FREE}'")
        assert await page.entries("user") == [QUESTION]
        await page.press_button("call")
