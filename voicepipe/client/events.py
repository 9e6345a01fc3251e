"""Read the server's events: the Realtime events that the client needs, typed; the others by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec
import pybase64

from voicepipe.client.errors import CallFailed
from voicepipe.ports.server_tool import ENDING_TOOLS
from voicepipe.protocol.extensions import OPT_IN, Extensions

ReplyStatus = Literal["completed", "cancelled", "incomplete", "failed"]

REQUEST: Final = "client_request"
"""The key in a response's metadata by which the client finds the answer to its own request."""

APPROVAL: Final = "mcp_approval_request"
"""The type of an item that requests approval of a call."""

FILLER: Final = "filler_"
"""Prefix of the ID of a filler: an item that is no answer, but a phrase before it."""


@dataclass(frozen=True, slots=True)
class SessionReady:
    """The session is ready: the first event of a session, and the answer to each change of settings."""

    session_id: str
    model: str
    extensions: Extensions | None = None
    """The session's extensions to the published events; None: none."""

    resume_secret: str = ""
    """The secret that resumes the session after a lost connection. Sent once, in answer to a request for `resume`."""

    resume_window_ms: int = 0

    tools: tuple[dict[str, Any], ...] = ()
    """The functions that the agent may call, as the wire describes them."""


@dataclass(frozen=True, slots=True)
class ItemAdded:
    """The server has added an item to the conversation. The client or the server has chosen the ID."""

    item_id: str


@dataclass(frozen=True, slots=True)
class ItemDeleted:
    """An item of the conversation was deleted."""

    item_id: str


@dataclass(frozen=True, slots=True)
class SpeechStarted:
    """The server detects that the user speaks."""

    audio_start_ms: int
    """Position in all audio that was sent."""


@dataclass(frozen=True, slots=True)
class SpeechStopped:
    """The user's turn is over."""

    audio_end_ms: int
    """t0: position of the last voiced sample in all audio that was sent."""


@dataclass(frozen=True, slots=True)
class TranscriptionCompleted:
    """The user's transcript; an empty text means no words."""

    text: str


@dataclass(frozen=True, slots=True)
class TranscriptionFailed:
    """The transcription of the user's speech failed."""

    why: str


@dataclass(frozen=True, slots=True)
class ReplyStarted:
    """An answer begins. `turn_id` names its record, and is empty at servers that keep none."""

    response_id: str
    turn_id: str
    apologises: bool = False
    """The text is not an answer, but the apology for the failure of the answer before."""

    request: str = ""
    """The client's own name of its request, where it gave one."""


@dataclass(frozen=True, slots=True)
class ReplyAudio:
    """More of the answer's audio: pcm16, little-endian, 24 kHz."""

    response_id: str
    pcm: bytes
    item_id: str = ""


@dataclass(frozen=True, slots=True)
class AudioWords:
    """Words of an answer, each with where it begins in its item's audio, in ms."""

    item_id: str
    words: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class ItemDone:
    """A message of the agent's is complete."""

    item_id: str
    text: str


@dataclass(frozen=True, slots=True)
class AudioStreamStarted:
    """The audio of an answer comes in binary frames with this stream number."""

    stream: int
    response_id: str
    item_id: str


@dataclass(frozen=True, slots=True)
class AgentDucked:
    """The user may be speaking over the agent: play this item at a lower volume until it is restored."""

    item_id: str


@dataclass(frozen=True, slots=True)
class AgentUnducked:
    """The speech was no interruption, `after_ms` later: `acknowledgement`, `echo` or `no_words`."""

    item_id: str
    reason: str
    after_ms: int


@dataclass(frozen=True, slots=True)
class AgentInterrupted:
    """The speech was an interruption: `stop_word`, `words`, `sustained` or `client`. Drop the rest of the item."""

    item_id: str
    reason: str
    after_ms: int


@dataclass(frozen=True, slots=True)
class ReplyText:
    """More of the answer's text."""

    response_id: str
    text: str
    item_id: str = ""


@dataclass(frozen=True, slots=True)
class FunctionCalled:
    """The agent requests a function call. If it is none of the call's tools, send its result with `Call.return_result`.
    `arguments` is JSON as text."""

    response_id: str
    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Called:
    """A function call of an answer that has ended."""

    name: str
    arguments: str
    """JSON as text."""

    by_server: bool
    """The server runs the function, its own or one of an MCP server."""


@dataclass(frozen=True, slots=True)
class ApprovalRequested:
    """The agent requests a call of an MCP server that needs approval: decide with `Call.approve`."""

    request_id: str
    server_label: str
    name: str
    arguments: str
    """JSON, as the LLM wrote it."""


@dataclass(frozen=True, slots=True)
class ReplyEnded:
    """The answer is complete, or failed. `why` is empty unless it failed or was cut."""

    response_id: str
    status: ReplyStatus
    why: str
    goes_on: bool = False
    """The turn goes on: another answer follows by itself, with the results of functions that the server runs."""

    awaits_approval: bool = False
    """A call of the answer needs approval; another answer follows the decision."""

    calls: tuple[Called, ...] = ()
    """The functions that the answer called."""


@dataclass(frozen=True, slots=True)
class ServerError:
    """The server could not do what the client requested; the session goes on."""

    code: str
    message: str
    event_id: str = ""
    """The ID of the client's event; empty: it had none."""


@dataclass(frozen=True, slots=True)
class OtherEvent:
    """An event that the client does not need."""

    kind: str


ServerEvent = (
    SessionReady
    | ItemAdded
    | ItemDeleted
    | SpeechStarted
    | SpeechStopped
    | TranscriptionCompleted
    | TranscriptionFailed
    | ReplyStarted
    | ReplyAudio
    | AudioWords
    | ItemDone
    | AudioStreamStarted
    | AgentDucked
    | AgentUnducked
    | AgentInterrupted
    | ReplyText
    | FunctionCalled
    | ApprovalRequested
    | ReplyEnded
    | ServerError
    | OtherEvent
)


def read(raw: str | bytes) -> ServerEvent:
    """Parse one frame.

    Raises:
        CallFailed: the frame is not a Realtime event; the session cannot continue.
    """
    try:
        return _read(msgspec.json.decode(raw, type=dict[str, Any]))
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError, ValueError, AttributeError) as why:
        raise CallFailed(f"expected a Realtime event from the server: {type(why).__name__}: {why}") from why


def _read(event: dict[str, Any]) -> ServerEvent:
    match event["type"]:
        case "session.created" | "session.updated":
            return _read_session(event["session"])
        case "conversation.item.added" | "conversation.item.created":
            return ItemAdded(event["item"]["id"])
        case "conversation.item.deleted":
            return ItemDeleted(event["item_id"])
        case "input_audio_buffer.speech_started":
            return SpeechStarted(event["audio_start_ms"])
        case "input_audio_buffer.speech_stopped":
            return SpeechStopped(event["audio_end_ms"])
        case "conversation.item.input_audio_transcription.completed":
            return TranscriptionCompleted(event["transcript"])
        case "conversation.item.input_audio_transcription.failed":
            return TranscriptionFailed(event["error"].get("message") or "")
        case "error":
            error = event["error"]
            return ServerError(error.get("code") or "", error["message"], error.get("event_id") or "")
        case str(kind):
            return _read_reply(kind, event)
        case other:
            raise ValueError(f"expected a type, got {other!r}")


def _read_session(session: dict[str, Any]) -> SessionReady:
    session_id = session["id"]
    granted, tools = (session.get(OPT_IN) or {}).get("voicepipe"), tuple(session.get("tools") or ())
    if granted is None:
        return SessionReady(session_id, session.get("model") or "", tools=tools)
    named = [each for each in Extensions.__struct_fields__ if each not in ("interruption", "metadata")]
    has = Extensions(
        **{name: granted.get(name) is True for name in named},
        interruption="immediate" if granted.get("interruption") == "immediate" else "confirmed",
        metadata=tuple((granted.get("metadata") or {}).items()),
    )
    secret, window_ms = granted.get("resume_secret") or "", granted.get("resume_window_ms") or 0
    return SessionReady(session_id, session.get("model") or "", has, secret, window_ms, tools)


def _read_reply(kind: str, event: dict[str, Any]) -> ServerEvent:
    match kind:
        case "response.created":
            metadata = event["response"].get("metadata") or {}
            apologises, request = "voicepipe_apology_for" in metadata, metadata.get(REQUEST, "")
            return ReplyStarted(event["response"]["id"], metadata.get("voicepipe_turn", ""), apologises, request)
        case "response.output_audio.delta":
            pcm = pybase64.b64decode(event["delta"], validate=True)
            return ReplyAudio(event["response_id"], pcm, event.get("item_id") or "")
        case "voicepipe.output_audio.words":
            return AudioWords(event["item_id"], tuple(zip(event["words"], event["starts_ms"], strict=True)))
        case "response.output_item.done":
            return _read_item(event["item"])
        case "voicepipe.output_audio.started":
            return AudioStreamStarted(event["stream"], event["response_id"], event["item_id"])
        case "voicepipe.agent.ducked":
            return AgentDucked(event["item_id"])
        case "voicepipe.agent.unducked":
            return AgentUnducked(event["item_id"], event["reason"], event["after_ms"])
        case "voicepipe.agent.interrupted":
            return AgentInterrupted(event["item_id"], event["reason"], event["after_ms"])
        case "response.output_audio_transcript.delta" | "response.output_text.delta":
            return ReplyText(event["response_id"], event["delta"], event.get("item_id") or "")
        case "response.function_call_arguments.done":
            return FunctionCalled(event["response_id"], event["call_id"], event["name"], event["arguments"])
        case "response.done":
            response = event["response"]
            why, output = _why(response.get("status_details") or {}), response.get("output") or ()
            goes_on = response["status"] == "completed" and _goes_on(output)
            awaits_approval = any(item["type"] == APPROVAL for item in output)
            calls = tuple(_calls(output))
            return ReplyEnded(response["id"], response["status"], why, goes_on, awaits_approval, calls)
        case _:
            return OtherEvent(kind)


def _read_item(item: dict[str, Any]) -> ServerEvent:
    if item["type"] == APPROVAL:
        return ApprovalRequested(item["id"], item["server_label"], item["name"], item["arguments"])
    if item["type"] != "message" or item["status"] != "completed":
        return OtherEvent("response.output_item.done")
    texts = (part.get("transcript") or part.get("text") or "" for part in item.get("content") or ())
    return ItemDone(item["id"], " ".join(filter(None, texts)))


def joined_items(words: Mapping[str, Iterable[str]]) -> str:
    """Return the text of several items, item id -> its pieces, with a space between two items."""
    return " ".join(text for pieces in words.values() if (text := "".join(pieces)))


def _goes_on(output: Iterable[dict[str, Any]]) -> bool:
    """Return whether another answer follows: the server has calls to run, and the agent does not end the call."""
    calls = {item["name"] for item in output if item["type"] == "mcp_call"}
    has_message = any(item["type"] == "message" and not item["id"].startswith(FILLER) for item in output)
    return bool(calls) and not (has_message and not calls.isdisjoint(ENDING_TOOLS))


def _calls(output: Iterable[dict[str, Any]]) -> Iterator[Called]:
    for item in output:
        if item["type"] in ("function_call", "mcp_call", "mcp_approval_request"):
            yield Called(item["name"], item.get("arguments") or "", item["type"] != "function_call")


def _why(details: dict[str, Any]) -> str:
    error = details.get("error") or {}
    return details.get("reason") or error.get("message") or error.get("code") or ""
