"""Take the README's pictures of the talk page: three widths, two schemes, each with a real conversation in it.

    python tests/web/screenshots.py

Writes web/screenshots/talk-WIDTH-SCHEME.png. Needs Chromium; the vendors are fakes that take as long as
good ones.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Final, Literal

from voicepipe.audio.files import read_sound
from voicepipe.config import Settings, load
from voicepipe.testing.chromium import Browser, Page, chromium
from voicepipe.testing.fakes.cues import LlmCue, SttCue, TtsCue, tokens
from voicepipe.testing.fakes.vendor import FakeVendor
from voicepipe.wiring import running

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / "web" / "screenshots"

SIZES: Final = ((360, 780), (768, 1_024), (1_280, 1_150))

TALK: Final = (
    ("Do you have a table for two tonight?", "We do, at seven or at half past eight. Which suits you better?", 180, 90),
    (
        "Half past eight. Is there a garden?",
        "There is, behind the house, under two old chestnut trees. If it rains we keep a table inside for you as well.",
        760,
        240,
    ),
    ("Then outside, please.", "Done: half past eight, for two, in the garden.", 210, 80),
)
"""Questions and answers, and how long the LLM and the TTS take for them, in ms. The second answer is cut short."""

CUT: Final = 1
SECONDS_A_CHARACTER: Final = 0.02

ANSWERED = "document.querySelectorAll('.agent .latency[data-outcome]:not([data-outcome=\"\"])').length === {n}"
SPEAKING = "document.querySelector('#scene').dataset.scene === 'speaking'"
PLAYED_ENOUGH = "window.played_ms > 1800"
CUT_VISIBLE = "document.querySelector('.entry.cut del') !== null"


async def main() -> None:
    """Take them all."""
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with (
            FakeVendor() as vendor,
            chromium(folder) as browser,
            running(settings(vendor, folder)) as server,
        ):
            for width, height in SIZES:
                await picture(browser, vendor, f"{server.base_url}/talk", width, height, "light")
                await picture(browser, vendor, f"{server.base_url}/talk", width, height, "dark")


async def picture(
    browser: Browser, vendor: FakeVendor, url: str, width: int, height: int, scheme: Literal["light", "dark"]
) -> None:
    """Hold the conversation once, and keep how it looks then."""
    async with browser.page(url, width=width, height=height, scheme=scheme, before=LISTENER) as page:
        await page.send_command("Emulation.setScrollbarsHidden", hidden=True)
        await page.click("#mode label:nth-of-type(2)")
        await page.click("#start")
        await page.until("document.querySelector('#status').dataset.state === 'open'")
        for n, turn in enumerate(TALK):
            await say(page, vendor, *turn)
            await page.until(SPEAKING if n != CUT else PLAYED_ENOUGH)
            if n != CUT:
                await page.until(ANSWERED.format(n=n + 1))
        await page.until(CUT_VISIBLE)
        await page.evaluate("document.activeElement.blur(), window.scrollTo(0, document.body.scrollHeight)")
        (FOLDER / f"talk-{width}-{scheme}.png").write_bytes(await page.screenshot())
    print(f"talk-{width}-{scheme}.png", file=sys.stderr, flush=True)


async def say(page: Page, vendor: FakeVendor, question: str, answer: str, ttft_ms: int, ttfb_ms: int) -> None:
    """Hold the space bar for a second, in which Chromium's own microphone beeps; the STT returns the question."""
    vendor.stt.usual = SttCue(text=question, delay_ms=90)
    vendor.llm.usual = LlmCue(tokens=tokens(answer), ttft_ms=ttft_ms)
    vendor.tts.usual = TtsCue(raw=speech(len(answer)), ttfb_ms=ttfb_ms)
    await page.evaluate("window.played_ms = 0; window.n_frames = 0")
    await page.key(" ", "keyDown")
    await page.until("window.n_frames > 60")
    await page.key(" ", "keyUp")


LISTENER: Final = """
window.played_ms = 0;
window.n_frames = 0;
const send = WebSocket.prototype.send;
WebSocket.prototype.send = function (data) {
  if (typeof data !== "string") window.n_frames += 1;
  return send.call(this, data);
};
const connect = AudioNode.prototype.connect;
AudioNode.prototype.connect = function (to, ...rest) {
  if (this instanceof AudioWorkletNode) {
    this.port.addEventListener("message", ({ data }) => {
      if (data.kind === "position") window.played_ms = data.played / 24;
    });
  }
  return connect.call(this, to, ...rest);
};
"""
"""Count the frames sent, and the ms of an answer that have been played, so that it is cut in its middle."""


def speech(n_characters: int) -> bytes:
    """Return a recorded voice for about the time that `n_characters` take to speak."""
    sound = read_sound(ROOT / "tests" / "data" / "clean" / "jfk.flac", 24_000)[605 * 24 :]
    return sound[: int(n_characters * SECONDS_A_CHARACTER * 24_000)].astype("<i2").tobytes()


def settings(vendor: FakeVendor, folder: Path) -> Settings:
    """A server whose stages are all at `vendor`."""
    overrides = {
        "server.port": 0,
        "server.drain_ms": 0,
        "server.data_dir": str(folder / "data"),
        "providers.fake.base_url": vendor.base_url,
        "agents.default.stt": "fake/stt",
        "agents.default.llm": "fake/llm",
        "agents.default.tts": "fake/tts",
    }
    return load(overrides=overrides, environ={"HOME": str(folder)}, folder=folder)


if __name__ == "__main__":
    asyncio.run(main())
