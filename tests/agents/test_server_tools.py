"""Functions that the server runs, over a real socket: events for the client, results for the LLM, the record."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import threading
from contextlib import suppress
from itertools import count
from typing import Any

import aiohttp
import pytest

from voicepipe.agents import Agent, ToolError, ToolSession
from voicepipe.ports.server_tool import MAX_RESULT_CHARS
from voicepipe.testing.fakes.cues import CallCue, LlmCue, tokens
from voicepipe.testing.user import User, calling
from voicepipe.testing.waiting import WAIT_S, eventually
from voicepipe.turn.server_tools import MAX_ROUNDS

TEXT = {"output_modalities": ["text"]}


class Clinic:
    """The functions of an agent, and what became of them."""

    def __init__(self) -> None:
        self.booked: list[str] = []
        self.sessions: list[ToolSession] = []
        self.release = asyncio.Event()
        self.waiting = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.completed = asyncio.Event()
        self.closed = asyncio.Event()
        self.agent = Agent("You book.", end_of_turn="silence", silence_ms=200, speculate=False)
        self.agent.tool(self.book)
        self.agent.tool(side_effects=False)(self.free_times)
        self.agent.tool(timeout_ms=1)(self.hangs)
        self.agent.tool(self.raises)
        self.agent.tool(self.exits)
        self.agent.tool(self.interrupts)
        self.agent.tool(self.cancels_itself)
        self.agent.tool(timeout_ms=1)(self.clings)
        self.agent.tool(self.half_a_pair)
        self.agent.tool(cancellable=True)(self.waits)
        self.agent.tool(self.endures)

    async def book(self, time: str, session: ToolSession) -> str:
        """Book a time."""
        self.booked.append(time)
        self.sessions.append(session)
        return f"booked {time}"

    async def free_times(self, day: str) -> list[str]:
        """Find free times."""
        if day == "Sunday":
            raise ToolError("We are closed on Sundays.")
        return [f"{day} 9:00"] if day != "all" else ["x" * MAX_RESULT_CHARS]

    async def hangs(self) -> None:
        """Never return."""
        await asyncio.Event().wait()

    async def raises(self) -> None:
        """Raise an error that holds a secret."""
        raise RuntimeError("password=hunter2")

    async def exits(self) -> None:
        """End the process, as a command-line library does for wrong options."""
        sys.exit("password=hunter2")

    async def interrupts(self) -> None:
        """Raise what ends an event loop."""
        raise KeyboardInterrupt

    async def cancels_itself(self) -> None:
        """Wait for something that is cancelled, and not by the server."""
        never = asyncio.get_running_loop().create_future()
        never.cancel()
        await never

    async def clings(self) -> None:
        """Go on although cancelled, as a loop with a bare `except` does."""
        try:
            while True:
                with suppress(asyncio.CancelledError):
                    await asyncio.Event().wait()
        finally:
            self.closed.set()

    async def half_a_pair(self) -> str:
        """Return a text that UTF-8 does not have."""
        return "cut \ud83d"

    async def waits(self) -> str:
        """Wait until released, or cancelled."""
        return await self._held()

    async def endures(self) -> str:
        """Wait until released."""
        return await self._held()

    async def _held(self) -> str:
        self.waiting.set()
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        self.completed.set()
        return "released"


@pytest.fixture
def clinic() -> Clinic:
    return Clinic()


def call(name: str, call_id: str = "c1", **arguments: Any) -> CallCue:
    return CallCue(name, (json.dumps(arguments),), call_id)


async def prompt(user: User, text: str = "hello") -> None:
    content = [{"type": "input_text", "text": text}]
    await user.send("conversation.item.create", item={"type": "message", "role": "user", "content": content})
    await user.send("response.create")


def answers(server: Any, *calls: CallCue, then: str = "Done.") -> None:
    """The LLM calls these, and answers the next request."""
    server.vendor.llm.cue(LlmCue(calls=calls), LlmCue(tokens=tokens(then)))


async def read_by_llm(server: Any, number: int) -> list[Any]:
    """The results that request `number` has, and the arguments of the calls."""
    messages = (await server.vendor.llm.nth(number)).question["messages"]
    return [each["content"] for each in messages if each["role"] == "tool"]


async def tools_of(server: Any, done: Any) -> list[Any]:
    """Return the functions in the record of a turn, once it has their results: late ones renew the record."""
    turn_id = done["response"]["metadata"]["voicepipe_turn"]

    async def closed() -> Any:
        async with aiohttp.ClientSession() as http, http.get(f"{server.url}/v1/turns/{turn_id}") as answer:
            record = await answer.json()
            runs = any(each["outcome"] == "running" for each in record.get("tools", ()))
            return record if record.get("outcome") and not runs else None

    record: Any = await eventually(closed)
    return [(each["name"], each["ran_by"], each["outcome"]) for each in record["tools"]]


async def test_a_call_is_answered_by_the_server(fake_server: Any, clinic: Clinic) -> None:
    """The client sees events of `mcp_call`, and need not do anything; the LLM reads the result and answers."""
    async with fake_server(agents=[clinic.agent]) as server, calling(server.url, session=TEXT) as user:
        answers(server, call("book", time="9:00"), then="It is booked.")
        await prompt(user)
        called = await user.until("response.done")
        assert called["response"]["output"][0]["type"] == "mcp_call"
        done = await user.until("response.done")
        assert done["response"]["output"][0]["content"][0]["text"] == "It is booked."
        tools = await tools_of(server, done)
        names = {each["function"]["name"] for each in (await server.vendor.llm.nth(0)).question["tools"]}
        assert await read_by_llm(server, 1) == ["booked 9:00"]
    assert clinic.booked == ["9:00"]
    assert {"book", "free_times"} <= names
    assert tools == [("book", "server", "returned")]
    assert called["response"]["metadata"] == done["response"]["metadata"], "one turn for the user"
    kinds = user.kinds()[user.kinds().index("response.created") :]
    assert (
        kinds
        == [
            "response.created",
            "response.output_item.added",
            "conversation.item.added",
            "response.mcp_call_arguments.delta",
            "response.mcp_call_arguments.done",
            "response.output_item.done",
            "response.mcp_call.in_progress",
            "response.done",
            "rate_limits.updated",
            "response.mcp_call.completed",
            "conversation.item.done",
            "response.created",
            *("response.output_item.added", "conversation.item.added", "response.content_part.added"),
            *("response.output_text.delta", "response.output_text.done", "response.content_part.done"),
            *("conversation.item.done", "response.output_item.done", "response.done", "rate_limits.updated"),
        ][: len(kinds)]
    )
    item = next(e["item"] for e in user.events if e["type"] == "conversation.item.done" and "output" in e["item"])
    assert (item["type"], item["name"], item["arguments"]) == ("mcp_call", "book", '{"time": "9:00"}')
    assert (item["output"], item["error"], item["server_label"]) == ("booked 9:00", None, "agent")


async def test_two_calls_one_fails(fake_server: Any, clinic: Clinic) -> None:
    """Both run at once; the LLM reads why the one has no result."""
    async with fake_server(agents=[clinic.agent]) as server, calling(server.url, session=TEXT) as user:
        answers(server, call("free_times", "c1", day="Monday"), call("free_times", "c2", day="Sunday"))
        await prompt(user)
        await user.until("response.done")
        failed = await user.until("response.mcp_call.failed")
        done = await user.until("response.done")
        assert await read_by_llm(server, 1) == ['["Monday 9:00"]', '{"error": "We are closed on Sundays."}']
        assert await tools_of(server, done) == [
            ("free_times", "server", "returned"),
            ("free_times", "server", "failed"),
        ]
    item = next(
        e["item"] for e in user.events if e["type"] == "conversation.item.done" and e["item"]["id"] == failed["item_id"]
    )
    assert item["error"] == {"type": "tool_execution_error", "message": '{"error": "We are closed on Sundays."}'}


@pytest.mark.parametrize(
    ("cue", "outcome", "why"),
    [
        (call("hangs"), "timed_out", "No result within 1 ms."),
        (call("raises"), "failed", "The function failed."),
        (call("exits"), "failed", "The function failed."),
        (call("interrupts"), "failed", "The function failed."),
        (call("cancels_itself"), "failed", "The function failed."),
        (call("book"), "failed", "Wrong arguments: Object missing required field `time`"),
    ],
)
async def test_a_call_without_a_result_costs_no_more_than_that(
    fake_server: Any, clinic: Clinic, cue: CallCue, outcome: str, why: str
) -> None:
    async with fake_server(agents=[clinic.agent]) as server, calling(server.url, session=TEXT) as user:
        answers(server, cue, then="I am sorry.")
        await prompt(user)
        await user.until("response.done")
        done = await user.until("response.done")
        assert done["response"]["output"][0]["content"][0]["text"] == "I am sorry."
        assert await read_by_llm(server, 1) == [json.dumps({"error": why})]
        assert await tools_of(server, done) == [(cue.name, "server", outcome)]


async def test_a_function_that_swallows_its_cancellation_is_closed(
    fake_server: Any, clinic: Clinic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within a grace beyond its time limit. Neither the call nor the end of the session waits for more."""
    monkeypatch.setattr("voicepipe.cancellation.GRACE_S", 0.001)
    async with fake_server(agents=[clinic.agent]) as server, calling(server.url, session=TEXT) as user:
        answers(server, call("clings"), then="I am sorry.")
        async with asyncio.timeout(WAIT_S):
            await prompt(user)
            await user.until("response.done")
            await user.until("response.done")
        assert await read_by_llm(server, 1) == [json.dumps({"error": "No result within 1 ms."})]
        assert clinic.closed.is_set()


async def test_a_result_that_is_no_unicode_text_harms_no_later_turn(fake_server: Any, clinic: Clinic) -> None:
    async with fake_server(agents=[clinic.agent]) as server, calling(server.url, session=TEXT) as user:
        answers(server, call("half_a_pair"))
        assert await user.prompt("hello") == "Done."
        assert await read_by_llm(server, 1) == ["cut \ufffd"]
        server.vendor.llm.cue(LlmCue(tokens=tokens("Fine.")))
        assert await user.prompt("And now?") == "Fine."


async def test_a_function_that_holds_the_event_loop_is_named(
    fake_server: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """In the log, while it holds it."""
    agent, is_logged = Agent(), threading.Event()

    class Noticed(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            if record.getMessage() == "event_loop_stalled" and "holds_the_loop" in str(record.fields):  # type: ignore[attr-defined]
                is_logged.set()
            return True

    @agent.tool(timeout_ms=60_000)
    async def holds_the_loop() -> str:
        """Block, as a driver that is not async does: again and again, since so many holds are logged in a time."""
        for _ in range(100):
            if is_logged.wait(0.3):
                break
            await asyncio.sleep(0.05)
        return str(is_logged.is_set())

    caplog.handler.addFilter(Noticed())
    async with fake_server(agents=[agent]) as server, calling(server.url, session=TEXT) as user:
        answers(server, call("holds_the_loop"))
        assert await user.prompt("hello") == "Done."
        assert await read_by_llm(server, 1) == ["True"]


async def test_a_result_is_bounded(fake_server: Any, clinic: Clinic) -> None:
    async with fake_server(agents=[clinic.agent]) as server, calling(server.url, session=TEXT) as user:
        answers(server, call("free_times", day="all"))
        await prompt(user)
        await user.until("response.done")
        await user.until("response.done")
        (result,) = await read_by_llm(server, 1)
    assert len(result) == MAX_RESULT_CHARS
    assert result.endswith(" [cut]")


async def test_the_same_side_effect_happens_once_in_a_turn(fake_server: Any, clinic: Clinic) -> None:
    """In one reply or in the next round; another turn may repeat it."""
    async with fake_server(agents=[clinic.agent]) as server, calling(server.url, session=TEXT) as user:
        book = call("book", "c1", time="9:00")
        server.vendor.llm.cue(
            LlmCue(calls=(book, call("book", "c2", time="9:00"))),
            LlmCue(calls=(call("book", "c3", time="9:00"), call("book", "c4", time="10:00"))),
            LlmCue(tokens=tokens("Done.")),
            LlmCue(calls=(call("book", "c5", time="9:00"),)),
            LlmCue(tokens=tokens("Again.")),
        )
        await prompt(user)
        for _ in range(3):
            await user.until("response.done")
        assert clinic.booked == ["9:00", "10:00"]
        await prompt(user)
        for _ in range(2):
            await user.until("response.done")
        assert clinic.booked == ["9:00", "10:00", "9:00"]


async def test_the_user_goes_on_while_a_function_runs(fake_server: Any, clinic: Clinic) -> None:
    """Another question is answered meanwhile. The result comes into the conversation when it comes, and is late."""
    async with fake_server(agents=[clinic.agent]) as server, calling(server.url, session=TEXT) as user:
        server.vendor.llm.cue(
            LlmCue(calls=(call("endures"),)), LlmCue(tokens=tokens("Fine.")), LlmCue(tokens=tokens("It is there."))
        )
        await prompt(user, "Look it up.")
        called = await user.until("response.done")
        async with asyncio.timeout(WAIT_S):
            await clinic.waiting.wait()
        await prompt(user, "How are you?")
        other = await user.until("response.done")
        assert other["response"]["output"][0]["content"][0]["text"] == "Fine."
        assert await read_by_llm(server, 1) == ["Still running. The result will follow."]
        clinic.release.set()
        late = await user.until("response.done")
        assert late["response"]["output"][0]["content"][0]["text"] == "It is there."
        assert await read_by_llm(server, 2) == ["Still running. The result will follow.", "released"]
        assert await tools_of(server, called) == [("endures", "server", "returned")]
    added = [
        e["item"] for e in user.events if e["type"] == "conversation.item.added" and e["item"]["type"] == "mcp_call"
    ]
    assert [item["output"] for item in added] == [None, "released"]


async def test_the_users_next_turn_cancels_what_may_be_cancelled(fake_server: Any, clinic: Clinic) -> None:
    async with fake_server(agents=[clinic.agent]) as server, calling(server.url, session=TEXT) as user:
        server.vendor.llm.cue(LlmCue(calls=(call("waits"),)), LlmCue(tokens=tokens("Fine.")))
        await prompt(user, "Look it up.")
        called = await user.until("response.done")
        async with asyncio.timeout(WAIT_S):
            await clinic.waiting.wait()
        await prompt(user, "Never mind.")
        await user.until("response.mcp_call.failed")
        await user.until("response.done")
        async with asyncio.timeout(WAIT_S):
            await clinic.cancelled.wait()
        assert await read_by_llm(server, 1) == ["Cancelled, since the user went on."]
        assert await tools_of(server, called) == [("waits", "server", "cancelled")]


async def test_a_user_who_hangs_up_stops_no_side_effect_halfway(fake_server: Any, clinic: Clinic) -> None:
    """What has begun is completed; what may be cancelled is cancelled."""
    async with fake_server(agents=[clinic.agent]) as server:
        async with calling(server.url, session=TEXT) as user:
            server.vendor.llm.cue(LlmCue(calls=(call("endures", "c1"), call("waits", "c2"))))
            await prompt(user)
            await user.until("response.done")
            async with asyncio.timeout(WAIT_S):
                await clinic.waiting.wait()
        async with asyncio.timeout(WAIT_S):
            await clinic.cancelled.wait()
            assert not clinic.completed.is_set()
            clinic.release.set()
            await clinic.completed.wait()


async def test_tools_of_the_client_stand_beside_them(fake_server: Any, clinic: Clinic) -> None:
    """The client requests the answer to its own; its names are its own."""
    mine = {"type": "function", "name": "beep", "parameters": {"type": "object", "properties": {}}}
    async with (
        fake_server(agents=[clinic.agent]) as server,
        calling(server.url, session=TEXT | {"tools": [mine]}) as user,
    ):
        answers(server, call("book", "c1", time="9:00"), call("beep", "c2"), then="Both.")
        await prompt(user)
        called = await user.until("response.done")
        assert [item["type"] for item in called["response"]["output"]] == ["mcp_call", "function_call"]
        await user.until("response.mcp_call.completed")
        item = {"type": "function_call_output", "call_id": "c2", "output": "beeped"}
        await user.send("conversation.item.create", item=item)
        await user.send("response.create")
        done = await user.until("response.done")
        assert done["response"]["output"][0]["content"][0]["text"] == "Both."
        assert sorted(await read_by_llm(server, 1)) == ["beeped", "booked 9:00"]
        assert await tools_of(server, done) == [("book", "server", "returned"), ("beep", "client", "returned")]
        same = {**mine, "name": "book"}
        await user.send("session.update", session={"type": "realtime", "tools": [same]})
        error = (await user.until("error"))["error"]
        assert error["param"] == "session.tools[0].name"


async def test_an_llm_that_calls_for_ever_must_answer(fake_server: Any, clinic: Clinic) -> None:
    async with fake_server(agents=[clinic.agent]) as server, calling(server.url, session=TEXT) as user:
        ids = (f"c{number}" for number in count())
        server.vendor.llm.usual = lambda question: LlmCue(calls=(call("free_times", next(ids), day="Monday"),))
        await prompt(user)
        last = (await server.vendor.llm.nth(MAX_ROUNDS)).question
        before = (await server.vendor.llm.nth(MAX_ROUNDS - 1)).question
    assert (before["tool_choice"], last["tool_choice"]) == ("auto", "none")


async def test_a_client_secret_does_not_show_results(fake_server: Any, clinic: Clinic) -> None:
    """A page may be anybody's."""
    async with fake_server(agents=[clinic.agent]) as server:
        async with aiohttp.ClientSession() as http, http.post(f"{server.url}/v1/realtime/client_secrets") as answer:
            headers = {"Authorization": f"Bearer {(await answer.json())['value']}"}
        async with calling(server.url, session=TEXT, headers=headers) as user:
            answers(server, call("book", time="9:00"))
            await prompt(user)
            await user.until("response.mcp_call.completed")
            item = (await user.until("conversation.item.done"))["item"]
            assert item["output"] == ""
            await user.until("response.done")
            await user.send("conversation.item.retrieve", item_id=item["id"])
            assert (await user.until("conversation.item.retrieved"))["item"]["output"] == ""
            assert await read_by_llm(server, 1) == ["booked 9:00"]
