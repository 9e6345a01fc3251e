"""The page's connection: audio goes as bytes, a cut is not audible, and a server without the extensions works
as well.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import soxr

from tests.web.sounds import alike, likeness, require_without_gap
from voicepipe.testing.fakes.cues import LlmCue, SttCue
from voicepipe.testing.flaky_proxy import FlakyProxy, flaky_proxy

pytestmark = pytest.mark.slow

RATE_HZ = 24_000
FRAME_BYTES = 8 + 2 * RATE_HZ // 50
HEADER = [1, 1, 0, 0, 0, 0, 0, 0]

QUESTION_CLIP = ("ls_2414-128291-0003", 30_000)
LECTURE = (("LJ001-0004", 5_000), ("LJ001-0004", 5_000))
"""An answer that the user speaks into."""

LONG = (("LJ001-0008", 2_400),)
"""An answer of 115 kB."""

UNHURRIED = {"agents.default.end_of_turn": "silence", "agents.default.silence_ms": 1_500}
"""A browser that a busy machine stops for half a second makes no two utterances of the question."""

QUESTION = "What do I here seek?"
ANSWER = "Ask not what your country can do for you."
MEASURED = "document.querySelector('.agent .latency[data-outcome=completed]')?.dataset.turn"
LISTENING = "document.querySelector('#scene').dataset.scene === 'listening'"
RECORD_REQUESTS = "performance.getEntriesByType('resource').filter(({ name }) => name.includes('/v1/turns/')).length"


def at(talk: Any, between: FlakyProxy) -> str:
    """The talk page's address through the relay."""
    assert talk.address.startswith("http://127.0.0.1:") or talk.address.startswith("http://localhost:")
    return f"http://127.0.0.1:{between.port}/talk"


def port_of(talk: Any) -> int:
    """The server's own."""
    return int(talk.server.url.rpartition(":")[2])


async def test_sound_travels_as_bytes_both_ways(talking: Any) -> None:
    """20 ms a frame behind eight bytes of header, and no base64 once the server has agreed; every sample is played."""
    async with talking(says=QUESTION_CLIP, settings=UNHURRIED) as talk, talk.page() as page:
        await page.start()
        await page.until(MEASURED)
        await page.until(LISTENING)
        frames = await page.sent("frame")
        n_late = await page.evaluate("window.sent.findLastIndex(({ type }) => type === 'input_audio_buffer.append')")
        n_first = await page.evaluate("window.sent.findIndex(({ type }) => type === 'frame')")
        came = await page.evaluate("window.came")
        require_without_gap(talk.answer, await page.played_back())
        captured = soxr.resample(await page.captured(), RATE_HZ, 16_000)
        sent_audio = talk.server.vendor.stt.received[-1].samples
    assert {(len(frame["bytes"]), *frame["bytes"][:8]) for frame in frames} == {(FRAME_BYTES, *HEADER)}
    assert n_late < n_first
    assert came["deltas"] == 0
    assert came["frames"] > 2
    assert likeness(sent_audio, captured) > 0.98


async def test_a_server_without_extensions(talking: Any) -> None:
    """Sound goes and comes as base64, nothing is sent that such a server does not know, and the bars still come."""
    async with talking(says=QUESTION_CLIP, settings=UNHURRIED) as talk, talk.page(unaware=True) as page:
        await page.start()
        turn_id = await page.until(MEASURED)
        await page.until(LISTENING)
        require_without_gap(talk.answer, await page.played_back())
        record = await talk.record(turn_id)
        came = await page.evaluate("window.came")
        assert await page.evaluate(RECORD_REQUESTS) > 0
        assert (await page.sent("frame"), await page.sent("voicepipe.playback")) == ([], [])
    assert (record["user_text"], record["latency_source"]) == (QUESTION, "estimated")
    assert came["frames"] == 0
    assert came["deltas"] > 2


async def test_the_bar_grows_while_the_turn_runs(talking: Any) -> None:
    """The bar grows with the marks as they come; the final record comes by the same connection, without a request."""
    async with talking(has_microphone=False) as talk, talk.page() as page:
        talk.server.vendor.llm.usual = LlmCue(ttft_ms=1_500)
        await page.start()
        await page.write("Hello?")
        total = "Number(document.querySelector('.latency.live .total strong')?.textContent ?? 0)"
        first_ms = await page.until(f"document.querySelector('.waiting .segment.growing.stage-llm_ttft') && {total}")
        await page.until(f"{total} > {first_ms + 300}")
        turn_id = await page.until(MEASURED)
        assert await page.evaluate("document.querySelectorAll('.live, .waiting').length") == 0
        assert await page.evaluate("document.querySelectorAll('.latency').length") == 1
        visible = await page.evaluate("document.querySelector('.latency .total strong').textContent")
        record = await talk.record(turn_id)
        assert await page.evaluate(RECORD_REQUESTS) == 0
    assert visible == str(record["total_ms"])


async def test_break_in_mid_answer_is_inaudible(talking: Any) -> None:
    """The page comes back to its session, says so, and plays each sample once."""
    async with (
        talking(has_microphone=False, answer=LONG) as talk,
        flaky_proxy(port_of(talk)) as between,
        talk.page(at(talk, between)) as page,
    ):
        await page.agree()
        between.cut("down", after_bytes=60_000)
        await page.write("Hello?")
        await between.was_cut()
        await page.until("document.querySelector('#status').textContent.includes('Reconnected')")
        await page.until(MEASURED)
        await page.until(LISTENING)
        require_without_gap(talk.answer, await page.played_back())
        assert await page.text(".entry.agent .words") == ANSWER
        assert len(await page.sent("voicepipe.resume")) == 1
        assert await page.evaluate("document.querySelector('#problems [data-topic=line]')") is None
        between.cut("down", after_bytes=60_000)
        await page.write("Once more?")  # it is a line like the first, and breaks and mends like it
        await between.was_cut()
        await page.until("document.querySelectorAll('.agent .latency[data-outcome=completed]').length === 2")
        resumed = await page.sent("voicepipe.resume")
        assert between.n_lines == 3
        assert len({event["session_id"] for event in resumed}) == 1
        assert len({event["secret"] for event in resumed}) == 2


async def test_a_cut_in_the_middle_of_a_question_loses_no_word(talking: Any) -> None:
    """The microphone goes on while the line is down; the transcriber gets all of it, in order, and once."""
    async with (
        talking(says=QUESTION_CLIP, settings=UNHURRIED) as talk,
        flaky_proxy(port_of(talk)) as between,
        talk.page(at(talk, between)) as page,
    ):
        between.cut("up", after_bytes=70_000)
        await page.start()
        await between.was_cut()
        turn_id = await page.until(MEASURED)
        await page.until(LISTENING)
        require_without_gap(talk.answer, await page.played_back())
        captured = soxr.resample(await page.captured(), RATE_HZ, 16_000)
        sent_audio = talk.server.vendor.stt.received[-1].samples
        record = await talk.record(turn_id)
    assert between.n_lines == 2
    assert len(sent_audio) > 16_000
    assert likeness(sent_audio, captured) > 0.98
    assert record["latency_source"] == "reported"


async def test_questions_around_a_break_arrive_once(talking: Any) -> None:
    """A question on its way is sent again; text that is written while the connection is down is sent when it
    is back.
    """
    async with (
        talking(has_microphone=False) as talk,
        flaky_proxy(port_of(talk)) as between,
        talk.page(at(talk, between)) as page,
    ):
        await page.agree()
        between.cut("up", after_bytes=0)
        await page.write("Is anybody there?")
        await between.was_cut()
        await page.until(MEASURED)
        await page.until(LISTENING)
        between.cut("down", after_bytes=20)
        await page.write("Can you hear me?")  # arrives, and what confirms it does not
        await between.was_cut()
        await page.until("document.querySelectorAll('.agent .latency[data-outcome=completed]').length === 2")
        await page.until(LISTENING)
        between.cut("up", after_bytes=0)
        await page.click("#mode label:nth-of-type(2)")  # something else that is lost
        await between.was_cut()
        await page.until("document.querySelector('#status').dataset.state === 'resuming'")
        await page.write("And now?")
        await page.until("document.querySelectorAll('.agent .latency[data-outcome=completed]').length === 3")
        assert await page.evaluate("document.querySelectorAll('.note').length") == 0
        updates = await page.sent("session.update")
    assert between.n_lines == 4
    assert [update["session"]["audio"] for update in updates[2:]] == [{"input": {"turn_detection": None}}] * 2
    said = [message["content"] for message in talk.server.vendor.llm.received[-1].question["messages"][1:]]
    assert [text for text in said if text != ANSWER] == ["Is anybody there?", "Can you hear me?", "And now?"]


async def test_a_session_that_is_gone_is_begun_anew(talking: Any) -> None:
    """A refused resumption ends in another session, which receives the conversation so far and the last question."""
    async with (
        talking(has_microphone=False) as talk,
        flaky_proxy(port_of(talk)) as between,
        talk.page(at(talk, between)) as page,
    ):
        await page.agree()
        await page.write("My name is Ada.")
        await page.until(MEASURED)
        await page.until(LISTENING)
        await page.evaluate("window.forgetful = true")
        between.cut("up", after_bytes=0)
        await page.write("How are you?")
        await between.was_cut()
        await page.until("window.sent.some(({ type }) => type === 'voicepipe.resume')")
        await page.until("document.querySelectorAll('.agent .latency[data-outcome=completed]').length === 2")
        assert await page.text("#status") == "Connected"
    assert between.n_lines == 3
    said = [message["content"] for message in talk.server.vendor.llm.received[-1].question["messages"][1:]]
    assert said == ["My name is Ada.", ANSWER, "How are you?"]


async def test_backchannel_does_not_stop_the_agent(talking: Any) -> None:
    """The agent's volume is lowered during the backchannel, rises again, and the answer is played to its end."""
    async with talking(answer=LECTURE) as talk, talk.page(on_cue=True) as page:
        await page.start()
        await page.say("ls_2414-128291-0003")
        await page.until("document.querySelector('#scene').dataset.scene === 'speaking'")
        talk.server.vendor.stt.usual = SttCue(text="Yeah, okay.")
        # In the answer's first second any voice stops it.
        audible = "window.played.flatMap((chunk) => [...chunk]).filter((sample) => sample !== 0)"
        await page.until(f"{audible}.length > 36_000")
        await page.say(("ls_2033-164914-0005", 900))
        await page.until(MEASURED)
        await page.until(LISTENING)
        played = await page.played_back()
        assert await page.evaluate("document.querySelector('.cut')") is None
        assert await page.sent("conversation.item.truncate") == []
    loud, lowest = levels(played, talk.answer)
    assert lowest == pytest.approx(0.25, abs=0.05)
    assert loud[0] == pytest.approx(1, abs=0.01)
    assert loud[-1] == pytest.approx(1, abs=0.01)
    lowered = [n for n, part in enumerate(loud) if part < 0.9]
    assert lowered == list(range(lowered[0], lowered[-1] + 1)), "lowered once"


LATEST = 4 * RATE_HZ
"""How far sound may have been put off; less than the 5 s after which the lecture repeats itself."""


def levels(played: Any, answer: Any) -> tuple[list[float], float]:
    """How loud each 100 ms of the answer were played, 1 being as loud as they are, without its pauses; and the lowest
    level of any 20 ms among them, since a busy browser may learn late that the volume is lowered, and keep it so for
    less than 100 ms.

    Each is looked for where it was played: on a busy machine sound comes late, and leaves a gap before it.
    """
    found, n, lowest = [], RATE_HZ // 10, 1.0
    at = max(0, int(np.flatnonzero(played)[0] - np.flatnonzero(answer)[0]))
    for first in range(0, len(answer) - n + 1, n):
        expected = answer[first : first + n].astype(float)
        if np.abs(expected).max() < 1_000:
            continue
        begin = at + first
        place = begin if alike(expected, played[begin : begin + n])[0] > 0.9 else later(expected, played, begin)
        if place is None:  # there is a gap inside
            continue
        at = place - first
        there = played[place : place + n].astype(float)
        found.append(float(expected @ there / (expected @ expected)))
        for part, sound in zip(np.split(expected, 5), np.split(there, 5), strict=True):
            if np.abs(part).max() >= 1_000:
                lowest = min(lowest, float(part @ sound / (part @ part)))
    return found, lowest


def later(expected: Any, played: Any, begin: int) -> int | None:
    """Where a piece was played that came late; None when it was not played in one piece."""
    likenesses = alike(expected, played[begin : begin + LATEST + len(expected)])
    (places,) = np.nonzero(likenesses > 0.98)
    return begin + int(places[0] + np.argmax(likenesses[places[0] : places[0] + 24])) if len(places) else None
