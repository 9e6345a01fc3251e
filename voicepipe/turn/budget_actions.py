"""Act on the latency budget while a turn runs, so that the user waits less, or at least not in silence.

At every mark the core projects when the user will hear the answer. From this projection follow four actions, in this
order. The LLM request carries the time left: a router hedges by it, and uses another LLM when one fails. A first clause
that does not close is cut at a word. A filler phrase fills the wait. An apology replaces an answer that failed.
"""

from __future__ import annotations

from typing import Final

from voicepipe.turn import languages, projection, record_builder, responses
from voicepipe.turn import notifications as a
from voicepipe.turn.agent import AgentSide
from voicepipe.turn.apology import APOLOGY, APOLOGY_KEY, words_for
from voicepipe.turn.commands import SayFiller, ShortenClause, StopReply
from voicepipe.turn.context import Due, Timer, TurnContext
from voicepipe.turn.record import attribution
from voicepipe.turn.reply import FILLER
from voicepipe.turn.reply_queue import Answers
from voicepipe.turn.states import Gate, UserState
from voicepipe.turn.turn import Turn
from voicepipe.turn.user import UserSide
from voicepipe.values import replace

WORTH_MS: Final = 250
"""Minimum expected wait for a filler, in ms. Below it, a phrase would only delay the answer."""


class BudgetActions:
    """Check the conversation's running answer after each event that may change when it becomes audible."""

    def __init__(self, context: TurnContext, user: UserSide, agent: AgentSide, answers: Answers) -> None:
        self._context, self._user, self._agent, self._answers = context, user, agent, answers
        self._turn = 0
        """The number of the turn checked last."""

        self._filled = self._filled_before = False
        """Whether that turn has a filler, and whether the turn before it has one."""

        self._recorded_turn = 0
        """The latest turn whose times were learned."""

        self.over = False
        """The answer checked last is audible: no further action can help."""

        self.checks_every_event = False
        """The answer is late, and not yet late enough for a filler: any event may find that it is."""

    def update(self, now_ms: int) -> None:
        """Update the projection, do what is due, and schedule the next check in time."""
        self._context.timers.clear(Timer(Due.FILLER), Timer(Due.SHORTEN))
        self.over = self.checks_every_event = False
        turn, waiting = self._agent.turn, self._context.turns.awaits_tools
        if turn is None and waiting is not None:
            self._fill_tool_time(waiting, now_ms)
            return
        if turn is None or not turn.settings.audible or turn.words or attribution.VOICED_LAST not in turn.marks:
            return
        if turn.before is not None:
            self._turn = turn.number  # the answer after tools: the same turn for the user
        if turn.number != self._turn:
            self._turn, self._filled, self._filled_before = turn.number, False, self._filled
        self._project(turn, now_ms)
        self._shorten(turn, now_ms)
        self._fill(turn, now_ms)
        self.over = turn.number == self._recorded_turn and attribution.FIRST_AUDIBLE in turn.marks

    def apologise(self, now_ms: int) -> bool:
        """Start an apology for an answer that has just failed; return False when there is none to make.

        There is none while the user speaks or another turn is being answered: the conversation goes on by itself.
        """
        failed, self._context.turns.failed = self._context.turns.failed, []
        taken = self._context.replies.busy or any(self._answers.n_queued) or self._user.state is not UserState.QUIET
        if not failed or taken:
            return False
        apology = self._context.new_turn("apology")
        apology.words = words_for(self._context)
        metadata = ((APOLOGY_KEY, failed[0].id),)
        self._answers.speak_apology(apology, replace(failed[0].settings, tools=(), metadata=metadata), now_ms)
        failed[0].reply.actions.append(APOLOGY)
        record_builder.keep(self._context, failed[0], now_ms)
        return True

    # --- the projection -----------------------------------------------------------------------

    def _project(self, turn: Turn, now_ms: int) -> None:
        marks, usual = turn.marks, self._context.learned.usual
        new = [
            mark
            for mark in (attribution.LLM_REQUESTED, *projection.MARKS)
            if mark in marks and mark not in turn.reply.projected
        ]
        if new:
            wait_ms = usual.first_audible_ms(marks, now_ms) - marks[attribution.VOICED_LAST]
            turn.reply.projected.update(dict.fromkeys(new, wait_ms))
        if attribution.FIRST_AUDIBLE in marks and turn.number != self._recorded_turn:
            self._recorded_turn = turn.number
            usual.record(marks)

    # --- a shorter first clause ---------------------------------------------------------------

    def _shorten(self, turn: Turn, now_ms: int) -> None:
        after_ms, first_ms = self._context.core.budget_actions.shorten_after_ms, turn.marks.get(attribution.FIRST_DELTA)
        if after_ms is None or first_ms is None or turn.reply.shortened or attribution.FIRST_CLAUSE in turn.marks:
            return
        if not turn.reply.text.strip() or turn.reply.finish_reason or turn.by_speech_model:
            return
        if now_ms < first_ms + after_ms:
            self._context.timers.set(Timer(Due.SHORTEN), first_ms + after_ms)
            return
        turn.reply.shortened = True
        self._context.issue(ShortenClause(turn.number, turn.reply.revision))

    # --- a filler -----------------------------------------------------------------------------

    def _fill(self, turn: Turn, now_ms: int) -> None:
        if not self._may_fill(turn):
            return
        t0_ms, usual = turn.marks[attribution.VOICED_LAST], self._context.learned.usual
        late_ms = usual.late_from_ms(turn.marks, t0_ms + self._context.core.budget_actions.filler_over_ms)
        if now_ms < late_ms:
            self._context.timers.set(Timer(Due.FILLER), late_ms)
        elif usual.first_audible_ms(turn.marks, now_ms) - now_ms >= WORTH_MS:
            self._start_filler(turn, turn.reply.response_id)
        else:
            self.checks_every_event = True

    def _may_fill(self, turn: Turn) -> bool:
        """Return whether the user waits in silence for this turn's answer: the turn is over, and nothing has come."""
        phrase = languages.filler_of(self._context, turn.settings)
        waits = turn.reply.response_open and turn.reply.gate is not Gate.OPEN and turn.settings.in_conversation
        empty = (
            attribution.LLM_REQUESTED in turn.marks
            and attribution.FIRST_SOUND not in turn.marks
            and not turn.reply.calls
        )
        alone = self._context.replies.playing is None and not (self._filled or self._filled_before or turn.filler.words)
        return bool(phrase) and phrase in self._context.phrases and waits and empty and alone

    def _start_filler(self, turn: Turn, response_id: str) -> None:
        context, words = self._context, languages.filler_of(self._context, turn.settings)
        self._filled, turn.filler.words, turn.filler.item_id = True, words, context.new_id("filler")
        turn.reply.actions.append(FILLER)
        item = responses.filler(turn)
        previous = context.join(item, before=turn.reply.later_items)
        context.notify(a.OutputStarted(response_id, replace(item, parts=(), status="in_progress"), previous))
        context.issue(SayFiller(turn.number, turn.reply.revision, response_id, words))

    # --- a filler while tools run -------------------------------------------------------------

    def stop_filler(self, now_ms: int) -> None:
        """Stop the filler of a turn that waits for its tools: the user speaks."""
        waiting = self._context.turns.awaits_tools
        if waiting is not None and waiting.filler.words and self._agent.turn is None:
            self._context.issue(StopReply(waiting.number, waiting.reply.revision))
            self._agent.fall_silent(now_ms)

    def _fill_tool_time(self, turn: Turn, now_ms: int) -> None:
        """Speak the filler if the answer that waits for this turn's tools is expected late. It is a response of its
        own, over at once: the client may request the answer at any time.
        """
        usual, called_ms = self._context.learned.usual, turn.tools_called_ms
        if called_ms is None or not turn.settings.audible or attribution.VOICED_LAST not in turn.marks:
            return
        t0_ms, expected_ms = turn.marks[attribution.VOICED_LAST], usual.first_audible_after_tool_ms(called_ms, now_ms)
        turn.reply.projected.setdefault(turn.calling_round.called, expected_ms - t0_ms)
        if not self._may_fill_tool_time(turn):
            return
        late_ms = usual.late_after_tool_from_ms(called_ms, t0_ms + self._context.core.budget_actions.filler_over_ms)
        if now_ms < late_ms:
            self._context.timers.set(Timer(Due.FILLER), late_ms)
        elif expected_ms - now_ms >= WORTH_MS:
            settings = replace(turn.settings, tools=(), metadata=())
            response_id = self._context.new_id("resp")
            self._context.notify(a.ResponseStarted(response_id, settings, turn.id))
            self._start_filler(turn, response_id)
            self._context.notify(a.ResponseEnded(response_id, "completed"))
            record_builder.keep(self._context, turn, now_ms)
        else:
            self.checks_every_event = True

    def _may_fill_tool_time(self, turn: Turn) -> bool:
        """Return whether the user has waited in silence for this turn's answer, and waits on."""
        phrase = languages.filler_of(self._context, turn.settings)
        silent = self._user.state is UserState.QUIET and attribution.FIRST_SOUND not in turn.marks
        silent = silent and turn.outcome in (None, "completed")  # a reply that was stopped speaks no more
        alone = not (self._filled or self._filled_before or turn.filler.words)
        return bool(phrase) and phrase in self._context.phrases and silent and alone
