"""The client's view of a reply: response events, items in the conversation, and the audio that has been played.

Events and items have the same content at every instant.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from voicepipe.turn import notifications as a
from voicepipe.turn.commands import FinalizeReply
from voicepipe.turn.context import Due, Timer, TurnContext
from voicepipe.turn.conversation import ClauseSound, FunctionCall, ItemStatus, Message, OutputAudio
from voicepipe.turn.record import attribution
from voicepipe.turn.record.values import EarlierAudio
from voicepipe.turn.states import Gate
from voicepipe.turn.turn import Turn
from voicepipe.values import replace

_CUT_BY = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""An LLM's reason to finish early -> its name in `response.done`."""


def start_response(context: TurnContext, turn: Turn) -> None:
    """Notify the client that a response is being generated, once."""
    if not turn.reply.response_id:
        turn.reply.response_open, turn.reply.response_id = True, context.new_id("resp")
        context.notify(a.ResponseStarted(turn.reply.response_id, turn.settings, turn.id))


def start_items(context: TurnContext, turn: Turn) -> None:
    """Notify the client of each output item once it has content.

    The message begins with its first word, not with its first clause: words that reach the client's side of the gate
    before their item has begun would be lost.
    """
    if turn.reply.text.strip() and turn.reply.item_id not in turn.reply.started_items:
        _start_item(context, turn, replace(turn.message(), parts=(), status="in_progress"))
    for call in () if turn.question.effects_at_ms is not None else turn.reply.calls.values():
        if call.id not in turn.reply.started_items:
            _start_item(context, turn, replace(call, arguments=""))


def place_first(context: TurnContext, turns: Iterable[Turn]) -> None:
    """Begin the item of a greeting that nothing stands before: the client is about to put an item behind it.

    Later its `previous_item_id` would be null, and most clients show such an item as the conversation's last.
    """
    for turn in turns:
        begins = turn.cause == "greeting" and turn.words and turn.reply.response_open and turn.reply.item_id
        if begins and not turn.reply.started_items and turn.settings.in_conversation:
            _start_item(context, turn, replace(turn.message(), parts=(), status="in_progress"))


def _start_item(context: TurnContext, turn: Turn, item: a.OutputItem) -> None:
    turn.reply.started_items.append(item.id)
    previous = context.join(item, before=turn.reply.later_items) if turn.settings.in_conversation else None
    context.notify(a.OutputStarted(turn.reply.response_id, item, previous))


def filler(turn: Turn) -> Message:
    """Return the filler said while the answer was awaited, as an item; as much of it has audio as was sent."""
    speech = OutputAudio(turn.filler.words, (ClauseSound(turn.filler.words, turn.filler.sent_ms),))
    return Message(turn.filler.item_id, "assistant", (speech,), hidden_from_llm=True)


def finish_response(context: TurnContext, turn: Turn) -> None:
    """Notify the client that the reply is complete, and whether the LLM was cut short."""
    cut_by = cut_short_by(turn)
    if not cut_by:
        end_response(context, turn, "completed")
    else:
        end_response(context, turn, "incomplete", cut_by)


def cut_short_by(turn: Turn) -> str:
    """Return what cut the LLM short, as in `response.done`; empty if nothing has."""
    return _CUT_BY.get(turn.reply.finish_reason, "")


def end_response(
    context: TurnContext, turn: Turn, status: a.ResponseStatus, reason: str = "", message: str = ""
) -> None:
    """Notify the client that the response is over, if it is open."""
    if not turn.reply.response_open:
        return
    turn.reply.response_open = False
    done: ItemStatus = "completed" if status == "completed" else "incomplete"
    turn.reply.item_status = done
    turn.reply.calls = {i: _ended_call(call, done) for i, call in turn.reply.calls.items()}
    write_down(context, turn)
    t = turn.reply.tokens
    tokens = (t.input, t.output, t.cached)
    context.notify(a.ResponseEnded(turn.reply.response_id, status, reason, message, *tokens, turn.failed_stage))


def suspend_response(context: TurnContext, turn: Turn) -> None:
    """Notify the client that the response is cancelled, if it is open. The reply itself may go on, with its calls."""
    if not turn.reply.response_open:
        return
    turn.reply.response_open, turn.reply.item_status = False, "incomplete"
    put(context, turn, turn.message())
    t = turn.reply.tokens
    context.notify(
        a.ResponseEnded(turn.reply.response_id, "cancelled", "turn_detected", "", t.input, t.output, t.cached)
    )


def make_irrevocable(context: TurnContext, turn: Turn) -> None:
    """Make a reply irrevocable."""
    turn.question.reversible_ms = 0
    context.timers.clear(Timer(Due.REVERSIBLE))
    if turn.reply.gate is Gate.OPEN:
        context.issue(FinalizeReply(turn.number, turn.reply.revision))


def whole_arguments(call: FunctionCall) -> str:
    """Return a call's arguments as JSON: an LLM may send none at all for a function without parameters."""
    return call.arguments or "{}"


def _ended_call(call: FunctionCall, status: ItemStatus) -> FunctionCall:
    return replace(call, status=status, arguments=whole_arguments(call))


def write_down(context: TurnContext, turn: Turn) -> None:
    """Write what the reply has said into the conversation, unless the client has deleted the item."""
    if turn.settings.in_conversation:
        put(context, turn, turn.message())
        for call in turn.reply.calls.values():
            put(context, turn, call)


def put(context: TurnContext, turn: Turn, item: a.OutputItem) -> None:
    """Replace an output item of the turn in the conversation, unless the client has deleted it."""
    if item.id not in turn.deleted_items:
        context.conversation.put(item)


# --- playback: in real time, unless the client reports otherwise ------------------------------


@dataclass(slots=True)
class PlaybackModel:
    """A model of the client's loudspeaker, without its reports: it starts at once and never pauses."""

    ends_ms: int = 0
    """Session time at which all sent audio has been played."""

    prompt_ends_ms: int = 0
    """The same without playback reports: reports are believed within a limit from this time."""

    def send(self, duration_ms: int, now_ms: int) -> int:
        """Queue audio after what is playing; return the instant at which it begins to play."""
        starts_ms = max(self.ends_ms, now_ms)
        self.ends_ms = starts_ms + duration_ms
        self.prompt_ends_ms = max(self.prompt_ends_ms, now_ms) + duration_ms
        return starts_ms

    def resume(self, running: Iterable[Turn], missed: Mapping[int, int], now_ms: int, grace_ms: int) -> None:
        """Resume playback after a reconnect: what had not arrived, turn -> ms of its audio, plays from now on."""
        ends_ms = now_ms
        for turn in sorted(running, key=lambda turn: turn.audio.plays_until_ms):
            missed_ms = missed.get(turn.number, 0)
            ends_ms += missed_ms
            if missed_ms:
                _mark_missed(turn, missed_ms, now_ms)
                turn.audio.plays_until_ms = max(turn.audio.plays_until_ms, ends_ms)
            turn.audio.latest_ms = max(turn.audio.latest_ms, turn.audio.plays_until_ms + grace_ms)
        self.ends_ms, self.prompt_ends_ms = max(self.ends_ms, ends_ms), max(self.prompt_ends_ms, ends_ms)

    def flush(self, until_ms: int) -> None:
        """Drop what the client would have played after this instant."""
        self.ends_ms = min(self.ends_ms, until_ms)
        self.prompt_ends_ms = min(self.prompt_ends_ms, until_ms)


def _mark_missed(turn: Turn, missed_ms: int, now_ms: int) -> None:
    """Move the first audible sample to now, at the earliest, if it was sent and had not arrived."""
    arrived_ms, first_audible_ms = turn.audio.sent_ms - missed_ms, turn.marks.get(attribution.FIRST_AUDIBLE)
    if (
        turn.audio.reported
        or first_audible_ms is None
        or turn.audio.audible_at_ms is None
        or arrived_ms > turn.audio.audible_at_ms
    ):
        return
    turn.marks[attribution.FIRST_AUDIBLE] = max(first_audible_ms, now_ms + turn.audio.audible_at_ms - arrived_ms)


def clamped_ms(turn: Turn, played_ms: int) -> int:
    """Return a reported playback position clamped to what is possible: from 0 to what was sent."""
    return min(max(0, played_ms), turn.audio.sent_ms)


def record_carrier_delay(turn: Turn, estimated_ms: int | None) -> bool:
    """Record the first estimate of the delay to a phone carrier and back; return whether this is the first one.

    The estimate does not count in the turn's verdict.
    """
    if estimated_ms is None or turn.audio.carrier_estimated_ms is not None:
        return False
    turn.audio.carrier_estimated_ms = max(0, estimated_ms)
    return True


def record_audible(turn: Turn, played_ms: int, input_ms: int, now_ms: int) -> bool:
    """Stamp when the reply's first audible sample was played, by the client's report; return False if it was known.

    Both ends of the wait are positions in the user's own audio: `input_ms` less what has played since that sample, and
    t0. No clock but the client's is involved, and the network round trip counts. For a turn without t0 in the user's
    audio (there was no speech) the report's arrival counts. Impossible values are clamped: nothing is played before it
    was sent, nor after it was reported.
    """
    audible_ms, sent_ms = turn.audio.audible_at_ms, turn.marks.get(attribution.FIRST_SENT)
    if turn.audio.reported or audible_ms is None or sent_ms is None or played_ms < audible_ms:
        return False
    since_ms = played_ms - audible_ms
    first_audible_ms = now_ms - since_ms
    if turn.question.t0_audio_ms is not None:
        first_audible_ms = turn.marks[attribution.VOICED_LAST] + input_ms - since_ms - turn.question.t0_audio_ms
    first_audible_ms = min(max(first_audible_ms, sent_ms), now_ms)
    turn.marks[attribution.FIRST_AUDIBLE] = first_audible_ms
    if turn.marks.get(attribution.EARLIER_AUDIO_ENDED, 0) > first_audible_ms:
        turn.marks[attribution.EARLIER_AUDIO_ENDED] = first_audible_ms  # the client had dropped some of it
    turn.audio.reported = True
    return True


def move_end(turn: Turn, played_ms: int, running: Iterable[Turn], now_ms: int) -> None:
    """Move the end of playback: `played_ms` has been played by now, so the rest, and all audio after it, ends
    accordingly.
    """
    ends_ms = now_ms + turn.audio.sent_ms - played_ms
    if not played_ms:
        ends_ms = max(ends_ms, turn.audio.plays_until_ms)  # the reply before it may be playing yet
    later_ms = min(ends_ms, turn.audio.latest_ms) - turn.audio.plays_until_ms
    for each in [
        each for each in running if each.audio.sent_ms and each.audio.plays_until_ms >= turn.audio.plays_until_ms
    ]:
        each.audio.plays_until_ms += later_ms


def earlier_audio(turn: Turn, replies: Iterable[Turn], ends_ms: int, now_ms: int) -> EarlierAudio | None:
    """Return what plays until `ends_ms`, before a reply whose first audio is sent now; None: nothing plays."""
    if ends_ms <= now_ms:
        return None
    playing = [each for each in replies if each is not turn and each.audio.sent_ms]
    last = max(playing, key=lambda each: each.audio.plays_until_ms, default=None)
    if last is None or last.audio.plays_until_ms < ends_ms:
        return "filler"
    if last in turn.replies:
        return "announcement"
    if last.cause == "greeting":
        return "greeting"
    return "phrase" if last.words else "answer"


def mark_audible(turn: Turn, starts_ms: int, duration_ms: int, now_ms: int) -> None:
    """Stamp when the first audible sample was sent, and when it plays if the client plays at once."""
    audible_ms = turn.audio.audible_at_ms
    if audible_ms is None or attribution.FIRST_AUDIBLE in turn.marks or turn.audio.sent_ms <= audible_ms:
        return
    turn.mark(attribution.FIRST_SENT, now_ms)
    if turn.audio.starts_ms is not None and turn.audio.starts_ms > now_ms:
        turn.mark(attribution.EARLIER_AUDIO_ENDED, turn.audio.starts_ms)
    turn.mark(attribution.FIRST_AUDIBLE, starts_ms + max(0, audible_ms - (turn.audio.sent_ms - duration_ms)))


def cut(context: TurnContext, turn: Turn, at_ms: int) -> None:
    """Cut a reply at this position of its audio, unless it is cut already or was played to its end."""
    whole = turn.reply.voice_done and at_ms >= turn.audio.arrived_ms
    if turn.settings.audible and turn.reply.gate is Gate.OPEN and turn.audio.cut_ms is None and not whole:
        turn.audio.cut_ms = at_ms
        write_down(context, turn)


def move_cut(context: TurnContext, turn: Turn, cut_ms: int) -> bool:
    """Move the cut of a reply; return whether the cut is beyond the reply's end, so that the reply is whole."""
    whole = turn.reply.voice_done and cut_ms >= turn.audio.arrived_ms
    turn.audio.cut_ms = None if whole else cut_ms
    write_down(context, turn)
    return whole
