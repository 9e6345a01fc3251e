"""@openai/agents in Chromium with its defaults: WebRTC, from a page of another server, with a client secret."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.web.conftest import ANSWER, ON_CUE, QUESTION, Part, TalkPage
from tests.web.foreign import backend
from voicepipe.testing.chromium import Page
from voicepipe.testing.fakes.cues import CallCue, LlmCue, tokens

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).parents[1] / "clients" / "js" / "agents_page.js"
BUNDLE = Path("@openai", "agents-realtime", "dist", "bundle", "openai-realtime-agents.umd.js")
INDEX = """<!doctype html><meta charset="utf-8"><title>A call</title>
<script src="agents.js"></script><script type="module" src="app.js"></script>"""

SPOKEN: tuple[Part, ...] = (("cv_22058264", 1_300), 15_000)
"""A short recording, and silence behind it: whoever connects late on a busy machine hears the next one."""

SPOKEN_BEFORE_CUT_S = 2.5
"""The agent has spoken for longer than an answer that begins softly is taken back."""

SECRET = "fetch('/voice-token', { method: 'POST' }).then((answer) => answer.json()).then(({ value }) => value)"

DURATION_S = "window.received().then(({ totalSamplesDuration }) => totalSamplesDuration)"


def weather(question: dict[str, Any]) -> LlmCue:
    """A model that calls a function when one is offered, and answers once it has its output."""
    if question.get("tools") and question["messages"][-1]["role"] != "tool":
        call = CallCue("get_weather", ('{"place":', ' "Paris"}'))
        return LlmCue(tokens=(), calls=(call,), finish="tool_calls")
    return LlmCue(tokens=tokens(ANSWER))


@pytest.fixture
def calling(talking: Any, node_packages: Path, tmp_path: Path, unused_tcp_port: int) -> Any:
    """`async with calling(says=...) as (talk, page):` a page in which `RealtimeSession.connect` has returned."""

    @asynccontextmanager
    async def opened(
        *, has_tool: bool = False, before: str = "", settings: dict[str, object] | None = None, **how: Any
    ) -> AsyncIterator[tuple[Any, Page]]:
        origin = f"http://127.0.0.1:{unused_tcp_port}"
        public = tmp_path / "site" / "public"
        public.mkdir(parents=True)
        (public / "index.html").write_text(INDEX)
        (public / "agents.js").symlink_to(node_packages / BUNDLE)
        (public / "app.js").symlink_to(PROGRAM)
        allowed = {"server.allowed_origins": [origin]} | (settings or {})
        async with talking(settings=allowed, **how) as talk:
            talk.server.vendor.llm.usual = weather
            async with (
                backend(public.parent, talk.server, unused_tcp_port) as running,
                talk.browser.page(running.origin, kind=TalkPage, before=before) as page,
            ):
                await page.until("Boolean(window.call)")
                secret = await page.evaluate(SECRET)
                assert secret.startswith("ek_")
                server, options = json.dumps(talk.server.url), json.dumps({"hasTool": has_tool})
                await page.evaluate(f"window.call({server}, {json.dumps(secret)}, {options})")
                yield talk, page
                assert await page.evaluate("window.seen.errors") == []
                assert [line for line in page.complaints if "favicon" not in line] == []
                await page.evaluate("window.session.close()")

    return opened


async def kinds(page: Page) -> list[str]:
    """The types of the events that came."""
    return list(await page.evaluate("window.seen.events.map(({ type }) => type)"))


async def test_a_spoken_question_calls_a_function_and_is_answered_in_speech(calling: Any) -> None:
    """The microphone is Chromium's own, with the echo cancelling that `getUserMedia` has by default."""
    async with calling(says=(2_000, *SPOKEN, *SPOKEN, *SPOKEN), has_tool=True) as (_, page):
        assert (await page.evaluate("window.session.transport.callId")).startswith("rtc_")
        await page.until("window.seen.events.some(({ type }) => type === 'output_audio_buffer.stopped')")
        assert await page.evaluate("window.seen.places") == ["Paris"]
        await page.until(f"window.messages().at(-1)?.[1] === {json.dumps(ANSWER)}")
        assert await page.evaluate("window.messages()") == [["user", QUESTION], ["assistant", ANSWER]]
        came = await kinds(page)
        assert "response.output_audio.delta" not in came
        assert came.count("output_audio_buffer.started") == 1
        assert await page.evaluate("window.received().then(({ totalAudioEnergy }) => totalAudioEnergy)") > 0.01


async def test_speech_over_the_answer_stops_it_and_the_history_has_what_was_played(calling: Any) -> None:
    """The microphone says a recording while the answer plays, and another answer comes."""
    async with calling(before=ON_CUE, answer=("jfk", "LJ001-0004")) as (talk, page):
        await page.say(("cv_22058264", 1_300))
        await page.until("window.seen.events.some(({ type }) => type === 'output_audio_buffer.started')")
        begun_s = await page.evaluate(DURATION_S)
        await page.until(f"{DURATION_S}.then((duration) => duration > {begun_s + SPOKEN_BEFORE_CUT_S})")
        await page.say("vctk_p287_001")
        cut = "window.seen.events.find(({ type }) => type === 'conversation.item.truncated')"
        await page.until(cut)
        assert "output_audio_buffer.cleared" in await kinds(page)
        truncated = await page.evaluate(cut)
        assert 0 < truncated["audio_end_ms"] < len(talk.answer) // 24
        text = f"window.textOf({json.dumps(truncated['item_id'])})"
        await page.until(f"{text} !== {json.dumps(ANSWER)}")
        assert ANSWER.startswith(await page.evaluate(text))
        await page.until("window.seen.events.filter(({ type }) => type === 'output_audio_buffer.started').length > 1")
        roles = [role for role, _ in await page.evaluate("window.messages()")]
        assert roles[:3] == ["user", "assistant", "user"]
