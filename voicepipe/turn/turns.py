"""The state of a turn while it runs."""

from __future__ import annotations

from dataclasses import dataclass, field

from voicepipe.turn import budget
from voicepipe.turn.conversation import ClauseSound, FunctionCall, ItemStatus, Message, OutputAudio, OutputText
from voicepipe.turn.ear_events import EarChanged
from voicepipe.turn.holds import Span
from voicepipe.turn.record import Cause, ModelAttempt, Outcome, Speculation, TokenCount
from voicepipe.turn.settings import ReplySettings
from voicepipe.turn.voiced import Voiced
from voicepipe.turn.words import same_words


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

    asked_pause: int = 0
    """The latest pause whose text was requested."""

    awaited_from_ms: int = 0
    """When the wait for that text began: with the last voiced sample, as a rule."""

    provisional: bool = False
    """`text` is the interim text from when the transcriber's time for the final text was up; the final text may still
    come.
    """

    text: str = ""
    interim: str = ""
    shown: str = ""
    """The text of it already sent to the client."""

    aside: bool = False
    """Said over the agent's speech; the client was not notified of it yet."""

    committed: bool = False
    done: bool = False
    """The client was sent all of its text, or a notice that there will be none."""

    deleted: bool = False
    """The client has deleted its item: nothing more is written there or sent about it."""

    failed: str = ""
    ear_hidden_ms: int | None = None
    """How much of connecting to the STT was over when it began, in ms."""

    ears: list[EarChanged] = field(default_factory=list)
    """The STT fallbacks while it was transcribed."""

    turn: Turn | None = None
    """The turn that it belongs to, once it has one."""

    @property
    def known(self) -> bool:
        """Return whether the text of all that was said in it is known, or known to be lost."""
        return bool(self.failed) or self.answered_pause >= self.pauses

    @property
    def heard_now(self) -> bool:
        """Return whether it goes on, or its words are still to come."""
        return not self.committed or not self.known

    @property
    def open(self) -> bool:
        """Return whether a final text may still come."""
        return self.provisional or not self.known

    @property
    def speech_ms(self) -> int:
        return max(0, self.audio_end_ms - self.audio_start_ms)


@dataclass(slots=True)
class Turn:
    """One utterance (or other cause) and its reply."""

    number: int
    id: str
    cause: Cause
    revision: int = 0
    utterances: list[Utterance] = field(default_factory=list)
    marks: dict[str, int] = field(default_factory=dict)
    reply: ReplySettings = field(default_factory=ReplySettings)
    item_id: str = ""
    response_id: str = ""
    response_open: bool = False
    """The client was sent the start of the response, and not yet its end."""

    item_status: ItemStatus = "in_progress"
    """The status of the reply's message."""

    heard_question: str = ""
    """The user's words that the running reply answers."""

    text: str = ""
    clauses: list[ClauseSound] = field(default_factory=list)
    calls: dict[int, FunctionCall] = field(default_factory=dict)
    started_items: list[str] = field(default_factory=list)
    """Ids of the output items that the client was notified of."""

    deleted_items: set[str] = field(default_factory=set)
    """Ids of those that the client has deleted. The client may use an id again, for an item that does not belong to
    this turn.
    """

    speculation: Speculation = field(default_factory=Speculation)
    began_ms: int = 0
    """When the running reply was started."""

    guess: bool = False
    """It was started before the turn was over, and whether it will be heard is not known yet."""

    input_tokens: int = 0
    """What the LLM reads for the running reply, in tokens, estimated from the text."""

    waived: tuple[object, int] | None = None
    """(pause, session ms): the latest start that was not made because it would not have paid."""

    guess_failed: bool = False
    """A reply that was started before the turn was over failed or was in the way: the LLM is asked again at the turn's
    end.
    """

    settled: bool = False
    """The user cannot revise it any more: it has another cause than the user's speech, or the user may not interrupt.
    """

    overlong: bool = False
    """Its deadline ended it: further speech is in the next turn, or noise would never be answered."""

    released: bool = False
    """The gate has opened."""

    finish_reason: str = ""
    voice_done: bool = False
    arrived_ms: int = 0
    audible_at_ms: int | None = None
    """Where the first audible sample lies in the reply's audio."""

    t0_audio_ms: int | None = None
    """t0 as a position in the user's audio; None when it has no position there."""

    sent_ms: int = 0
    plays_until_ms: int = 0
    latest_ms: int = 0
    """Latest session time of its playback: no report moves its end beyond this."""

    reported: bool = False
    """The client has reported when its first audio was heard."""

    cut_told: bool = False
    """The client has reported with an event of its own where it was cut."""

    cut_ms: int | None = None
    """Where in the reply's audio it was cut, if it was."""

    tokens: TokenCount = field(default_factory=TokenCount)
    latest_delta_ms: int = 0
    """When the latest text of the LLM came, or arguments of a call."""

    providers: dict[str, str] = field(default_factory=dict)
    language: str = ""
    """The language of the user's speech as the STT detected it, as BCP-47; empty while unknown."""

    route: str = ""
    """Why that LLM answers."""

    attempts: list[ModelAttempt] = field(default_factory=list)
    connect_hidden_ms: int | None = None
    """How much of connecting to the TTS was over when its reply began, in ms; None when it has no connection of its
    own.
    """

    actions: list[str] = field(default_factory=list)
    projected: dict[str, int] = field(default_factory=dict)
    """Mark -> the heard latency that was expected then, in ms."""

    words: str = ""
    """What its reply says without a request to the LLM."""

    shortened: bool = False
    """The TTS was ordered to begin before a clause had closed."""

    filler: str = ""
    """The filler said while the answer was awaited."""

    filler_item_id: str = ""
    filler_ms: int = 0
    """How much audio of the filler was sent, in ms."""

    voiced: Voiced = field(default_factory=Voiced)
    """The text given to the TTS, by all revisions."""

    ear_ms: dict[str, int] = field(default_factory=dict)
    """STT -> how much audio it was given for this turn's texts, and since the turn before, in ms."""

    active_ms: int = 0
    """How long it took, from the user's first audio to its end, in ms; set at the end."""
    outcome: Outcome | None = None
    reason: str = ""
    holds: list[Span] = field(default_factory=list)
    """When our event loop was blocked, as far as that may have delayed this turn."""

    noted: set[str] = field(default_factory=set)
    """Stages whose overrun was already logged."""

    @property
    def question(self) -> str:
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

    @property
    def pause(self) -> object:
        """Return an identifier of the user's latest pause."""
        return self.revision, [u.pauses for u in self.utterances]

    @property
    def current(self) -> bool:
        """Return whether the running reply answers what the user is known to have said: the same words, however
        written.
        """
        return self.transcribed and same_words(self.heard_question, self.question)

    def add(self, utterance: Utterance) -> None:
        """Count this utterance as part of the turn."""
        if utterance.turn is not self:
            self.utterances.append(utterance)
            utterance.turn = self

    @property
    def all_sent(self) -> bool:
        """Return whether the reply is complete and was sent to the client."""
        told = self.reply.audible or not self.text.strip() or budget.FIRST_SENT in self.marks
        return self.released and not self.response_open and self.sent_ms >= self.arrived_ms and told

    def mark(self, name: str, now_ms: int) -> None:
        """Stamp a mark, once."""
        self.marks.setdefault(name, now_ms)

    def note_delta(self, now_ms: int) -> None:
        """Record that the LLM has sent text, or more of a call."""
        self.mark(budget.FIRST_DELTA, now_ms)
        self.latest_delta_ms = now_ms

    def note_whole(self, finish_reason: str) -> None:
        """Record that the LLM has sent everything, and its finish reason."""
        self.finish_reason = finish_reason
        if budget.FIRST_DELTA in self.marks:
            self.mark(budget.LAST_DELTA, self.latest_delta_ms)

    def revise(self) -> None:
        """Begin the next revision: the reply's state is reset, the user's state is kept."""
        self.revision += 1
        kept = (budget.VOICED_LAST, budget.FLUSHED, budget.TRANSCRIBED, budget.ENDED, *budget.FILLER_MARKS)
        self.marks = {name: ms for name, ms in self.marks.items() if name in kept}
        self.text, self.heard_question, self.finish_reason = "", "", ""
        self.clauses, self.calls, self.started_items = [], {}, []
        self.voice_done, self.arrived_ms, self.audible_at_ms = False, 0, None
        self.reported, self.cut_told = False, False
        self.response_id, self.item_id, self.item_status = "", "", "in_progress"
        self.tokens = TokenCount()
        self.route, self.attempts, self.connect_hidden_ms = "", [], None
        self.actions = [action for action in self.actions if action == "filler"]  # it was said
        self.projected, self.shortened = {}, False

    def queued_ms(self, now_ms: int) -> int:
        """Return how much of the audio that has come is still to be played, in ms."""
        return self.arrived_ms - self.heard_ms(now_ms)

    def heard_ms(self, now_ms: int) -> int:
        """Return how much of the reply's audio has been played by now, in ms, as far as the core knows."""
        if self.cut_ms is not None:
            return self.cut_ms
        return self.sent_ms - min(self.sent_ms, max(0, self.plays_until_ms - now_ms))

    def heard_text(self, now_ms: int) -> str:
        """Return the words of the reply that were heard by now."""
        if not self.reply.audible:
            return self.text
        if self.cut_ms is None and self.heard_ms(now_ms) >= self.arrived_ms and self.voice_done:
            return self.text
        return OutputAudio("", tuple(self.clauses)).heard_until(self.heard_ms(now_ms))

    def message(self) -> Message:
        """Return the reply's words as an item of the conversation, as far as they have come."""
        if not self.reply.audible:
            return Message(self.item_id, "assistant", (OutputText(self.text),), self.item_status)
        speech = OutputAudio(self.text, tuple(self.clauses))
        if self.cut_ms is None:
            return Message(self.item_id, "assistant", (speech,), self.item_status, aside=bool(self.words))
        heard = OutputAudio(speech.heard_until(self.cut_ms), speech.clauses)
        return Message(self.item_id, "assistant", (heard,), "incomplete", aside=bool(self.words))

    def add_sound(self, clause: int, duration_ms: int, word_starts_ms: tuple[int, ...] = ()) -> None:
        """Count audio of a clause. Audio of a clause that was never given to the TTS counts for the last clause."""
        self.arrived_ms += duration_ms
        if self.clauses:
            place = min(max(clause, 0), len(self.clauses) - 1)
            old = self.clauses[place]
            starts_ms = old.word_starts_ms + word_starts_ms
            self.clauses[place] = ClauseSound(old.text, old.sound_ms + duration_ms, starts_ms)
