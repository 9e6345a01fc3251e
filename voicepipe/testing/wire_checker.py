"""Check a server's events on the wire: order, matching IDs, deltas that join, no event after the end.

`strict_events` checks the shape of single events; this module checks that they are consistent. It checks one
session from its first event, and reads the dialect from the session objects.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from voicepipe.testing.strict_events import Dialect

WireEvent = dict[str, Any]

_SOUND: Final = "response.output_audio"
_WORDS: Final = "response.output_audio_transcript"
_TEXT: Final = "response.output_text"
_ARGUMENTS: Final = "response.function_call_arguments"
_SERVER_ARGUMENTS: Final = "response.mcp_call_arguments"
_TRANSCRIPTION: Final = "conversation.item.input_audio_transcription"

_OLDER_FAMILIES: Final = {
    "response.audio": _SOUND,
    "response.audio_transcript": _WORDS,
    "response.text": _TEXT,
}
"""Names in the older dialect."""


@dataclass(slots=True)
class _Output:
    """An output item of a response."""

    item: WireEvent
    joined: dict[str, str] = field(default_factory=dict)
    """Event family -> its deltas so far."""

    done: dict[str, str] = field(default_factory=dict)
    """Event family -> the text that its done event gave."""

    part_open: bool = False
    part_done: bool = False
    item_done: bool = False


@dataclass(slots=True)
class _Response:
    """A response between its created and its done."""

    in_conversation: bool
    outputs: list[_Output] = field(default_factory=list)


@dataclass(slots=True)
class _Utterance:
    """The user's turn before it becomes an item."""

    item_id: str
    stopped: bool = False


class WireChecker:
    """Feed it every event with `see`; read `problems`, and at rest `unfinished`."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        """All faults, each with the number and the type of the event."""

        self.dialect: Dialect = "ga"
        """The dialect of the latest session object."""

        self.extended = False
        """Whether the client has enabled extensions, from the latest session object."""

        self._n_seen = 0
        self._kind = ""
        self._event_ids: set[str] = set()
        self._order: list[str] = []
        self._items_done: set[str] = set()
        self._deleted: set[str] = set()
        self._n_at_front = 0
        self._responses: dict[str, _Response] = {}
        self._ended: set[str] = set()
        self._utterance: _Utterance | None = None
        self._committed: dict[str, str | None] = {}
        self._transcripts: dict[str, str] = {}
        self._transcript_checked: set[str] = set()
        self._rules: dict[str, Callable[[WireEvent], None]] = {
            "input_audio_buffer.speech_started": self._speech_started,
            "input_audio_buffer.speech_stopped": self._speech_stopped,
            "input_audio_buffer.committed": self._audio_committed,
            "conversation.item.added": self._item_added,
            "conversation.item.created": self._item_created,
            "conversation.item.done": self._item_done,
            "conversation.item.truncated": self._item_named,
            "conversation.item.deleted": self._item_deleted,
            f"{_TRANSCRIPTION}.delta": self._transcript_delta,
            f"{_TRANSCRIPTION}.completed": self._transcript_ended,
            f"{_TRANSCRIPTION}.failed": self._transcript_ended,
            "response.created": self._response_created,
            "response.output_item.added": self._output_added,
            "response.content_part.added": self._part_added,
            "response.content_part.done": self._part_done,
            "response.output_item.done": self._output_done,
            "response.done": self._response_done,
        }

    @property
    def unfinished(self) -> list[str]:
        """Return the unfinished responses, and the items that were added and are not done."""
        open_items = [item for item in self._order if item not in self._items_done]
        return [f"response {each}" for each in self._responses] + [f"item {each}" for each in open_items]

    @property
    def order(self) -> tuple[str, ...]:
        """Return the IDs of the conversation's items, in the order of the events."""
        return tuple(self._order)

    def sent(self, event: WireEvent) -> None:
        """Record a client's message that allows an otherwise faulty event: an item put at the front."""
        if event.get("type") == "conversation.item.create" and event.get("previous_item_id") == "root":
            self._n_at_front += 1

    def see(self, event: WireEvent | str | bytes) -> None:
        """Check one event of the server."""
        message: WireEvent = event if isinstance(event, dict) else json.loads(event)
        self._n_seen += 1
        self._kind = message.get("type", "")
        if "session" in message:
            self.dialect = "ga" if "type" in message["session"] else "beta"
            self.extended = "voicepipe" in (message["session"].get("providerData") or {})
        self._frame(message)
        family, _, ending = self._kind.rpartition(".")
        family = _OLDER_FAMILIES.get(family, family)
        if self._kind in self._rules:
            self._rules[self._kind](message)
        elif family in (_SOUND, _WORDS, _TEXT, _ARGUMENTS, _SERVER_ARGUMENTS):
            self._output_event(message, family, ending)

    def _wrong(self, why: str) -> None:
        self.problems.append(f"{self._n_seen} {self._kind}: {why}")

    def _need(self, holds: bool, why: str) -> bool:
        if not holds:
            self._wrong(why)
        return holds

    def _frame(self, event: WireEvent) -> None:
        event_id = event.get("event_id")
        self._need(isinstance(event_id, str) and event_id not in self._event_ids, f"event_id {event_id!r} is not new")
        self._event_ids.add(str(event_id))
        self._need((self._n_seen == 1) == (self._kind == "session.created"), "session.created is the first event")
        for index in ("output_index", "content_index"):
            value = event.get(index, 0)
            self._need(type(value) is int and value >= 0, f"{index} {value!r} is not an index")

    # --- the user ----------------------------------------------------------------------

    def _speech_started(self, event: WireEvent) -> None:
        self._utterance = _Utterance(event["item_id"])

    def _speech_stopped(self, event: WireEvent) -> None:
        known = self._utterance
        if known is None or known.item_id != event["item_id"] or known.stopped:
            self._wrong(f"speech of {event['item_id']!r} had not started")
        else:
            known.stopped = True

    def _audio_committed(self, event: WireEvent) -> None:
        known = self._utterance
        if known is not None:
            self._need(known.item_id == event["item_id"], f"expected the item of the speech, {known.item_id!r}")
        self._utterance = None
        self._committed[event["item_id"]] = event.get("previous_item_id")

    # --- items ---------------------------------------------------------------------------

    def _item_added(self, event: WireEvent) -> None:
        item, previous = event["item"], event.get("previous_item_id")
        item_id = item["id"]
        self._need(item_id not in self._order, f"item {item_id!r} was added before")
        self._items_done.discard(item_id)  # after a deletion, the id may name another item
        if self._committed.pop(item_id, previous) != previous:
            self._wrong("previous_item_id differs from that of committed")
        if item.get("role") == "assistant" and item["status"] == "in_progress":
            self._need(item["content"] == [], "an item in progress begins without content")
        self._place(item_id, previous)

    def _item_created(self, event: WireEvent) -> None:
        """Check the older dialect's single event for an item: complete, or begun by a response."""
        self._need(self.dialect == "beta", "an event of the older dialect")
        self._item_added(event)
        if event["item"]["status"] != "in_progress":
            self._items_done.add(event["item"]["id"])

    def _place(self, item_id: str, previous: str | None) -> None:
        if previous is None:
            if self._order and self._n_at_front == 0:
                self._wrong(f"previous_item_id is null, and {self._order[-1]!r} stands before")
            self._n_at_front -= bool(self._order and self._n_at_front)
            self._order.insert(0, item_id)
        elif previous not in self._order:
            self._wrong(f"previous_item_id {previous!r} is unknown")
            self._order.append(item_id)
        else:
            self._order.insert(self._order.index(previous) + 1, item_id)

    def _item_done(self, event: WireEvent) -> None:
        item_id = event["item"]["id"]
        self._need(item_id in self._order, f"item {item_id!r} was not added")
        self._need(item_id not in self._items_done, f"item {item_id!r} was done before")
        self._need(event["item"].get("status") != "in_progress", "a done item is not in progress")
        self._items_done.add(item_id)

    def _item_named(self, event: WireEvent) -> None:
        self._need(event["item_id"] in self._order, f"item {event['item_id']!r} was not added")

    def _item_deleted(self, event: WireEvent) -> None:
        self._item_named(event)
        self._order = [item for item in self._order if item != event["item_id"]]
        self._deleted.add(event["item_id"])

    def _transcript_delta(self, event: WireEvent) -> None:
        self._item_named(event)
        item_id = event["item_id"]
        self._need(item_id not in self._transcript_checked, "a delta after the end of the transcript")
        self._transcripts[item_id] = self._transcripts.get(item_id, "") + event["delta"]

    def _transcript_ended(self, event: WireEvent) -> None:
        self._item_named(event)
        item_id = event["item_id"]
        self._need(item_id not in self._transcript_checked, "a second end of the transcript")
        self._transcript_checked.add(item_id)
        if "transcript" in event:
            self._need(
                event["transcript"].startswith(self._transcripts.get(item_id, "")), "the deltas are not its beginning"
            )

    # --- responses -----------------------------------------------------------------------

    def _response_created(self, event: WireEvent) -> None:
        response = event["response"]
        new = response["id"] not in self._responses and response["id"] not in self._ended
        self._need(new, f"response {response['id']!r} was created before")
        self._need(response["status"] == "in_progress" and response["output"] == [], "a new response is empty")
        self._responses[response["id"]] = _Response(response["conversation_id"] is not None)

    def _open_response(self, event: WireEvent) -> _Response | None:
        response_id = event["response_id"]
        if response_id not in self._responses:
            self._wrong(f"response {response_id!r} " + ("has ended" if response_id in self._ended else "is unknown"))
        return self._responses.get(response_id)

    def _output(self, event: WireEvent) -> _Output | None:
        response = self._open_response(event)
        if response is None:
            return None
        index = event["output_index"]
        if index >= len(response.outputs):
            self._wrong(f"output {index} was not added")
            return None
        output = response.outputs[index]
        named = event["item"]["id"] if "item" in event else event["item_id"]
        self._need(named == output.item["id"], f"expected item {output.item['id']!r}, got {named!r}")
        self._need(not output.item_done, f"item {named!r} is done")
        return output

    def _output_added(self, event: WireEvent) -> None:
        response = self._open_response(event)
        if response is None:
            return
        expected = len(response.outputs)
        self._need(event["output_index"] == expected, f"expected output_index {expected}, got {event['output_index']}")
        is_new = event["item"].get("status", "in_progress") == "in_progress"  # a call of the server has no status
        self._need(is_new, "a new output item is in progress")
        self._need(event["item"]["id"] not in self._order, "output_item.added comes before conversation.item.added")
        response.outputs.append(_Output(event["item"]))

    def _announced(self, event: WireEvent, output: _Output) -> None:
        response = self._responses[event["response_id"]]
        item_id = output.item["id"]
        joined = item_id in self._order or item_id in self._deleted
        self._need(joined == response.in_conversation, "items of a conversation, and only they, are added to it")

    def _part_added(self, event: WireEvent) -> None:
        output = self._output(event)
        if output is not None:
            self._announced(event, output)
            self._need(not output.part_open and not output.part_done, "a second part")
            self._need(event["content_index"] == 0, "expected content_index 0")
            self._need(event["part"]["type"] in ("audio", "text"), "a part is audio or text")
            output.part_open = True

    def _output_event(self, event: WireEvent, family: str, ending: str) -> None:
        output = self._output(event)
        if output is None:
            return
        if family == _SERVER_ARGUMENTS:
            self._announced(event, output)
        elif family == _ARGUMENTS:
            self._announced(event, output)
            self._need(
                event["call_id"] == output.item.get("call_id"), f"call_id {event['call_id']!r} is not the item's"
            )
        else:
            self._need(output.part_open, "no part is open")
        self._need(family not in output.done, f"{family} is done")
        if ending == "delta":
            output.joined[family] = output.joined.get(family, "") + event["delta"]
        else:
            self._text_done(event, family, output)

    def _text_done(self, event: WireEvent, family: str, output: _Output) -> None:
        key = {_WORDS: "transcript", _TEXT: "text", _ARGUMENTS: "arguments", _SERVER_ARGUMENTS: "arguments"}.get(family)
        whole = "" if key is None else event[key]
        if key is not None:
            self._need(whole == output.joined.get(family, ""), "the deltas do not join to it")
        if family == _ARGUMENTS:
            name = event.get("name")
            self._need(self.dialect == "beta" or name == output.item.get("name"), f"name {name!r} is not the item's")
            self._need(_is_object(whole), f"arguments {whole!r} are no JSON object")
        output.done[family] = whole

    def _part_done(self, event: WireEvent) -> None:
        output = self._output(event)
        if output is None or not self._need(output.part_open, "no part is open"):
            return
        output.part_open, output.part_done = False, True
        part = event["part"]
        families = (_SOUND, _WORDS) if part["type"] == "audio" else (_TEXT,)
        for family in families:
            self._need(family in output.done, f"{family}.done comes before")
        words = part["transcript"] if part["type"] == "audio" else part["text"]
        self._need(words == output.done.get(families[-1]), "the part differs from its done text")

    def _output_done(self, event: WireEvent) -> None:
        output = self._output(event)
        if output is None:
            return
        item = event["item"]
        self._need(item.get("status") != "in_progress", "a done item is not in progress")
        if self.dialect == "beta":
            self._items_done.add(item["id"])  # there is no conversation.item.done
        if self._responses[event["response_id"]].in_conversation:
            is_done = item["id"] in self._items_done or item["id"] in self._deleted
            runs = item["type"] == "mcp_call"  # it is done with its result
            self._need(is_done or runs, "conversation.item.done comes before")
        if item["type"] == "message":
            self._need(output.part_done, "its part is not done")
            words = "".join(part.get("transcript") or part.get("text") or "" for part in item["content"])
            self._need(
                words == "".join(output.done.get(f, "") for f in (_WORDS, _TEXT)), "its words are not the part's"
            )
        elif item["type"] == "mcp_call":
            done = output.done.get(_SERVER_ARGUMENTS, item["arguments"])
            self._need(done == item["arguments"], "its arguments are not the done ones")
        elif item["type"] == "mcp_approval_request":
            self._need(output.done.get(_SERVER_ARGUMENTS) is None, "a call that is not approved has no arguments.done")
        elif item["status"] == "completed":
            self._need(output.done.get(_ARGUMENTS) == item["arguments"], "its arguments are not the done ones")
        output.item, output.item_done = item, True

    def _response_done(self, event: WireEvent) -> None:
        response_json = event["response"]
        response = self._responses.pop(response_json["id"], None)
        if response is None:
            self._wrong(f"response {response_json['id']!r} is not open")
            return
        self._ended.add(response_json["id"])
        self._need(response_json["status"] != "in_progress", "a done response is not in progress")
        self._need(all(output.item_done for output in response.outputs), "an output item is not done")
        self._need(
            response_json["output"] == [output.item for output in response.outputs],
            "output differs from the items done",
        )
        self._need(
            (response_json["status_details"] is None) == (response_json["status"] == "completed"),
            "status_details have the reason",
        )


def _is_object(arguments: str) -> bool:
    try:
        return isinstance(json.loads(arguments), dict)
    except ValueError:
        return False
