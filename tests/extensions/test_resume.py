"""A line that breaks and is replaced: nothing is lost, nothing comes twice, and a wrong secret learns nothing."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import aiohttp
import numpy as np
import pytest
from aiohttp import WSMsgType

from voicepipe.ports.transcriber import Samples
from voicepipe.server.sessions import resume
from voicepipe.server.wait_limits import RESUME_CAPS
from voicepipe.testing.reconnecting_user import ReconnectingUser, reconnecting_user
from voicepipe.testing.user import BINARY, WIRE_HZ, WireEvent
from voicepipe.testing.waiting import WAIT_S

RESUME = {"providerData": {"voicepipe": {"resume": True}}}


def session_with(silence_ms: int) -> dict[str, Any]:
    """A session that can be resumed, whose turns end after this silence."""
    detection = {"type": "server_vad", "silence_duration_ms": silence_ms}
    return {"audio": {"input": {"turn_detection": detection, "transcription": {"model": "whisper-1"}}}, **RESUME}


SESSION = session_with(200)
PATIENT = session_with(1_500)
"""For a user who stops sending in mid-sentence: on a busy machine it takes a while until the connection breaks."""

IN_BINARY = {**SESSION, "providerData": {"voicepipe": {"resume": True, "binary_audio": True}}}


def many_lines() -> aiohttp.ClientSession:
    """A client with as many connections as it likes."""
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))


def event_summary(events: list[WireEvent]) -> list[tuple[str, ...]]:
    """Return the client's events without what differs between two calls: ids, and how audio was cut up."""
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


async def history(user: ReconnectingUser) -> list[tuple[str, str]]:
    """(status, words) of every item."""
    items = []
    for item_id in user.checker.order:
        await user.send("conversation.item.retrieve", item_id=item_id)
        item = (await user.until("conversation.item.retrieved"))["item"]
        items.append((item["status"], " ".join(part.get("transcript") or "" for part in item["content"])))
    return items


AT_ONCE = 6
"""Calls at a time: 30 leave a busy machine's STT no time for its answer."""


async def call(server: Any, question: Samples, session: dict[str, Any], cut_after: int | None) -> tuple[Any, ...]:
    """One turn; its line breaks after that many events of it. Returns all that the client came to know."""
    async with reconnecting_user(server.base_url, session) as user:
        await user.speak(question)
        n_before = len(user.events)
        while cut_after is not None and len(user.events) < n_before + cut_after:
            await user.next()
        if cut_after is not None:
            await user.break_connection()
            await user.resend_from(question, await user.resume())
        if not any(event["type"] == "response.done" for event in user.events):
            await user.until("response.done")
        events = user.events[n_before:]
        return event_summary(events), user.sound().tobytes(), await history(user), user.checker.unfinished


@pytest.mark.slow
@pytest.mark.parametrize("session", [SESSION, IN_BINARY], ids=["json", "binary"])
async def test_a_line_that_breaks_after_any_event_of_a_turn(
    server: Any, question: Samples, session: dict[str, Any]
) -> None:
    """The played audio and the history are the same as without the cut."""
    whole = await call(server, question, session, None)
    async with reconnecting_user(server.base_url, session) as user:
        await user.speak(question)
        before = len(user.events)
        await user.until("response.done")
        n_events = len(user.events) - before
    assert len(whole[1]) > WIRE_HZ
    room = asyncio.Semaphore(AT_ONCE)

    async def cut_call(index: int) -> tuple[Any, ...]:
        async with room:
            return await call(server, question, session, index)

    cut = await asyncio.gather(*(cut_call(index) for index in range(n_events + 1)))
    for index, found in enumerate(cut):
        assert found == whole, f"cut after {index} events"
    assert len(server.vendor.llm.received) == n_events + 3, "nothing is answered twice"


@pytest.mark.parametrize("spoken_ms", [700, 1_300, 1_900, 2_600])
async def test_a_line_that_breaks_in_mid_sentence(server: Any, question: Samples, spoken_ms: int) -> None:
    """The client sends its audio again from the server's position; no sample is transcribed twice, and none is lost."""
    whole = await call(server, question, PATIENT, None)
    async with reconnecting_user(server.base_url, PATIENT) as user:
        n_sent = spoken_ms * WIRE_HZ // 1_000 + 7  # not at a whole millisecond
        await user.speak(question[:n_sent])
        await user.send("input_audio_buffer.append", audio="AA==")  # half a sample, which is lost with the line
        await user.send("conversation.item.retrieve", item_id="nobody")
        await user.until("error")  # so all of that has been transcribed
        await user.break_connection()
        received_ms = await user.resume()
        assert received_ms == spoken_ms
        await user.resend_from(question, received_ms)
        await user.until("response.done")
        events = [event for event in user.events[2:] if event["type"] != "error"]
        assert (event_summary(events), user.sound().tobytes()) == whole[:2]


@pytest.mark.parametrize("n_pings", [1, 30, 300])
async def test_a_line_that_breaks_while_a_ping_is_on_its_way(
    server: Any, caplog: pytest.LogCaptureFixture, n_pings: int
) -> None:
    """The server's pong fails, which is the line's end and not the session's."""
    async with reconnecting_user(server.base_url, SESSION) as user:
        for _ in range(n_pings):
            await user.line.ping()
        await user.break_connection()
        assert await user.resume() == 0
    assert "crashed" not in [record.getMessage() for record in caplog.records]


async def test_it_breaks_again_and_again(server: Any, question: Samples) -> None:
    """Each time with the latest secret, and each time after one more event."""
    whole = await call(server, question, SESSION, None)
    async with reconnecting_user(server.base_url, SESSION) as user:
        await user.speak(question)
        secrets = {user.secret}
        while not any(event["type"] == "response.done" for event in user.events):
            await user.next()
            await user.break_connection()
            received_ms = await user.resume()
            assert user.secret not in secrets
            secrets.add(user.secret)
            await user.resend_from(question, received_ms)
        assert (event_summary(user.events[2:]), user.sound().tobytes()) == whole[:2]


async def test_the_newest_line_wins(server: Any, question: Samples) -> None:
    """A client that is back before the server has noticed takes the line over, and the one before it is dropped."""
    async with reconnecting_user(server.base_url, SESSION) as user:
        before = user.line
        assert await user.resume() == 0
        async with asyncio.timeout(WAIT_S):
            await before.receive()
        assert before.closed
        await user.speak(question)
        done = await user.until("response.done")
        assert done["response"]["status"] == "completed"


async def test_secret_is_sent_once(server: Any) -> None:
    async with reconnecting_user(server.base_url, SESSION) as user:
        assert len(user.secret) >= 43
        await user.send("session.update", session={"type": "realtime", "instructions": "Be brief."})
        again = await user.until("session.updated")
        assert "resume_secret" not in again["session"]["providerData"]["voicepipe"]
        await user.send("session.update", session={"type": "realtime", "providerData": {"voicepipe": {"resume": None}}})
        off = await user.until("session.updated")
        assert off["session"]["providerData"]["voicepipe"]["resume"] is False
        refused = await user.request_resume(user.secret, user.last_event_id)
        assert refused["error"]["code"] == "resume_refused"


def same_answer(event: WireEvent) -> WireEvent:
    """An answer without its id."""
    return {key: value for key, value in event.items() if key != "event_id"}


async def test_a_wrong_or_used_secret_learns_nothing(server: Any, question: Samples) -> None:
    """Every refusal is the same, and none disturbs the call."""
    async with reconnecting_user(server.base_url, SESSION) as user:
        line, used = user.line, user.secret
        answers = [
            await user.request_resume("wrong", user.last_event_id),
            await user.request_resume(used[:-1], user.last_event_id),
            await user.request_resume("", None),
            await user.request_resume(used, "event_of_another_1"),
            await user.request_resume(used, user.last_event_id + "ffff"),
            await user.request_resume(used, None),  # events before the opt-in are not stored
            await user.request_resume(used, user.last_event_id, session_id="sess_unknown"),
        ]
        assert not line.closed
        await user.resume()
        answers.append(await user.request_resume(used, user.last_event_id))
        first = same_answer(answers[0])
        assert first["error"]["code"] == "resume_refused"
        assert [same_answer(answer) for answer in answers] == [first] * len(answers)
        closing = await user.line.receive()
        assert closing.data == 4001, closing
        user.line = user.lines[-2]
        await user.speak(question)
        assert (await user.until("response.done"))["response"]["status"] == "completed"


@pytest.mark.parametrize("word", ["{}", "no JSON", json.dumps({"type": "session.update", "session": {}})])
async def test_another_first_word_is_refused_likewise(server: Any, word: str) -> None:
    async with reconnecting_user(server.base_url, SESSION) as user:
        line = await user._http.ws_connect(f"{server.base_url}/v1/realtime?resume=1")
        user.lines.append(line)
        await line.send_str(word)
        assert json.loads(await line.receive_str())["error"]["code"] == "resume_refused"


async def test_a_right_secret_passes_whatever_others_of_its_address_guessed(
    server: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Each guess is refused; only the first ten of them are worth a line of the log."""
    caplog.set_level(0)
    async with reconnecting_user(server.base_url, SESSION) as user:
        for _ in range(15):
            assert (await user.request_resume("wrong", None))["error"]["code"] == "resume_refused"
        assert await user.resume() == 0
        assert [record.getMessage() for record in caplog.records].count("resume_refused") == 10


@pytest.mark.parametrize("place", ["1", ""])
async def test_silent_clients_do_not_block_resumption(server: Any, place: str) -> None:
    """Twice as many as there are slots, of the user's own address: the one that waits longest makes room."""
    async with reconnecting_user(server.base_url, SESSION) as user, many_lines() as http:
        url = f"{server.base_url}/v1/realtime?resume={place or user.session_id}"
        silent_clients = [await http.ws_connect(url) for _ in range(2 * RESUME_CAPS.per_address)]
        await user.break_connection()
        assert await user.resume() == 0
        for client in silent_clients[: RESUME_CAPS.per_address]:
            assert (await client.receive(timeout=WAIT_S)).type in (WSMsgType.CLOSE, WSMsgType.CLOSED, WSMsgType.ERROR)
        for client in silent_clients:
            await client.close()


@pytest.mark.parametrize("is_named", [False, True])
async def test_a_first_event_that_came_while_the_loop_was_stalled_is_in_time(
    server: Any, monkeypatch: pytest.MonkeyPatch, is_named: bool
) -> None:
    """The server's timers are due before it reads what has come."""
    monkeypatch.setattr(resume, "FIRST_EVENT_S", 0.2)
    async with reconnecting_user(server.base_url, SESSION) as user:
        place = user.session_id if is_named else "1"
        line = await user._http.ws_connect(f"{server.base_url}/v1/realtime?resume={place}")
        request = {"session_id": user.session_id, "secret": user.secret, "last_event_id": user.last_event_id}
        await line.send_str(json.dumps({"type": "voicepipe.resume", **request}))
        time.sleep(0.4)  # noqa: ASYNC251 - the server's event loop is this one
        assert json.loads(await line.receive_str(timeout=WAIT_S))["type"] == "voicepipe.resumed"
        await line.close()


async def test_named_sessions_have_their_own_capacity(server: Any) -> None:
    """As many silent connections as there are for a whole address don't touch it; an unknown one waits for nothing."""
    async with reconnecting_user(server.base_url, SESSION) as user, many_lines() as http:
        base = f"{server.base_url}/v1/realtime?resume="
        own = await http.ws_connect(base + user.session_id)
        silent_clients = [await http.ws_connect(base + "1") for _ in range(2 * RESUME_CAPS.per_address)]
        unknown = await http.ws_connect(base + "sess_unknown")
        assert json.loads(await unknown.receive_str(timeout=WAIT_S))["error"]["code"] == "resume_refused"
        request = {"session_id": user.session_id, "secret": user.secret, "last_event_id": user.last_event_id}
        await own.send_str(json.dumps({"type": "voicepipe.resume", **request}))
        assert json.loads(await own.receive_str(timeout=WAIT_S))["type"] == "voicepipe.resumed"
        for line in (own, unknown, *silent_clients):
            await line.close()


async def test_a_client_that_hangs_up_does_not_come_back(server: Any) -> None:
    async with reconnecting_user(server.base_url, SESSION) as user:
        await user.line.close()
        refused = await user.request_resume(user.secret, user.last_event_id)
        assert refused["error"]["code"] == "resume_refused"


async def test_without_the_opt_in_a_line_that_breaks_ends_the_session(server: Any) -> None:
    async with reconnecting_user(server.base_url, {}) as user:
        session_id = user.events[0]["session"]["id"]
        refused = await user.request_resume("", user.last_event_id, session_id=session_id)
        assert refused["error"]["code"] == "resume_refused"


async def test_neither_secret_nor_words_are_logged(
    server: Any, question: Samples, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(0)
    async with reconnecting_user(server.base_url, SESSION) as user:
        first = user.secret
        await user.break_connection()
        await user.resume()
        await user.request_resume(first, user.last_event_id)
        user.line = user.lines[-2]
        logged = " ".join(f"{record.getMessage()} {record.__dict__.get('fields')}" for record in caplog.records)
        assert "resume_refused" in logged
        assert first not in logged
        assert user.secret not in logged
        assert np.array_equal(user.sound(), [])
