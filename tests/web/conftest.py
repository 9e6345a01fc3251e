"""A browser at the talk page of a whole server: fake vendors that speak with a recorded voice, and a microphone that
says recordings."""

from __future__ import annotations

import asyncio
import importlib.util
import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import numpy.typing as npt
import pybase64
import pytest

from tests.web.browsers import Browsers
from voicepipe.agents import Agent
from voicepipe.audio.files import read_sound, write_wav
from voicepipe.testing.chromium import Browser, Page, chromium
from voicepipe.testing.fakes.cues import LlmCue, SttCue, TtsCue, tokens
from voicepipe.testing.waiting import eventually

DATA = Path(__file__).parents[1] / "data"

RATE_HZ = 24_000

Sound = npt.NDArray[np.int16]

SPY = """
window.sent = [];
const send = WebSocket.prototype.send;
WebSocket.prototype.send = function (data) {
  const event = typeof data === "string" ? JSON.parse(data) : { type: "frame", bytes: [...new Uint8Array(data)] };
  window.sent.push(event);
  if (window.unaware && event.session?.providerData) {
    data = JSON.stringify({ ...event, session: { ...event.session, providerData: undefined } });
  }
  if (window.forgetful && event.secret) data = JSON.stringify({ ...event, secret: "another one" });
  return send.call(this, data);
};
window.came = { frames: 0, deltas: 0, updates: 0 };
const listen = Object.getOwnPropertyDescriptor(WebSocket.prototype, "onmessage");
Object.defineProperty(WebSocket.prototype, "onmessage", {
  set(listener) {
    listen.set.call(this, (message) => {
      if (typeof message.data !== "string") window.came.frames += 1;
      else if (message.data.includes('"response.output_audio.delta"')) window.came.deltas += 1;
      else if (message.data.startsWith('{"type":"session.updated"')) window.came.updates += 1;
      listener(message);
    });
  },
});
const addModule = AudioWorklet.prototype.addModule;
AudioWorklet.prototype.addModule = async function (...module) {
  await addModule.call(this, "/spy.worklet.js");
  return addModule.call(this, ...module);
};
const connect = AudioNode.prototype.connect;
window.played = [];
window.playing = [];
window.microphone = [];
AudioNode.prototype.connect = function (to, ...rest) {
  if (to instanceof AudioWorkletNode) {
    to.port.addEventListener("message", ({ data }) => window.microphone.push(data.samples));
  }
  if (to instanceof AudioDestinationNode) {
    const tap = new AudioWorkletNode(this.context, "spy");
    tap.port.onmessage = ({ data }) => window.played.push(data);
    connect.call(this, tap);
    connect.call(tap, to);
    window.playing.push(tap);
  }
  return connect.call(this, to, ...rest);
};
"""
"""Notes every event and binary frame that the page sends, how the agent's sound came, every sample that is given to
the loudspeaker, and every one that the microphone gives. With `window.unaware` no wish for extensions gets through: so
it is with a server that has none. With `window.forgetful` the page shows a wrong secret when it wants to come back."""

SPY_WORKLET = """
registerProcessor("spy", class extends AudioWorkletProcessor {
  block = new Float32Array(2048);
  n = 0;
  process([[samples]]) {
    this.block.set(samples ?? new Float32Array(128), this.n);
    this.n += 128;
    if (this.n === 2048) this.port.postMessage(this.block.slice());
    this.n %= 2048;
    return true;
  }
});
"""
"""Keeps every sample, however busy the page is, where a `ScriptProcessorNode` would drop some."""

UNAWARE = "window.unaware = true;"

ON_CUE = """
navigator.mediaDevices.getUserMedia = async () => {
  const context = new AudioContext({ sampleRate: 24000 });
  const microphone = context.createMediaStreamDestination();
  window.say = (text) => {
    const samples = new Int16Array(Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)).buffer);
    const buffer = context.createBuffer(1, samples.length, 24000);
    buffer.copyToChannel(Float32Array.from(samples, (sample) => sample / 32768), 0);
    const voice = new AudioBufferSourceNode(context, { buffer });
    voice.connect(microphone);
    voice.start();
  };
  await context.resume();
  return microphone.stream;
};
"""
"""A microphone that is silent until a test gives it a recording.

A recording goes on in real time, however far behind the server is. Its third second is spoken into whatever happens to
go on then.
"""

SOUND = """
(() => {
  const all = %s;
  const bytes = new Uint8Array(Int16Array.from(all).buffer);
  let text = "";
  for (let i = 0; i < bytes.length; i += 32768) text += String.fromCharCode(...bytes.subarray(i, i + 32768));
  return btoa(text);
})()
"""


Part = str | tuple[str, int] | tuple[str, int, int] | int
"""A recording of tests/data/clean by its name, its first ms, its ms from one to another, or a silence in ms."""


def sound_of(*parts: Part) -> Sound:
    """The parts one after the other, int16, (n_samples,), 24 kHz."""
    return np.concatenate([_sound(part) for part in parts])


def _sound(part: Part) -> Sound:
    match part:
        case int(duration_ms):
            return np.zeros(duration_ms * RATE_HZ // 1_000, dtype=np.int16)
        case str(name):
            return read_sound(DATA / "clean" / f"{name}.flac", RATE_HZ)
        case (name, end_ms):
            return _sound(name)[: end_ms * RATE_HZ // 1_000]
        case (name, begin_ms, end_ms):
            return _sound((name, end_ms))[begin_ms * RATE_HZ // 1_000 :]


QUESTION = "What do I here seek?"
ANSWER = "Ask not what your country can do for you."
"""One clause, so that it is said once."""


class TalkPage(Page):
    """The talk page, with the spy in it."""

    async def captured(self) -> Sound:
        """Every sample that the microphone has given, int16, (n_samples,), 24 kHz."""
        return await self._sound("window.microphone.flatMap((frame) => [...frame])")

    async def played_back(self) -> Sound:
        """Every sample that the page gave to its loudspeaker, int16, (n_samples,), 24 kHz."""
        n_blocks = await self.evaluate("window.played.length")
        await self.until(f"window.played.length >= {n_blocks + 2}")  # the spy is two blocks behind at most
        return await self._sound("window.played.flatMap((chunk) => [...chunk].map((x) => Math.round(x * 32768)))")

    async def _sound(self, samples: str) -> Sound:
        return np.frombuffer(pybase64.b64decode(await self.evaluate(SOUND % samples)), dtype=np.int16)

    async def sent(self, kind: str) -> list[dict[str, Any]]:
        """The events of that type that the page sent."""
        return list(await self.evaluate(f"window.sent.filter((event) => event.type === {json.dumps(kind)})"))

    async def say(self, *parts: Part) -> None:
        """Say it into the microphone, now; the page was opened with `on_cue`."""
        text = pybase64.b64encode_as_string(sound_of(*parts).astype("<i2").tobytes())
        await self.evaluate(f"window.say({json.dumps(text)})")

    async def agree(self) -> None:
        """Start, and wait until the server has taken all that the page wants of the session."""
        await self.start()
        await self.until("window.came.updates >= 2")

    async def start(self) -> None:
        """Press the button, and wait for the server's greeting."""
        await self.click("#start")
        await self.until("document.querySelector('#status').dataset.state === 'open'")

    async def write(self, text: str) -> None:
        """Send a written question."""
        await self.click("#text")
        await self.type(text)
        await self.press("Enter")

    async def error_text(self, word: str) -> str:
        """The words of what is wrong, once `word` is among them."""
        visible = "document.querySelector('#problems')"
        try:
            found = await self.until(
                f"!{visible}.hidden && {visible}.innerText.includes({json.dumps(word)}) && {visible}.innerText"
            )
        except TimeoutError:
            said = (await self.text("#problems"), await self.text("#status"), self.complaints)
            raise AssertionError(f"expected {word!r} in the page's words, got {said}") from None
        return str(found)


@dataclass(frozen=True)
class Talk:
    """A browser, and the server that its pages talk to."""

    browser: Browser
    server: Any
    folder: Path
    """Where the test may write."""

    answer: Sound
    """What the voice says to everything."""

    data: Path = DATA / "clean"

    @property
    def address(self) -> str:
        """The talk page's."""
        return f"{self.server.url}/talk"

    @asynccontextmanager
    async def page(
        self,
        address: str | None = None,
        *,
        complaints: Sequence[str] = (),
        unaware: bool = False,
        on_cue: bool = False,
        **how: Any,
    ) -> AsyncIterator[Any]:
        """Open the page as a user does. A page with any other complaint on its console fails the test.

        `unaware`: the server has no extensions. `on_cue`: the microphone says what `say` is given.
        """
        spy = SPY + (UNAWARE if unaware else "") + (ON_CUE if on_cue else "")
        how |= {"before": spy, "scripts": {"/spy.worklet.js": SPY_WORKLET}}
        async with self.browser.page(address or self.address, kind=TalkPage, **how) as page:
            yield page
            known = (*complaints, "/v1/turns/turn_")  # requested before it was written
            assert [line for line in page.complaints if not any(word in line for word in known)] == []

    async def record(self, turn_id: str, *, latency_source: str | None = None) -> dict[str, Any]:
        """Return `GET /v1/turns/{id}`, once that shows the turn as over: the session's own connection reports it
        sooner.

        `latency_source`: wait for this one. A busy browser may report playback after the turn has closed; the record is
        then stored anew.
        """
        async with aiohttp.ClientSession() as http:

            async def finished() -> dict[str, Any] | None:
                async with http.get(f"{self.server.url}/v1/turns/{turn_id}") as answer:
                    record = await answer.json()
                    over = answer.status == 200 and record["outcome"]
                    return dict(record) if over and latency_source in (None, record["latency_source"]) else None

            return await eventually(finished)


@pytest.fixture(scope="session")
def browsers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browsers]:
    """`async with browsers.browser(has_microphone=False) as browser:`."""
    opened = Browsers(tmp_path_factory.mktemp("browsers"))
    yield opened
    opened.close()


Talking = Callable[..., AbstractAsyncContextManager[Talk]]


@pytest.fixture
def talking(fake_server: Any, browsers: Browsers, tmp_path: Path) -> Talking:
    """`async with talking(says=("jfk", 4_000), answer=("LJ001-0004",)) as talk:`.

    `says` comes from the microphone, once; without it the microphone beeps, and `has_microphone=False` takes it away.
    Every question is answered with the words `ANSWER` and the audio of `answer`. The browser is one that tests share,
    unless it needs `flags` of its own.
    """

    @asynccontextmanager
    async def opened(
        *,
        says: Sequence[Part] = (),
        answer: Sequence[Part] = (("LJ001-0008", 2_400),),
        settings: dict[str, object] | None = None,
        agents: Sequence[Agent] = (),
        has_microphone: bool = True,
        flags: Sequence[str] = (),
    ) -> AsyncIterator[Talk]:
        microphone = tmp_path / "microphone.wav" if says else None
        if microphone is not None:
            await asyncio.to_thread(write_wav, microphone, sound_of(*says), RATE_HZ)
        if flags:
            opening = chromium(tmp_path, microphone=microphone, has_microphone=has_microphone, flags=flags)
        else:
            opening = browsers.browser(microphone=microphone, has_microphone=has_microphone)
        async with fake_server(settings, agents=agents) as server, opening as browser:
            server.vendor.stt.usual = SttCue(text=QUESTION)
            server.vendor.llm.usual = LlmCue(tokens=tokens(ANSWER), ttft_ms=150)
            sound = sound_of(*answer)
            server.vendor.tts.usual = TtsCue(raw=sound.astype("<i2").tobytes())
            yield Talk(browser, server, tmp_path, sound)

    return opened


@pytest.fixture(scope="session")
def axe() -> str:
    """The script of axe-core: only the file is wanted, not the package around it, which drives another browser."""
    found = importlib.util.find_spec("axe_playwright_python")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).with_name("axe.min.js").read_text(encoding="utf-8")
