"""A person talks with the page: speech goes up, the answer is played, and the bars show the true times."""

from __future__ import annotations

from typing import Any

import pytest
import soxr

from tests.web.sounds import likeness, played_until, require_in_order
from voicepipe.testing.fakes.cues import LlmCue, Status, SttCue, TtsCue

pytestmark = pytest.mark.slow

RATE_HZ = 24_000
QUESTION = "What do I here seek?"
ANSWER = "Ask not what your country can do for you."

QUESTION_CLIP = ("ls_2414-128291-0003", 30_000)
"""A user who puts a question, and then listens."""

MEASURED = "document.querySelector('.agent .latency[data-outcome={outcome}]')?.dataset.turn"
"""The turn whose latency is shown, once it is over."""

UNHURRIED = {"agents.default.end_of_turn": "silence", "agents.default.silence_ms": 1_500}
"""A browser that a busy machine stops for half a second makes no two utterances of the question."""


async def test_spoken_question_is_answered_in_speech(talking: Any) -> None:
    """The page mints, connects, sends the recording, and plays each sample of the answer, in order and once."""
    async with talking(says=QUESTION_CLIP, settings=UNHURRIED) as talk, talk.page() as page:
        await page.start()
        await page.until(MEASURED.format(outcome="completed"))
        await page.until("document.querySelector('#scene').dataset.scene === 'listening'")
        assert await page.text(".entry.user .words") == QUESTION
        assert await page.text(".entry.agent .words") == ANSWER
        assert not await page.evaluate("document.querySelector('.cut')")
        played = await page.played_back()
        captured = soxr.resample(await page.captured(), RATE_HZ, 16_000)
        sent_audio = talk.server.vendor.stt.received[-1].samples
    require_in_order(talk.answer, played)
    # What the page got from the microphone: a busy browser leaves out parts of a recording that it plays as one.
    assert likeness(sent_audio, captured) > 0.98


async def test_playback_is_reported_to_the_server(talking: Any) -> None:
    """While it plays and at its end; the turn's record then has the client's own time of playback."""
    async with talking(says=QUESTION_CLIP, settings=UNHURRIED) as talk, talk.page() as page:
        await page.start()
        turn_id = await page.until(MEASURED.format(outcome="completed"))
        await talk.record(turn_id, latency_source="reported")
        await page.until("document.querySelector('#scene').dataset.scene === 'listening'")
        reports = await page.sent("voicepipe.playback")
    played_ms = [report["played_ms"] for report in reports]
    assert len(played_ms) > 2
    assert played_ms == sorted(played_ms)
    assert (played_ms[-1], reports[-1]["buffered_ms"]) == (len(talk.answer) // 24, 0)


async def test_the_bars_agree_with_the_record(talking: Any) -> None:
    """The total, each stage with its limit and verdict, and the spans of the one bar, as `/v1/turns` has them."""
    async with talking(says=QUESTION_CLIP) as talk, talk.page() as page:
        await page.start()
        turn_id = await page.until(MEASURED.format(outcome="completed"))
        record = await talk.record(turn_id, latency_source="reported")
        visible_total = "document.querySelector('.latency .total').textContent"
        total = await page.until(f"{visible_total}.startsWith('{record['total_ms']} ms') && {visible_total}")
        rows = await page.evaluate(
            "[...document.querySelectorAll('.latency tbody tr')]"
            ".map((row) => [row.dataset.stage, row.querySelector('.figures').textContent])"
        )
        spans = await page.evaluate(
            "[...document.querySelectorAll('.latency .track.whole .segment')]"
            ".map((part) => [parseFloat(part.style.left), parseFloat(part.style.width)])"
        )
    assert total.startswith(f"{record['total_ms']} ms")
    assert f"limit of {record['total_limit_ms']} ms" in total
    assert ("over" in total) == (record["total_verdict"] == "over")
    visible = {stage["stage"]: _figures(stage) for stage in record["stages"]}
    assert dict(rows) == visible
    # One scale for all of it, end to end from the beginning.
    durations = [part["duration_ms"] for part in record["contributions"]]
    assert len(spans) == len(durations)
    percent_per_ms = 100 / (1.05 * max(record["total_ms"], record["total_limit_ms"]))
    began_ms = 0
    for (left, width), duration_ms in zip(spans, durations, strict=True):
        assert left == pytest.approx(began_ms * percent_per_ms, abs=0.01)
        assert width == pytest.approx(duration_ms * percent_per_ms, abs=0.01)
        began_ms += duration_ms


async def test_an_answer_can_be_scored(talking: Any) -> None:
    """A button is pressed once the server has the score; the last one counts."""
    async with talking(says=QUESTION_CLIP) as talk, talk.page() as page:
        await page.start()
        turn_id = await page.until(MEASURED.format(outcome="completed"))
        await talk.record(turn_id, latency_source="reported")
        await page.until("document.querySelectorAll('.feedback button').length === 2")
        for name in ("Good", "Bad"):
            found = f"[...document.querySelectorAll('.feedback button')].find((each) => each.textContent === '{name}')"
            await page.evaluate(f"{found}.click(); 0")
            await page.until(f"{found}.ariaPressed === 'true'")
        assert await page.evaluate("document.querySelectorAll('.feedback [aria-pressed=true]').length") == 1


def _figures(stage: dict[str, Any]) -> str:
    over = " over" if stage["verdict"] == "over" else ""
    return f"{stage['duration_ms']} ms of {stage['limit_ms']}{over}"


async def test_interruption_truncates_the_answer_at_the_played_position(talking: Any) -> None:
    """The audio ends at once, the server gets the position to the millisecond, and the page shows where the words were
    cut.
    """
    says = ("ls_2414-128291-0003", 500, "ls_2033-164914-0005", 30_000)
    async with talking(says=says, answer=("jfk",)) as talk, talk.page() as page:
        await page.start()
        turn_id = await page.until(MEASURED.format(outcome="interrupted"))
        (cut,) = await page.sent("conversation.item.truncate")
        of_cut = [report for report in await page.sent("voicepipe.playback") if report["item_id"] == cut["item_id"]]
        played_ms = played_until(talk.answer, await page.played_back()) / 24
        await page.until("document.querySelector('.entry.agent.cut del')?.textContent.includes('Not played')")
        words = await page.evaluate("document.querySelector('.entry.agent.cut .words').firstChild.textContent")
        unplayed = await page.evaluate("document.querySelector('.entry.agent.cut del').lastChild.textContent")
        assert "you interrupted here" in await page.text(".entry.agent.cut .words")
        record = await talk.record(turn_id)
    assert 0 < cut["audio_end_ms"] < 10_000
    assert (of_cut[-1]["played_ms"], of_cut[-1]["buffered_ms"]) == (cut["audio_end_ms"], 0)
    assert record["outcome"] == "interrupted"
    assert words + unplayed == ANSWER
    assert ANSWER.startswith(words)
    assert words
    # A quantum of the audio thread is 5 ms.
    assert cut["audio_end_ms"] == pytest.approx(played_ms, abs=10)


async def test_push_to_talk_by_the_space_bar(talking: Any) -> None:
    """What is said while the key is down is one turn, which its release ends; nothing else is sent."""
    async with talking(says=("jfk", 30_000)) as talk, talk.page() as page:
        await page.click("#mode label:nth-of-type(2)")
        await page.start()
        await page.until("document.querySelector('#level').ariaValueNow !== '0'")
        assert await page.sent("frame") == []
        await page.key(" ", "keyDown")
        await page.until("window.sent.filter((event) => event.type === 'frame').length > 100")
        await page.key(" ", "keyUp")
        n_frames = len(await page.sent("frame"))
        turn_id = await page.until(MEASURED.format(outcome="completed"))
        assert len(await page.sent("frame")) == n_frames
        assert len(await page.sent("input_audio_buffer.commit")) == 1
        record = await talk.record(turn_id)
    assert record["cause"] == "commit"
    assert record["user_text"] == QUESTION


TOUCH = """
for (const kind of ["keydown", "keyup"]) {
  document.querySelector("#hold").dispatchEvent(new KeyboardEvent(kind, { key: " ", bubbles: true }));
}
"""
"""Within one task of the page: however busy the machine, no sound of the microphone comes between."""


async def test_a_touch_of_the_button_says_how_it_is_used(talking: Any) -> None:
    """Too short to be speech: no question is sent, and the page says what to do. Held by the mouse, it listens."""
    async with talking(says=("jfk", 30_000)) as talk, talk.page() as page:
        await page.click("#mode label:nth-of-type(2)")
        await page.start()
        await page.until("document.querySelector('#level').ariaValueNow !== '0'")
        await page.evaluate(TOUCH)
        assert "for as long as you speak" in await page.error_text("too short")
        assert await page.sent("input_audio_buffer.commit") == []
        await page.mouse("mousePressed", "#hold")
        await page.until("window.sent.filter((event) => event.type === 'frame').length > 50")
        await page.mouse("mouseReleased", "#hold")
        await page.until(MEASURED.format(outcome="completed"))
        assert await page.evaluate("document.querySelector('#problems').hidden")
        assert len(await page.sent("input_audio_buffer.commit")) == 1


async def test_muted_sends_nothing(talking: Any) -> None:
    """No frame leaves while the button is down; the words on it and its state say so."""
    async with talking() as talk, talk.page() as page:
        await page.start()
        await page.until("window.sent.some((event) => event.type === 'frame')")
        await page.click("#mute")
        assert await page.text("#mute") == "Unmute"
        assert await page.text("#scene") == "Muted"
        n_frames = len(await page.sent("frame"))
        await page.write("Hello?")
        await page.until(MEASURED.format(outcome="completed"))
        assert len(await page.sent("frame")) == n_frames


async def test_written_question_is_answered_in_speech(talking: Any) -> None:
    """In the settings a person has chosen a voice; the answer is spoken with it."""
    async with talking(has_microphone=False) as talk, talk.page() as page:
        await page.click("#open-settings")
        await page.click("#voice")
        await page.type("verse")
        await page.click("#settings button[value=done]")
        await page.start()
        await page.write("What do I here seek?")
        await page.until(MEASURED.format(outcome="completed"))
        assert await page.text(".entry.user .words") == QUESTION
        require_in_order(talk.answer, await page.played_back())
        (sent_audio,) = talk.server.vendor.tts.received
    assert sent_audio.question["voice"] == "verse"


async def test_an_agent_that_fails_says_so_and_goes_on(talking: Any) -> None:
    """The failure stands where the answer would, and the next question is answered."""
    async with talking(has_microphone=False) as talk, talk.page() as page:
        talk.server.vendor.llm.usual = LlmCue(fault=Status(400, "no such model"))
        await page.start()
        await page.write("Hello?")
        await page.until("document.querySelector('.entry.agent.failed') !== null")
        assert "no answer" in await page.text(".entry.agent .words")
        talk.server.vendor.llm.usual = LlmCue()
        await page.write("Hello?")
        await page.until(MEASURED.format(outcome="completed"))
        assert await page.text(".entry.agent:last-child .words") == "Hello there, user."


async def test_a_phone_talks_over_tls(talking: Any) -> None:
    """A phone's microphone wants https; with `--tls-dev` and a small screen a spoken question is answered aloud."""
    secure = {"server.tls_dev": True}
    trusting = ("--ignore-certificate-errors",)
    async with (
        talking(says=QUESTION_CLIP, settings=secure, flags=trusting) as talk,
        talk.page(width=390, height=780) as page,
    ):
        assert talk.address.startswith("https://")
        await page.start()
        await page.until(MEASURED.format(outcome="completed"))
        assert await page.text(".entry.user .words") == QUESTION
        await page.until("document.querySelector('#scene').dataset.scene === 'listening'")
        require_in_order(talk.answer, await page.played_back())


async def test_a_user_who_goes_on_takes_back_an_answer_that_began_softly(talking: Any) -> None:
    """In its first second: the page stops it and plays one answer, to one message of all that was said."""
    async with talking() as talk, talk.page(on_cue=True) as page:
        sound = talk.answer.astype("<i2").tobytes()
        talk.server.vendor.tts.usual = TtsCue(raw=sound, gap_ms=80)
        await page.agree()
        await page.say("ls_2414-128291-0003")
        await page.until("window.played.some((chunk) => chunk.some((sample) => sample !== 0))")
        talk.server.vendor.stt.usual = SttCue(text="And in Rome?")
        await page.say(("ls_2033-164914-0005", 550, 1_500))
        turn_id = await page.until("document.querySelector('.entry.agent:not(.cut) .latency')?.dataset.turn")
        record = await talk.record(turn_id)
        n_cut = await page.evaluate("document.querySelectorAll('.entry.agent.cut').length")
        assert await page.evaluate("document.querySelectorAll('.entry.agent').length") == n_cut + 1
        (message,) = talk.server.vendor.llm.received[-1].question["messages"][1:]
    # A browser that gets no CPU for half a second breaks the question in two: the fake STT has the same text for each.
    parts = message["content"].split(f"{QUESTION} ")
    assert parts == [""] * (len(parts) - 1) + ["And in Rome?"]
    assert 1 <= n_cut <= record["resumed"] < len(parts)
    assert (record["outcome"], record["played_text"]) == ("completed", ANSWER)
