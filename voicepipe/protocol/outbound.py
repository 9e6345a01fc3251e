"""The outbound half of a session's wire: notifications and output in, encoded events out, in the order clients need."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, get_args

import msgspec

from voicepipe.audio.samples import Samples
from voicepipe.protocol import binary
from voicepipe.protocol.dialect import Dialect, ResponseUsage
from voicepipe.protocol.extension_events import ExtensionNotification, event_of
from voicepipe.protocol.extensions import (
    AgentHandedOver,
    GoingAway,
    OutputAudioStarted,
    OutputAudioWords,
    Resumed,
    ServerExtension,
    TurnOver,
    echo,
)
from voicepipe.protocol.ga import GA
from voicepipe.protocol.inbound import Unreadable
from voicepipe.protocol.item_audio import with_audio
from voicepipe.protocol.json_fields import JsonObject
from voicepipe.protocol.response_state import OpenCall, OpenMessage, OpenResponse, ended_details
from voicepipe.protocol.session_config import SessionConfig
from voicepipe.turn import notifications as notices
from voicepipe.turn.conversation import FunctionCall, Item, ItemStatus, Message
from voicepipe.turn.settings import ReplySettings

ListEvent = Literal["mcp_list_tools.in_progress", "mcp_list_tools.completed", "mcp_list_tools.failed"]
Frames = list[bytes]
"""Encoded events, UTF-8 JSON, one per frame, in order; a `binary.SoundFrame` is a binary frame."""

_ENCODER: Final = msgspec.json.Encoder()


class EventRenderer:
    """The events of one session. It tracks what is open, so that the end of a response closes all that the response
    began.

    Pure: returns frames and sends none. A response that has ended gets no further event. Output that comes for it late,
    or before its item was begun, is dropped and counted.
    """

    def __init__(self, config: SessionConfig, *, dialect: Dialect = GA) -> None:
        self.config = config
        self._is_moved = False
        self.times_words = False
        """Whether the client gets the times of words: another node may go on with the session."""

        self.audio_of: Callable[[str], str | None] = lambda item_id: None
        """Returns the audio of an item and its rate in Hz; None where it is not held."""

        self.dropped = 0
        """Pieces of output that had no open response or item."""

        self._dialect = dialect
        self._open: dict[str, OpenResponse] = {}
        self._running: dict[str, OpenCall] = {}
        """Calls that the server runs, by item: as many as it runs at once."""

        self._event_count = self._stream_count = self._resume_count = 0
        # A client may choose the session's id; what would need escaping in JSON is left out.
        tail = re.sub(r"[^A-Za-z0-9_.-]", "", config.session_id.removeprefix("sess_"))
        self._event_prefix = self._first_prefix = f"event_{tail}_"
        self._conversation_id = f"conv_{tail}"
        self._renderers: dict[type, Callable[[EventRenderer, Any], Frames]] = {
            notices.InputSpeechStarted: EventRenderer._speech_started,
            notices.InputSpeechStopped: EventRenderer._speech_stopped,
            notices.AudioCommitted: EventRenderer._committed,
            notices.SilenceTimedOut: EventRenderer._timed_out,
            notices.AudioCleared: EventRenderer._cleared,
            notices.ItemAdded: EventRenderer._item_added,
            notices.ItemRetrieved: EventRenderer._item_retrieved,
            notices.ItemTruncated: EventRenderer._item_truncated,
            notices.ItemDeleted: EventRenderer._item_deleted,
            notices.TranscriptDelta: EventRenderer._transcript_delta,
            notices.TranscriptDone: EventRenderer._transcript_done,
            notices.TranscriptFailed: EventRenderer._transcript_failed,
            notices.ResponseStarted: EventRenderer._response_started,
            notices.OutputStarted: EventRenderer._output_started,
            notices.ToolApproved: EventRenderer._tool_approved,
            notices.ToolEnded: EventRenderer._tool_ended,
            notices.ResponseEnded: EventRenderer._response_ended,
            notices.Refused: EventRenderer.error,
            **dict.fromkeys(get_args(ExtensionNotification), EventRenderer._extension_notification),
        }

    # --- session -------------------------------------------------------------------------

    def hello(self) -> Frames:
        """Return the first events of a connection, which need no request."""
        session = echo(self._dialect.session(self.config), self.config.extensions)
        greeting = self._event("session.created", session=session)
        if self._dialect.announces_conversation:
            conversation = {"id": self._conversation_id, "object": "realtime.conversation"}
            greeting += self._event("conversation.created", conversation=conversation)
        return greeting

    def updated(self, config: SessionConfig, **more: object) -> Frames:
        """Return the answer to an accepted `session.update`: the whole session as it is now.

        `more`: what the client needs of its extensions in addition to their names.
        """
        self.config = config
        session = echo(self._dialect.session(config), config.extensions, **more)
        return self._event("session.updated", session=session)

    def resumed(
        self, secret: str, *, input_received_ms: int, window_ms: int, moved: bool = False, n_answers: int = 0
    ) -> bytes:
        """Return the first event on a connection that replaces another. It has no number: the missed events come after
        it.
        """
        self._resume_count += 1
        # Where the session has moved it is the first of the events here, and is counted with them.
        event_id = self._next_event_id() if moved else f"{self._event_prefix}resumed_{self._resume_count}"
        return _encoded(
            Resumed(
                event_id=event_id,
                session_id=self.config.session_id,
                secret=secret,
                input_received_ms=input_received_ms,
                window_ms=window_ms,
                moved=moved,
                answer_follows=n_answers > 0,
                answers=n_answers,
            )
        )

    def go_on(self, generation: int) -> None:
        """Number the events anew: another process had the session before, as the `generation`th of them."""
        self._is_moved = True
        self._event_prefix = f"{self._first_prefix.removesuffix('_')}.{generation}_"

    def ended_elsewhere(self, response_id: str, reply: ReplySettings, turn_id: str) -> Frames:
        """Return the end of a response that another process began: it is cancelled."""
        started = notices.ResponseStarted(response_id, reply, turn_id)
        self._open[response_id] = OpenResponse(started, self._conversation_id, self.config.output_format)
        return self._response_ended(notices.ResponseEnded(response_id, "cancelled", "client_cancelled"))

    def number_of(self, event_id: str | None) -> int | None:
        """Return the number of one of our events by its id: 0 for no id, None when it cannot be one of ours."""
        before = self._first_prefix.removesuffix("_")
        is_former = self._is_moved and event_id is not None and event_id.startswith((f"{before}_", f"{before}."))
        if is_former and event_id is not None and not event_id.startswith(self._event_prefix):
            return 1  # it is of another node, and the answer to its first resumption is not sent again
        if event_id is None:
            return 0
        number = event_id.removeprefix(self._event_prefix)
        is_own = number != event_id and number.isascii() and number.isalnum() and len(number) <= 16
        try:
            return int(number, 16) if is_own else None
        except ValueError:
            return None

    def speak(self, dialect: Dialect) -> None:
        """Use this dialect from the next event on: the client has shown that it uses the dialect."""
        self._dialect = dialect
        for response in self._open.values():
            for output in response.outputs:
                if isinstance(output, OpenMessage):
                    output.audio_head = self._audio_head(output)

    def error(self, why: notices.Refused | Unreadable, *, kind: str = "invalid_request_error") -> Frames:
        """Return an `error` event. `kind` is `invalid_request_error`, or `server_error` when it is not the client's
        fault.
        """
        error = {
            "type": kind,
            "code": why.code,
            "message": why.message,
            "param": why.field,
            "event_id": why.event_id,
        }
        return self._event("error", error=error)

    def limits(self) -> Frames:
        """Return the rate limits that follow a response. The server sets no such limits, so there are none."""
        return self._event("rate_limits.updated", rate_limits=[])

    def render(self, what: notices.Notification) -> Frames:
        """Return the events that notify the client of `what`."""
        return self._renderers[type(what)](self, what)

    # --- reply output --------------------------------------------------------------------

    def text_delta(self, response_id: str, text: str) -> Frames:
        """Return more of the agent's words: the transcript of an audio reply, or the text of a text reply."""
        message = self._message(response_id)
        if message is None:
            return []
        text = well_formed(text)
        message.texts.append(text)
        kind = "response.output_audio_transcript.delta" if message.audible else "response.output_text.delta"
        return self._event(kind, **message.ids(), delta=text)

    def audio(self, response_id: str, samples: Samples) -> Frames:
        """Return more of the agent's audio, int16, (n_samples,), 24 kHz mono; at most 200 ms go into one event."""
        message = self._message(response_id)
        if message is None or not message.audible:
            return []
        return [self._audio_delta(message, coded) for coded in message.codec.push(samples)]

    def words(self, response_id: str, words: Sequence[tuple[str, int]]) -> Frames:
        """Return words of the response's audio, each with where it begins in ms: for a client that may resume at
        another node."""
        extensions, message = self.config.extensions, self._message(response_id)
        if not (self.times_words and extensions and extensions.resume and message is not None and message.audible):
            return []
        texts, starts_ms = zip(*words, strict=True)
        ids = {"response_id": response_id, "item_id": message.item_id}
        return self._extension(OutputAudioWords, **ids, words=texts, starts_ms=starts_ms)

    def call_delta(self, response_id: str, item_id: str, arguments: str) -> Frames:
        """Return more of the arguments of the response's call of that id."""
        response = self._open.get(response_id)
        call = response and response.call(item_id)
        if not call:
            self.dropped += 1
            return []
        return self._arguments_delta(call, arguments) if arguments else []

    def _message(self, response_id: str) -> OpenMessage | None:
        response = self._open.get(response_id)
        message = response and response.message
        if not message:
            self.dropped += 1
            return None
        return message

    def _arguments_delta(self, call: OpenCall, arguments: str) -> Frames:
        arguments = well_formed(arguments)
        call.pieces.append(arguments)
        if call.approval:
            return []  # the item with the request has them, once it is whole
        by_server = bool(call.server_label)
        kind = "response.mcp_call_arguments.delta" if by_server else "response.function_call_arguments.delta"
        return self._event(kind, **call.ids(), delta=arguments)

    def _audio_delta(self, message: OpenMessage, coded: bytes) -> bytes:
        if message.stream:
            self._event_count += 1
            return binary.agent_frame(message.stream, self._event_count, coded)
        return message.audio_delta(coded, self._next_event_id())

    def _audio_head(self, message: OpenMessage) -> bytes:
        event = self._dialect.event("response.output_audio.delta", message.ids())
        return _encoded(event)[:-1] + b',"event_id":"'

    # --- user ----------------------------------------------------------------------------

    def _speech_started(self, what: notices.InputSpeechStarted) -> Frames:
        return self._event(
            "input_audio_buffer.speech_started", audio_start_ms=what.audio_start_ms, item_id=what.item_id
        )

    def _speech_stopped(self, what: notices.InputSpeechStopped) -> Frames:
        return self._event("input_audio_buffer.speech_stopped", audio_end_ms=what.audio_end_ms, item_id=what.item_id)

    def _committed(self, what: notices.AudioCommitted) -> Frames:
        place = {"item_id": what.item_id, "previous_item_id": what.previous_item_id}
        return self._event("input_audio_buffer.committed", **place)

    def _timed_out(self, what: notices.SilenceTimedOut) -> Frames:
        span = {"audio_start_ms": what.audio_start_ms, "audio_end_ms": what.audio_end_ms}
        return self._event("input_audio_buffer.timeout_triggered", item_id=what.item_id, **span)

    def _cleared(self, _: notices.AudioCleared) -> Frames:
        return self._event("input_audio_buffer.cleared")

    def _transcript_delta(self, what: notices.TranscriptDelta) -> Frames:
        kind = "conversation.item.input_audio_transcription.delta"
        return self._event(kind, item_id=what.item_id, content_index=0, delta=what.delta)

    def _transcript_done(self, what: notices.TranscriptDone) -> Frames:
        usage = {"type": "duration", "seconds": what.speech_ms / 1_000}
        kind = "conversation.item.input_audio_transcription.completed"
        return self._event(kind, item_id=what.item_id, content_index=0, transcript=what.transcript, usage=usage)

    def _transcript_failed(self, what: notices.TranscriptFailed) -> Frames:
        error = {"type": "server_error", "code": "transcription_failed", "message": what.why}
        kind = "conversation.item.input_audio_transcription.failed"
        return self._event(kind, item_id=what.item_id, content_index=0, error=error)

    # --- items ---------------------------------------------------------------------------

    def _item_added(self, what: notices.ItemAdded) -> Frames:
        return self._item_begun(what.item, what.previous_item_id) + self._item_done(what.item, what.previous_item_id)

    def _item_begun(self, item: Item, previous_item_id: str | None) -> Frames:
        rendered = self._dialect.item(item)
        return self._event("conversation.item.added", previous_item_id=previous_item_id, item=rendered)

    def _item_done(self, item: Item, previous_item_id: str | None) -> Frames:
        rendered = self._dialect.item(item)
        return self._event("conversation.item.done", previous_item_id=previous_item_id, item=rendered)

    def _item_retrieved(self, what: notices.ItemRetrieved) -> Frames:
        item, audio = self._dialect.item(what.item), self.audio_of(what.item.id)
        if audio is not None:
            item = with_audio(item, audio)
        return self._event("conversation.item.retrieved", item=item)

    def _item_truncated(self, what: notices.ItemTruncated) -> Frames:
        place = {"item_id": what.item_id, "content_index": what.content_index}
        return self._event("conversation.item.truncated", **place, audio_end_ms=what.audio_end_ms)

    def _item_deleted(self, what: notices.ItemDeleted) -> Frames:
        for response in self._open.values():
            for output in response.outputs:
                output.deleted |= output.item_id == what.item_id
        if what.item_id in self._running:
            self._running[what.item_id].deleted = True
        return self._event("conversation.item.deleted", item_id=what.item_id)

    # --- responses -----------------------------------------------------------------------

    def _response_started(self, what: notices.ResponseStarted) -> Frames:
        conversation_id = self._conversation_id if what.reply.in_conversation else None
        response = OpenResponse(what, conversation_id, self.config.output_format)
        self._open[what.response_id] = response
        return self._event("response.created", response=self._dialect.response(response.view()))

    def _output_started(self, what: notices.OutputStarted) -> Frames:
        response = self._open.get(what.response_id)
        if response is None:
            self.dropped += 1
            return []
        before = response.message if isinstance(what.item, Message) else None
        frames = self._close_output(response, before) if before is not None else []
        if not self._dialect.has_server_calls and isinstance(what.item, FunctionCall) and what.item.server_label:
            return frames + (self._item_begun(what.item, what.previous_item_id) if response.conversation_id else [])
        opened = response.begin(what.item, what.previous_item_id)
        empty = Message(opened.item_id, "assistant", (), "in_progress")
        item = empty if isinstance(opened, OpenMessage) else opened.item("in_progress")
        place = {"response_id": what.response_id, "output_index": opened.output_index}
        frames += self._event("response.output_item.added", **place, item=self._dialect.item(item))
        if response.conversation_id is not None:
            frames += self._item_begun(item, what.previous_item_id)
        if isinstance(opened, OpenMessage):
            opened.audio_head = self._audio_head(opened)
            frames += self._event("response.content_part.added", **opened.ids(), part=opened.part())
            frames += self._begin_stream(opened)
        return frames

    def _begin_stream(self, message: OpenMessage) -> Frames:
        """Notify that this message's audio comes in binary frames, if the client uses them."""
        extensions = self.config.extensions
        if not message.audible or extensions is None or not extensions.binary_audio:
            return []
        self._stream_count = self._stream_count % binary.MAX_STREAM + 1
        message.stream = self._stream_count
        return self._extension(OutputAudioStarted, **message.ids(), stream=message.stream)

    def _response_ended(self, what: notices.ResponseEnded) -> Frames:
        response = self._open.pop(what.response_id, None)
        if response is None:
            self.dropped += 1
            return []
        frames: Frames = []
        output: list[Item] = []
        for opened in response.outputs:
            status: ItemStatus = "completed" if what.status == "completed" else "incomplete"
            if isinstance(opened, OpenMessage) and opened.closed:
                output.append(opened.item("completed"))
                continue
            if isinstance(opened, OpenMessage):
                frames += self._close_message(opened, flush=what.status != "cancelled")
            else:
                closing, status = self._close_call(opened, status)
                frames += closing
            output.append(opened.item(status))
            if isinstance(opened, OpenCall) and opened.runs_here and status == "completed":
                frames += self._run_call(opened, output[-1])
            else:
                frames += self._close_item(response, opened, output[-1])
        usage = ResponseUsage(
            input_tokens=what.input_tokens, output_tokens=what.output_tokens, cached_tokens=what.cached_tokens
        )
        view = response.view(what.status, details=ended_details(what), output=tuple(output), usage=usage)
        return frames + self._event("response.done", response=self._dialect.response(view))

    def _close_output(self, response: OpenResponse, message: OpenMessage) -> Frames:
        """End a message after which another begins."""
        message.closed = True
        return self._close_message(message, flush=True) + self._close_item(response, message, message.item("completed"))

    def _close_message(self, message: OpenMessage, *, flush: bool) -> Frames:
        """End a message's part. What the codec kept back is sent unless the reply was cut."""
        frames: Frames = []
        words = message.words()
        if message.audible:
            remainder = message.codec.flush() if flush else b""
            if remainder:
                frames.append(self._audio_delta(message, remainder))
            frames += self._event("response.output_audio.done", **message.ids())
            frames += self._event("response.output_audio_transcript.done", **message.ids(), transcript=words)
        else:
            frames += self._event("response.output_text.done", **message.ids(), text=words)
        return frames + self._event("response.content_part.done", **message.ids(), part=message.part())

    def _close_call(self, call: OpenCall, status: ItemStatus) -> tuple[Frames, ItemStatus]:
        """End a call's arguments; return its status too.

        Clients run a call on `arguments.done`, so only a complete call gets that event.
        """
        if status != "completed":
            return [], status
        # An LLM that calls a function without parameters may send nothing at all.
        frames = [] if call.arguments() else self._arguments_delta(call, "{}")
        if not call.is_whole():
            return frames, "incomplete"
        if call.approval:
            return frames, "completed"
        ids, whole = call.ids(), call.arguments()
        if call.server_label:
            return frames + self._event("response.mcp_call_arguments.done", **ids, arguments=whole), "completed"
        done = self._event("response.function_call_arguments.done", **ids, name=call.name, arguments=whole)
        return frames + done, "completed"

    def _close_item(self, response: OpenResponse, opened: OpenMessage | OpenCall, item: Item) -> Frames:
        place = {"response_id": opened.response_id, "output_index": opened.output_index}
        # An item that its client has deleted is completed only within its response.
        is_gone = response.conversation_id is None or opened.deleted
        frames = [] if is_gone else self._item_done(item, opened.previous_item_id)
        return frames + self._event("response.output_item.done", **place, item=self._dialect.item(item))

    # --- calls that the server runs --------------------------------------------------------

    def _run_call(self, call: OpenCall, item: Item) -> Frames:
        """Notify that a call is complete and runs. Its item is done with its result."""
        self._running[call.item_id] = call
        place = {"response_id": call.response_id, "output_index": call.output_index}
        frames = self._event("response.output_item.done", **place, item=self._dialect.item(item))
        return frames + self._event(
            "response.mcp_call.in_progress", item_id=call.item_id, output_index=call.output_index
        )

    def _tool_approved(self, what: notices.ToolApproved) -> Frames:
        """Notify that a call runs which the client has approved: an item outside all responses."""
        call, previous = what.call, what.previous_item_id
        frames = self._item_begun(call, previous)
        if not self._dialect.has_server_calls:
            return frames
        self._running[call.id] = OpenCall.of(call, call.id, "", 0, previous)
        return frames + self._event("response.mcp_call.in_progress", item_id=call.id, output_index=0)

    def _tool_ended(self, what: notices.ToolEnded) -> Frames:
        call = self._running.pop(what.call.id, None)
        if call is None:
            return []  # the response was cut before the call was complete, or the dialect has no such calls
        kind = "response.mcp_call.failed" if what.call.failed else "response.mcp_call.completed"
        frames = self._event(kind, item_id=call.item_id, output_index=call.output_index)
        return frames if call.deleted else frames + self._item_done(what.call, call.previous_item_id)

    # --- live turn updates ---------------------------------------------------------------

    def turn_over(self, record: JsonObject) -> Frames:
        """Return a turn's record, as the API shows it."""
        return self._extension(TurnOver, record=record)

    def tool_list(self, event: ListEvent, item_id: str) -> Frames:
        """Return how far the list of an MCP server's tools is; nothing in a dialect without such events."""
        return self._event(event, item_id=item_id) if self._dialect.has_server_calls else []

    def handed_over(self, agent: str) -> Frames:
        """Return that another agent goes on with the session, for a client that follows its turns."""
        extensions = self.config.extensions
        return self._extension(AgentHandedOver, agent=agent) if extensions and extensions.turn_events else []

    def going_away(self, within_ms: int) -> Frames:
        """Return that the node stops in `within_ms`, for a client that can resume at another one."""
        return self._extension(GoingAway, within_ms=within_ms)

    def _extension_notification(self, what: ExtensionNotification) -> Frames:
        return [_encoded(event_of(what, self._next_event_id()))]

    # --- one event -----------------------------------------------------------------------

    def _event(self, kind: str, **fields: object) -> Frames:
        event = self._dialect.event(kind, fields)
        return [] if event is None else [_encoded({**event, "event_id": self._next_event_id()})]

    def _extension(self, kind: type[ServerExtension], **fields: Any) -> Frames:
        """Return an event that is not among the published ones, for a client that opted in."""
        return [_encoded(kind(**fields, event_id=self._next_event_id()))]

    def _next_event_id(self) -> str:
        self._event_count += 1
        return f"{self._event_prefix}{self._event_count:x}"


def _encoded(event: JsonObject | msgspec.Struct | None) -> bytes:
    """Return an event as UTF-8 JSON. Half a surrogate pair in its texts becomes U+FFFD."""
    try:
        return _ENCODER.encode(event)
    except UnicodeEncodeError:  # a vendor's text with half a surrogate pair
        return _ENCODER.encode(_all_well_formed(msgspec.to_builtins(event)))


def well_formed(text: str) -> str:
    """Return `text` as it can be encoded: surrogate pairs joined, lone halves replaced (U+FFFD)."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def _all_well_formed(value: object) -> object:
    match value:
        case str():
            return well_formed(value)
        case dict():
            return {well_formed(key): _all_well_formed(inner) for key, inner in value.items()}
        case list():
            return [_all_well_formed(inner) for inner in value]
        case _:
            return value
