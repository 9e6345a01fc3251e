"""Take the pictures of the element in the docs: its states on a desktop and on a phone, in light and dark.

    python tests/web/screenshots_element.py

Writes web/screenshots/element-SCHEME.png and element-360-SCHEME.png. Needs Chromium. The element is the real one;
what it displays comes from states that this program makes, without a call.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Final, Literal

from voicepipe.config import load
from voicepipe.testing.chromium import Browser, chromium
from voicepipe.testing.fakes.vendor import FakeVendor
from voicepipe.wiring import running

FOLDER: Final = Path(__file__).parents[2] / "web" / "screenshots"

SHAPES: Final = ((1_000, 900, "element"), (360, 1_340, "element-360"))

PAGE: Final = """
(async () => {
  const { VoicepipeCall } = await import("/web/voicepipe-call.js");
  const base = new VoicepipeCall({ token: "/" }).now;
  document.documentElement.style.colorScheme = "light dark";
  document.head.querySelectorAll("link").forEach((link) => link.remove());
  const grid = document.createElement("main");
  Object.assign(grid.style, {
    display: "grid", gap: "1rem", padding: "1rem", gridTemplateColumns: "repeat(auto-fill, minmax(20rem, 1fr))",
    alignItems: "start", font: "1rem system-ui",
  });
  document.body.replaceChildren(grid);
  const show = (change, attributes = {}, entries = []) => {
    const element = document.createElement("voicepipe-call");
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.call = { running: !["idle", "ended", "failed"].includes(change.state), now: base, stop() {} };
    grid.append(element);
    for (const entry of entries) element.show(entry);
    element.display({ ...base, ...change });
    element.measure(0.1);
  };
  const failure = (kind) => ({ kind, code: "", message: "", passing: true, wait_ms: 0 });
  show({ state: "idle" });
  show({ state: "requesting", microphone: "requesting" });
  show({ state: "failed", microphone: "refused" });
  show({ state: "connecting" });
  show({ state: "listening" });
  show({ state: "thinking", scene: "thinking" });
  show({ state: "listening", muted: true });
  show({ state: "reconnecting", connection: "waiting", failure: failure("unreachable") });
  show({ state: "ended" });
  const said = [
    { id: "a", role: "user", text: "Do you have a table for two tonight?", played: null, failure: "" },
    { id: "b", role: "agent", text: "We do, at seven or at half past eight.", played: null, failure: "" },
  ];
  show({ state: "speaking", scene: "speaking" }, { text: "", transcript: "" }, said);
  return document.fonts.ready.then(() => 1);
})()
"""


async def main() -> None:
    """Take them all."""
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        overrides = {"server.port": 0, "server.data_dir": str(folder / "data")}
        async with FakeVendor() as vendor, chromium(folder) as browser:
            stages = {f"agents.default.{stage}": f"fake/{stage}" for stage in ("stt", "llm", "tts")}
            settings = load(
                overrides={**overrides, **stages, "providers.fake.base_url": vendor.base_url},
                environ={"HOME": name},
                folder=folder,
            )
            async with running(settings) as server:
                for width, height, picture in SHAPES:
                    for scheme in ("light", "dark"):
                        await take(browser, f"{server.base_url}/talk", width, height, scheme, picture)


async def take(
    browser: Browser, url: str, width: int, height: int, scheme: Literal["light", "dark"], name: str
) -> None:
    """Show every state once, and store the picture."""
    async with browser.page(url, width=width, height=height, scheme=scheme) as page:
        await page.send_command("Emulation.setScrollbarsHidden", hidden=True)
        await page.evaluate(PAGE)
        path = FOLDER / f"{name}-{scheme}.png"
        await asyncio.to_thread(path.write_bytes, await page.screenshot())
        print(path)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
