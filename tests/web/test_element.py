"""The element on a page of another server: it loads, talks, and shows each state and what to do."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import aiohttp
import pytest

from tests.web.foreign import HOST, ElementPage, Language, backend, write_site
from voicepipe.agents import Agent
from voicepipe.auth.apikeys import ApiKeys
from voicepipe.clock import unix_s
from voicepipe.testing.fakes.cues import CallCue, LlmCue, Status
from voicepipe.testing.flaky_proxy import flaky_proxy

pytestmark = pytest.mark.slow

ANSWER = "Ask not what your country can do for you."
MAX_BYTES = 20_000
"""Of all that the script tag loads, compressed."""

LECTURE = (("LJ001-0004", 5_000), ("LJ001-0004", 5_000))
"""An answer that the user speaks into."""

STATES = f"window.states = []; {HOST}.addEventListener('state', ({{ detail }}) => states.push(detail.state)); 0"

GONE = ("ERR_CONNECTION_REFUSED", "WebSocket connection to")
REFUSED = ("the server responded with a status of", "WebSocket connection to")

WORKLETS = """
window.worklets = [];
const addModule = AudioWorklet.prototype.addModule;
AudioWorklet.prototype.addModule = function (url, ...rest) {
  window.worklets.push(String(url));
  return addModule.call(this, url, ...rest);
};
"""
"""The browser does not report what a worklet loads."""

SILENT_MICROPHONE = """
navigator.mediaDevices.getUserMedia = async () => new AudioContext().createMediaStreamDestination().stream;
"""

SERIOUS = """
axe.run(document, { resultTypes: ["violations"] }).then(({ violations }) =>
  violations
    .filter(({ impact }) => impact === "serious" || impact === "critical")
    .map(({ id, nodes }) => [id, nodes.map(({ html, failureSummary }) => [html, failureSummary])]))
"""


class NetworkPage(ElementPage):
    """Notes the addresses that the page loads."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.loaded: set[str] = set()

    def take(self, method: str, params: dict[str, Any]) -> None:
        """Note a request."""
        super().take(method, params)
        if method == "Network.requestWillBeSent":
            self.loaded.add(params["request"]["url"])


Embedding = Callable[..., AbstractAsyncContextManager[tuple[Any, Any]]]


@pytest.fixture
def embedding(talking: Any, tmp_path: Path, unused_tcp_port_factory: Callable[[], int]) -> Embedding:
    """`async with embedding() as (talk, page)`: the example's page, by the example's backend, in a browser."""

    @asynccontextmanager
    async def opened(
        *,
        language: Language = "node",
        key: str = "",
        text: bool = True,
        complaints: tuple[str, ...] = (),
        before: str = "",
        displayed: dict[str, Any] | None = None,
        **how: Any,
    ) -> AsyncIterator[tuple[Any, Any]]:
        port = unused_tcp_port_factory()
        settings = {"server.allowed_origins": [f"http://127.0.0.1:{port}"]} | how.pop("settings", {})
        async with talking(settings=settings, **how) as talk:
            write_site(tmp_path / "site", talk.server.url, text=text)
            async with backend(tmp_path / "site", talk.server, port, language, key) as site:
                how_displayed = {"kind": NetworkPage, "before": before, **(displayed or {})}
                async with talk.browser.page(site.origin, **how_displayed) as page:
                    await page.until(f"{HOST}.dataset.state === 'idle'")
                    await page.evaluate(STATES)
                    yield talk, page
                    known = (*complaints, "favicon.ico")
                    assert [line for line in page.complaints if not any(word in line for word in known)] == []

    return opened


@pytest.mark.parametrize("language", ["python", "node"])
async def test_a_call_from_a_page_of_another_server(embedding: Embedding, language: Language) -> None:
    """The backend mints, the page talks; all that it loads is small."""
    async with embedding(language=language, before=WORKLETS) as (talk, page):
        await page.send_command("Network.enable")
        await page.send_command("Page.reload")
        await page.until(f"{HOST}?.dataset.state === 'idle'")
        await page.evaluate(STATES)
        await page.press_button("call")
        await page.state("listening", "user_speaking")
        await page.inside("($('input').value = 'Hello?', $('send').click())")
        await page.until(f"[...{HOST}.shadowRoot.querySelectorAll('li')].at(-1)?.textContent === '{ANSWER}'")
        assert await page.entries("user") == ["Hello?"]
        assert {"connecting", "thinking", "speaking"} <= set(await page.evaluate("states"))
        await page.press_button("call")
        await page.state("ended")
        loaded = page.loaded | set(await page.evaluate("window.worklets"))
        folder = f"{talk.server.url}/web/"
        sizes = await compressed(folder, {url.removeprefix(folder) for url in loaded if url.startswith(folder)})
    assert set(sizes) == {"voicepipe-call.js", "speaker.worklet.js", "microphone.worklet.js", "resampler.js"}
    assert sum(sizes.values()) <= MAX_BYTES, sizes


async def compressed(folder: str, files: set[str]) -> dict[str, int]:
    """Bytes of each file, and of those that it imports, as the server sends them to a browser."""
    sizes: dict[str, int] = {}
    async with aiohttp.ClientSession(folder, auto_decompress=False) as http:
        while missing := files - sizes.keys():
            name = missing.pop()
            async with http.get(name, headers={"Accept-Encoding": "gzip"}) as answer:
                assert answer.headers["Content-Encoding"] == "gzip"
                body = await answer.read()
            sizes[name] = len(body)
            files |= set(re.findall(r'from "\./([\w.-]+)"', gzip.decompress(body).decode()))
    return sizes


async def test_a_refused_microphone(embedding: Embedding) -> None:
    """No session is begun without one; the element says where to allow it, and goes on once it is allowed."""
    async with embedding(text=False, displayed={"microphone": "denied"}) as (_, page):
        await page.press_button("call")
        await page.state("no_microphone")
        assert "Until then you can write" not in await page.help_text("Allow it in the browser")
        assert set(await page.evaluate("states")) == {"requesting", "failed"}
        assert await page.inside("$('retry').textContent") == "Try the microphone again"
        await page.evaluate(SILENT_MICROPHONE)
        await page.press_button("retry")
        await page.state("listening")
        assert await page.inside("$('help').hidden")


async def test_with_a_line_to_write_the_call_needs_no_microphone(embedding: Embedding) -> None:
    async with embedding(displayed={"microphone": "denied"}) as (_, page):
        await page.press_button("call")
        await page.state("listening")
        assert "Until then you can write." in await page.help_text("Allow it in the browser")
        await page.inside("($('input').value = 'Hello?', $('send').click())")
        await page.until(f"[...{HOST}.shadowRoot.querySelectorAll('li')].at(-1)?.textContent === '{ANSWER}'")


async def test_a_secret_that_cannot_be_had(embedding: Embedding, unused_tcp_port: int) -> None:
    """The page's server refuses it: the call fails. It can't be reached: the page tries again by itself."""
    async with embedding(has_microphone=False, complaints=(*REFUSED, *GONE)) as (_, page):
        await page.evaluate(f"{HOST}.setAttribute('token-url', '/nothing')")
        await page.press_button("call")
        await page.state("failed")
        await page.help_text("no client secret from its own server (HTTP 404)")
        await page.evaluate(f"{HOST}.setAttribute('token-url', 'http://127.0.0.1:{unused_tcp_port}/voice-token')")
        await page.press_button("call")
        await page.state("reconnecting")
        await page.help_text("own server can't be reached. Retrying automatically.")
        await page.press_button("call")
        await page.state("ended")
        await page.evaluate(f"{HOST}.token = async () => 'ek_of.another.server'")
        await page.press_button("call")
        await page.state("failed")
        await page.help_text("The client secret")


@pytest.mark.parametrize("language", ["python", "node"])
async def test_a_backend_with_a_wrong_key(embedding: Embedding, language: Language) -> None:
    """The call fails with what the server told the backend, and is not tried again."""
    async with embedding(has_microphone=False, language=language, key="vp_wrong", complaints=REFUSED) as (_, page):
        await page.press_button("call")
        await page.state("failed")
        await page.help_text("API key")
        assert "reconnecting" not in await page.evaluate("states")


async def test_a_page_that_the_secret_does_not_allow(embedding: Embedding) -> None:
    """The server lists no page of other servers; the element learns all the same why it is refused."""
    unlisted: dict[str, list[str]] = {"server.allowed_origins": []}
    async with embedding(has_microphone=False, settings=unlisted, complaints=REFUSED) as (talk, page):
        key = await asyncio.to_thread(ApiKeys(talk.server.folder / "data").create, "default", now_s=unix_s())
        headers, limits = {"Authorization": f"Bearer {key.text}"}, {"origins": ["https://shop.example"]}
        address = f"{talk.server.url}/v1/realtime/client_secrets"
        async with (
            aiohttp.ClientSession(headers=headers) as http,
            http.post(address, json={"voicepipe": {"limits": limits}}) as minted,
        ):
            secret = (await minted.json())["value"]
        await page.evaluate(f"{HOST}.token = async () => '{secret}'")
        await page.press_button("call")
        await page.state("failed")
        await page.help_text("https://shop.example")
        assert "reconnecting" not in await page.evaluate("states")


async def test_an_address_for_secrets_that_the_page_may_not_read(embedding: Embedding) -> None:
    """It is on another origin and answers without CORS; a browser reports that as it does a server that is away."""
    known = (*REFUSED, "CORS policy", "ERR_FAILED")
    async with embedding(has_microphone=False, settings={"server.allowed_origins": []}, complaints=known) as (
        talk,
        page,
    ):
        await page.evaluate(f"{HOST}.setAttribute('token-url', '{talk.server.url}/v1/realtime/client_secrets')")
        await page.press_button("call")
        await page.state("failed")
        await page.help_text("Access-Control-Allow-Origin is missing")


async def test_a_broken_connection_is_resumed(embedding: Embedding, tmp_path: Path) -> None:
    """The element shows that it reconnects, and goes on in the same session; the answer comes whole."""
    async with (
        embedding(has_microphone=False, answer=(("LJ001-0008", 2_400),)) as (talk, page),
        flaky_proxy(int(talk.server.url.rpartition(":")[2])) as between,
    ):
        await page.evaluate(f"{HOST}.setAttribute('server', 'http://127.0.0.1:{between.port}')")
        await page.press_button("call")
        await page.state("listening")
        await page.evaluate(f"window.session = {HOST}.call.line.session.id")
        between.cut("down", after_bytes=60_000)
        await page.evaluate(f"{HOST}.call.say('Hello?')")
        await between.was_cut()
        await page.until("states.includes('reconnecting')")
        await page.until(f"[...{HOST}.shadowRoot.querySelectorAll('li')].at(-1)?.textContent === '{ANSWER}'")
        await page.state("listening")
        assert await page.evaluate(f"{HOST}.call.line.session.id === window.session")
        assert between.n_lines == 2
        await page.press_button("call")


async def test_a_page_that_was_offline_goes_on_in_its_session(embedding: Embedding) -> None:
    """What the user writes meanwhile is sent as soon as the browser is online again, and once."""
    offline = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    known = ("ERR_INTERNET_DISCONNECTED", "WebSocket connection to")
    async with (
        embedding(has_microphone=False, complaints=known) as (talk, page),
        flaky_proxy(int(talk.server.url.rpartition(":")[2])) as between,
    ):
        await page.evaluate(f"{HOST}.setAttribute('server', 'http://127.0.0.1:{between.port}')")
        await page.press_button("call")
        await page.state("listening")
        await page.evaluate(f"window.session = {HOST}.call.line.session.id")
        await page.send_command("Network.enable")
        await page.send_command("Network.emulateNetworkConditions", offline=True, **offline)
        between.abort()
        await page.state("reconnecting")
        assert await page.evaluate(f"{HOST}.call.say('Hello?')")
        await page.until(f"{HOST}.call.line.reconnector.pause_ms > 300")
        assert await page.inside("$('status').textContent") == "Reconnecting …"
        await page.send_command("Network.emulateNetworkConditions", offline=False, **offline)
        await page.until(f"[...{HOST}.shadowRoot.querySelectorAll('li')].at(-1)?.textContent === '{ANSWER}'")
        assert await page.evaluate(f"{HOST}.call.line.session.id === window.session")
        assert await page.entries("user") == ["Hello?"]
        questions = [each["content"] for each in talk.server.vendor.llm.received[-1].question["messages"][1:]]
        await page.press_button("call")
    assert questions == ["Hello?"]


async def test_the_agent_calls_a_function_of_the_page(embedding: Embedding) -> None:
    """Its result reaches the model, and the answer to it the user."""
    async with embedding(has_microphone=False) as (talk, page):
        call = CallCue("put_into_basket", ('{"article": "tea"}',))
        talk.server.vendor.llm.cue(LlmCue(calls=(call,), finish="tool_calls", tokens=()))
        await page.evaluate(f"{HOST}.addEventListener('tool', ({{ detail }}) => (window.tool = detail)); 0")
        await page.press_button("call")
        await page.state("listening")
        await page.evaluate(f"{HOST}.call.say('Tea, please.')")
        await page.until(f"[...{HOST}.shadowRoot.querySelectorAll('li')].at(-1)?.textContent === '{ANSWER}'")
        assert await page.text("#basket") == "tea"
        assert await page.evaluate("window.tool.output") == '{"basket":["tea"]}'
        assert await page.entries("agent") == [ANSWER]
        result = talk.server.vendor.llm.received[-1].question["messages"][-1]
    assert (result["role"], result["content"]) == ("tool", '{"basket":["tea"]}')


async def test_an_answer_that_fails_leaves_the_apology(embedding: Embedding) -> None:
    """The user reads what the agent says; why the answer failed is for the page, in the event."""
    async with embedding(has_microphone=False) as (talk, page):
        talk.server.vendor.llm.usual = LlmCue(fault=Status(400, "no such model"))
        await page.evaluate(f"{HOST}.addEventListener('entry', ({{ detail }}) => (window.why ||= detail.failure)); 0")
        await page.press_button("call")
        await page.state("listening")
        await page.evaluate(f"{HOST}.call.say('Hello?')")
        last = f"[...{HOST}.shadowRoot.querySelectorAll('li')].at(-1)?.textContent"
        await page.until(f"{last}?.startsWith('Sorry, ')")
        assert await page.entries("agent") == ["Sorry, I can't answer that right now. Please ask me again."]
        assert await page.evaluate("window.why")
        await page.press_button("call")


async def test_a_function_that_the_server_runs_leaves_no_entry(embedding: Embedding) -> None:
    """The response that holds only the call has no words; the answer comes with the next. The page gets the event."""
    agent = Agent("You book.")

    @agent.tool
    async def book() -> str:
        return "booked"

    async with embedding(has_microphone=False, agents=[agent]) as (talk, page):
        talk.server.vendor.llm.cue(LlmCue(calls=(CallCue("book", ("{}",)),), finish="tool_calls", tokens=()))
        await page.evaluate(f"{HOST}.addEventListener('tool', ({{ detail }}) => (window.tool = detail)); 0")
        await page.press_button("call")
        await page.state("listening")
        await page.evaluate(f"{HOST}.call.say('Nine, please.')")
        await page.until(f"[...{HOST}.shadowRoot.querySelectorAll('li')].at(-1)?.textContent === '{ANSWER}'")
        assert await page.entries("agent") == [ANSWER]
        tool = await page.evaluate("window.tool")
    assert (tool["name"], tool["args"], tool["failed"], tool["ranBy"]) == ("book", "{}", False, "server")


async def test_the_agent_ends_the_call(embedding: Embedding) -> None:
    """The page shows it, and starts no other session."""
    agent = Agent("You say goodbye.", tools=["end_call"])
    async with embedding(has_microphone=False, agents=[agent]) as (talk, page):
        talk.server.vendor.llm.cue(LlmCue(before_calls=("Goodbye.",), calls=(CallCue("end_call"),)))
        await page.press_button("call")
        await page.state("listening")
        await page.evaluate(f"{HOST}.call.say('Bye.')")
        await page.until(f"{HOST}.call.failure?.kind === 'ended' || {HOST}.call.state === 'reconnecting'")
        assert await page.evaluate(f"{HOST}.call.state") == "ended"
        assert await page.evaluate(f"{HOST}.call.failure.message") == "The agent has ended the call."


async def test_an_answer_is_interrupted_by_escape(embedding: Embedding) -> None:
    """The audio ends, and the transcript has the part that was played; the focus never left the button."""
    async with embedding(has_microphone=False, answer=LECTURE) as (_, page):
        await page.inside("$('call').focus()")
        await page.press("Enter")
        await page.state("listening")
        await page.evaluate(f"{HOST}.call.say('Hello?')")
        await page.state("speaking")
        await page.until(f"{HOST}.call.speaker.busy")
        await page.press("Escape")
        await page.state("listening")
        await page.until(f"[...{HOST}.call.conversation.entries.values()].at(-1).played !== null")
        (said,) = await page.entries("agent")
        assert await page.evaluate(f"{HOST}.shadowRoot.activeElement.id") == "call"
    assert ANSWER.startswith(said)
    assert len(said) < len(ANSWER)


async def test_muted_and_ended(embedding: Embedding) -> None:
    """A muted microphone sends nothing; a call that is over has no open device."""
    async with embedding() as (_, page):
        await page.press_button("call")
        await page.state("listening", "user_speaking", "thinking", "speaking")
        await page.press_button("mute")
        assert await page.inside("$('mute').getAttribute('aria-pressed')") == "true"
        await page.state("muted")
        assert await page.evaluate(f"{HOST}.call.microphone.track.enabled") is False
        await page.evaluate(f"window.track = {HOST}.call.microphone.track")
        await page.press_button("call")
        await page.state("ended")
        assert await page.evaluate("window.track.readyState") == "ended"
        assert await page.inside("$('mute').hidden")
        await page.press_button("call")
        await page.state("listening", "user_speaking", "thinking", "speaking")
        await page.evaluate(f"window.again = {HOST}.call; {HOST}.remove()")
        await page.until("window.again.state === 'ended'")


DEVICES = """
(async () => {
  const { devices } = await import(%s);
  const { call } = document.querySelector("voicepipe-call");
  const { microphones, loudspeakers } = await devices();
  const before = call.microphone.deviceId;
  const other = microphones.find(({ id }) => id !== before && id !== "default");
  const opened = [await call.useMicrophone(other.id), call.microphone.deviceId === other.id, call.now.microphone];
  const loud = [await call.useLoudspeaker(loudspeakers.at(-1)?.id ?? ""), await call.useLoudspeaker("none")];
  const gone = [await call.useMicrophone("none"), call.microphone, call.now.microphone, call.state];
  const back = [await call.useMicrophone(""), call.now.microphone];
  return { names: microphones.every(({ name }) => name !== ""), opened, loud, gone, back };
})()
"""


async def test_devices_are_changed_during_a_call(embedding: Embedding) -> None:
    """Another microphone, one that is not there, and the first again; and another loudspeaker."""
    async with embedding() as (talk, page):
        await page.press_button("call")
        await page.state("listening", "user_speaking", "thinking", "speaking")
        result = await page.evaluate(DEVICES % json.dumps(f"{talk.server.url}/web/voicepipe.js"))
    assert result["names"]
    assert result["opened"] == [True, True, "open"]
    assert result["loud"] == [True, False]
    assert result["gone"][:3] == [False, None, "absent"]
    assert result["gone"][3] in ("listening", "user_speaking", "thinking", "speaking")
    assert result["back"] == [True, "open"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_nothing_serious_is_found(embedding: Embedding, axe: str, scheme: Literal["light", "dark"]) -> None:
    """Before, during and after a call, and with a problem: by axe-core, in both schemes, on a phone."""
    shape = {"scheme": scheme, "width": 360, "height": 740}
    async with embedding(has_microphone=False, displayed=shape) as (_, page):
        await page.evaluate(axe + "; 0")
        assert await page.evaluate(SERIOUS) == []
        await page.press_button("call")
        await page.help_text("There is no microphone")
        await page.state("listening")
        await page.evaluate(f"{HOST}.call.say('Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamte')")
        await page.until(f"[...{HOST}.shadowRoot.querySelectorAll('li')].at(-1)?.textContent === '{ANSWER}'")
        assert await page.evaluate(SERIOUS) == []
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        roles = await page.inside("['status', 'help'].map((id) => $(id).getAttribute('role'))")
        assert roles == ["status", "alert"]
        assert await page.inside("$('transcript').closest('[aria-live]')") is None
        await page.press_button("call")
        await page.state("ended")
        assert await page.inside("$('status').textContent") == "The call has ended"
        assert await page.evaluate(SERIOUS) == []


async def test_the_keyboard_reaches_all_of_it_and_a_page_can_style_it(embedding: Embedding) -> None:
    """Each control shows that it has the focus; with less motion wanted nothing moves."""
    async with embedding(has_microphone=False) as (_, page):
        await page.press("Tab", "Enter")
        await page.state("listening")
        walked = []
        for _ in range(5):
            walked.append(await page.evaluate(f"{HOST}.shadowRoot.activeElement?.id"))
            outline = f"getComputedStyle({HOST}.shadowRoot.activeElement).outlineStyle"
            assert await page.evaluate(outline) == "solid", walked
            await page.press("Tab")
        assert walked == ["call", "mute", "retry", "input", "send"]
        colour = f"getComputedStyle({HOST}.shadowRoot.querySelector('#call')).outlineColor"
        await page.evaluate(f"{HOST}.style.setProperty('--voicepipe-error', 'rgb(1, 2, 3)')")
        assert await page.inside("getComputedStyle($('words')).color") == "rgb(1, 2, 3)"
        rule = "voicepipe-call::part(button) { outline-color: rgb(4, 5, 6); }"
        await page.evaluate(
            f"(() => {{ const sheet = new CSSStyleSheet(); sheet.replaceSync('{rule}');"
            "document.adoptedStyleSheets.push(sheet); })()"
        )
        assert await page.evaluate(colour) == "rgb(4, 5, 6)"
        await page.evaluate(f"{HOST}.texts = {{ stop: 'Auflegen' }}; {HOST}.call.mute()")
        assert await page.inside("$('call').textContent") == "Auflegen"
        moving = "getComputedStyle($('state'), '::before').animationName"
        await page.inside("$('state').closest('[part=panel]').dataset.state = 'connecting'")
        assert await page.inside(moving) == "pulse"
        still = [{"name": "prefers-reduced-motion", "value": "reduce"}]
        await page.send_command("Emulation.setEmulatedMedia", features=still)
        assert await page.inside(moving) == "none"


@pytest.mark.parametrize("listed", [True, False])
async def test_a_listed_page_frames_the_talk_page(
    talking: Any, tmp_path: Path, unused_tcp_port: int, listed: bool
) -> None:
    settings = {"server.frame_ancestors": [f"http://127.0.0.1:{unused_tcp_port}"]} if listed else {}
    folder = tmp_path / "site"
    (folder / "public").mkdir(parents=True)
    async with talking(settings=settings, has_microphone=False) as talk:
        frame = f'<!doctype html><title>.</title><iframe allow="microphone" src="{talk.address}"></iframe>'
        (folder / "public" / "index.html").write_text(frame)
        async with backend(folder, talk.server, unused_tcp_port) as site, talk.browser.page(site.origin) as page:
            tree = (await page.send_command("Page.getFrameTree"))["frameTree"]
            (child,) = tree["childFrames"]
            refused = [line for line in page.complaints if "frame-ancestors" in line]
    assert (child["frame"]["url"] == talk.address) is listed
    assert bool(refused) is not listed
