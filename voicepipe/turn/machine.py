"""The core: facts in, orders out. The hands that carry out the law of `states`, and the one gate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from voicepipe.turn import budget, ledger
from voicepipe.turn import events as e
from voicepipe.turn.agent import AgentSide
from voicepipe.turn.caller import CallerSide
from voicepipe.turn.commands import DropAudio, Order
from voicepipe.turn.conversation import FunctionOutput, InputAudio, Item, Message
from voicepipe.turn.floor import Floor
from voicepipe.turn.history import History
from voicepipe.turn.settings import CoreSettings, TurnSettings
from voicepipe.turn.states import Agent, Caller
from voicepipe.turn.turns import Turn

_Hand = Callable[[Any, int], None]


class Core:
    """One session's turns. Pure: no I/O, no clock, no log; the same facts give the same orders.

    `handle` never raises on a fact and never waits. A fact that belongs to a stale revision, or
    that the state has no use for, changes nothing.
    """

    def __init__(self, session: str, settings: TurnSettings, core: CoreSettings | None = None) -> None:
        self.floor = Floor(session, core or CoreSettings(), settings)
        self.unlawful: list[str] = []
        """Moves that the law does not name: our bugs. Empty, or a test is red."""

        self.ignored = 0
        """Facts of stale revisions."""

        self.caller = CallerSide(self.floor, self.unlawful)
        self.agent = AgentSide(self.floor, self.unlawful)
        self._history = History(self.floor, self.agent)
        self._asked: list[Turn] = []
        """Replies that were asked for and wait for the words of the caller."""

        self._waiting: Turn | None = None
        """A turn that was over while a reply that may not be interrupted was still being made."""

        self._over = False
        self._hands: dict[type, _Hand] = self._caller_hands() | self._client_hands()

    def handle(self, fact: e.Fact, now_ms: int) -> tuple[Order, ...]:
        """Advance by one fact; returns the orders that follow from it, in order."""
        if self._over:
            return ()
        self.caller.facing(fact)
        self.agent.facing(fact)
        hand = self._hands.get(type(fact))
        if hand is not None:
            hand(fact, now_ms)
        else:
            self._of_reply(fact, now_ms)
        self._settle(now_ms)
        self.floor.arm()
        orders, self.floor.orders = tuple(self.floor.orders), []
        return orders

    # --- the gate -----------------------------------------------------------------------------

    def _settle(self, now_ms: int) -> None:
        """Let the two sides meet: start what may start, open the gate if it may open.

        A reply that is complete the moment its gate opens makes room for the next one, so this goes on
        until nothing moves: each pass starts, opens or ends a turn, and no turn does any of it twice.
        """
        before = None
        while before != (before := (self.caller.state, self.agent.state, self.agent.turn, len(self._asked))):
            self._settle_caller(now_ms)
            self._start_asked(now_ms)
            self._start_waiting(now_ms)
            self._open_gate(now_ms)

    def _open_gate(self, now_ms: int) -> None:
        turn = self.agent.turn
        if turn is not None and self.agent.state is Agent.READY and self._may_open(turn):
            self.agent.open_gate(turn, now_ms)
        if self.caller.state is Caller.ENDED and (t := self.caller.turn) is not None and (t.released or t.outcome):
            self.caller.leave()

    def _may_open(self, turn: Turn) -> bool:
        """The gate: the turn is over, the reply is current, and it answers what was said."""
        if turn.settled:
            return True
        over = self.caller.state is Caller.ENDED and self.caller.turn is turn
        return over and turn.transcribed and turn.heard_question == turn.question

    def _settle_caller(self, now_ms: int) -> None:
        turn = self.caller.turn
        if turn is None or not turn.transcribed:
            return
        if self.caller.state is Caller.ENDED and turn.outcome is None:
            self._answer(turn, now_ms)
        elif self.caller.state is Caller.HOLDING and self._may_guess(turn):
            self._prepare(turn, now_ms)

    def _may_guess(self, turn: Turn) -> bool:
        """Whether to start the reply at a short silence, before the turn is over."""
        wanted = self.floor.core.speculate and self.floor.settings.create_response and turn.question
        return bool(wanted and not turn.guess_failed and not self._asked)

    def _answer(self, turn: Turn, now_ms: int) -> None:
        """The turn is over and its words are known: reply, unless there is nothing to reply to."""
        lost = next((u.failed for u in turn.utterances if u.failed), "")
        if not turn.question and not lost:
            self._abandon(turn, "nothing was said", now_ms)
        elif not self.floor.settings.create_response:
            if self.agent.turn is turn:
                self.agent.revise(turn, now_ms)  # it was a guess, and nobody asked for it
            self.caller.unanswered = turn
            self.caller.leave()
        elif not turn.question:
            self.agent.fail(turn, "stt", lost, now_ms)
        elif self.agent.turn is not turn and self.agent.busy:
            self._waiting = turn
            turn.settled = True
            self.caller.leave()
        else:
            self._prepare(turn, now_ms)
            self.agent.announce(turn)

    def _prepare(self, turn: Turn, now_ms: int) -> None:
        """Start the reply to what the caller said, or start it again if they said something else."""
        if self.agent.turn is turn:
            if turn.heard_question == turn.question:
                return
            self.agent.revise(turn, now_ms)
        if self.agent.turn is None or not self.agent.busy:
            self.agent.start(turn, self._items_with(turn), now_ms)

    def _items_with(self, turn: Turn) -> tuple[Item, ...]:
        """The conversation, and what the caller says in this turn even before it is an item."""
        self.agent.write_down()
        items = self.floor.conversation.items
        unborn = (u for u in turn.utterances if not u.committed)
        return (*items, *(Message(u.item_id, "user", (InputAudio(u.text),)) for u in unborn))

    def _start_asked(self, now_ms: int) -> None:
        if self._asked and not self.caller.pending():
            asked, self._asked = self._asked, []
            for turn in asked:
                lost = next((u.failed for u in turn.utterances if u.failed), "")
                if lost and not turn.question:
                    self.agent.fail(turn, "stt", lost, now_ms)
                else:
                    self.agent.start(turn, self._items_with(turn), now_ms)

    def _start_waiting(self, now_ms: int) -> None:
        turn = self._waiting
        if turn is not None and not self.agent.busy:
            self._waiting = None
            self.agent.start(turn, self._items_with(turn), now_ms)
            self.agent.announce(turn)

    def _abandon(self, turn: Turn, why: str, now_ms: int) -> None:
        turn.outcome, turn.reason = "abandoned", why
        ledger.keep(self.floor, turn, now_ms)
        if self.caller.turn is turn:
            self.caller.leave()

    # --- the caller's facts -------------------------------------------------------------------

    def _caller_hands(self) -> dict[type, _Hand]:
        caller = self.caller
        return {
            e.SpeechStarted: self._speech_started,
            e.SpeechPaused: caller.speech_paused,
            e.SilenceGrew: caller.silence_grew,
            e.TranscriptGrew: lambda fact, now_ms: caller.transcript_grew(fact),
            e.TranscriptFinished: caller.transcript_finished,
            e.TranscriberFailed: caller.transcript_failed,
        }

    def _speech_started(self, fact: e.SpeechStarted, now_ms: int) -> None:
        if self.caller.manual:
            return
        turn, may_interrupt = self.caller.turn, self.floor.settings.interrupt_response
        if turn is None:
            if may_interrupt:
                self._interrupt(now_ms)
        elif self.caller.state is Caller.ENDED and not may_interrupt and self.agent.turn is turn:
            turn.settled = True  # its reply comes whatever the caller says next
            self.caller.leave()
        elif self.caller.state is not Caller.SPEAKING:
            self.agent.revise(turn, now_ms)
        self.caller.speech_started(fact, now_ms)

    def _interrupt(self, now_ms: int) -> None:
        self.agent.yield_floor(now_ms)
        for turn in (*self._asked, *((self._waiting,) if self._waiting else ())):
            if turn.reply.in_conversation:
                self.agent.give_up(turn, "abandoned", "turn_detected", now_ms)
        self._asked = [turn for turn in self._asked if turn.outcome is None]
        self._waiting = None

    # --- the client's facts -------------------------------------------------------------------

    def _client_hands(self) -> dict[type, _Hand]:
        history = self._history
        return {
            e.SettingsChanged: self._settings_changed,
            e.CommitRequested: self._commit_requested,
            e.ClearRequested: self._clear_requested,
            e.ReplyRequested: self._reply_requested,
            e.CancelRequested: self._cancel_requested,
            e.ItemOffered: lambda fact, now_ms: history.offered(fact),
            e.ItemTruncated: history.truncated,
            e.ItemDeleted: lambda fact, now_ms: history.deleted(fact),
            e.ItemWanted: lambda fact, now_ms: history.wanted(fact),
            e.TimePassed: self._time_passed,
            e.CallerLeft: self._caller_left,
        }

    def _settings_changed(self, fact: e.SettingsChanged, now_ms: int) -> None:
        self._give_up_dropped(self.caller.settings_changed(fact), "turn detection changed", now_ms)

    def _commit_requested(self, fact: e.CommitRequested, now_ms: int) -> None:
        turn = self.caller.turn
        if turn is not None and self.agent.turn is turn and self.caller.state is Caller.HOLDING:
            self.agent.revise(turn, now_ms)  # a commit starts no reply, so the guess was in vain
        self.caller.commit_requested(fact, now_ms)

    def _clear_requested(self, fact: e.ClearRequested, now_ms: int) -> None:
        self._give_up_dropped(self.caller.clear_requested(now_ms), "cleared by the client", now_ms)

    def _give_up_dropped(self, turn: Turn | None, why: str, now_ms: int) -> None:
        if turn is None:
            return
        if self.agent.turn is turn:
            self.agent.give_up(turn, "abandoned", why, now_ms)
        else:
            self._abandon(turn, why, now_ms)

    def _reply_requested(self, fact: e.ReplyRequested, now_ms: int) -> None:
        in_band, guess = fact.reply.in_conversation, self.caller.turn
        if in_band and guess is not None and self.agent.turn is guess and self.caller.state is Caller.HOLDING:
            guess.guess_failed = True  # nobody knows of it yet, and what the client asks for goes first
            self.agent.revise(guess, now_ms)
        expected = self.caller.state is Caller.ENDED and self.floor.settings.create_response
        taken = self.agent.busy or expected or any(t.reply.in_conversation for t in self._asked)
        if in_band and taken:
            self.floor.refuse(
                fact.event_id,
                "conversation_already_has_active_response",
                "expected no response in progress; wait for its response.done or cancel it first",
            )
            return
        turn = self._turn_for_request(fact)
        turn.reply, turn.settled = fact.reply, True
        turn.mark(budget.VOICED_LAST, now_ms)
        turn.mark(budget.ENDED, now_ms)
        self.agent.announce(turn)
        self._asked.append(turn)

    def _turn_for_request(self, fact: e.ReplyRequested) -> Turn:
        unanswered, items = self.caller.unanswered, self.floor.conversation.items
        if unanswered is not None and fact.reply.in_conversation:
            self.caller.unanswered = None
            return unanswered
        return self.floor.new_turn("tool" if items and isinstance(items[-1], FunctionOutput) else "create")

    def _cancel_requested(self, fact: e.CancelRequested, now_ms: int) -> None:
        asked = next((t for t in self._asked if fact.response_id in (None, t.response_id)), None)
        if asked is not None:
            self._asked.remove(asked)
            self.agent.give_up(asked, "abandoned", "client_cancelled", now_ms)
        elif self._waiting is not None and fact.response_id is None and not self.agent.busy:
            self._waiting = None
        else:
            self.agent.cancel_requested(fact, now_ms)

    # --- the reply's facts --------------------------------------------------------------------

    def _of_reply(self, fact: Any, now_ms: int) -> None:
        turn = self.agent.find(fact.turn, fact.revision)
        over = turn is not None and turn.released and not turn.response_open
        if turn is None or (over and not isinstance(fact, e.OutputSent)):
            self.ignored += 1
            return
        agent = self.agent
        match fact:
            case e.StageFailed():
                self._stage_failed(turn, fact, now_ms)
            case e.ModelAsked():
                agent.model_asked(turn, fact, now_ms)
            case e.ModelSpoke():
                agent.model_spoke(turn, fact, now_ms)
            case e.CallGrew():
                agent.call_grew(turn, fact, now_ms)
            case e.TokensCounted():
                agent.tokens_counted(turn, fact, now_ms)
            case e.ModelFinished():
                agent.model_finished(turn, fact, now_ms)
            case e.ClauseHandedOver():
                agent.clause_handed_over(turn, fact, now_ms)
            case e.SoundArrived():
                agent.sound_arrived(turn, fact, now_ms)
            case e.OutputSent():
                agent.output_sent(turn, fact, now_ms)
            case e.VoiceFinished():
                agent.voice_finished(turn, fact, now_ms)

    def _stage_failed(self, turn: Turn, fact: e.StageFailed, now_ms: int) -> None:
        turn.providers[fact.stage] = fact.provider
        self._reply_failed(turn, fact.stage, f"{fact.provider}: {fact.why}", now_ms)

    def _reply_failed(self, turn: Turn, stage: str, why: str, now_ms: int) -> None:
        """A reply broke. One that was a guess is forgotten: the turn's end asks again."""
        if self.caller.turn is turn and self.caller.state is not Caller.ENDED:
            turn.guess_failed = True
            self.agent.revise(turn, now_ms)
        else:
            self.agent.fail(turn, stage, why, now_ms)

    # --- time and the line --------------------------------------------------------------------

    def _time_passed(self, fact: e.TimePassed, now_ms: int) -> None:
        self.floor.armed_ms = None
        for name in self.floor.expired(now_ms):
            if name in ("utterance", "holding"):
                self.caller.end(now_ms)
            elif name.startswith("transcript "):
                self.caller.transcript_overdue(int(name.split()[1]))
            elif name == "playback":
                self.agent.played(now_ms)
            else:
                overdue = self.agent.overdue(name)
                if overdue is not None:
                    self._reply_failed(*overdue, now_ms)

    def _caller_left(self, fact: e.CallerLeft, now_ms: int) -> None:
        self.agent.hang_up(now_ms)
        for turn in self._asked:
            self.agent.give_up(turn, "abandoned", fact.why, now_ms)
        for left in (self.caller.hang_up(), self._waiting):
            if left is not None and left.outcome is None:
                self._abandon(left, fact.why, now_ms)
        self._asked, self._waiting = [], None
        self.floor.due.clear()
        self.floor.order(DropAudio())
        self._over = True
