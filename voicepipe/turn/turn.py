"""The state of a turn while it runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from voicepipe.turn.conversation import Message, OutputAudio, OutputText
from voicepipe.turn.cost import TtsUsage, text_tokens
from voicepipe.turn.endpointing.completeness import same_words
from voicepipe.turn.events import TranscriberChanged
from voicepipe.turn.record import attribution
from voicepipe.turn.record.attribution import StallInterval
from voicepipe.turn.record.marks import FIRST_ROUND, ToolRound, tool_rounds
from voicepipe.turn.record.values import (
    MAX_ARGUMENTS_CHARS,
    Cause,
    ContextUse,
    EarlierAudio,
    FailedStage,
    KnowledgeUse,
    Outcome,
    Speculation,
    TokenCount,
    ToolCall,
    ToolResult,
    TurnElsewhere,
)
from voicepipe.turn.reply import Filler, Reply
from voicepipe.turn.settings import ReplySettings
from voicepipe.turn.states import Gate, QueuePlace, Revisable, TranscriptState
from voicepipe.values import replace

USERS_MARKS: Final = (
    attribution.VOICED_LAST,
    attribution.FLUSHED,
    attribution.TRANSCRIBED,
    attribution.END_DUE,
    attribution.ENDED,
)
"""The marks that outlive a reply."""


@dataclass(slots=True)
class Utterance:
    """A stretch of the user's speech that becomes one item."""

    number: int
    item_id: str
    audio_start_ms: int = 0
    audio_end_ms: int = 0
    pauses: int = 0
    """How often the user fell silent in it. A flush has the number of its pause."""

    answered_pause: int = 0
    """The latest pause whose text is known."""

    requested_pause: int = 0
    """The latest pause whose text was requested."""

    awaited_from_ms: int = 0
    """When the wait for that text began: with the last voiced sample, as a rule."""

    text: str = ""
    text_is_interim: bool = False
    """`text` is the interim text from when the transcriber's time for the final text was up. This is no state of the
    transcript: it names the source of `text`, also while the text of a later pause is pending.
    """

    interim: str = ""
    sent_text: str = ""
    """The text of it already sent to the client."""

    unreported: bool = False
    """Said over the agent's speech; the client was not notified of it yet."""

    committed: bool = False
    done: bool = False
    """The client was sent all of its text, or a notice that there will be none."""

    deleted: bool = False
    """The client has deleted its item: nothing more is written there or sent about it."""

    failed: str = ""
    """Why its transcript is lost; empty: it is not."""

    stt_hidden_ms: int | None = None
    """How much of connecting to the STT was over when it began, in ms."""

    stt_changes: list[TranscriberChanged] = field(default_factory=list)
    """The STT fallbacks while it was transcribed."""

    stt_changed_ms: int = 0
    """Time of the latest of these."""

    turn: Turn | None = None
    """The turn that it belongs to, once it has one."""

    @property
    def transcript(self) -> TranscriptState:
        """Return the state of its transcript. It follows from what has come, so that it cannot contradict it."""
        if self.failed:
            return TranscriptState.LOST
        if self.answered_pause < self.pauses:
            return TranscriptState.PENDING
        return TranscriptState.PROVISIONAL if self.text_is_interim else TranscriptState.FINAL

    @property
    def known(self) -> bool:
        """Return whether the text of all that was said in it is known, or known to be lost."""
        return self.transcript is not TranscriptState.PENDING

    @property
    def in_progress(self) -> bool:
        """Return whether the utterance continues, or its words are still to come."""
        return not self.committed or not self.known

    @property
    def open(self) -> bool:
        """Return whether a final text may still come."""
        return self.transcript in (TranscriptState.PENDING, TranscriptState.PROVISIONAL)

    @property
    def speech_ms(self) -> int:
        return max(0, self.audio_end_ms - self.audio_start_ms)


@dataclass(slots=True)
class Question:
    """The user's side of a turn. It outlives the revisions of the reply."""

    utterances: list[Utterance] = field(default_factory=list)
    language: str = ""
    """The language of the user's speech as the STT detected it, as BCP-47; empty while unknown."""

    t0_audio_ms: int | None = None
    """t0 as a position in the user's audio; None when it has no position there."""

    revisable: Revisable = Revisable.OPEN
    """Whether the user may still revise it. This is no place in the queue: it stays so while the reply is made and
    played.
    """

    typed: str = ""
    """What the user typed, in a turn that the client requested after it."""

    reversible_ms: int = 0
    """How long after the answer's first audible sample the latest end may be taken back, in ms; 0: never."""

    effects_at_ms: int | None = None
    """Session ms until which function calls and the turn's outcome wait; None: they may leave."""

    n_resumed: int = 0
    """How often the user has gone on while the answer was audible."""

    taken_back_ms: int = 0
    """How much the user had heard of the answers that were dropped for that, in ms."""

    refused_start: tuple[object, int] | None = None
    """(pause, session ms): the latest start of a reply that was not made because it would not have paid."""

    def end(self, *, overlong: bool) -> None:
        """Record that the user's speech has ended, `overlong`: by its deadline. A turn with a `FIXED` question is no
        longer the user's, so its speech has no end."""
        self.revisable = Revisable.OVERLONG if overlong else Revisable.OPEN

    @property
    def text(self) -> str:
        """Return all that the user said in this turn."""
        return " ".join(u.text for u in self.utterances if u.text)

    @property
    def transcribed(self) -> bool:
        """Return whether the words of all that the user said are known, or known to be lost."""
        return all(u.known for u in self.utterances)

    @property
    def lost(self) -> str:
        """Return why the user's words are lost; empty when none were lost."""
        return next((u.failed for u in self.utterances if u.failed), "")


@dataclass(slots=True)
class ReplyAudio:
    """The audio of one reply: what has come from the TTS, was sent to the client, and was played there."""

    arrived_ms: int = 0
    audible_at_ms: int | None = None
    """Where the first audible sample lies in it."""

    sent_ms: int = 0
    plays_until_ms: int = 0
    latest_ms: int = 0
    """Latest session time of its playback: no report moves its end beyond this."""

    starts_ms: int | None = None
    """When its first piece begins to play, as computed when it was sent; None: nothing was sent."""

    behind: EarlierAudio | None = None
    """What played until then; None: nothing."""

    reported: bool = False
    """The client has reported when its first audio was played."""

    carrier_estimated_ms: int | None = None
    """The first estimate of the way to a phone carrier and back, in ms."""

    cut_reported: bool = False
    """The client has reported the position of the cut with a separate event."""

    cut_ms: int | None = None
    """The position of the cut, if there was one."""

    def queued_ms(self, now_ms: int) -> int:
        """Return how much of the audio that has come is still to be played, in ms."""
        return self.arrived_ms - self.played_ms(now_ms)

    def played_ms(self, now_ms: int) -> int:
        """Return how much of it has been played by now, in ms, by the model of playback."""
        if self.cut_ms is not None:
            return self.cut_ms
        return self.sent_ms - min(self.sent_ms, max(0, self.plays_until_ms - now_ms))


@dataclass(slots=True)
class Accounting:
    """The resources of a turn, for all of its revisions, and the holds that have delayed it."""

    providers: dict[str, str] = field(default_factory=dict)
    """Stage -> the provider that served it latest."""

    waited_for: dict[str, str] = field(default_factory=dict)
    """Stage -> the provider that its first output was waited for longest, whichever has served it since. Empty: as in
    `providers`.
    """

    speculation: Speculation = field(default_factory=Speculation)
    input_tokens: int = 0
    """Input tokens of the latest reply, estimated from the text."""

    context: ContextUse = field(default_factory=ContextUse)
    """How much of the conversation the LLM was given for the latest reply."""

    knowledge: KnowledgeUse = field(default_factory=KnowledgeUse)
    """The passages that the LLM was given for the latest reply."""

    embedding_usd: float | None = 0.0
    """The cost of the queries embedded so far; None: the price is unknown."""

    tts_usage: TtsUsage = field(default_factory=TtsUsage)
    """The text sent to the TTS."""

    speech_usd: float = 0.0
    """The cost of a speech-to-speech model, as far as it has counted its tokens."""

    speech_counted: bool = True
    """Whether it has counted those of the latest reply that it was to make, and their price is known."""

    stt_ms: dict[str, int] = field(default_factory=dict)
    """STT -> audio sent to it for this turn's texts, and since the turn before, in ms."""

    active_ms: int = 0
    """How long the turn took, from the user's first audio to its end, in ms; set at the end."""

    stalls: list[StallInterval] = field(default_factory=list)
    """When our event loop was blocked, as far as that may have delayed this turn."""

    logged_stages: set[str] = field(default_factory=set)
    """Stages whose overrun was already logged."""


@dataclass(slots=True)
class Turn:
    """One utterance (or other cause) and its reply."""

    number: int
    id: str
    cause: Cause
    settings: ReplySettings = field(default_factory=ReplySettings)
    """How its reply is made."""

    words: str = ""
    """The text of a reply without a request to the LLM."""

    interruptible: bool = True
    """Whether the user's speech may stop its reply, as far as the session's settings let it."""

    before: Turn | None = None
    """The reply that called the tools whose results this one answers: for the user both are one turn, with one id."""

    elsewhere: TurnElsewhere | None = None
    """The part of it that another process had: for the user both are one turn, with one id."""

    tool_round: int = 1
    """Number of its reply among those that are one turn for the user."""

    tool_calls: dict[str, ToolCall] = field(default_factory=dict)
    """The function calls that were sent to the client, by the id of the call."""

    answered_after_tools: bool = False
    """Another reply of the same turn answers the results of its function calls."""

    tools_started: bool = False
    """The server has started its functions among them."""

    awaits_approval: bool = False
    """A call among them waited for the client's approval."""

    ends_session: bool = False
    """Its reply has ended the session: no function is called any more."""

    tools_called_ms: int | None = None
    """When they were sent; None: there are none."""

    marks: dict[str, int] = field(default_factory=dict)
    question: Question = field(default_factory=Question)
    reply: Reply = field(default_factory=Reply)
    audio: ReplyAudio = field(default_factory=ReplyAudio)
    filler: Filler = field(default_factory=Filler)
    account: Accounting = field(default_factory=Accounting)
    deleted_items: set[str] = field(default_factory=set)
    """Ids of its output items that the client has deleted. The client may use an id again, for an item that does not
    belong to this turn.
    """

    speculation_failed: bool = False
    """A speculative reply failed or was in the way: the LLM request is repeated at the turn's end.

    This is no state: it is a fact of the turn's past that lasts through all of its revisions, and that any place, gate
    or question may have.
    """

    place: QueuePlace | None = None
    """Where it stands in the queue of replies; None: nowhere, since the user or the agent has it, or it has ended."""

    outcome: Outcome | None = None
    reason: str = ""
    failed_stage: FailedStage | None = None

    @property
    def pause(self) -> object:
        """Return an identifier of the user's latest pause."""
        return self.reply.revision, [u.pauses for u in self.question.utterances]

    @property
    def current(self) -> bool:
        """Return whether the running reply answers what the user is known to have said: the same words, however
        written.
        """
        return self.question.transcribed and same_words(self.reply.reply_question, self.question.text)

    def add(self, utterance: Utterance) -> None:
        """Count this utterance as part of the turn."""
        if utterance.turn is not self:
            self.question.utterances.append(utterance)
            utterance.turn = self

    @property
    def all_sent(self) -> bool:
        """Return whether the reply is complete and was sent to the client."""
        delivered = self.settings.audible or not self.reply.text.strip() or attribution.FIRST_SENT in self.marks
        sent = self.audio.sent_ms >= self.audio.arrived_ms
        return self.reply.gate is Gate.OPEN and not self.reply.response_open and sent and delivered

    def mark(self, name: str, now_ms: int) -> None:
        """Stamp a mark, once."""
        self.marks.setdefault(name, now_ms)

    def record_calls(self, now_ms: int) -> None:
        """Record that the reply's function calls were sent to the client: with their last argument, or when the gate
        opened.
        """
        written_ms = self.marks.get(attribution.LAST_DELTA, now_ms)
        self.tools_called_ms = min(now_ms, max(written_ms, self.marks.get(attribution.GATE_OPENED, written_ms)))
        self.awaits_approval = any(call.approval for call in self.reply.calls.values())
        began_ms = {call_id: look_up.began_ms for call_id, look_up in self.reply.look_ups.items()}
        self.tool_calls = {
            call.call_id: ToolCall(
                name=call.name,
                ran_by="server" if call.server_label else "client",
                early_ms=self.tools_called_ms - began_ms.get(call.call_id, self.tools_called_ms),
                arguments=call.arguments[:MAX_ARGUMENTS_CHARS],
            )
            for call in self.reply.calls.values()
        }

    @property
    def tokens(self) -> TokenCount:
        """Return what the running reply's LLM has read and written: as its provider reports, or estimated from the
        text, since few report it for a cancelled answer.
        """
        counted, calls = self.reply.tokens, self.reply.calls.values()
        if counted.input + counted.output:
            return counted
        return TokenCount(self.account.input_tokens, text_tokens(self.reply.text, *(call.arguments for call in calls)))

    @property
    def calling_round(self) -> ToolRound:
        """Return the round of the reply's function calls: the first for those of the first reply that called."""
        return ToolRound(1 + sum(1 for _ in tool_rounds(self.marks)))

    def record_result(self, call_id: str, now_ms: int, outcome: ToolResult = "returned") -> None:
        """Record the result of a function call; only the first one counts."""
        call = self.tool_calls.get(call_id)
        if call is not None and call.took_ms is None and self.tools_called_ms is not None:
            self.tool_calls[call_id] = replace(call, took_ms=now_ms - self.tools_called_ms, outcome=outcome)

    @property
    def replies(self) -> tuple[Turn, ...]:
        """Return the replies that are one turn for the user: those that called functions, and this one."""
        newest_first = [self]
        while (before := newest_first[-1].before) is not None:
            newest_first.append(before)
        return tuple(reversed(newest_first))

    def go_on_from(self, elsewhere: TurnElsewhere | None) -> None:
        """Become the rest of a turn that another process had; None: of none."""
        if elsewhere is not None:
            self.elsewhere, self.id = elsewhere, elsewhere.id
            self.question.typed = elsewhere.user_text

    def continue_after_tools(self, after: Turn, now_ms: int) -> None:
        """Become the answer to the results of the tools that `after` has called: the same turn for the user.

        The user's marks stay. Those of the reply that called are numbered, so that the answer can have its own.
        """
        self.before, self.question, self.filler = after, after.question, after.filler
        self.tool_round = after.tool_round + 1
        self.question.reversible_ms = 0  # the calls have left
        after.answered_after_tools, after.account.active_ms = True, 0  # the time is the answer's
        self.account.stalls, self.account.logged_stages = [*after.account.stalls], after.account.logged_stages
        calling, earlier = after.calling_round, tuple(tool_rounds(after.marks))
        projected = {each.called for each in (*earlier, calling)}
        self.reply.projected = {name: ms for name, ms in after.reply.projected.items() if name in projected}
        called_ms = now_ms if after.tools_called_ms is None else after.tools_called_ms
        written_ms = after.marks.get(attribution.LAST_DELTA, called_ms)
        held = (
            calling == FIRST_ROUND and after.cause == "vad" and written_ms < after.marks.get(attribution.GATE_OPENED, 0)
        )
        retained = {*USERS_MARKS, *attribution.FILLER_MARKS, *(mark for each in earlier for mark in each.marks)}
        retained |= set() if held else {attribution.START_DUE}
        self.marks = {name: ms for name, ms in after.marks.items() if name in retained}
        numbered = {calling.announced: attribution.FIRST_AUDIBLE}
        numbered |= (
            {calling.written: attribution.LAST_DELTA}
            if held
            else {
                calling.llm_requested: attribution.LLM_REQUESTED,
                calling.speech_requested: attribution.SPEECH_REQUESTED,
            }
        )
        self.marks |= {name: after.marks[mark] for name, mark in numbered.items() if mark in after.marks}
        self.marks |= {calling.called: called_ms, calling.returned: now_ms}

    @property
    def by_speech_model(self) -> bool:
        """Return whether a speech-to-speech model makes the running reply, and has not failed."""
        return attribution.SPEECH_REQUESTED in self.marks and attribution.LLM_REQUESTED not in self.marks

    def record_delta(self, now_ms: int) -> None:
        """Record that the LLM has sent text, or more of a call."""
        self.mark(attribution.FIRST_DELTA, now_ms)
        self.reply.latest_delta_ms = now_ms

    def record_finish(self, finish_reason: str) -> None:
        """Record that the LLM has sent everything, and its finish reason."""
        self.reply.finish_reason = finish_reason
        if attribution.FIRST_DELTA in self.marks:
            self.mark(attribution.LAST_DELTA, self.reply.latest_delta_ms)

    def revise(self) -> None:
        """Begin the next revision: a new reply, without audio. The user's state is kept."""
        self.reply, self.audio = self.reply.next_revision(), ReplyAudio()
        retained = (*USERS_MARKS, *attribution.FILLER_MARKS)
        self.marks = {name: ms for name, ms in self.marks.items() if name in retained}

    def audible_played_ms(self, now_ms: int) -> int:
        """Return how much of the reply the user has heard by now, from its first audible sample, in ms."""
        return self.reply.earlier_ms + max(0, self.audio.played_ms(now_ms) - (self.audio.audible_at_ms or 0))

    @property
    def calls_left(self) -> bool:
        """Return whether the client was notified of a function call of this reply."""
        return any(call.id in self.reply.started_items for call in self.reply.calls.values())

    def continue_reply(self, item_id: str) -> tuple[Message, int]:
        """Go on with a reply that was cut, from the word that was being spoken.

        Returns:
            The message of the words before that word, and where that word begins in the audio so far, in ms.
        """
        speech = OutputAudio(self.reply.text, tuple(self.reply.clauses))
        from_ms, rest = speech.rest(self.audio.cut_ms or 0)
        self.audio.cut_ms = from_ms
        played, played_ms = self.message(), max(0, from_ms - (self.audio.audible_at_ms or 0))
        self.reply = self.reply.continued(item_id, speech.played_until(from_ms), rest, played_ms)
        self.audio = ReplyAudio(
            self.audio.arrived_ms - from_ms,
            audible_at_ms=0,
            latest_ms=self.audio.latest_ms,
            starts_ms=self.audio.starts_ms,
            behind=self.audio.behind,
            reported=self.audio.reported,
        )
        return played, from_ms

    def played_text(self, now_ms: int) -> str:
        """Return the words of the reply that were played by now."""
        reply, audio = self.reply, self.audio
        if not self.settings.audible:
            return reply.text
        if audio.cut_ms is None and audio.played_ms(now_ms) >= audio.arrived_ms and reply.voice_done:
            return reply.text
        return OutputAudio("", tuple(reply.clauses)).played_until(audio.played_ms(now_ms))

    def message(self) -> Message:
        """Return the reply's words as an item of the conversation, as far as they have come."""
        reply, cut_ms = self.reply, self.audio.cut_ms
        if not self.settings.audible:
            return Message(reply.item_id, "assistant", (OutputText(reply.text),), reply.item_status)
        speech = OutputAudio(reply.text, tuple(reply.clauses))
        if cut_ms is None:
            return Message(
                reply.item_id, "assistant", (speech,), reply.item_status, hidden_from_llm=self.cause == "apology"
            )
        played = OutputAudio(speech.played_until(cut_ms), speech.clauses)
        return Message(reply.item_id, "assistant", (played,), "incomplete", hidden_from_llm=self.cause == "apology")

    def add_sound(self, clause: int, duration_ms: int, word_starts_ms: tuple[int, ...] = ()) -> None:
        """Count audio of a clause. Audio of a clause that was never given to the TTS counts for the last clause."""
        self.audio.arrived_ms += duration_ms
        clauses = self.reply.clauses
        if clauses:
            place = min(max(clause - self.reply.earlier_clauses, 0), len(clauses) - 1)
            clauses[place] = clauses[place].with_sound(duration_ms, word_starts_ms)
