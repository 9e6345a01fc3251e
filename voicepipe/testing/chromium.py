"""Drive headless Chromium over its DevTools protocol: open pages, press keys, play audio into the microphone.

async with chromium(tmp_path, microphone=question) as browser, browser.page(url) as page:
    await page.click("#start")
    await page.until("document.querySelector('.agent .words')?.textContent")

The protocol: https://chromedevtools.github.io/devtools-protocol/tot/ (domains Browser, Target, Page, Runtime, Input,
Emulation, Fetch, Log).
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import shutil
import signal
import subprocess
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import Any, Final, Literal, TypedDict, TypeVar, Unpack, overload

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from voicepipe.errors import VoicepipeError
from voicepipe.testing.waiting import eventually

PROGRAMS: Final = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")

FLAGS: Final = (
    "--headless",
    "--no-sandbox",  # required for root, as in a container
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-features=WebUIOmniboxPopup,WebUIOmniboxAimPopup",  # pages of its own for the address bar, two a window
    "--remote-debugging-port=0",
)

LISTENING: Final = "DevTools listening on "
MAX_MESSAGE_BYTES: Final = 64 * 1024 * 1024
START_S: Final = 60.0
"""A cold start on a busy machine of two cores takes ten seconds."""

END_S: Final = 10.0

KEYS: Final = {" ": ("Space", 32), "Enter": ("Enter", 13), "Tab": ("Tab", 9), "Escape": ("Escape", 27)}
"""Key -> its code and its number (UI Events, and the numbers that every browser still sends with them)."""


P = TypeVar("P", bound="Page")


class BrowserError(VoicepipeError):
    """The browser is missing, didn't start, or a page's script failed."""


@dataclass(slots=True)
class _Wire:
    """One DevTools connection: matches answers to commands, and passes events to their page."""

    line: ClientConnection
    tasks: asyncio.TaskGroup
    waiting: dict[int, asyncio.Future[dict[str, Any]]] = field(default_factory=dict)
    pages: dict[str, Page] = field(default_factory=dict)
    sent: int = 0

    async def send_command(self, method: str, session: str | None = None, **params: object) -> dict[str, Any]:
        """Send a command and return its result.

        Raises:
            BrowserError: the browser refused it.
        """
        self.sent += 1
        number, answer = self.sent, asyncio.get_running_loop().create_future()
        self.waiting[number] = answer
        to = {} if session is None else {"sessionId": session}
        try:
            await self.line.send(json.dumps({"id": number, "method": method, "params": params, **to}))
            async with asyncio.timeout(START_S):
                message = await answer
        finally:
            self.waiting.pop(number, None)
        if "error" in message:
            raise BrowserError(f"{method}: {message['error'].get('message')}")
        result: dict[str, Any] = message["result"]
        return result

    async def read(self) -> None:
        """Dispatch messages until the browser disconnects."""
        with contextlib.suppress(ConnectionClosed):  # Chromium hangs up without a close frame
            async for raw in self.line:
                message = json.loads(raw)
                if "id" in message:
                    answer = self.waiting.get(message["id"])
                    if answer is not None and not answer.done():  # done: cancelled, such as by a test's time limit
                        answer.set_result(message)
                elif (page := self.pages.get(message.get("sessionId", ""))) is not None:
                    page.take(message["method"], message["params"])
        for answer in self.waiting.values():
            if not answer.done():
                answer.set_exception(BrowserError("the browser is gone"))


class Page:
    """One open page."""

    def __init__(self, wire: _Wire, session: str) -> None:
        self._wire, self._session = wire, session
        self.complaints: list[str] = []
        """Errors on the page's console, failed scripts and breaches of its content policy."""
        self._scripts: dict[str, str] = {}

    async def answer(self, scripts: Mapping[str, str]) -> None:
        """Answer the page's requests for these paths, which its server lacks."""
        self._scripts = {path: base64.b64encode(script.encode()).decode() for path, script in scripts.items()}
        if scripts:
            await self.send_command("Fetch.enable", patterns=[{"urlPattern": f"*{path}"} for path in scripts])

    async def send_command(self, method: str, **params: object) -> dict[str, Any]:
        """Send the page any command of the protocol."""
        return await self._wire.send_command(method, self._session, **params)

    def take(self, method: str, params: dict[str, Any]) -> None:
        """Record the page's errors."""
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.complaints.append(f"{params['entry']['text']} {params['entry'].get('url', '')}".strip())
        elif method == "Fetch.requestPaused":
            self._wire.tasks.create_task(self._give(params["requestId"], params["request"]["url"]), name="script")

    async def _give(self, request: str, url: str) -> None:
        body = next(body for path, body in self._scripts.items() if url.endswith(path))
        kind = [{"name": "Content-Type", "value": "text/javascript"}]
        await self.send_command(
            "Fetch.fulfillRequest", requestId=request, responseCode=200, responseHeaders=kind, body=body
        )

    async def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression as plain data; a promise is awaited.

        Raises:
            BrowserError: the expression threw.
        """
        arguments = {"expression": expression, "awaitPromise": True, "returnByValue": True, "userGesture": True}
        answer = await self.send_command("Runtime.evaluate", **arguments)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise BrowserError(f"{expression}: {details.get('exception', {}).get('description') or details['text']}")
        return answer["result"].get("value")

    async def until(self, expression: str) -> Any:
        """Return the expression's first value that is true.

        Raises:
            TimeoutError: no value was true in time.
        """

        async def probe() -> Any:
            return await self.evaluate(expression) or None

        return await eventually(probe)

    async def text(self, selector: str) -> str:
        """Return the text of the first element that matches, as it is laid out; empty when there is none."""
        found = await self.evaluate(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")
        return str(found)

    async def click(self, selector: str) -> None:
        """Click on an element's middle, once it is visible."""
        x, y = await self._middle(selector)
        # Sent together: even from a slow test, the browser gets a short click.
        await asyncio.gather(self._mouse("mousePressed", x, y), self._mouse("mouseReleased", x, y))

    async def mouse(self, kind: Literal["mousePressed", "mouseReleased"], selector: str) -> None:
        """Press or release the mouse on an element's middle."""
        await self._mouse(kind, *await self._middle(selector))

    async def _middle(self, selector: str) -> tuple[float, float]:
        x, y = await self.until(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); if (!e?.checkVisibility()) return 0;"
            "e.scrollIntoView({block: 'nearest'}); const r = e.getBoundingClientRect();"
            "return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        return x, y

    async def _mouse(self, kind: str, x: float, y: float) -> None:
        await self.send_command("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    async def key(self, key: str, kind: Literal["keyDown", "keyUp"]) -> None:
        """Press or release a key of `KEYS`."""
        code, number = KEYS[key]
        letters = {"text": " " if key == " " else "\r"} if kind == "keyDown" and key in (" ", "Enter") else {}
        await self.send_command(
            "Input.dispatchKeyEvent", type=kind, key=key, code=code, windowsVirtualKeyCode=number, **letters
        )

    async def press(self, *keys: str) -> None:
        """Press and release keys, one after the other."""
        for key in keys:
            await self.key(key, "keyDown")
            await self.key(key, "keyUp")

    async def type(self, text: str) -> None:
        """Enter a text where the focus is."""
        await self.send_command("Input.insertText", text=text)

    async def screenshot(self) -> bytes:
        """Return a screenshot as PNG."""
        return base64.b64decode((await self.send_command("Page.captureScreenshot", format="png"))["data"])


class Displayed(TypedDict, total=False):
    """Display options of a page, for `Browser.page`."""

    width: int
    height: int
    scheme: Literal["light", "dark"]
    microphone: Literal["granted", "denied"]
    before: str
    scripts: Mapping[str, str] | None


class Browser:
    """A running browser."""

    def __init__(self, wire: _Wire) -> None:
        self._wire = wire

    @overload
    def page(self, url: str, **displayed: Unpack[Displayed]) -> AbstractAsyncContextManager[Page]: ...

    @overload
    def page(self, url: str, *, kind: type[P], **displayed: Unpack[Displayed]) -> AbstractAsyncContextManager[P]: ...

    @asynccontextmanager
    async def page(
        self,
        url: str,
        *,
        width: int = 1_280,
        height: int = 800,
        scheme: Literal["light", "dark"] = "light",
        microphone: Literal["granted", "denied"] = "granted",
        before: str = "",
        scripts: Mapping[str, str] | None = None,
        kind: type[Page] = Page,
    ) -> AsyncIterator[Any]:
        """Open `url` in a new profile, as on a first visit.

        Args:
            url: the page's address.
            width, height: of the viewport, in CSS pixels; a phone's when narrower than 600.
            scheme: the preferred colour scheme.
            microphone: the answer to the permission request.
            before: a script to run in the page before its own.
            scripts: path -> script, for paths that the page's server lacks.
            kind: the class of the page, for subclasses with more methods.
        """
        context = (await self._wire.send_command("Target.createBrowserContext", disposeOnDetach=True))[
            "browserContextId"
        ]
        permission = {"permission": {"name": "microphone"}, "setting": microphone, "browserContextId": context}
        await self._wire.send_command("Browser.setPermission", **permission)
        target = (await self._wire.send_command("Target.createTarget", url="about:blank", browserContextId=context))[
            "targetId"
        ]
        session = (await self._wire.send_command("Target.attachToTarget", targetId=target, flatten=True))["sessionId"]
        page = self._wire.pages[session] = kind(self._wire, session)
        for domain in ("Page", "Runtime", "Log"):
            await page.send_command(f"{domain}.enable")
        shape = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        await page.send_command("Emulation.setDeviceMetricsOverride", **shape)
        await page.send_command(
            "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}]
        )
        await page.send_command("Page.addScriptToEvaluateOnNewDocument", source=before)
        await page.answer(scripts or {})
        await page.send_command("Page.navigate", url=url)
        await page.until("location.href !== 'about:blank' && document.readyState === 'complete'")
        try:
            yield page
        finally:
            del self._wire.pages[session]
            await self._wire.send_command("Target.disposeBrowserContext", browserContextId=context)


def chromium_program() -> str:
    """Return the path of Chromium or Chrome.

    Raises:
        BrowserError: it is not installed.
    """
    found = next((path for name in PROGRAMS if (path := shutil.which(name))), None)
    if found is None:
        raise BrowserError(f"no browser: expected one of {', '.join(PROGRAMS)}; on Debian `apt-get install chromium`")
    return found


class Chromium:
    """A process of Chromium. It needs no event loop, so it may serve several, one after the other or at once."""

    def __init__(
        self, folder: Path, *, microphone: Path | None = None, has_microphone: bool = True, flags: Sequence[str] = ()
    ) -> None:
        """Start it.

        Args:
            folder: an empty one, for the profile.
            microphone: a WAV file that plays once into the microphone when a page opens it; None: beeps. The file is
                read again for each page.
            has_microphone: False: a machine without one.
            flags: further flags for Chromium.

        Raises:
            BrowserError: it is not installed.
        """
        sound = [f"--use-file-for-fake-audio-capture={microphone}%noloop"] if microphone is not None else []
        fake = ["--use-fake-device-for-media-stream", *sound] if has_microphone else []
        self._process = subprocess.Popen(
            [chromium_program(), *FLAGS, f"--user-data-dir={folder / 'profile'}", *fake, *flags, "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**os.environ, "HOME": str(folder)},
            start_new_session=True,
        )
        self._address: Future[str] = Future()
        self._reader = Thread(target=self._read, name="chromium-log", daemon=True)
        self._reader.start()

    @property
    def is_running(self) -> bool:
        """Whether the process has not ended."""
        return self._process.poll() is None

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[Browser]:
        """Connect to the browser while the block runs.

        Raises:
            BrowserError: it didn't start.
        """
        async with asyncio.timeout(START_S):
            address = await asyncio.shield(asyncio.wrap_future(self._address))  # another loop may wait for it, too
        async with (
            connect(address, max_size=MAX_MESSAGE_BYTES, compression=None, ping_interval=None) as line,
            asyncio.TaskGroup() as group,
        ):
            wire = _Wire(line, group)
            reading = group.create_task(wire.read(), name="chromium-wire")
            yield Browser(wire)
            reading.cancel()

    def close(self) -> None:
        """End the process; wait until it has ended."""
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(END_S)
        with contextlib.suppress(ProcessLookupError):  # all of the group have ended
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join()

    def _read(self) -> None:
        """Find the address in the log, and drop the rest, since Chromium blocks when the pipe is full."""
        assert self._process.stderr is not None
        lines: deque[str] = deque(maxlen=5)
        with self._process.stderr as log:
            for raw in log:
                lines.append(raw.decode(errors="replace").strip())
                if lines[-1].startswith(LISTENING) and not self._address.done():
                    self._address.set_result(lines[-1].removeprefix(LISTENING))
        if not self._address.done():
            self._address.set_exception(BrowserError(f"chromium did not start: {' | '.join(lines)}"))


@asynccontextmanager
async def chromium(
    folder: Path, *, microphone: Path | None = None, has_microphone: bool = True, flags: Sequence[str] = ()
) -> AsyncIterator[Browser]:
    """Run Chromium while the block runs; the arguments are those of `Chromium`.

    Raises:
        BrowserError: it is not installed, or didn't start.
    """
    process = Chromium(folder, microphone=microphone, has_microphone=has_microphone, flags=flags)
    try:
        async with process.connected() as browser:
            yield browser
    finally:
        await asyncio.to_thread(process.close)
