"""Two real server processes that share a Redis: what a client has when its node is killed (kill -9)."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from tests.wiring.test_serve import config_file, lines_until
from voicepipe.cluster.redis import open_redis
from voicepipe.cluster.snapshot_quorum import SnapshotQuorum
from voicepipe.session.snapshot import LEFT
from voicepipe.session.snapshot_restore import UNKNOWN_OUTCOME
from voicepipe.telemetry.store.port import TurnQuery
from voicepipe.telemetry.store.sqlite import SqliteTurnStore
from voicepipe.testing.fakes.cues import CallCue, Hold, LlmCue
from voicepipe.testing.fakes.vendor import FakeVendor
from voicepipe.testing.reconnecting_user import ReconnectingUser
from voicepipe.testing.redis import RedisServer, redis_server
from voicepipe.testing.user import User
from voicepipe.testing.waiting import WAIT_S, eventually

pytestmark = pytest.mark.slow

ANSWER = "The ship leaves at noon, and the last train to the harbour goes an hour before that."


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    """A server that runs."""
    with redis_server() as server:
        yield server


@dataclass
class Node:
    """A server process."""

    process: asyncio.subprocess.Process
    url: str
    name: str

    async def kill(self) -> None:
        """Kill it as the kernel would (SIGKILL)."""
        self.process.kill()
        await self.process.wait()

    @property
    def sessions_url(self) -> str:
        """Return where it lists its own open sessions."""
        return f"{self.url}/v1/sessions?live=true&node={self.name}"

    async def n_sessions(self) -> int:
        """Return how many sessions it has."""
        async with aiohttp.ClientSession() as http, http.get(self.sessions_url) as answer:
            return len((await answer.json())["data"])


@dataclass
class Nodes:
    """The nodes, their vendor, and the store as a test reads it."""

    one: Node
    other: Node
    vendor: FakeVendor
    store: Any

    async def _stored(self, session_id: str) -> bytes | None:
        assert isinstance(self.store.snapshots, SnapshotQuorum)
        calls = self.store.snapshots._servers[0].calls
        found: bytes | None = await calls.command("HGET", f"{calls._prefix}snapshot:{session_id}", "snapshot")
        return found

    async def until_written(self, session_id: str, words: str | re.Pattern[str]) -> dict[str, Any]:
        """Wait until the store has a snapshot of the session with these words, and return the snapshot."""
        pattern = re.escape(words) if isinstance(words, str) else words

        async def read() -> dict[str, Any] | None:
            raw = await self._stored(session_id)
            return json.loads(raw)["snapshot"] if raw and re.search(pattern, raw.decode()) else None

        return await eventually(read)

    async def until_answered(self, session_id: str, n_answers: int) -> None:
        """Wait until the store has the ends of so many answers: without them a node says the last one again."""

        async def read() -> bool | None:
            raw = await self._stored(session_id)
            snapshot = json.loads(raw)["snapshot"] if raw else {"items": []}
            answers = [item for item in snapshot["items"] if item.get("role") == "assistant"]
            return (len(answers) == n_answers and snapshot.get("reply") is None) or None

        await eventually(read)


@asynccontextmanager
async def nodes(
    folder: Path,
    redis: RedisServer,
    *,
    snapshot_stores: Sequence[RedisServer] = (),
    drain_ms: int = 0,
    agent: str = "",
    program: tuple[str, ...] = (),
) -> AsyncIterator[Nodes]:
    """`agent`: more settings of its section, and the sections behind it. `program`: the file with agents in Python."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("VOICEPIPE_")}
    env |= {"VOICEPIPE_CLUSTER__STORE": redis.url, "VOICEPIPE_CLUSTER__NAME": folder.name}
    urls = [store.url for store in snapshot_stores]
    if urls:
        env["VOICEPIPE_CLUSTER__SNAPSHOT_STORES"] = ",".join(urls)
    async with AsyncExitStack() as stack:
        vendor = await stack.enter_async_context(FakeVendor())
        found = []
        for name in ("one", "other"):
            (folder / name).mkdir()
            path = config_file(folder / name, vendor, limits=f"drain_ms = {drain_ms}")
            path.write_text(path.read_text() + agent)
            found.append(await _started(stack, path, env, name, program))
        store = await stack.enter_async_context(
            open_redis(redis.url, folder.name, snapshot_urls=urls, answer_ms=10_000)
        )
        one, other = found
        yield Nodes(one, other, vendor, store)


async def _started(
    stack: AsyncExitStack, path: Path, env: Mapping[str, str], name: str, program: tuple[str, ...]
) -> Node:
    command = (
        sys.executable,
        "-m",
        "voicepipe",
        "serve",
        *program,
        "--config",
        str(path),
        "--set",
        f"cluster.node={name}",
    )
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, env=env)
    stack.push_async_callback(_ended, process)
    said = await lines_until(process, "Ctrl-C")
    return Node(process, said[0].rpartition(" ")[2], name)


async def _ended(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()
    await process.communicate()


@asynccontextmanager
async def talking(node: Node, *, modality: str = "text", **session: object) -> AsyncIterator[ReconnectingUser]:
    """Open a session that can be resumed."""
    async with aiohttp.ClientSession() as http:
        line = await http.ws_connect(f"{node.url}/v1/realtime", max_msg_size=0)
        user = ReconnectingUser(http, node.url, line)
        await user.until("session.created")
        update = {"type": "realtime", "output_modalities": [modality], **session}
        update |= {"providerData": {"voicepipe": {"resume": True}}}
        await user.send("session.update", session=update)
        await user.until("session.updated")
        yield user
        for each in user.lines:
            await each.close()


def read_by_llm(vendor: FakeVendor) -> list[tuple[str, str]]:
    """Return role and words of what the LLM read last."""
    return [(each["role"], each["content"]) for each in vendor.llm.received[-1].question["messages"]]


async def test_the_whole_conversation_comes_over(tmp_path: Path, redis: RedisServer) -> None:
    """Its items in their order, the client's settings; and the client goes on."""
    async with nodes(tmp_path, redis) as cluster, talking(cluster.one, instructions="Speak of ships.") as user:
        for number in (1, 2):
            cluster.vendor.llm.cue(LlmCue(tokens=(f"Answer {number}.",)))
            assert await user.prompt(f"Question {number}?") == f"Answer {number}."
        await cluster.until_answered(user.session_id, 2)
        await cluster.one.kill()
        resumed = await user.resume_at(cluster.other.url)
        assert (resumed["type"], resumed["moved"], resumed["session_id"]) == (
            "voicepipe.resumed",
            True,
            user.session_id,
        )
        cluster.vendor.llm.cue(LlmCue(tokens=("Answer 3.",)))
        assert await user.prompt("Question 3?") == "Answer 3."
    assert read_by_llm(cluster.vendor) == [
        ("system", "Speak of ships."),
        ("user", "Question 1?"),
        ("assistant", "Answer 1."),
        ("user", "Question 2?"),
        ("assistant", "Answer 2."),
        ("user", "Question 3?"),
    ]


OFFICE = """
from pathlib import Path
from voicepipe.agents import Agent

front = Agent("You are the front for {{caller}}.", hand_over=["billing"], variables={"caller": "nobody"})
billing = Agent("You do the bills of {{caller}}.", name="billing", variables={"caller": "nobody"})


@front.on("session_started")
async def find_caller(session):
    with Path(__file__).with_name("started").open("a") as file:
        file.write("x")
    return {"caller": "Ada"}
"""


@pytest.mark.parametrize("hands_over", [True, False])
async def test_the_agent_and_the_variables_of_its_hook_come_over(
    tmp_path: Path, redis: RedisServer, hands_over: bool
) -> None:
    """To whom the call was handed over goes on with it, and its records say so. The hook runs once a session."""
    program = tmp_path / "office.py"
    program.write_text(OFFICE)
    agent, instructions = (
        ("billing", "You do the bills of Ada.") if hands_over else ("default", "You are the front for Ada.")
    )
    async with nodes(tmp_path, redis, program=(str(program),)) as cluster, talking(cluster.one) as user:
        call = CallCue("hand_over", ('{"agent": "billing"}',))
        cluster.vendor.llm.usual = LlmCue(tokens=("Yes.",))
        if hands_over:
            cluster.vendor.llm.cue(LlmCue(calls=(call,), finish="tool_calls"))
        assert await user.prompt("Hello?") == "Yes."
        await cluster.until_answered(user.session_id, 1)
        await cluster.one.kill()
        assert (await user.resume_at(cluster.other.url))["type"] == "voicepipe.resumed"
        assert await user.prompt("And now?") == "Yes."
        assert read_by_llm(cluster.vendor)[0] == ("system", instructions)

        async def second_turn() -> dict[str, Any] | None:
            """Return the newest record; None: that of the second turn is not stored yet."""
            turns = await closed_turns(cluster.other.url, user.session_id)
            return turns[0] if turns is not None and len(turns) == 2 else None

        newest = await eventually(second_turn)
    assert newest["agent"] == agent
    assert (tmp_path / "started").read_text() == "x"


async def test_a_node_that_is_taken_over_can_be_resumed_from(tmp_path: Path, redis: RedisServer) -> None:
    """On its own, after the socket broke: with the secret that it gave."""
    async with nodes(tmp_path, redis) as cluster, talking(cluster.one) as user:
        await user.prompt("Question 1?")
        await cluster.until_answered(user.session_id, 1)
        await cluster.one.kill()
        await user.resume_at(cluster.other.url)
        await user.prompt("Question 2?")
        await user.break_connection()
        await user.resume()
        await user.prompt("Question 3?")
    assert [words for role, words in read_by_llm(cluster.vendor) if role == "user"] == [
        f"Question {number}?" for number in (1, 2, 3)
    ]


async def test_what_was_not_played_is_said_again_and_no_more(tmp_path: Path, redis: RedisServer) -> None:
    """The client names the last sound that it received: played words and the words of the new response are the answer,
    each once."""
    async with nodes(tmp_path, redis) as cluster, talking(cluster.one, modality="audio") as user:
        cluster.vendor.llm.cue(LlmCue(tokens=tuple(f"{word} " for word in ANSWER.split())))
        await user.prompt("When does it leave?")
        item_id = next(e["item"]["id"] for e in user.events if e["type"] == "response.output_item.done")
        snapshot = await cluster.until_written(user.session_id, '"is_synthesized":true')
        assert snapshot["reply"]["item_id"] == item_id
        await cluster.one.kill()
        await user.resume_at(cluster.other.url, received_item_id=item_id, received_ms=1_000)
        cut = await user.until("conversation.item.truncated")
        rest = await user.answer()
        await user.send("conversation.item.retrieve", item_id=item_id)
        played = (await user.until("conversation.item.retrieved"))["item"]["content"][0]["transcript"]
    assert (cut["item_id"], cut["audio_end_ms"]) == (item_id, 1_000)
    assert played
    assert rest
    assert f"{played} {rest}".split() == ANSWER.split()
    assert len(cluster.vendor.llm.received) == 1, "the LLM was asked again for words that were known"


async def test_a_reply_that_was_played_to_its_end_is_not_repeated(tmp_path: Path, redis: RedisServer) -> None:
    async with nodes(tmp_path, redis) as cluster, talking(cluster.one, modality="audio") as user:
        cluster.vendor.llm.cue(LlmCue(tokens=("It leaves at noon.",)))
        await user.prompt("When does it leave?")
        item_id = next(e["item"]["id"] for e in user.events if e["type"] == "response.output_item.done")
        await cluster.until_written(user.session_id, '"is_synthesized":true')
        await cluster.one.kill()
        await user.resume_at(cluster.other.url, received_item_id=item_id, received_ms=60_000)
        cluster.vendor.llm.cue(LlmCue(tokens=("Yes.",)))
        assert await user.prompt("Sure?") == "Yes."
    assert [words for role, words in read_by_llm(cluster.vendor) if role == "assistant"] == ["It leaves at noon."]


@pytest.mark.parametrize("received_ms", [60_000, 1_000], ids=["all was heard", "the rest is said"])
async def test_a_turn_whose_node_dies_has_one_record_at_the_other(
    tmp_path: Path, redis: RedisServer, received_ms: int
) -> None:
    """Under the id that its client knows, with the question and all words of the answer."""
    async with nodes(tmp_path, redis) as cluster, talking(cluster.one, modality="audio") as user:
        cluster.vendor.llm.cue(LlmCue(tokens=tuple(f"{word} " for word in ANSWER.split())))
        await user.prompt("When does it leave?")
        item_id = next(e["item"]["id"] for e in user.events if e["type"] == "response.output_item.done")
        snapshot = await cluster.until_written(user.session_id, '"is_synthesized":true')
        await cluster.one.kill()
        await user.resume_at(cluster.other.url, received_item_id=item_id, received_ms=received_ms)
        if received_ms < 60_000:
            await user.answer()
        await user.line.close()
        records = await eventually(lambda: closed_turns(cluster.other.url, user.session_id))
    (record,) = records
    assert record["id"] == snapshot["turn"]["id"]
    assert (record["cause"], record["user_text"]) == ("create", "When does it leave?")
    assert record["agent_text"].split() == ANSWER.split()


async def test_a_turn_whose_client_does_not_come_back_is_recorded_as_over_by_another_node(
    tmp_path: Path, redis: RedisServer
) -> None:
    """As its node left it: half an answer. Its snapshot is then deleted."""
    async with nodes(tmp_path, redis) as cluster, talking(cluster.one) as user:
        cluster.vendor.llm.cue(LlmCue(tokens=("It ", "leaves ", "at ", "noon."), hold=Hold(after=2)))
        content = [{"type": "input_text", "text": "When does it leave?"}]
        await user.send("conversation.item.create", item={"type": "message", "role": "user", "content": content})
        await user.send("response.create")
        await user.until("response.output_text.delta")
        snapshot = await cluster.until_written(user.session_id, r'"role":"assistant"')
        await cluster.one.kill()
        await cluster.store._calls.command("EXPIRE", f"{cluster.store._prefix}snapshot:{user.session_id}", 30)
        await cluster.store._calls.command("ZINCRBY", f"{cluster.store._prefix}snapshots", -90, user.session_id)
        (record,) = await eventually(lambda: closed_turns(cluster.other.url, user.session_id))

        async def gone() -> bool | None:
            return not await cluster.store.snapshots.has_snapshot(user.session_id) or None

        await eventually(gone)
    assert (record["id"], record["reason"]) == (snapshot["turn"]["id"], LEFT)
    assert (record["user_text"], record["outcome"]) == ("When does it leave?", "interrupted")
    assert "noon." not in record["agent_text"]


async def closed_turns(url: str, session_id: str) -> list[dict[str, Any]] | None:
    """Return the records of a session's turns that are over; None while there are none."""
    async with aiohttp.ClientSession() as http, http.get(f"{url}/v1/turns?session={session_id}") as answer:
        found = (await answer.json())["data"]
    return found if found and all(each["outcome"] for each in found) else None


async def test_an_open_llm_call_begins_again(tmp_path: Path, redis: RedisServer) -> None:
    """The client gets the end of the response that was open, and the whole answer in another one."""
    hold = Hold(after=2)
    async with nodes(tmp_path, redis) as cluster, talking(cluster.one) as user:
        cluster.vendor.llm.cue(LlmCue(tokens=("It ", "leaves ", "at ", "noon."), hold=hold))
        content = [{"type": "input_text", "text": "When does it leave?"}]
        await user.send("conversation.item.create", item={"type": "message", "role": "user", "content": content})
        await user.send("response.create")
        begun = (await user.until("response.created"))["response"]["id"]
        await cluster.until_written(user.session_id, begun)
        await cluster.one.kill()
        hold.release.set()
        cluster.vendor.llm.cue(LlmCue(tokens=("It ", "leaves ", "at ", "noon.")))
        await user.resume_at(cluster.other.url)
        ended = (await user.until("response.done"))["response"]
        assert (ended["id"], ended["status"]) == (begun, "cancelled")
        assert await user.answer() == "It leaves at noon."
    assert [role for role, _ in read_by_llm(cluster.vendor)] == ["system", "user"], "half an answer is in the history"


@pytest.mark.parametrize("rest", ["Go on.", "."], ids=["words", "a full stop"])
async def test_an_llm_call_that_was_played_in_part_goes_on_behind_the_played_words(
    tmp_path: Path, redis: RedisServer, rest: str
) -> None:
    """The history has the played words, and the LLM reads that it shall go on behind them. It may have no more to say:
    then nothing failed, and nobody apologises."""
    words = ANSWER.split()
    hold = Hold(after=len(words) - 2)
    async with nodes(tmp_path, redis) as cluster, talking(cluster.one, modality="audio") as user:
        cluster.vendor.llm.cue(LlmCue(tokens=tuple(f"{word} " for word in words), hold=hold))
        content = [{"type": "input_text", "text": "When does it leave?"}]
        await user.send("conversation.item.create", item={"type": "message", "role": "user", "content": content})
        await user.send("response.create")
        item_id = (await user.until("response.output_item.added"))["item"]["id"]
        await user.until("response.output_audio.delta")
        await cluster.until_written(user.session_id, re.compile(r'"sound_ms":[1-9]'))
        await cluster.one.kill()
        hold.release.set()
        cluster.vendor.llm.cue(LlmCue(tokens=(rest,)))
        await user.resume_at(cluster.other.url, received_item_id=item_id, received_ms=700)
        await user.until("conversation.item.truncated")
        ended = await user.until("response.done", lambda event: event["response"]["status"] != "cancelled")
        assert ended["response"]["status"] == "completed"
    *_, (role, played) = read_by_llm(cluster.vendor)
    assert role == "assistant"
    assert played.split() == words[: len(played.split())]
    assert 0 < len(played.split()) < len(words) - 2
    assert repr(played) in read_by_llm(cluster.vendor)[0][1]


@asynccontextmanager
async def hanging_backend() -> AsyncIterator[tuple[str, asyncio.Queue[str]]]:
    """A service that takes each call and never answers; yields its address, and the paths of the calls."""
    calls: asyncio.Queue[str] = asyncio.Queue()
    is_over = asyncio.Event()

    async def take(request: web.Request) -> web.Response:
        calls.put_nowait(request.path)
        await is_over.wait()
        return web.Response()

    app = web.Application()
    app.router.add_post("/book", take)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}", calls
    finally:
        is_over.set()
        await runner.cleanup()


async def test_a_function_with_side_effects_is_called_once(tmp_path: Path, redis: RedisServer) -> None:
    """It runs when its node dies: the other node does not call it, and the LLM reads that its outcome is not known."""
    async with hanging_backend() as (url, calls):
        agent = f'tools = ["book"]\n[tools.book]\nurl = "{url}/book"\ndescription = "Book a seat."\n'
        async with nodes(tmp_path, redis, agent=agent) as cluster, talking(cluster.one) as user:
            cluster.vendor.llm.cue(LlmCue(calls=(CallCue("book", ("{}",)),)))
            content = [{"type": "input_text", "text": "Book a seat."}]
            await user.send("conversation.item.create", item={"type": "message", "role": "user", "content": content})
            await user.send("response.create")
            async with asyncio.timeout(WAIT_S):
                assert await calls.get() == "/book"
            await cluster.one.kill()
            cluster.vendor.llm.cue(LlmCue(tokens=("I ", "will ", "check.")))
            resumed = await user.resume_at(cluster.other.url)
            assert resumed["answer_follows"] is True
            # The response that called the function ends first, if the store knew it: it has no words.
            assert (await user.answer() or await user.answer()) == "I will check."
        assert calls.empty()
        (result,) = (each for each in cluster.vendor.llm.received[-1].question["messages"] if each["role"] == "tool")
        assert result["content"] == UNKNOWN_OUTCOME


async def test_a_node_that_is_stopped_has_its_clients_move(tmp_path: Path, redis: RedisServer) -> None:
    """SIGTERM: the client moves once the store has the latest snapshot; the node ends as
    soon as nobody is left, however long it may drain."""
    async with nodes(tmp_path, redis, drain_ms=600_000) as cluster, talking(cluster.one) as user:
        await user.prompt("Question 1?")
        cluster.one.process.terminate()
        notice = await user.until("voicepipe.going_away")
        assert 0 < notice["within_ms"] <= 600_000
        assert (await user.resume_at(cluster.other.url))["moved"] is True
        async with asyncio.timeout(WAIT_S):
            await cluster.one.process.wait()
        await user.prompt("Question 2?")
    assert [words for role, words in read_by_llm(cluster.vendor) if role == "user"] == ["Question 1?", "Question 2?"]


async def test_a_turn_ends_at_the_node_that_stops(tmp_path: Path, redis: RedisServer) -> None:
    """Its client is asked to move behind the answer."""
    hold = Hold(after=2)
    async with nodes(tmp_path, redis, drain_ms=600_000) as cluster, talking(cluster.one) as user:
        cluster.vendor.llm.cue(LlmCue(tokens=("It ", "leaves ", "at ", "noon."), hold=hold))
        content = [{"type": "input_text", "text": "When does it leave?"}]
        await user.send("conversation.item.create", item={"type": "message", "role": "user", "content": content})
        await user.send("response.create")
        await user.until("response.output_text.delta")
        cluster.one.process.terminate()
        await eventually(lambda: refuses(cluster.one))
        hold.release.set()
        assert await user.answer() == "It leaves at noon."
        await user.until("voicepipe.going_away")
        assert "voicepipe.going_away" not in user.kinds()[: user.kinds().index("response.done")]
        assert (await user.resume_at(cluster.other.url))["moved"] is True


async def test_a_turn_that_lasts_too_long_goes_on_elsewhere(tmp_path: Path, redis: RedisServer) -> None:
    """In the second half of the drain the client is asked in the middle of a turn; one that does not obey is closed
    with a code of its own."""
    async with nodes(tmp_path, redis, drain_ms=200) as cluster, talking(cluster.one) as user:
        cluster.vendor.llm.cue(LlmCue(tokens=("It ", "leaves ", "at ", "noon."), hold=Hold(after=2)))
        content = [{"type": "input_text", "text": "When does it leave?"}]
        await user.send("conversation.item.create", item={"type": "message", "role": "user", "content": content})
        await user.send("response.create")
        await user.until("response.output_text.delta")
        cluster.one.process.terminate()
        await user.until("voicepipe.going_away")
        stopping = await user.until("error")
        with pytest.raises(ConnectionError):
            await user.next()
        assert (stopping["error"]["code"], user.close_code) == ("server_stopping", 1012)
        cluster.vendor.llm.cue(LlmCue(tokens=("It ", "leaves ", "at ", "noon.")))
        assert (await user.resume_at(cluster.other.url))["moved"] is True
        await user.until("response.done", lambda event: event["response"]["status"] == "cancelled")
        assert await user.answer() == "It leaves at noon."


async def test_a_client_that_cannot_move_learns_why_it_is_closed(tmp_path: Path, redis: RedisServer) -> None:
    async with nodes(tmp_path, redis, drain_ms=100) as cluster, aiohttp.ClientSession() as http:
        user = User(await http.ws_connect(f"{cluster.one.url}/v1/realtime", max_msg_size=0))
        await user.until("session.created")
        cluster.one.process.terminate()
        stopping = await user.until("error")
        with pytest.raises(ConnectionError):
            await user.next()
    assert (stopping["error"]["code"], user.close_code) == ("server_stopping", 1001)


async def refuses(node: Node) -> bool | None:
    """Return whether it accepts no connection."""
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", int(node.url.rpartition(":")[2]))
    except ConnectionRefusedError:
        return True
    writer.close()
    return None


async def test_a_session_is_at_one_node_only(tmp_path: Path, redis: RedisServer) -> None:
    """A client that resumes at another node although its own lives: that one ends the session there. A secret is good
    once."""
    async with nodes(tmp_path, redis) as cluster, talking(cluster.one) as user:
        await user.prompt("Question 1?")
        await cluster.until_answered(user.session_id, 1)
        await user.break_connection()
        used = user.secret
        await user.resume_at(cluster.other.url)
        await user.prompt("Question 2?")

        async def moved() -> bool | None:
            return [await cluster.one.n_sessions(), await cluster.other.n_sessions()] == [0, 1] or None

        await eventually(moved)
        again = await user.request_resume(used, None)
        assert again["error"]["code"] == "resume_refused"


async def test_a_wrong_secret_takes_nothing(tmp_path: Path, redis: RedisServer) -> None:
    """The session stays where it is, and its own client can resume it."""
    async with nodes(tmp_path, redis) as cluster, talking(cluster.one) as user:
        await user.prompt("Question 1?")
        await cluster.until_answered(user.session_id, 1)
        right, user.secret = user.secret, "wrong"
        refused = await user.resume_at(cluster.other.url)
        assert refused["error"]["code"] == "resume_refused"
        user.secret = right
        assert (await user.resume_at(cluster.one.url)).get("moved") is False
        async with asyncio.timeout(WAIT_S):
            await user.prompt("Question 2?")


async def test_a_session_that_has_ended_leaves_no_snapshot(tmp_path: Path, redis: RedisServer) -> None:
    async with nodes(tmp_path, redis) as cluster:
        async with talking(cluster.one) as user:
            await user.prompt("Question 1?")
            await cluster.until_answered(user.session_id, 1)

        async def gone() -> bool | None:
            return not await cluster.store.snapshots.has_snapshot(user.session_id) or None

        await eventually(gone)


async def test_a_node_that_is_killed_when_a_session_is_closed_has_stored_its_record(
    tmp_path: Path, redis: RedisServer
) -> None:
    """The turn was cut by the end of the session. The node is killed when its client has the answer to its close."""
    async with nodes(tmp_path, redis) as cluster:
        async with talking(cluster.one) as user:
            cluster.vendor.llm.cue(LlmCue(tokens=("It ", "leaves."), hold=Hold(after=1)))
            content = [{"type": "input_text", "text": "When does it leave?"}]
            await user.send("conversation.item.create", item={"type": "message", "role": "user", "content": content})
            await user.send("response.create")
            await user.until("response.output_text.delta")
            await cluster.until_written(user.session_id, "When does it leave?")
        await cluster.one.kill()
    store = await SqliteTurnStore.open(tmp_path / "one" / "data" / "turns.sqlite3")
    try:
        turns = (await store.list(None, TurnQuery(session=user.session_id))).turns
    finally:
        await store.close()
    assert [(each.record.user_text, each.record.outcome) for each in turns] == [("When does it leave?", "abandoned")]
