"""Which turns are answered, and when: the caller's, those that the client asks for, those that must wait."""

from __future__ import annotations

from voicepipe.turn import budget, ledger, telling
from voicepipe.turn import events as e
from voicepipe.turn.agent import AgentSide
from voicepipe.turn.caller import CallerSide
from voicepipe.turn.conversation import FunctionOutput, InputAudio, Item, Message
from voicepipe.turn.floor import Floor
from voicepipe.turn.settings import ReplySettings
from voicepipe.turn.speculation import input_tokens_of
from voicepipe.turn.states import Caller
from voicepipe.turn.turns import Turn

MOST_ASIDES = 8
"""So many out-of-band replies may run at once: each is a question to the model that nobody has to hear out."""


class Answers:
    """Hands turns to the agent, one of the conversation at a time, each at most once."""

    def __init__(self, floor: Floor, caller: CallerSide, agent: AgentSide) -> None:
        self._floor, self._caller, self._agent = floor, caller, agent
        self._asked: list[Turn] = []
        """Replies that were asked for and wait for the words of the caller."""

        self._waiting: list[Turn] = []
        """Turns that are over, and wait for their words or for a reply that may not be interrupted."""

        self._unanswered: Turn | None = None
        """The latest turn that is over and that nobody asked a reply for; `response.create` answers it."""

    @property
    def n_pending(self) -> tuple[int, int]:
        """How many replies wait to be started; changes whenever one is."""
        return len(self._asked), len(self._waiting)

    def settle(self, now_ms: int) -> None:
        """Start what may start."""
        self._meet_caller(now_ms)
        self._start_asked(now_ms)
        self._start_waiting(now_ms)

    # --- the caller's turn --------------------------------------------------------------------

    def postpone(self, turn: Turn, now_ms: int) -> None:
        """The caller goes on in a turn of its own: this one is answered as it is, as soon as it can be."""
        turn.settled = True
        if self._agent.turn is not turn or not turn.current:
            if self._agent.turn is turn:
                self._agent.revise(turn)
            self._waiting.append(turn)
        if self._caller.turn is turn:
            self._caller.leave()

    def leave_open(self, turn: Turn, now_ms: int) -> None:
        """The turn is over and is answered only if the client asks for it."""
        self._forget_unanswered(now_ms)
        self._unanswered = turn

    def drop(self, turn: Turn, why: str, now_ms: int, *, told: str = "client_cancelled") -> None:
        """End a turn without an answer."""
        if self._agent.turn is turn or turn.response_open:
            self._agent.give_up(turn, "abandoned", why, now_ms, told=told)
        elif turn.outcome is None:
            ledger.close(self._floor, turn, "abandoned", why, now_ms)
        if self._caller.turn is turn:
            self._caller.leave()

    def _meet_caller(self, now_ms: int) -> None:
        turn = self._caller.turn
        if turn is None or not turn.transcribed:
            return
        if self._caller.state is Caller.ENDED and turn.outcome is None:
            self._answer(turn, now_ms)
        elif self._caller.state is Caller.HOLDING:
            self._guess(turn, now_ms)

    def _guess(self, turn: Turn, now_ms: int) -> None:
        """Start the reply at a short silence, before the turn is over; or put away what is no use any more."""
        wanted = self._floor.core.speculate and self._floor.settings.create_response
        if not (wanted and turn.question and not turn.lost and not turn.guess_failed):
            self._drop_guess()
        elif not (self._agent.turn is turn and turn.current):
            self._drop_guess()
            free = not (self._asked or self._waiting or self._agent.busy)
            if free and self._caller.may_begin(self._floor.speculation.answer_ms):
                self._bet(turn, now_ms)

    def _bet(self, turn: Turn, now_ms: int) -> None:
        """Start the reply although the caller may go on, if that is expected to pay."""
        book, limits = self._floor.speculation, self._floor.core.speculation
        if turn.speculation.starts >= limits.max_starts or (turn.waived and turn.waived[0] == turn.pause):
            return  # who stops and goes on again and again is waited for
        items = self._items_with(turn)
        if not book.pays(input_tokens_of(turn.reply, items), limits):
            book.waive(turn, now_ms)
            return
        self._agent.start(turn, items, now_ms)
        turn.guess = True
        book.started(turn)

    def _drop_guess(self) -> Turn | None:
        """Put away the reply that was started before the turn is over; returns its turn, if there was one."""
        guess = self._caller.turn
        if guess is None or self._agent.turn is not guess or self._caller.state is not Caller.HOLDING:
            return None
        self._agent.revise(guess)
        return guess

    def _answer(self, turn: Turn, now_ms: int) -> None:
        """The turn is over and its words are known: reply, unless there is nothing to reply to."""
        if turn.response_open and turn.current:
            return  # under way
        self._floor.speculation.ended(turn, now_ms)
        if not turn.question and not turn.lost:
            self.drop(turn, "nothing was said", now_ms, told="turn_detected")
        elif not self._floor.settings.create_response:
            if self._agent.turn is turn:
                self._agent.revise(turn)  # it was a guess, and nobody asked for it
            self.leave_open(turn, now_ms)
            if self._caller.turn is turn:
                self._caller.leave()
        elif self._taken_by_another(turn):
            self.postpone(turn, now_ms)
        elif not turn.question:
            self._agent.fail(turn, "stt", turn.lost, now_ms)
        else:
            self._forget_unanswered(now_ms)
            self._prepare(turn, now_ms)
            telling.start_response(self._floor, turn)

    def _prepare(self, turn: Turn, now_ms: int) -> None:
        """Start the reply to what the caller said, or start it again if they said something else."""
        if self._agent.turn is turn:
            if turn.current:
                return
            self._agent.revise(turn)
        if not self._agent.busy:
            self._agent.start(turn, self._items_with(turn), now_ms)

    def _items_with(self, turn: Turn) -> tuple[Item, ...]:
        """The conversation, and what the caller says in this turn even before it is an item."""
        self._agent.write_down()
        items = self._floor.read_by_model()
        unborn = (u for u in turn.utterances if not u.committed)
        return (*items, *(Message(u.item_id, "user", (InputAudio(u.text),)) for u in unborn))

    # --- turns that wait ----------------------------------------------------------------------

    def _taken_by_another(self, turn: Turn | None = None) -> bool:
        """Whether the conversation has another reply coming: no two are made at a time."""
        busy = self._agent.busy and self._agent.turn is not turn
        return busy or any(asked.reply.in_conversation for asked in self._asked)

    def _start_waiting(self, now_ms: int) -> None:
        """Answer what has waited. Of several turns the latest is answered: its reply has read the others."""
        known = [turn for turn in self._waiting if turn.transcribed]
        if not known or self._taken_by_another():
            return
        self._waiting = [turn for turn in self._waiting if turn not in known]
        latest = ([turn for turn in known if turn.question] or known)[-1]
        for turn in known:
            if turn is not latest:
                self.drop(turn, "answered with the next turn" if turn.question else "nothing was said", now_ms)
        self._answer(latest, now_ms)

    def _forget_unanswered(self, now_ms: int) -> None:
        if self._unanswered is not None:
            self.drop(self._unanswered, "no reply was asked for", now_ms)
            self._unanswered = None

    # --- what the client asks for -------------------------------------------------------------

    def request(self, fact: e.ReplyRequested, now_ms: int) -> None:
        """The client wants a reply now: it starts when all that the caller has said is known."""
        in_band = fact.reply.in_conversation
        if in_band:
            self._give_way(now_ms)
        refusal = self._in_the_way() if in_band else self._one_too_many(fact.reply)
        if refusal:
            self._floor.refuse(fact.event_id, *refusal)
            return
        self.ask(self._turn_for(fact), fact.reply, now_ms)

    def ask(self, turn: Turn, reply: ReplySettings, now_ms: int) -> None:
        """Answer a turn that nobody can revise, from now on and like that."""
        telling.start_response(self._floor, self._due(turn, reply, now_ms))

    def recite(self, turn: Turn, reply: ReplySettings, now_ms: int) -> None:
        """Let a turn's own words be said. The client hears of it once there is sound of them."""
        self._due(turn, reply, now_ms)

    def _due(self, turn: Turn, reply: ReplySettings, now_ms: int) -> Turn:
        turn.reply, turn.settled = reply, True
        for mark in (budget.VOICED_LAST, budget.ENDED, budget.REQUESTED):
            turn.mark(mark, now_ms)
        self._asked.append(turn)
        return turn

    def _give_way(self, now_ms: int) -> None:
        """Nobody knows of a guess yet, nor has an apology been heard: what the client asks for goes first."""
        if (guess := self._drop_guess()) is not None:
            guess.guess_failed = True
        unheard = [turn for turn in (*self._asked, self._agent.turn) if turn and turn.words and not turn.released]
        self._asked = [turn for turn in self._asked if turn not in unheard]
        for turn in unheard:
            self.drop(turn, "overtaken", now_ms)

    def _in_the_way(self) -> tuple[str, str] | None:
        expected = self._caller.state is Caller.ENDED and self._floor.settings.create_response
        if not (expected or self._waiting or self._taken_by_another()):
            return None
        return (
            "conversation_already_has_active_response",
            "expected no response in progress; wait for its response.done or cancel it first",
        )

    def _one_too_many(self, reply: ReplySettings) -> tuple[str, str] | None:
        asked = [turn.reply for turn in self._asked if not turn.reply.in_conversation]
        running = [*self._agent.asides, *asked]
        if len(running) >= MOST_ASIDES:
            return "too_many_active_responses", f"expected at most {MOST_ASIDES} out-of-band responses at a time"
        n_chars, most = sum(map(self._n_chars_read, (*running, reply))), self._floor.core.conversation.max_chars
        if not running or n_chars <= most:
            return None
        why = f"expected at most {most} characters that all out-of-band responses read at a time, got {n_chars}"
        return "too_many_active_responses", why

    def _n_chars_read(self, reply: ReplySettings) -> int:
        if reply.context is None:
            return self._floor.conversation.n_chars
        return sum(item.n_chars for item in reply.context)

    def _turn_for(self, fact: e.ReplyRequested) -> Turn:
        unanswered, newest = self._unanswered, self._floor.conversation.newest
        if unanswered is not None and fact.reply.in_conversation:
            self._unanswered = None
            return unanswered
        return self._floor.new_turn("tool" if isinstance(newest, FunctionOutput) else "create")

    def _start_asked(self, now_ms: int) -> None:
        if not self._asked or self._caller.pending():
            return
        asked, self._asked = self._asked, []
        for turn in asked:
            if turn.lost and not turn.question:
                self._agent.fail(turn, "stt", turn.lost, now_ms)
            else:
                self._agent.start(turn, self._items_with(turn), now_ms)

    # --- ending -------------------------------------------------------------------------------

    def cancel(self, fact: e.CancelRequested, now_ms: int) -> None:
        """The client cancels a response: one that runs, or one that waits for the caller's words."""
        if self._agent.cancel(fact.response_id, now_ms):
            return
        asked = next((turn for turn in self._asked if fact.response_id in (None, turn.response_id)), None)
        if asked is not None:
            self._asked.remove(asked)
            self.drop(asked, "client_cancelled", now_ms)
            return
        named = "" if fact.response_id is None else f" with id {fact.response_id!r}"
        self._floor.refuse(
            fact.event_id, "response_cancel_not_active", f"Cancellation failed: no active response{named}"
        )

    def interrupt(self, now_ms: int) -> None:
        """The caller speaks: nothing of the conversation is said or started any more."""
        self._agent.yield_floor(now_ms)
        kept = [turn for turn in self._asked if not turn.reply.in_conversation]
        overtaken = [turn for turn in (*self._asked, *self._waiting) if turn not in kept]
        self._asked, self._waiting = kept, []
        for turn in overtaken:
            self.drop(turn, "turn_detected", now_ms, told="turn_detected")

    def hang_up(self, why: str, now_ms: int) -> None:
        """The session is over: so is every turn."""
        self._agent.hang_up(why, now_ms)
        left = (*self._asked, *self._waiting, self._unanswered, self._caller.hang_up())
        self._asked, self._waiting, self._unanswered = [], [], None
        for turn in left:
            if turn is not None and turn.outcome is None:
                self.drop(turn, why, now_ms)
