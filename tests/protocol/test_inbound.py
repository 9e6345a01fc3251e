"""Reading clients: every published event, and whatever else may come down a socket."""

from __future__ import annotations

import base64
import json
from typing import Any, get_args, get_type_hints

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from openai.types.beta.realtime import ConversationItem as BetaItem
from openai.types.beta.realtime import response_create_event_param
from openai.types.realtime import ConversationItem, RealtimeResponseCreateParamsParam
from openai.types.realtime.realtime_client_event import RealtimeClientEvent

from voicepipe.protocol.inbound import (
    MAX_VALUES,
    AudioAppended,
    ClientEvent,
    InputClear,
    InputCommit,
    Nothing,
    PartlyServed,
    SessionUpdate,
    Unreadable,
    read,
)
from voicepipe.protocol.published_fields import ITEM, RESPONSE
from voicepipe.protocol.session_config import SessionConfig
from voicepipe.turn.conversation import InputText, Item, Message
from voicepipe.turn.events import (
    CancelRequested,
    ItemCreateRequested,
    ItemDeleteRequested,
    ItemRetrieveRequested,
    ItemTruncateRequested,
    ReplyRequested,
)
from voicepipe.turn.settings import Tool

CONFIG = SessionConfig.start(
    session_id="s",
    model="m",
    voice="alba",
    instructions="Be brief.",
    expires_at=1,
    tools=(Tool("f", "", "{}"),),
    max_output_tokens=100,
)


def read_event(**event: Any) -> ClientEvent:
    return read(json.dumps(event), CONFIG)


# --- every event of section 3 -----------------------------------------------------------------


def test_session_update() -> None:
    assert read_event(type="session.update", event_id="e1", session={"type": "realtime"}) == SessionUpdate(
        "e1", {"type": "realtime"}
    )


def test_transcription_session_update_is_tolerated() -> None:
    received = read_event(type="transcription_session.update", session={"input_audio_format": "pcm16"})
    assert received == SessionUpdate(None, {"input_audio_format": "pcm16"}, listening_only=True)


@pytest.mark.parametrize("n_bytes", [0, 1, 2, 959, 960, 240_000])
def test_input_audio_buffer_append(n_bytes: int) -> None:
    """Any chunk size, odd byte counts too; text frames and bytes alike."""
    audio = bytes(i % 251 for i in range(n_bytes))
    raw = json.dumps({"type": "input_audio_buffer.append", "audio": base64.b64encode(audio).decode()})
    assert read(raw, CONFIG) == AudioAppended(audio)
    assert read(raw.encode(), CONFIG) == AudioAppended(audio)


@pytest.mark.parametrize("audio", ["a", "abc", "ab-_", "ab cd===", "\u00e9\u00e9\u00e9\u00e9", "AAAA\nAAAA", "AA=A"])
def test_append_that_is_not_base64_names_audio(audio: str) -> None:
    received = read_event(type="input_audio_buffer.append", event_id="e", audio=audio)
    assert isinstance(received, Unreadable)
    assert (received.event_id, received.code, received.field) == ("e", "invalid_value", "audio")
    assert "expected base64" in received.message


def test_input_audio_buffer_commit() -> None:
    assert read_event(type="input_audio_buffer.commit", event_id="e") == InputCommit("e")


def test_input_audio_buffer_clear() -> None:
    assert read_event(type="input_audio_buffer.clear") == InputClear(None)


def test_conversation_item_create() -> None:
    """The client's id is used; without one the core gives it."""
    item = {"type": "message", "role": "user", "id": "mine", "content": [{"type": "input_text", "text": "hi"}]}
    message = Message("mine", "user", (InputText("hi"),))
    assert read_event(type="conversation.item.create", event_id="e", item=item) == ItemCreateRequested(
        "e", message, None
    )
    del item["id"]
    nameless = Message("", "user", (InputText("hi"),))
    assert read_event(type="conversation.item.create", item=item) == ItemCreateRequested(None, nameless, None)


@pytest.mark.parametrize(("previous", "after"), [("root", "root"), ("item_1", "item_1"), (None, None)])
def test_conversation_item_create_previous_item_id(previous: str | None, after: str | None) -> None:
    item = {"type": "function_call_output", "call_id": "c", "output": "{}"}
    received = read_event(type="conversation.item.create", item=item, previous_item_id=previous)
    assert isinstance(received, ItemCreateRequested)
    assert received.after == after


@pytest.mark.parametrize("end", [0, 1_234, 1_233.6, -3])
def test_conversation_item_truncate(end: float) -> None:
    """Any number of ms is read; the core clamps it."""
    received = read_event(
        type="conversation.item.truncate", event_id="e", item_id="i", content_index=0, audio_end_ms=end
    )
    assert received == ItemTruncateRequested("e", "i", 0, round(end))


def test_conversation_item_retrieve() -> None:
    assert read_event(type="conversation.item.retrieve", event_id="e", item_id="i") == ItemRetrieveRequested("e", "i")


def test_conversation_item_delete() -> None:
    assert read_event(type="conversation.item.delete", event_id="e", item_id="i") == ItemDeleteRequested("e", "i")


def test_response_create_takes_the_sessions_settings() -> None:
    assert read_event(type="response.create", event_id="e") == ReplyRequested("e", CONFIG.reply_settings())
    assert read_event(type="response.create", response=None) == ReplyRequested(None, CONFIG.reply_settings())
    assert read_event(type="response.create", response={}) == ReplyRequested(None, CONFIG.reply_settings())


def reply(**response: Any) -> Any:
    received = read_event(type="response.create", response=response)
    assert isinstance(received, ReplyRequested), received
    return received.reply


def test_response_create_overrides() -> None:
    """Section 5: every override, the rest from the session."""
    made = reply(
        instructions="Say hello.",
        output_modalities=["text"],
        audio={"output": {"voice": "marin", "format": {"type": "audio/pcm", "rate": 24_000}}},
        tools=[],
        tool_choice="none",
        max_output_tokens="inf",
        metadata={"client_event_id": "x"},
        conversation="auto",
    )
    assert (made.instructions, made.audible, made.voice) == ("Say hello.", False, "marin")
    assert (made.tools, made.tool_choice, made.max_output_tokens) == ((), "none", None)
    assert made.metadata == (("client_event_id", "x"),)
    assert made.in_conversation
    assert reply(instructions=None, tools=None, audio=None, metadata=None) == CONFIG.reply_settings()


FUNCTION = {"type": "function", "name": "look", "strict": True}
UNSERVED: list[tuple[dict[str, Any], str]] = [
    ({"audio": {"output": {"format": {"type": "audio/pcmu"}}}}, "response.audio.output.format"),
    ({"output_audio_format": "g711_alaw"}, "response.output_audio_format"),
    ({"reasoning": {"effort": "low"}}, "response.reasoning"),
    ({"parallel_tool_calls": False}, "response.parallel_tool_calls"),
    ({"prompt": {"id": "pmpt_1"}}, "response.prompt"),
    ({"tools": [FUNCTION, {"type": "web_search"}]}, "response.tools[1].type"),
]


@pytest.mark.parametrize(("response", "field"), UNSERVED, ids=[field for _, field in UNSERVED])
def test_what_a_response_can_not_change_is_named_beside_the_reply(response: dict[str, Any], field: str) -> None:
    served = read_event(type="response.create", event_id="e", response={"instructions": "Hi.", **response})
    assert isinstance(served, PartlyServed), served
    assert [path for path, _ in served.fields] == [field]
    assert (served.request.event_id, served.request.reply.instructions) == ("e", "Hi.")
    if "tools" in response:
        assert [(tool.name, tool.strict) for tool in served.request.reply.tools] == [("look", True)]


@pytest.mark.parametrize(
    "response",
    [
        {"reasoning": None, "prompt": None, "parallel_tool_calls": True, "audio": {}, "output_audio_format": "pcm16"},
        {"audio": {"output": {"format": None}}, "output_audio_format": 3, "tools": None},
    ],
)
def test_what_changes_nothing_is_not_named(response: dict[str, Any]) -> None:
    assert isinstance(read_event(type="response.create", response=response), ReplyRequested)


@pytest.mark.parametrize(
    ("event", "field"),
    [
        ({"type": "response.create", "response": {"instruction": "Hi."}}, "response.instruction"),
        ({"type": "response.create", "response": {"audio": {"output": {"pitch": 1}}}}, "response.audio.output.pitch"),
        (
            {"type": "conversation.item.create", "item": {"type": "message", "role": "user", "contents": []}},
            "item.contents",
        ),
        (
            {"type": "response.create", "response": {"input": [{"type": "message", "rolle": "user"}]}},
            "response.input[0].rolle",
        ),
    ],
)
def test_a_field_that_is_not_published_is_refused(event: dict[str, Any], field: str) -> None:
    refused = read_event(**event)
    assert isinstance(refused, Unreadable), refused
    assert (refused.field, refused.code) == (field, "unknown_parameter")


def test_response_create_beta_overrides() -> None:
    made = reply(modalities=["text"], voice="verse", max_response_output_tokens=7, temperature=0.9)
    assert (made.audible, made.voice, made.max_output_tokens, made.temperature) == (False, "verse", 7, 0.9)


@pytest.mark.parametrize(("conversation", "joined"), [("none", False), ("auto", True), ("anything", True)])
def test_response_create_out_of_band(conversation: str, joined: bool) -> None:
    assert reply(conversation=conversation).in_conversation is joined


def test_response_create_input_replaces_the_context() -> None:
    """Items as they stand, and references that are looked up."""
    known: dict[str, Item] = {"item_1": Message("item_1", "user", (InputText("before"),))}
    said = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "now"}]}
    event = {"type": "response.create", "response": {"input": [{"type": "item_reference", "id": "item_1"}, said]}}
    received = read(json.dumps(event), CONFIG, known.get)
    assert isinstance(received, ReplyRequested)
    assert received.reply.context == (known["item_1"], Message("", "user", (InputText("now"),)))
    lost = read(json.dumps(event), CONFIG)
    assert isinstance(lost, Unreadable)
    assert (lost.field, lost.code) == ("response.input[0].id", "invalid_value")
    assert reply(input=[]).context == ()


def test_response_cancel() -> None:
    assert read_event(type="response.cancel", event_id="e") == CancelRequested("e", None)
    assert read_event(type="response.cancel", response_id="r") == CancelRequested(None, "r")


def test_output_audio_buffer_clear_is_ignored() -> None:
    assert read_event(type="output_audio_buffer.clear") == Nothing()


def test_every_published_client_event_is_known() -> None:
    """None of the union's names is answered as an unknown type."""
    union = get_args(RealtimeClientEvent)[0]
    names = [get_args(cls.model_fields["type"].annotation)[0] for cls in get_args(union)]
    assert len(names) == 11
    for name in names:
        received = read_event(type=name)
        assert not (isinstance(received, Unreadable) and received.field == "type"), name


# --- what can't be read -----------------------------------------------------------------------

BAD: list[tuple[Any, str, str | None]] = [
    ("", "invalid_event", None),
    ("hello", "invalid_event", None),
    ("[]", "invalid_event", None),
    ("null", "invalid_event", None),
    ("{}", "invalid_event", "type"),
    (b"\xff\xfe\x00", "invalid_event", None),
    (b'{"type":"response.cancel","event_id":"\xff"}', "invalid_event", None),
    ("\ud800", "invalid_event", None),
    ('{"type":"response.cancel"', "invalid_event", None),
    ('{"type":"no.such"}', "invalid_value", "type"),
    ('{"type":7}', "invalid_value", "type"),
    ('{"type":"input_audio_buffer.append"}', "missing_required_parameter", "audio"),
    ('{"type":"input_audio_buffer.append","audio":5}', "invalid_type", "audio"),
    ('{"type":"session.update"}', "missing_required_parameter", "session"),
    ('{"type":"session.update","session":"x"}', "invalid_type", "session"),
    ('{"type":"conversation.item.create"}', "missing_required_parameter", "item"),
    ('{"type":"conversation.item.create","item":[]}', "invalid_type", "item"),
    ('{"type":"conversation.item.delete","item_id":3}', "invalid_type", "item_id"),
    ('{"type":"conversation.item.retrieve"}', "missing_required_parameter", "item_id"),
    (
        '{"type":"conversation.item.truncate","item_id":"i","content_index":-1,"audio_end_ms":0}',
        "invalid_value",
        "content_index",
    ),
    (
        '{"type":"conversation.item.truncate","item_id":"i","content_index":0,"audio_end_ms":NaN}',
        "invalid_event",
        None,
    ),
    (
        '{"type":"conversation.item.truncate","item_id":"i","content_index":0,"audio_end_ms":1e999}',
        "invalid_value",
        "audio_end_ms",
    ),
    ('{"type":"response.create","response":[]}', "invalid_type", "response"),
    ('{"type":"response.create","response":{"metadata":{"a":1}}}', "invalid_type", "response.metadata.a"),
    ('{"type":"response.create","response":{"tools":[{}]}}', "missing_required_parameter", "response.tools[0].name"),
    (
        '{"type":"response.create","response":{"audio":{"output":{"speed":9}}}}',
        "invalid_value",
        "response.audio.output.speed",
    ),
    ('{"type":"response.cancel","response_id":{}}', "invalid_type", "response_id"),
    ('{"type":"response.cancel","event_id":1}', "invalid_type", "event_id"),
    (json.dumps({"type": "response.cancel", "event_id": "x" * 513}), "invalid_value", "event_id"),
    ('{"type":"response.cancel","a":' + "[" * 15_000 + "]" * 15_000 + "}", "invalid_event", None),
]


@pytest.mark.parametrize(("raw", "code", "field"), BAD, ids=[str(i) for i in range(len(BAD))])
def test_bad_messages_name_their_field(raw: str | bytes, code: str, field: str | None) -> None:
    received = read(raw, CONFIG)
    assert isinstance(received, Unreadable)
    assert (received.code, received.field) == (code, field)
    assert "expected" in received.message
    assert len(received.message) < 300


@pytest.mark.parametrize(
    "event",
    [
        {"type": "no.such"},
        {"type": 5},
        {"type": "response.cancel", "response_id": 5},
        {"type": "session.update"},
        {"type": "input_audio_buffer.append", "audio": "!"},
        {"type": "conversation.item.create", "item": {"type": "message"}},
        {"type": "response.create", "response": {"max_output_tokens": -1}},
    ],
)
def test_errors_can_echo_the_event_id(event: dict[str, Any]) -> None:
    received = read_event(**event, event_id="evt_9")
    assert isinstance(received, Unreadable)
    assert received.event_id == "evt_9"


def test_event_id_survives_half_a_surrogate_pair() -> None:
    """Clients cut texts in the middle of an emoji; the error still finds its way to the request."""
    received = read('{"type":"conversation.item.delete","event_id":"e","item_id":"\\ud83d"}', CONFIG)
    assert isinstance(received, Unreadable)
    assert received.event_id == "e"
    assert read('{"type":"no.such","event_id":"\\ud83d"}', CONFIG).event_id is None  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", [str, bytes])
def test_an_event_of_a_million_values_is_refused_unread(kind: type) -> None:
    """It would hold up every other user of this process; a long string of the same size does not."""
    wide = json.dumps({"type": "session.update", "session": {"tools": [[]] * 100_000}})
    long = json.dumps({"type": "session.update", "session": {"instructions": "x" * 400_000}})
    refused = read(wide if kind is str else wide.encode(), CONFIG)
    assert isinstance(refused, Unreadable)
    assert refused.code == "invalid_value"
    assert isinstance(read(long if kind is str else long.encode(), CONFIG), SessionUpdate)


def test_metadata_is_bounded() -> None:
    for metadata in ({str(i): "" for i in range(17)}, {"k" * 65: ""}, {"k": "v" * 513}):
        received = read_event(type="response.create", response={"metadata": metadata})
        assert isinstance(received, Unreadable)
        assert (received.field or "").startswith("response.metadata")


TYPES = st.sampled_from(
    [
        "session.update",
        "input_audio_buffer.append",
        "conversation.item.create",
        "conversation.item.truncate",
        "conversation.item.delete",
        "response.create",
        "response.cancel",
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
ITEMS = st.fixed_dictionaries(
    {"type": st.sampled_from(["message", "function_call", "function_call_output"])},
    optional={
        "id": JSON,
        "role": st.sampled_from(["user", "assistant", "system"]) | JSON,
        "content": st.lists(
            st.fixed_dictionaries(
                {"type": st.sampled_from(["input_text", "text", "input_audio", "audio", "input_image"])},
                optional={"text": JSON, "transcript": JSON, "image_url": JSON},
            )
        )
        | JSON,
        "call_id": JSON,
        "name": JSON,
        "arguments": JSON,
        "output": JSON,
        "status": JSON,
    },
)
EVENTS = st.fixed_dictionaries(
    {"type": TYPES | JSON},
    optional={
        "event_id": JSON,
        "audio": JSON,
        "session": JSON,
        "item": ITEMS | JSON,
        "item_id": JSON,
        "content_index": JSON,
        "audio_end_ms": JSON,
        "previous_item_id": JSON,
        "response_id": JSON,
        "response": st.dictionaries(
            st.sampled_from(["instructions", "tools", "metadata", "input", "conversation", "audio", "voice"]),
            st.lists(ITEMS, max_size=2) | JSON,
            max_size=3,
        ),
    },
)


@pytest.mark.parametrize("encode", [str.encode, str])
def test_values_are_counted_over_the_whole_of_a_long_event(encode: Any) -> None:
    """Wherever they stand in it, one too many is too many; text that is no Unicode is counted as any other."""
    padding = "x" * 300_000
    for n_values, refused in ((MAX_VALUES - 10, False), (MAX_VALUES + 10, True)):
        values = ",".join("1" for _ in range(n_values // 2))
        raw = f'{{"type": "x", "a": [{values}], "b": "{padding}", "c": [{values}]}}'
        received = read(encode(raw), CONFIG)
        assert isinstance(received, Unreadable)
        assert ("values in an event" in received.message) == refused
    assert isinstance(read(f'{{"type": "\ud800{padding}"}}', CONFIG), Unreadable)


@given(st.binary(max_size=60) | st.text(max_size=60))
@example(b"\xef\xbb\xbf{}")
@example('{"type":"\\ud800"}')
def test_any_bytes_give_a_value(raw: bytes | str) -> None:
    """Nothing raises, whatever comes."""
    assert isinstance(read(raw, CONFIG), get_args(ClientEvent))


@given(EVENTS)
def test_any_json_gives_a_value(event: dict[str, Any]) -> None:
    """Events of known names with any fields: read, or refused with words that can go back on the wire."""
    received = read(json.dumps(event), CONFIG)
    assert isinstance(received, get_args(ClientEvent))
    if isinstance(received, Unreadable):
        assert received.message.encode()
        assert len(received.message) < 400


def test_every_published_field_of_a_response_and_of_an_item_is_known() -> None:
    """Of both shapes, in what clients send and in what they get and send again."""
    responses = (RealtimeResponseCreateParamsParam, response_create_event_param.Response)
    published = {name for each in responses for name in get_type_hints(each)}
    assert published <= RESPONSE[""]
    items = get_args(get_args(ConversationItem)[0])
    fields = {name for each in (*items, BetaItem) for name in each.model_fields}
    assert fields <= ITEM[""]
