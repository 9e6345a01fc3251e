"""Whatever a client sends, in whatever order: no crash, no hang, every response ends, and the items match the events.

A real session, its stages in the process; lines of a script, with pauses between them in which the session gets on.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from voicepipe.audio.files import read_sound
from voicepipe.clock import unix_s
from voicepipe.protocol.session_config import SessionConfig
from voicepipe.protocol.session_types import ServerVad
from voicepipe.session.grant import SessionGrant
from voicepipe.session.ports import SessionObserver, SessionPorts
from voicepipe.session.session import Session, SessionStages
from voicepipe.session.shutdown import NORMAL
from voicepipe.testing.fakes.cues import CallCue, Cut, LlmCue, Status, SttCue, TtsCue, tokens
from voicepipe.testing.fakes.ports import FakeModel, FakeSynthesizer, FakeTranscriber
from voicepipe.testing.recording import RecordedConnections
from voicepipe.testing.waiting import WAIT_S
from voicepipe.turn.commands import ReportStrategyFailure, ReportStuck
from voicepipe.turn.settings import CoreSettings

Event = dict[str, Any]

AGENT = "$agent"
"""In a script: the latest item of the agent."""

AFTER = "$after"
"""In a script: the next line is sent once an event of this type has come."""

CLIP = Path(__file__).parents[1] / "data" / "clean" / "cv_22058264.flac"
SPEECH = read_sound(CLIP, 24_000)[: 13 * 2_400].tobytes()
SILENCE = bytes(24_000)

# --- what is sent -----------------------------------------------------------------------------

ids = st.sampled_from(["a", "b", "c", AGENT, "nobody"])
modes = st.sampled_from(["audio", "text"])
tools = [{"type": "function", "name": "look", "parameters": {"type": "object"}}]


def event(kind: str, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Event]:
    """An event with a value drawn for each field."""
    return st.fixed_dictionaries({"type": st.just(kind), "event_id": st.just("mine"), **fields})


def audio(pcm: bytes) -> st.SearchStrategy[str]:
    return st.just(base64.b64encode(pcm).decode())


texts = st.sampled_from(["hello", "", "and then?"])
parts = st.one_of(
    st.fixed_dictionaries({"type": st.just("input_text"), "text": texts}),
    st.fixed_dictionaries({"type": st.just("input_audio"), "audio": st.just("AAAA")}),
    st.fixed_dictionaries({"type": st.just("song")}),
)
items = st.one_of(
    st.fixed_dictionaries(
        {
            "type": st.just("message"),
            "role": st.sampled_from(["user", "assistant", "system"]),
            "content": st.lists(parts, max_size=2),
        },
        optional={"id": ids},
    ),
    st.fixed_dictionaries({"type": st.just("function_call_output"), "call_id": ids, "output": texts}),
    st.fixed_dictionaries({"type": st.just("what")}),
)
detections = st.sampled_from(
    [
        None,
        False,
        {"type": "server_vad", "silence_duration_ms": 100},
        {"type": "server_vad", "create_response": False},
        {"type": "server_vad", "interrupt_response": False},
        {"type": "semantic_vad", "eagerness": "high"},
        {"type": "psychic"},
    ]
)
sessions = st.one_of(
    st.fixed_dictionaries(
        {"audio": st.fixed_dictionaries({"input": st.fixed_dictionaries({"turn_detection": detections})})}
    ),
    st.fixed_dictionaries({"output_modalities": st.lists(modes, min_size=1, max_size=1)}),
    st.fixed_dictionaries({"tools": st.sampled_from([[], tools, 7])}),
    st.sampled_from([{"audio": {"output": {"format": {"type": name}}}} for name in ("audio/pcm", "audio/pcmu")]),
    st.sampled_from([{"audio": {"input": {"format": {"type": name}}}} for name in ("audio/pcm", "audio/pcma")]),
    st.sampled_from([{"type": "transcription"}, {"type": "realtime"}, {"modalities": ["text"]}]),
)
replies = st.fixed_dictionaries(
    {},
    optional={
        "conversation": st.sampled_from(["none", "auto"]),
        "output_modalities": st.lists(modes, min_size=1, max_size=1),
        "input": st.lists(
            st.one_of(items, st.fixed_dictionaries({"type": st.just("item_reference"), "id": ids})), max_size=2
        ),
        "max_output_tokens": st.sampled_from([1, "inf", -1]),
        "metadata": st.just({"k": "v"}),
    },
)
events = st.one_of(
    event("session.update", session=sessions),
    event("input_audio_buffer.append", audio=audio(SPEECH)),
    event("input_audio_buffer.append", audio=audio(SILENCE)),
    event("input_audio_buffer.append", audio=st.sampled_from(["AA==", "***", ""])),
    event("input_audio_buffer.commit"),
    event("input_audio_buffer.clear"),
    event("conversation.item.create", item=items),
    event("conversation.item.create", item=items, previous_item_id=st.one_of(ids, st.just("root"), st.none())),
    event("conversation.item.truncate", item_id=ids, content_index=st.integers(0, 1), audio_end_ms=st.integers(0, 900)),
    event("conversation.item.retrieve", item_id=ids),
    event("conversation.item.delete", item_id=ids),
    event("response.create"),
    event("response.create", response=replies),
    event("response.cancel"),
    event("response.cancel", response_id=st.just("nobody")),
    event("output_audio_buffer.clear"),
    event("what.is.this"),
)
pauses = st.integers(0, 60)
"""How often the session gets a turn of the event loop before the next event."""

scripts = st.lists(st.tuples(events, pauses), min_size=1, max_size=14)

# --- what the providers do --------------------------------------------------------------------

ANSWERS = {
    "says": LlmCue(tokens=tokens("It is noon. Anything else?"), gap_ms=1),
    "calls": LlmCue(tokens=(), calls=(CallCue("look", ("{}",)),), finish="tool_calls"),
    "is cut short": LlmCue(tokens=tokens("It is"), finish="length"),
    "refuses": LlmCue(fault=Status(400)),
    "breaks": LlmCue(tokens=tokens("It is noon. Any"), fault=Cut(2)),
}
tempers = st.lists(st.sampled_from(list(ANSWERS)), min_size=1, max_size=4)


transcripts = st.lists(st.sampled_from(["what time is it?", "and then?", "mhm", ""]), min_size=1, max_size=4)


def stages(temper: list[str], texts_of_speech: list[str]) -> SessionStages:
    """Providers in the process; the model goes through its moods, the transcriber through its texts."""
    moods: Iterator[str] = cycle(temper)
    spoken = cycle(texts_of_speech)
    return SessionStages(
        transcriber=FakeTranscriber(lambda _: SttCue(text=next(spoken))),
        model=FakeModel(lambda _: ANSWERS[next(moods)]),
        synthesizer=FakeSynthesizer(TtsCue(ms_per_char=10)),
        stt_model="",
        llm_model="",
        tts_model="",
    )


# --- the client -------------------------------------------------------------------------------


class Script:
    """A client that sends its lines, waits until all responses have ended, and looks at every item before it leaves."""

    hung_up = True
    gone = False
    has_message = False

    def __init__(self, lines: list[tuple[Event, int]]) -> None:
        self._messages = self._all(lines)
        self._came = asyncio.Event()
        self.events: list[Event] = []
        self.order: list[str] = []
        self.agent = "nobody"

    async def receive(self) -> str | None:
        """The next line."""
        return await anext(self._messages, None)

    async def send(self, frame: bytes) -> None:
        """Keep what the server says, and follow its items."""
        event_sent = json.loads(frame)
        self.events.append(event_sent)
        match event_sent:
            case {"type": "conversation.item.added", "item": {"id": item_id} as item, "previous_item_id": previous}:
                place = self.order.index(previous) + 1 if previous is not None else 0
                self.order.insert(place, item_id)
                self.agent = item_id if item.get("role") == "assistant" else self.agent
            case {"type": "conversation.item.deleted", "item_id": item_id}:
                self.order.remove(item_id)
        self._came.set()

    async def close(self, code: int, reason: str) -> None:
        """Answer the close of a client that has left: only a session that broke closes the line of another one."""
        assert code == NORMAL, f"closed with {code}: {reason}"

    def abort(self) -> None:
        """A client that reads everything is never dropped."""
        raise AssertionError("the line was dropped")

    async def _all(self, lines: list[tuple[Event, int]]) -> Any:
        for line, pause in lines:
            for _ in range(pause):
                await asyncio.sleep(0)
            if awaited := line.get(AFTER):
                await self._until(lambda kind=awaited: any(e["type"] == kind for e in self.events))
                continue
            yield json.dumps(line).replace(AGENT, self.agent)
        yield '{"type": "conversation.item.retrieve", "item_id": "x", "event_id": "the end"}'
        await self._until(lambda: self._refused("the end"))
        await self._until(self._all_ended)
        for item_id in self.order:
            yield json.dumps({"type": "conversation.item.retrieve", "item_id": item_id, "event_id": "look"})
        yield '{"type": "conversation.item.retrieve", "item_id": "x", "event_id": "the very end"}'
        await self._until(lambda: self._refused("the very end"))
        await self._until(self._all_ended)

    def _refused(self, event_id: str) -> bool:
        return any(e.get("error", {}).get("event_id") == event_id for e in self.events)

    def _all_ended(self) -> bool:
        kinds = [e["type"] for e in self.events]
        return kinds.count("response.created") == kinds.count("response.done")

    async def _until(self, holds: Any) -> None:
        async with asyncio.timeout(WAIT_S):
            while not holds():
                self._came.clear()
                await self._came.wait()

    def looked_at(self) -> list[str]:
        """The items that the server showed in the end."""
        marks = [e.get("error", {}).get("event_id") for e in self.events]
        return [
            e["item"]["id"] for e in self.events[marks.index("the end") :] if e["type"] == "conversation.item.retrieved"
        ]


class NothingFails(SessionObserver):
    """Work is never stuck, and no strategy fails."""

    def was_stuck(self, command: ReportStuck) -> None:
        pytest.fail(f"stuck: {command}")

    def strategy_failed(self, command: ReportStrategyFailure) -> None:
        pytest.fail(f"a strategy failed: {command}")


async def hold(
    lines: list[tuple[Event, int]], temper: list[str], said: list[str] | None = None, end_of_turn: str = "silence"
) -> Script:
    """A session with that client."""
    grant = SessionGrant(
        session_id="sess_x",
        project="p",
        agent="default",
        model="default",
        identity=None,
        config=None,
        expires_at=unix_s() + 600,
    )
    config = SessionConfig.start(
        session_id="sess_x",
        model="default",
        voice="v",
        instructions="Be brief.",
        expires_at=grant.expires_at,
        turn_detection=ServerVad(silence_duration_ms=100, end_of_turn=end_of_turn),
    )
    ports = SessionPorts(observer=NothingFails())
    providers = stages(temper, said or ["what time is it"])
    session = Session(grant=grant, config=config, stages=providers, settings=CoreSettings(), ports=ports)
    client, recording = Script(lines), RecordedConnections()
    async with asyncio.timeout(WAIT_S):
        await session.run(recording.of(client))
    assert recording.problems() == []
    return client


def speech_then(*kinds: str) -> list[tuple[Event, int]]:
    """Speech, and then these events at once."""
    spoken = {"type": "input_audio_buffer.append", "audio": base64.b64encode(SPEECH).decode()}
    return [(spoken, 0), *(({"type": kind}, 40) for kind in kinds)]


def deleted_while_it_is_made() -> list[tuple[Event, int]]:
    """A reply whose message its client deletes at its first word."""
    return [
        ({"type": "response.create", "response": {"output_modalities": ["text"]}}, 0),
        ({AFTER: "response.output_text.delta"}, 0),
        ({"type": "conversation.item.delete", "item_id": AGENT}, 0),
        ({AFTER: "response.done"}, 0),
    ]


def speech_over_an_answer() -> list[tuple[Event, int]]:
    """A question, and a voice as soon as the answer is audible."""
    spoken = {"type": "input_audio_buffer.append", "audio": base64.b64encode(SPEECH).decode()}
    quiet = {"type": "input_audio_buffer.append", "audio": base64.b64encode(SILENCE).decode()}
    return [(spoken, 0), (quiet, 0), ({AFTER: "response.output_audio.delta"}, 0), (spoken, 0), (quiet, 0)]


@pytest.mark.slow
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(lines=scripts, temper=tempers, said=transcripts, end_of_turn=st.sampled_from(["silence", "soft"]))
@example(
    lines=speech_then("response.create", "response.cancel", "response.create"),
    temper=["says"],
    said=["what time is it"],
    end_of_turn="silence",
)
@example(
    lines=speech_then("input_audio_buffer.commit", "input_audio_buffer.clear", "response.create"),
    temper=["breaks"],
    said=["what time is it"],
    end_of_turn="silence",
)
@example(lines=deleted_while_it_is_made(), temper=["says"], said=["what time is it"], end_of_turn="silence")
@example(lines=speech_over_an_answer(), temper=["says"], said=["what time is it?"], end_of_turn="soft")
@example(lines=speech_over_an_answer(), temper=["says"], said=["what time is it?", ""], end_of_turn="soft")
def test_any_order(lines: list[tuple[Event, int]], temper: list[str], said: list[str], end_of_turn: str) -> None:
    """Every event is of its shape and in its place besides: the recording of the session is held to that."""
    client = asyncio.run(hold(lines, temper, said, end_of_turn))
    assert sum(e["type"] == "session.created" for e in client.events) == 1
    # Items may have come while it looked, never gone.
    looked = client.looked_at()
    assert looked == [item_id for item_id in client.order if item_id in looked]
    refused = [e for e in client.events if e.get("error", {}).get("event_id") == "look"]
    assert refused == []
