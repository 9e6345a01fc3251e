"""What a person gets who installs voicepipe: the pages are in it."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.web.browsers import Browsers
from voicepipe.testing.fakes.vendor import FakeVendor
from voicepipe.testing.waiting import WAIT_S

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]

MEASURED = "document.querySelector('.agent .latency[data-outcome=completed]')?.dataset.turn"


async def test_the_page_of_an_installed_voicepipe(tmp_path: Path, browsers: Browsers) -> None:
    """A wheel, built from the clone and installed where nothing else of it is, serves a page that talks and one that
    shows how fast."""
    environment = await installed(await wheel(tmp_path), tmp_path)
    async with (
        FakeVendor() as vendor,
        serving(environment, vendor, tmp_path) as url,
        browsers.browser(has_microphone=False) as browser,
        browser.page(f"{url}/talk") as page,
    ):
        await page.click("#start")
        await page.until("document.querySelector('#status').dataset.state === 'open'")
        await page.click("#text")
        await page.type("Hello?")
        await page.press("Enter")
        await page.until(MEASURED)
        assert await page.text(".agent .words") == "Hello there, user."
        async with browser.page(f"{url}/dashboard") as dashboard:
            await dashboard.until(
                "document.querySelector('#slowest .turn') && document.querySelector('.chart canvas') && 1"
            )
            assert dashboard.complaints == []


async def wheel(folder: Path) -> Path:
    """Build it from a copy, since a build leaves files beside the source; nothing is fetched for that."""
    copy = folder / "clone"
    for name in ("pyproject.toml", "README.md", "LICENSE", "THIRD_PARTY"):
        copy.mkdir(exist_ok=True)
        await asyncio.to_thread(shutil.copy, ROOT / name, copy)
    for name in ("voicepipe", "web"):
        unwanted = shutil.ignore_patterns("__pycache__", "screenshots")
        await asyncio.to_thread(shutil.copytree, ROOT / name, copy / name, symlinks=True, ignore=unwanted)
    build = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
    await run(sys.executable, "-c", build, str(folder), folder=copy)
    (built,) = await asyncio.to_thread(lambda: list(folder.glob("*.whl")))
    return built


async def installed(built: Path, folder: Path) -> Path:
    """A new environment with the wheel in it, and with this one's packages in reach, but not its voicepipe."""
    environment = folder / "venv"
    await run(sys.executable, "-m", "venv", "--without-pip", str(environment))
    python = environment / "bin" / "python"
    pip = ("-m", "pip", "--disable-pip-version-check", "--python", str(python), "install", "--no-index", "--no-deps")
    await run(sys.executable, *pip, "--no-compile", str(built))
    (packages,) = await asyncio.to_thread(lambda: list(environment.glob("lib/python*/site-packages")))
    # A path that such a file names is searched, while files like it in there, an editable install's, are not read.
    (packages / "others.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")))
    where = await run(str(python), "-I", "-c", "import voicepipe; print(voicepipe.__file__)")
    assert Path(where.strip()).is_relative_to(packages)
    return environment


@asynccontextmanager
async def serving(environment: Path, vendor: FakeVendor, folder: Path) -> AsyncIterator[str]:
    """`voicepipe serve` of that environment; gives its address."""
    stages = [f"--set=agents.default.{stage}=fake/{stage}" for stage in ("stt", "llm", "tts")]
    settings = (
        *stages,
        f"--set=providers.fake.base_url={vendor.base_url}",
        "--port=0",
        "--workers=1",
        f"--data-dir={folder / 'data'}",
    )
    process = await asyncio.create_subprocess_exec(
        *(str(environment / "bin" / "voicepipe"), "serve", *settings),
        stdout=asyncio.subprocess.PIPE,
        cwd=folder,
        env={"HOME": str(folder), "PATH": "/usr/bin:/bin"},
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(WAIT_S):
            first = (await process.stdout.readline()).decode()
        yield first.split()[-1]
    finally:
        process.terminate()
        await process.communicate()


async def run(*command: str, folder: Path | None = None) -> str:
    """Run a program to its end and return what it printed; it must succeed."""
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, cwd=folder
    )
    said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()
    return said.decode()
