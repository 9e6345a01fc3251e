"""A line that breaks and is replaced: nothing is lost, nothing comes twice, and a wrong secret learns nothing."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp
import numpy as np
import pytest
from aiohttp import WSMsgType

from voicepipe.server.resume_places import MOST_OF_ADDRESS
from voicepipe.stages.transcriber import Samples
from voicepipe.testing.caller import BINARY, WIRE_HZ, Event
from voicepipe.testing.returning import Returning, returning

SESSION = {
    "audio": {
        "input": {
            "turn_detection": {"type": "server_vad", "silence_duration_ms": 200},
            "transcription": {"model": "whisper-1"},
        }
    },
    "providerData": {"voicepipe": {"resume": True}},
}
IN_BINARY = {**SESSION, "providerData": {"voicepipe": {"resume": True, "binary_audio": True}}}


def many_lines() -> aiohttp.ClientSession:
    """A client with as many connections as it likes."""
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))


def told(events: list[Event]) -> list[tuple[str, ...]]:
    """What the client is told, without what differs from one call to the next: ids, and how sound was cut up."""
    found: list[tuple[str, ...]] = []
    for event in events:
        kind = event["type"]
        said = str(event.get("transcript") or event.get("text") or event.get("delta", ""))
        if kind in ("response.output_audio.delta", BINARY):
            continue
        if kind.endswith(".delta"):
            found.append((kind, said))
        else:
            place = (str(event.get(key)) for key in ("audio_start_ms", "audio_end_ms", "output_index"))
            found.append((kind, said, *place))
    return found


async def history(caller: Returning) -> list[tuple[str, str]]:
    """(status, words) of every item."""
    items = []
    for item_id in caller.checker.order:
        await caller.send("conversation.item.retrieve", item_id=item_id)
        item = (await caller.until("conversation.item.retrieved"))["item"]
        items.append((item["status"], " ".join(part.get("transcript") or "" for part in item["content"])))
    return items


async def call(house: Any, question: Samples, session: dict[str, Any], cut_after: int | None) -> tuple[Any, ...]:
    """One turn; its line breaks after that many events of it. Returns all that the client came to know."""
    async with returning(house.base_url, session) as caller:
        await caller.say(question)
        n_before = len(caller.events)
        while cut_after is not None and len(caller.events) < n_before + cut_after:
            await caller.next()
        if cut_after is not None:
            await caller.lose_line()
            await caller.say_from(question, await caller.come_back())
        if not any(event["type"] == "response.done" for event in caller.events):
            await caller.until("response.done")
        events = caller.events[n_before:]
        return told(events), caller.sound().tobytes(), await history(caller), caller.checker.unfinished


@pytest.mark.parametrize("session", [SESSION, IN_BINARY], ids=["json", "binary"])
async def test_a_line_that_breaks_after_any_event_of_a_turn(
    house: Any, question: Samples, session: dict[str, Any]
) -> None:
    """What the caller hears and the history are the same as without the cut."""
    whole = await call(house, question, session, None)
    async with returning(house.base_url, session) as caller:
        await caller.say(question)
        before = len(caller.events)
        await caller.until("response.done")
        n_events = len(caller.events) - before
    assert len(whole[1]) > WIRE_HZ
    cut = await asyncio.gather(*(call(house, question, session, index) for index in range(n_events + 1)))
    for index, found in enumerate(cut):
        assert found == whole, f"cut after {index} events"
    assert len(house.vendor.llm.asked) == n_events + 3, "nothing is answered twice"


@pytest.mark.parametrize("spoken_ms", [700, 1_300, 1_900, 2_600])
async def test_a_line_that_breaks_in_mid_sentence(house: Any, question: Samples, spoken_ms: int) -> None:
    """The client sends its microphone again from where the server says; no sample is heard twice, and none is lost."""
    whole = await call(house, question, SESSION, None)
    async with returning(house.base_url, SESSION) as caller:
        n_sent = spoken_ms * WIRE_HZ // 1_000 + 7  # not at a whole millisecond
        await caller.say(question[:n_sent])
        await caller.send("input_audio_buffer.append", audio="AA==")  # half a sample, which is lost with the line
        await caller.send("conversation.item.retrieve", item_id="nobody")
        await caller.until("error")  # so all of that has been heard
        await caller.lose_line()
        received_ms = await caller.come_back()
        assert received_ms == spoken_ms
        await caller.say_from(question, received_ms)
        await caller.until("response.done")
        events = [event for event in caller.events[2:] if event["type"] != "error"]
        assert (told(events), caller.sound().tobytes()) == whole[:2]


@pytest.mark.parametrize("n_pings", [1, 30, 300])
async def test_a_line_that_breaks_while_a_ping_is_on_its_way(
    house: Any, caplog: pytest.LogCaptureFixture, n_pings: int
) -> None:
    """The server's pong fails, which is the line's end and not the session's."""
    async with returning(house.base_url, SESSION) as caller:
        for _ in range(n_pings):
            await caller.line.ping()
        await caller.lose_line()
        assert await caller.come_back() == 0
    assert "crashed" not in [record.getMessage() for record in caplog.records]


async def test_it_breaks_again_and_again(house: Any, question: Samples) -> None:
    """Each time with the latest secret, and each time after one more event."""
    whole = await call(house, question, SESSION, None)
    async with returning(house.base_url, SESSION) as caller:
        await caller.say(question)
        secrets = {caller.secret}
        while not any(event["type"] == "response.done" for event in caller.events):
            await caller.next()
            await caller.lose_line()
            received_ms = await caller.come_back()
            assert caller.secret not in secrets
            secrets.add(caller.secret)
            await caller.say_from(question, received_ms)
        assert (told(caller.events[2:]), caller.sound().tobytes()) == whole[:2]


async def test_the_newest_line_wins(house: Any, question: Samples) -> None:
    """A client that is back before the server has noticed takes the line over, and the one before it is dropped."""
    async with returning(house.base_url, SESSION) as caller:
        before = caller.line
        assert await caller.come_back() == 0
        async with asyncio.timeout(5):
            await before.receive()
        assert before.closed
        await caller.say(question)
        done = await caller.until("response.done")
        assert done["response"]["status"] == "completed"


async def test_the_secret_is_told_once(house: Any) -> None:
    async with returning(house.base_url, SESSION) as caller:
        assert len(caller.secret) >= 43
        await caller.send("session.update", session={"type": "realtime", "instructions": "Be brief."})
        again = await caller.until("session.updated")
        assert "resume_secret" not in again["session"]["providerData"]["voicepipe"]
        await caller.send(
            "session.update", session={"type": "realtime", "providerData": {"voicepipe": {"resume": None}}}
        )
        off = await caller.until("session.updated")
        assert off["session"]["providerData"]["voicepipe"]["resume"] is False
        refused = await caller.ask_back(caller.secret, caller.last_event_id)
        assert refused["error"]["code"] == "resume_refused"


def same_answer(event: Event) -> Event:
    """An answer without its id."""
    return {key: value for key, value in event.items() if key != "event_id"}


async def test_a_wrong_or_used_secret_learns_nothing(house: Any, question: Samples) -> None:
    """Every refusal is the same, and none disturbs the call."""
    async with returning(house.base_url, SESSION) as caller:
        line, used = caller.line, caller.secret
        answers = [
            await caller.ask_back("wrong", caller.last_event_id),
            await caller.ask_back(used[:-1], caller.last_event_id),
            await caller.ask_back("", None),
            await caller.ask_back(used, "event_of_another_1"),
            await caller.ask_back(used, caller.last_event_id + "ffff"),
            await caller.ask_back(used, None),  # what came before the opt-in is not kept
            await caller.ask_back(used, caller.last_event_id, session_id="sess_nobody"),
        ]
        assert not line.closed
        await caller.come_back()
        answers.append(await caller.ask_back(used, caller.last_event_id))
        first = same_answer(answers[0])
        assert first["error"]["code"] == "resume_refused"
        assert [same_answer(answer) for answer in answers] == [first] * len(answers)
        closing = await caller.line.receive()
        assert caller.line.close_code == 4001, closing
        caller.line = caller.lines[-2]
        await caller.say(question)
        assert (await caller.until("response.done"))["response"]["status"] == "completed"


@pytest.mark.parametrize("word", ["{}", "no JSON", json.dumps({"type": "session.update", "session": {}})])
async def test_another_first_word_is_refused_likewise(house: Any, word: str) -> None:
    async with returning(house.base_url, SESSION) as caller:
        line = await caller._http.ws_connect(f"{house.base_url}/v1/realtime?resume=1")
        caller.lines.append(line)
        await line.send_str(word)
        assert json.loads(await line.receive_str())["error"]["code"] == "resume_refused"


async def test_a_right_secret_passes_whatever_others_of_its_address_guessed(
    house: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Each guess is refused; only the first ten of them are worth a line of the log."""
    caplog.set_level(0)
    async with returning(house.base_url, SESSION) as caller:
        for _ in range(15):
            assert (await caller.ask_back("wrong", None))["error"]["code"] == "resume_refused"
        assert await caller.come_back() == 0
        assert [record.getMessage() for record in caplog.records].count("resume_refused") == 10


@pytest.mark.parametrize("place", ["1", ""])
async def test_strangers_who_say_nothing_keep_nobody_from_coming_back(house: Any, place: str) -> None:
    """Twice as many as there are places, of the caller's own address: the one that waits longest makes room."""
    async with returning(house.base_url, SESSION) as caller, many_lines() as http:
        url = f"{house.base_url}/v1/realtime?resume={place or caller.session_id}"
        strangers = [await http.ws_connect(url) for _ in range(2 * MOST_OF_ADDRESS)]
        await caller.lose_line()
        assert await caller.come_back() == 0
        for stranger in strangers[:MOST_OF_ADDRESS]:
            assert (await stranger.receive(timeout=20)).type in (WSMsgType.CLOSE, WSMsgType.CLOSED, WSMsgType.ERROR)
        for stranger in strangers:
            await stranger.close()


async def test_a_session_that_is_named_in_the_address_has_places_of_its_own(house: Any) -> None:
    """As many silent connections as there are for a whole address don't touch it; an unknown one waits for nothing."""
    async with returning(house.base_url, SESSION) as caller, many_lines() as http:
        base = f"{house.base_url}/v1/realtime?resume="
        own = await http.ws_connect(base + caller.session_id)
        strangers = [await http.ws_connect(base + "1") for _ in range(2 * MOST_OF_ADDRESS)]
        unknown = await http.ws_connect(base + "sess_nobody")
        assert json.loads(await unknown.receive_str(timeout=20))["error"]["code"] == "resume_refused"
        asked = {"session_id": caller.session_id, "secret": caller.secret, "last_event_id": caller.last_event_id}
        await own.send_str(json.dumps({"type": "voicepipe.resume", **asked}))
        assert json.loads(await own.receive_str(timeout=20))["type"] == "voicepipe.resumed"
        for line in (own, unknown, *strangers):
            await line.close()


async def test_a_client_that_hangs_up_does_not_come_back(house: Any) -> None:
    async with returning(house.base_url, SESSION) as caller:
        await caller.line.close()
        refused = await caller.ask_back(caller.secret, caller.last_event_id)
        assert refused["error"]["code"] == "resume_refused"


async def test_without_the_opt_in_a_line_that_breaks_ends_the_session(house: Any) -> None:
    async with returning(house.base_url, {}) as caller:
        session_id = caller.events[0]["session"]["id"]
        refused = await caller.ask_back("", caller.last_event_id, session_id=session_id)
        assert refused["error"]["code"] == "resume_refused"


async def test_neither_secret_nor_words_are_logged(
    house: Any, question: Samples, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(0)
    async with returning(house.base_url, SESSION) as caller:
        first = caller.secret
        await caller.lose_line()
        await caller.come_back()
        await caller.ask_back(first, caller.last_event_id)
        caller.line = caller.lines[-2]
        logged = " ".join(f"{record.getMessage()} {record.__dict__.get('fields')}" for record in caplog.records)
        assert "resume_refused" in logged
        assert first not in logged
        assert caller.secret not in logged
        assert np.array_equal(caller.sound(), [])
