"""The snapshot of a session, from which another process goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from voicepipe.errors import StoreUnavailable
from voicepipe.protocol.beta import BETA
from voicepipe.protocol.extensions import Resume
from voicepipe.protocol.outbound import EventRenderer
from voicepipe.protocol.session_config import SessionConfig
from voicepipe.session import snapshot_writer
from voicepipe.session.context import NextAgent
from voicepipe.session.pending_replies import takeover_events
from voicepipe.session.snapshot import (
    AgentChanged,
    ItemCodec,
    OpenReply,
    QueuedReply,
    SessionSnapshot,
    SettingsSent,
    VariablesSet,
    encoded_record,
    read_items,
    read_records,
)
from voicepipe.session.snapshot_restore import (
    IDS_LEFT_OUT,
    NO_RESULT,
    UNKNOWN_OUTCOME,
    continuation,
    restored,
)
from voicepipe.session.snapshot_writer import SnapshotWriter
from voicepipe.testing.records import turn_record
from voicepipe.testing.waiting import WAIT_S, eventually
from voicepipe.turn import commands as c
from voicepipe.turn import events as e
from voicepipe.turn import notifications as a
from voicepipe.turn.conversation import (
    ClauseSound,
    FunctionCall,
    FunctionOutput,
    InputAudio,
    InputImage,
    InputText,
    Item,
    ItemStatus,
    Message,
    OutputAudio,
    OutputText,
    ToolList,
    text_after,
)
from voicepipe.turn.core import Core
from voicepipe.turn.record.arm import NO_ARM, Arm
from voicepipe.turn.settings import CoreSettings, ReplySettings, ServerTool, Tool, TurnSettings
from voicepipe.values import replace

SPEECH = OutputAudio(
    "One two three. Four five six.",
    (ClauseSound("One two three.", 1_400, (0, 400, 800)), ClauseSound("Four five six.", 1_400, (0, 400, 800))),
)
SPOKEN = Message("i2", "assistant", (SPEECH,), "in_progress")

EVERY: list[Item] = [
    Message("i1", "user", (InputText("hi"), InputImage("data:image/png;base64,AAAA", "low", 26))),
    SPOKEN,
    Message("i3", "user", (InputAudio(None), InputAudio("sk-not-redacted-here password=x"))),
    Message("i4", "assistant", (OutputText("four"),), "incomplete", hidden_from_llm=True),
    FunctionCall("i5", "call_1", "add", '{"a": 1}', "completed", "server", "password=secret", True, True),
    FunctionOutput("i6", "call_1", "3"),
    ToolList("i7", "mcp", "[]"),
]


def state_of(items: list[Item], reply: OpenReply | None = None, **more: Any) -> SessionSnapshot:
    """A state as the other process reads it."""
    state = SessionSnapshot(items=ItemCodec().encoded(items), counts={"item": 7}, reply=reply, **more)
    return msgspec.json.decode(msgspec.json.encode(state), type=SessionSnapshot)


def reply(*, generated: bool = True, synthesized: bool = True, response: str = "") -> OpenReply:
    return OpenReply(item_id="i2", response_id=response, is_generated=generated, is_synthesized=synthesized)


def test_every_kind_of_item_comes_over_whole() -> None:
    """With images and with what looks like a secret: this is no log."""
    assert list(read_items(state_of(EVERY))) == EVERY


def test_an_item_is_encoded_again_only_when_it_has_changed() -> None:
    codec = ItemCodec()
    first, second = codec.encoded(EVERY), codec.encoded(EVERY)
    assert all(before is after for before, after in zip(first, second, strict=True))
    changed = codec.encoded([EVERY[0], Message("i2", "assistant", (OutputText("new"),))])
    assert changed[0] is first[0]
    assert changed[1] is not first[1]


def test_ids_are_not_given_twice() -> None:
    found = restored(state_of(EVERY))
    assert found.counts == (("item", 7 + IDS_LEFT_OUT),)
    assert found.skipped == IDS_LEFT_OUT


def test_an_item_of_a_newer_version_is_an_error() -> None:
    state = SessionSnapshot(items=(msgspec.Raw(b'{"is":"Hologram"}'),), counts={})
    with pytest.raises(ValueError, match="this version reads"):
        read_items(state)


@pytest.mark.parametrize(
    ("received_ms", "played", "rest"),
    [
        (0, "", "One two three. Four five six."),
        (500, "One two", "three. Four five six."),
        (1_400, "One two three.", "Four five six."),
        (1_900, "One two three. Four five", "six."),
    ],
)
def test_played_and_unplayed_words_are_all_words(received_ms: int, played: str, rest: str) -> None:
    found = continuation(reply(), restored(state_of([SPOKEN], reply())).items, received_ms)
    assert found is not None
    assert (found.played, found.rest, found.is_whole) == (played, rest, True)


@pytest.mark.parametrize(
    ("received_ms", "open_reply"),
    [(2_800, reply()), (None, reply()), (500, None)],
    ids=["all was played", "the client does not say", "no reply was open"],
)
def test_what_is_played_is_not_said_again(received_ms: int | None, open_reply: OpenReply | None) -> None:
    request = resume_with(received_item_id="i2", received_ms=received_ms)
    assert len(takeover_events(state_of([SPOKEN], open_reply), request, ReplySettings())) == 1


def test_a_clause_whose_audio_had_not_all_come_is_not_taken_for_played() -> None:
    """100 ms of it were known; the user has played 300 ms, which are its first words and not all of it."""
    late = OutputAudio("One two three four five six", (ClauseSound("One two three four five six", 100, (0,)),))
    state = state_of([Message("i2", "assistant", (late,))], reply(synthesized=False))
    found = continuation(reply(synthesized=False), restored(state).items, 300)
    assert found is not None
    assert (found.played, found.rest) == ("One two", "three four five six")


@pytest.mark.parametrize(
    ("state", "received_ms", "kinds"),
    [
        (state_of([SPOKEN], reply()), 500, [e.ItemTruncateRequested, e.ReplyRestored]),
        (state_of([SPOKEN], reply()), 0, [e.ItemDeleteRequested, e.ReplyRestored]),
        (state_of([SPOKEN], reply(generated=False)), 500, [e.ItemTruncateRequested, e.ReplyRestored]),
        (state_of([SPOKEN], reply(generated=False)), 0, [e.ItemDeleteRequested, e.ReplyRestored]),
        (state_of(EVERY, queued=(QueuedReply(),)), None, [e.ReplyRestored]),
        (state_of(EVERY), None, []),
    ],
)
def test_how_a_session_goes_on(state: SessionSnapshot, received_ms: int | None, kinds: list[type]) -> None:
    text = SnapshotWriter()
    config = SessionConfig.start(session_id="sess_1", model="m", voice="v", instructions="Be brief.", expires_at=0)
    request = Resume(session_id="s", secret="x", received_item_id="i2", received_ms=received_ms)
    text.restore(state, request, config, EventRenderer(config))
    events = text.events(ReplySettings(instructions="Be brief."), lambda raw: None)
    assert [type(each) for each in events] == [e.ConversationRestored, *kinds]
    if isinstance(events[-1], e.ReplyRestored):
        is_known = state.reply is not None and state.reply.is_generated
        assert bool(events[-1].words) is is_known
    if isinstance(events[-1], e.ReplyRestored) and not events[-1].words:
        cut = e.ItemTruncateRequested in kinds
        assert ("'One two'" in events[-1].reply.instructions) is events[-1].reply.may_be_empty is cut
        assert events[-1].reply.instructions.startswith("Be brief.")


async def test_a_store_that_fails_is_tried_again_and_the_latest_state_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    """What changed meanwhile is written once; then another process has the session, and nothing is written any more."""
    monkeypatch.setattr(snapshot_writer, "SHORT_PAUSE_S", 0)
    monkeypatch.setattr(snapshot_writer, "PAUSE_S", 0)
    monkeypatch.setattr(snapshot_writer, "RETRY_S", 0)
    text, written, moved = SnapshotWriter(), list[int](), asyncio.Event()

    async def keep(state: SessionSnapshot, digest: str, previous_digest: str) -> bool:
        written.append(state.counts["n"])
        if len(written) == 1:
            raise StoreUnavailable
        return len(written) < 3

    count = 0

    def snapshot() -> tuple[SessionSnapshot, str, str]:
        nonlocal count
        count += 1
        if count == 2:
            text.schedule()
        return SessionSnapshot(items=(), counts={"n": count}), "digest", ""

    text.store = keep
    for _ in range(5):
        text.schedule()
    async with asyncio.timeout(WAIT_S):
        await text.run(snapshot, moved.set)
    assert written == [1, 2, 3]
    assert moved.is_set()


def resume_with(**fields: Any) -> Resume:
    return Resume(session_id="s", secret="x", **fields)


@pytest.mark.parametrize(
    ("text", "received_ms", "played", "rest"),
    [
        ("One two three. Four", 3_000, "One two three. Four", "five six."),  # later than by the store's own times
        ("One", 900, "One", "two three. Four five six."),
        ("One two three. Four five six. Seven", 9_000, "One two three. Four five six. Seven", ""),
        ("Other words", 500, "One two", "three. Four five six."),  # of a TTS that times what it says
    ],
)
def test_the_words_that_a_client_names_are_the_played_ones(text: str, received_ms: int, played: str, rest: str) -> None:
    state = state_of([SPOKEN], reply(generated=False))
    request = resume_with(received_item_id="i2", received_ms=received_ms, received_text=text)
    conversation, cut, again = takeover_events(state, request, ReplySettings())
    assert isinstance(conversation, e.ConversationRestored)
    assert isinstance(cut, e.ItemTruncateRequested)
    assert isinstance(again, e.ReplyRestored)
    (item,) = conversation.items
    assert isinstance(item, Message)
    (speech,) = item.parts
    assert isinstance(speech, OutputAudio)
    assert speech.played_until(received_ms) == played
    assert text_after(speech.transcript, played) == rest
    assert repr(played) in again.reply.instructions


@pytest.mark.parametrize("received_ms", [2_800, None], ids=["audio", "text"])
def test_an_answer_that_a_client_has_whole_is_whole(received_ms: int | None) -> None:
    """The store had half of it, and its response was open: its words are in the history, and nothing follows."""
    text = "One two three. Four five six. Seven."
    state = state_of([SPOKEN], reply(generated=False, synthesized=False, response="r1"))
    request = resume_with(received_item_id="i2", received_ms=received_ms, received_text=text, received_done=True)
    (conversation,) = takeover_events(state, request, ReplySettings())
    assert isinstance(conversation, e.ConversationRestored)
    (item,) = conversation.items
    assert isinstance(item, Message)
    assert (item.text(), item.status) == (text, "completed")


@pytest.mark.parametrize(
    ("is_done", "kinds"), [(False, [e.ItemTruncateRequested, e.ReplyRestored]), (True, [])], ids=["begun", "whole"]
)
def test_an_answer_that_the_store_did_not_know_is_known_from_the_client(is_done: bool, kinds: list[type]) -> None:
    """It was due in the store, and had begun since."""
    question = Message("i1", "user", (InputText("hi"),))
    request = resume_with(received_item_id="i2", received_ms=400, received_text="One two", received_done=is_done)
    conversation, *rest = takeover_events(state_of([question], queued=(QueuedReply(),)), request, ReplySettings())
    assert isinstance(conversation, e.ConversationRestored)
    assert [item.id for item in conversation.items] == ["i1", "i2"]
    assert [type(event) for event in rest] == kinds


def test_an_item_of_an_earlier_answer_changes_nothing() -> None:
    """The client had no output of the answer that is due."""
    earlier = Message("i0", "assistant", (OutputText("Zero."),))
    request = resume_with(received_item_id="i0", received_text="Zero.", received_done=True)
    conversation, *rest = takeover_events(state_of([earlier], queued=(QueuedReply(),)), request, ReplySettings())
    assert isinstance(conversation, e.ConversationRestored)
    assert conversation.items == (earlier,)
    assert [type(event) for event in rest] == [e.ReplyRestored]


INPUT = (c.Notify(a.ItemAdded(EVERY[0], None)),)


class Store:
    """A store whose writes wait for `answer_now`, and fail while `fails`."""

    def __init__(self) -> None:
        self.n_begun, self.n_written, self.fails = 0, 0, False
        self.answer_now = asyncio.Event()
        self.answer_now.set()

    async def keep(self, state: SessionSnapshot, digest: str, previous_digest: str) -> bool:
        self.n_begun += 1
        await self.answer_now.wait()
        if self.fails:
            raise StoreUnavailable
        self.n_written += 1
        return True

    async def wrote(self, n: int) -> None:
        """Wait until so many writes are done."""
        await eventually(lambda: _is(self.n_written >= n))

    async def begins(self, n: int) -> None:
        """Wait until the write of that number begins."""
        await eventually(lambda: _is(self.n_begun >= n))


async def _is(found: bool) -> bool | None:
    return found or None


@asynccontextmanager
async def written(store: Store, *, can_resume: bool = True) -> AsyncIterator[SnapshotWriter]:
    """A session whose text is written, once so far."""
    text = SnapshotWriter()
    text.store = store.keep
    writing = asyncio.create_task(text.run(lambda: (state_of([]), "digest", "") if can_resume else None, lambda: None))
    text.schedule()
    await store.begins(int(can_resume))
    yield text
    writing.cancel()


async def test_output_waits_until_the_store_has_what_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when a write of an earlier state is on its way; a later change of the reply itself is not waited for."""
    monkeypatch.setattr(snapshot_writer, "MAX_WRITE_WAIT_S", 10 * WAIT_S)
    store = Store()
    async with written(store) as text, asyncio.timeout(WAIT_S):
        await store.wrote(1)
        assert text.pending_write() is None
        store.answer_now.clear()
        text.schedule()
        await store.begins(2)
        text.on_event(e.TimePassed(), INPUT)
        held = text.pending_write()
        assert held is not None
        waiting = asyncio.ensure_future(held)
        store.answer_now.set()
        await waiting
        assert store.n_begun == 3, "the write of the earlier state was enough"
        assert text.pending_write() is None
        text.on_event(e.TimePassed(), (c.Notify(a.ResponseStarted("r1", ReplySettings(), "t1")),))
        assert text.pending_write() is None


async def test_output_does_not_wait_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """One answer of a session, not each, waits in vain for a store that hangs."""
    monkeypatch.setattr(snapshot_writer, "MAX_WRITE_WAIT_S", 0)
    store = Store()
    async with written(store) as text, asyncio.timeout(WAIT_S):
        await store.wrote(1)
        store.answer_now.clear()
        text.on_event(e.TimePassed(), INPUT)
        held = text.pending_write()
        assert held is not None
        await held
        assert text.pending_write() is None
        text.on_event(e.TimePassed(), INPUT)
        assert text.pending_write() is None
        store.answer_now.set()
        await store.wrote(2)
        store.answer_now.clear()
        text.on_event(e.TimePassed(), INPUT)
        held = text.pending_write()
        assert held is not None, "the store works again"
        await held


async def test_a_secret_waits_longer_than_output(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a slow store: a client whose secret the store does not know loses its session with its node."""
    monkeypatch.setattr(snapshot_writer, "MAX_WRITE_WAIT_S", 0)
    monkeypatch.setattr(snapshot_writer, "MAX_SECRET_WAIT_S", 10 * WAIT_S)
    store = Store()
    async with written(store) as text, asyncio.timeout(WAIT_S):
        await store.wrote(1)
        store.answer_now.clear()
        text.write_secret()
        held = text.pending_write()
        assert held is not None
        waiting = asyncio.ensure_future(held)
        await store.begins(2)
        assert not waiting.done()
        store.answer_now.set()
        await waiting


@pytest.mark.parametrize("can_resume", [True, False])
async def test_output_waits_for_no_store_that_would_not_help(can_resume: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has refused the latest write, or the session can't be resumed."""
    monkeypatch.setattr(snapshot_writer, "RETRY_S", 10 * WAIT_S)
    store = Store()
    store.fails = True
    async with written(store, can_resume=can_resume) as text, asyncio.timeout(WAIT_S):
        await eventually(lambda: _is(not text._can_wait))
        text.on_event(e.TimePassed(), INPUT)
        assert text.pending_write() is None


async def test_the_first_output_of_a_session_waits_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store has nothing of the session yet: a node that takes it over would not know that a function runs."""
    monkeypatch.setattr(snapshot_writer, "MAX_WRITE_WAIT_S", 10 * WAIT_S)
    store = Store()
    store.answer_now.clear()
    async with written(store) as text, asyncio.timeout(WAIT_S):
        text.on_event(e.TimePassed(), INPUT)
        held = text.pending_write()
        assert held is not None
        store.answer_now.set()
        await held
        assert store.n_written == 2


async def test_a_write_that_fails_lets_the_output_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_writer, "MAX_WRITE_WAIT_S", 10 * WAIT_S)
    monkeypatch.setattr(snapshot_writer, "RETRY_S", 10 * WAIT_S)
    store = Store()
    async with written(store) as text, asyncio.timeout(WAIT_S):
        await store.wrote(1)
        store.fails = True
        text.on_event(e.TimePassed(), INPUT)
        held = text.pending_write()
        assert held is not None
        await held
        assert text.pending_write() is None


@pytest.mark.parametrize(
    ("item_id", "is_stored"),
    [
        ("item_x_0008", True),
        ("item_x_0007", False),
        ("item_x_1008", False),
        ("filler_x_0008", False),
        ("item_a", False),
    ],
)
def test_words_of_an_item_that_the_store_never_saw_are_in_the_history(item_id: str, is_stored: bool) -> None:
    """The store has 7 items and knows of no reply: what the client has received of the next one was said. An older
    item was deleted."""
    request = resume_with(received_item_id=item_id, received_ms=900, received_text="One two")
    conversation, *rest = takeover_events(state_of(EVERY[:1]), request, ReplySettings())
    assert isinstance(conversation, e.ConversationRestored)
    assert [item.id for item in conversation.items] == ["i1", *([item_id] if is_stored else [])]
    assert [type(each) for each in rest] == ([e.ItemTruncateRequested, e.ReplyRestored] if is_stored else [])


def no_agent(name: str) -> NextAgent | None:
    """No agent has that name."""


@pytest.mark.parametrize("hand_over", [None, no_agent])
def test_an_agent_that_this_node_lacks_is_refused_before_the_session_runs(hand_over: Any) -> None:
    config = SessionConfig.start(session_id="sess_1", model="m", voice="v", instructions="", expires_at=0)
    state = state_of([], changes=(AgentChanged("billing"),))
    with pytest.raises(ValueError, match="expected an agent that this server has, got 'billing'"):
        SnapshotWriter().restore(state, resume_with(), config, EventRenderer(config), hand_over)


def test_settings_are_made_again_in_their_order() -> None:
    """What the client has set before its call was handed over is the first agent's."""
    config = SessionConfig.start(
        session_id="sess_1", model="m", voice="v", instructions="For {{caller}}.", expires_at=0
    ).with_variables({"caller": "nobody"})

    def update(**fields: object) -> SettingsSent:
        return SettingsSent(msgspec.Raw(msgspec.json.encode({"type": "realtime", **fields})))

    def hand_over(name: str) -> NextAgent:
        config = SessionConfig.start(session_id="sess_1", model="m", voice=name, instructions="Bills.", expires_at=0)
        return NextAgent(name=name, config=config, stages=stages)

    stages: Any = None  # the session's own matter
    changes = (update(instructions="Be brief."), AgentChanged("billing"), update(audio={"output": {"speed": 1.5}}))
    text, wire = SnapshotWriter(), EventRenderer(config)
    after = text.restore(state_of([], changes=changes), resume_with(), config, wire, hand_over)
    assert (after.instructions, after.voice, after.speed) == ("Bills.", "billing", 1.5)
    assert text.agent is not None
    assert (text.agent.name, text.has_variables) == ("billing", False)
    after = text.restore(state_of([], changes=(VariablesSet({}),)), resume_with(), config, wire)
    assert text.has_variables


def test_items_that_cannot_be_read_are_refused_before_the_session_runs() -> None:
    config = SessionConfig.start(session_id="sess_1", model="m", voice="v", instructions="", expires_at=0)
    state = SessionSnapshot(items=(msgspec.Raw(b'{"is":"Hologram"}'),), counts={})
    with pytest.raises(ValueError, match="expected something that this version reads"):
        SnapshotWriter().restore(state, resume_with(), config, EventRenderer(config))


@pytest.mark.parametrize(
    ("tools", "output"),
    [
        ((), UNKNOWN_OUTCOME),
        ((ServerTool(tool=Tool("book", "", "{}"), label="server"),), UNKNOWN_OUTCOME),
        ((ServerTool(tool=Tool("book", "", "{}"), label="server", side_effects=False),), NO_RESULT),
    ],
    ids=["an unknown function", "with side effects", "without"],
)
@pytest.mark.parametrize("played_ms", [None, 0, 500])
@pytest.mark.parametrize("status", ["in_progress", "completed"])
def test_a_function_that_ran_is_not_run_again(
    tools: tuple[ServerTool, ...], output: str, played_ms: int | None, status: ItemStatus
) -> None:
    """The LLM learns what is known of it, and answers; finished results, and calls that the client runs, stay."""
    running = FunctionCall("i9", "call_9", "book", "{}", status, server_label="server")
    of_client, unapproved = (
        replace(running, id="i10", server_label=""),
        replace(running, id="i11", approval="awaited"),
    )
    begun = [] if played_ms is None else [SPOKEN]
    items: list[Item] = [EVERY[0], EVERY[4], *begun, running, of_client, unapproved]
    state = state_of(items, None if played_ms is None else reply())
    request = resume_with(received_item_id="i2", received_ms=played_ms)
    conversation, *cut, again = takeover_events(state, request, ReplySettings(server_tools=tools))
    assert isinstance(conversation, e.ConversationRestored)
    expected = replace(running, output=output, failed=True, status="completed")
    spoken = [] if played_ms is None else [replace(SPOKEN, status="incomplete")]
    assert list(conversation.items) == [EVERY[0], EVERY[4], *spoken, expected, of_client, unapproved]
    assert isinstance(again, e.ReplyRestored)
    assert len(cut) == len(begun)


async def test_a_function_runs_when_the_store_has_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another node that does not know of the call would have the LLM call again."""
    monkeypatch.setattr(snapshot_writer, "MAX_WRITE_WAIT_S", 10 * WAIT_S)
    store = Store()
    async with written(store) as text, asyncio.timeout(WAIT_S):
        await store.wrote(1)
        text.on_event(e.TimePassed(), (c.RunTool(1, "call_1", "book", "{}"),))
        held = text.pending_write()
        assert held is not None
        await held
        assert store.n_begun == 2


def test_a_session_that_no_node_shares_keeps_no_settings() -> None:
    """Its text grows with each update, so it is not collected for nothing."""
    text = SnapshotWriter()
    text.add_update({"instructions": "Be brief."})
    text.on_event(e.TimePassed(), INPUT)
    assert not text._changes
    assert not text._changed.is_set()


def test_the_settings_that_the_client_has_made_come_over() -> None:
    """In the dialect that the client speaks; and they are in the next text."""
    config = SessionConfig.start(session_id="sess_1", model="m", voice="v", instructions="", expires_at=0)
    update = {"type": "realtime", "instructions": "Be brief."}
    state = state_of([], changes=(SettingsSent(msgspec.Raw(msgspec.json.encode(update))),), generation=2)
    text, wire = SnapshotWriter(), EventRenderer(config, dialect=BETA)
    text.store = Store().keep
    after = text.restore(state, resume_with(), config, wire)
    assert after.instructions == "Be brief."
    text.add_update({"type": "realtime", "instructions": "Be long."})
    own = text.state(Core("sess_1", TurnSettings(), CoreSettings()), 700, 0)
    sent = [each.session for each in own.changes if isinstance(each, SettingsSent)]
    assert [msgspec.json.decode(raw)["instructions"] for raw in sent] == ["Be brief.", "Be long."]
    assert (own.generation, own.input_received_ms) == (3, 700)


@pytest.mark.parametrize(
    ("open_reply", "kinds"), [(reply(response="r1"), ["response.done"]), (reply(), []), (None, [])]
)
def test_a_response_that_was_open_is_ended(open_reply: OpenReply | None, kinds: list[str]) -> None:
    config = SessionConfig.start(session_id="sess_1", model="m", voice="v", instructions="", expires_at=0)
    text, wire = SnapshotWriter(), EventRenderer(config)
    assert text.end_of_response(wire, ReplySettings()) == []
    text.restore(state_of([SPOKEN], open_reply), resume_with(), config, wire)
    ends = [msgspec.json.decode(frame) for frame in text.end_of_response(wire, ReplySettings())]
    assert [event["type"] for event in ends] == kinds
    assert all(event["response"]["status"] == "cancelled" for event in ends)


async def test_it_is_noted_that_the_store_has_the_latest_text() -> None:
    """Not after the write of an earlier one."""
    store, n_noted = Store(), list[int]()
    store.answer_now.clear()
    async with written(store) as text, asyncio.timeout(WAIT_S):
        text.on_written = lambda: n_noted.append(store.n_begun)
        text.schedule()
        store.answer_now.set()
        await eventually(lambda: _is(bool(n_noted)))
    assert n_noted[0] == 2


def test_a_snapshot_of_an_older_version_has_its_queued_replies_and_can_be_read_there() -> None:
    """Nodes of two versions run at once while a cluster is upgraded, and sessions move both ways."""
    older = b'{"items":[],"counts":{},"owed":[{"response_id":"r1","later_items":["q2"]}]}'
    state = msgspec.json.decode(older, type=SessionSnapshot)
    assert state.queued == (QueuedReply(response_id="r1", later_items=("q2",)),)
    written = msgspec.json.decode(msgspec.json.encode(state))
    assert written["owed"] == [{"turn": None, "response_id": "r1", "later_items": ["q2"]}]


@pytest.mark.parametrize("arm", [NO_ARM, Arm("speed", "fast")])
def test_a_record_in_a_snapshot_moves_both_ways_between_two_versions(arm: Arm) -> None:
    """An older version writes and reads the arm of a turn as a text."""
    record = turn_record(arm=arm)
    written = encoded_record(record)
    assert msgspec.json.decode(written)["arm"] == {NO_ARM: "", Arm("speed", "fast"): "speed/fast"}[arm]
    assert list(read_records((written,))) == [record]
