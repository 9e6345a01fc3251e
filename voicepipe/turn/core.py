"""The core: events in, commands out. It has the handler of each event, the passes after it, and the release gate."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final

from msgspec import Struct

from voicepipe.turn import events as e
from voicepipe.turn import route
from voicepipe.turn.agent import AgentSide
from voicepipe.turn.audio_requests import MIN_COMMIT_MS, AudioRequests
from voicepipe.turn.budget_actions import BudgetActions
from voicepipe.turn.commands import Command, DropAudio, WakeAt
from voicepipe.turn.context import Due, Timer, Transitions, TurnContext
from voicepipe.turn.endpointing.built_in import BUILT_IN
from voicepipe.turn.endpointing.strategy import Strategies
from voicepipe.turn.idle import Idle
from voicepipe.turn.interruptions import Interruptions
from voicepipe.turn.item_requests import ItemRequests
from voicepipe.turn.live_updates import LiveUpdates
from voicepipe.turn.record import attribution
from voicepipe.turn.record.values import FailedStage
from voicepipe.turn.reply_queue import Answers
from voicepipe.turn.server_tools import ServerTools
from voicepipe.turn.settings import CoreSettings, TurnSettings
from voicepipe.turn.soft_start import SoftStarts
from voicepipe.turn.states import AgentState, Gate, Revisable, UserState
from voicepipe.turn.turn import Turn
from voicepipe.turn.user import UserSide
from voicepipe.turn.watchdog import Watchdog


class After(Struct, frozen=True):
    """The passes that an event of this kind needs even if it moves neither machine and begins or ends no reply."""

    answers: bool = False
    """The event may let a reply begin, or become audible."""

    budget: bool = False
    """The event may change when the answer is expected: a mark, or other audio that plays meanwhile."""

    idle: bool = False
    """The event may begin or end the silence of both sides."""


NOTHING: Final = After()
EVERYTHING: Final = After(answers=True, budget=True, idle=True)
BUDGET: Final = After(budget=True)

_Handler = tuple[Callable[[Any, int], None], After]
_ReplyHandler = tuple[Callable[[Turn, Any, int], None], After]
_TimerHandler = Callable[[Timer, int], None]


class EventQueue:
    """The events on their way to the core.

    A session's parts hold this queue and not the session, so that no circle of references outlives the session.
    """

    def __init__(self) -> None:
        self.waiting: deque[e.Event] = deque()  # bounded: drained before the outermost `post` returns
        self.drain: Callable[[], None] | None = None
        """Handles all that wait. None before the session runs, and when it is over: then events are dropped."""

    def post(self, event: e.Event) -> None:
        """Have an event handled, before this returns or, if an event is being handled, right after that one."""
        if self.drain is not None:
            self.waiting.append(event)
            if len(self.waiting) == 1:
                self.drain()

    def put_first(self, events: Iterable[e.Event]) -> None:
        """Put these before the event that is handled next, in their order."""
        self.waiting.extendleft(reversed(tuple(events)))


class Core:
    """The turns of one session. Pure: no I/O, no clock, no log; the same events give the same commands.

    `handle` never raises on an event and never waits. An event of a stale revision, or without use in the current
    state, changes nothing.
    """

    def __init__(
        self,
        session: str,
        settings: TurnSettings,
        core: CoreSettings | None = None,
        strategies: Strategies = BUILT_IN,
    ) -> None:
        self.context = TurnContext(session, core or CoreSettings(), settings)
        self.ignored = 0
        """Number of events of stale revisions."""

        self.user = UserSide(self.context, strategies)
        self.agent = AgentSide(self.context)
        self._answers = Answers(self.context, self.user, self.agent)
        self._interruptions = Interruptions(self.context, self.user, self.agent, self._answers)
        self._soft = SoftStarts(self.context, self.user, self.agent, self._interruptions, self._answers)
        self._idle = Idle(self.context, self.user, self.agent, self._answers)
        self._actions = BudgetActions(self.context, self.user, self.agent, self._answers)
        self._watchdog = Watchdog(self.context, self.user, self.agent, self._answers)
        self._audio_requests = AudioRequests(self.context, self.user)
        self._server_tools = ServerTools(self.context, self.user, self.agent, self._answers)
        self._item_requests = ItemRequests(self.context, self.user, self.agent, self._server_tools)
        self._live_updates = LiveUpdates(self.context)
        self._over = False
        self.handlers = self._user_handlers() | self._client_handlers()
        """The dispatch table: the handler of each kind of event, and the passes after it."""

        self._reply_handlers = self._handlers_of_reply()
        self._timer_handlers = self._handlers_of_timers()

    @property
    def transitions(self) -> Transitions:
        """Return the moves of the latest event."""
        return self.context.transitions

    @property
    def n_stuck(self) -> int:
        """Return how often work had to be ended that no deadline would have ended: bugs of ours, too."""
        return self._watchdog.n_stuck

    @property
    def undecided(self) -> bool:
        """Return whether the agent is ducked, since the user speaks over it."""
        return self._interruptions.undecided

    @property
    def is_silent(self) -> bool:
        """Return whether no turn runs, and nothing is being said."""
        silent = self.user.state is UserState.QUIET and self.agent.state is AgentState.IDLE
        return silent and not self.context.replies.n_out_of_band

    @property
    def queued(self) -> tuple[Turn, ...]:
        """Return the turns of the conversation whose reply is due and has not been started, in order."""
        return self._answers.queued

    def handle(self, event: e.Event, now_ms: int) -> tuple[Command, ...]:
        """Handle one event; return the commands that follow from it, in order."""
        if self._over:
            return ()
        transitions, kind = self.context.transitions, type(event)
        transitions.event, transitions.moves = kind, []
        transitions.changed = now_ms >= self.context.timers.nearest_ms  # whatever the late timer is for may happen now
        if (row := self.handlers.get(kind)) is not None:
            handler, after = row
            handler(event, now_ms)
        else:
            after = self._of_reply(event, now_ms)
        self._run_passes(after, now_ms)
        commands, self.context.commands = tuple(self.context.commands), []
        return commands

    def _run_passes(self, after: After, now_ms: int) -> None:
        """Run the passes that the event needs; all of them once it has changed a state machine or a reply."""
        transitions, timers, actions = self.context.transitions, self.context.timers, self._actions
        turns = self.context.turns
        if turns.tools_overtaken and turns.awaits_tools is not None:  # the next reply reads what is cancelled
            self._server_tools.overtaken(now_ms)
        if after.answers or transitions.changed or self._interruptions.overlap is not None:
            self._advance_replies(now_ms)
        if turns.failed and actions.apologise(now_ms):
            self._advance_replies(now_ms)
        if turns.tools_overtaken:
            turns.tools_overtaken = False
            self.agent.give_up_tools(now_ms)
        tools = self._server_tools
        if (turns.awaits_tools is not None or tools.unread_ms is not None) and tools.update(now_ms):
            self._advance_replies(now_ms)
        if (
            (after.budget and not actions.over) or transitions.changed or actions.checks_every_event
        ) and self._is_answering():
            actions.update(now_ms)
        if (after.idle or transitions.changed) and self._may_be_idle():
            self._idle.update(now_ms)
        if (transitions.changed or timers.changed) and timers.unguarded:
            self._watchdog.update(now_ms)
        if turns.begun or self._live_updates.tracker.turns:
            self._live_updates.update(now_ms)
        if timers.changed and (at_ms := timers.wake_ms()) is not None:
            self.context.issue(WakeAt(at_ms))

    def _is_answering(self) -> bool:
        """Return whether there is an answer for the budget's actions, or a timer of theirs to clear."""
        due, waiting = self.context.timers.due, self.context.turns.awaits_tools
        return (
            self.agent.turn is not None or waiting is not None or Timer(Due.FILLER) in due or Timer(Due.SHORTEN) in due
        )

    def _may_be_idle(self) -> bool:
        """Return whether both sides are silent, or the idle timer is set."""
        silent = self.user.state is UserState.QUIET and self.agent.state is AgentState.IDLE
        return silent or Timer(Due.IDLE) in self.context.timers.due

    # --- the gate -----------------------------------------------------------------------------

    def _advance_replies(self, now_ms: int) -> None:
        """Start the replies that may start, and open the gate if it may open.

        A reply that is complete the moment its gate opens makes way for the next reply, so this loops until nothing
        changes. Each pass starts, opens or ends a turn, and no turn does any of it twice.
        """
        before = None
        while before != (before := self._standing()):
            if self._interruptions.overlap is not None:
                self._interruptions.update(now_ms)
            if self._interruptions.overlap is None or not self._interruptions.undecided:
                self._answers.start_due_replies(now_ms)
            self._open_gate(now_ms)

    def _standing(self) -> tuple[object, ...]:
        return self.user.state, self.agent.state, self.agent.turn, self._answers.n_queued

    def _open_gate(self, now_ms: int) -> None:
        turn = self.agent.turn
        if turn is not None and self.agent.state is AgentState.READY and self._may_open(turn):
            self.agent.open_gate(turn, now_ms)
        answered = self.user.turn if self.user.state is UserState.ENDED else None
        if answered is not None and (answered.reply.gate is Gate.OPEN or answered.outcome):
            self.user.leave()

    def _may_open(self, turn: Turn) -> bool:
        """Return whether the gate may open: the turn is over, the reply is current, and it answers what was said.

        A suspended reply waits for the verdict on the user's voice, also where an interruption had ended its turn.
        """
        if turn.reply.gate is Gate.SUSPENDED:
            return False
        over = self.user.state is UserState.ENDED and self.user.turn is turn
        held = turn.question.effects_at_ms is not None and not turn.reply.text.strip()  # only calls, so far
        return (
            (turn.question.revisable is Revisable.FIXED or (over and turn.current))
            and not held
            and not self._interruptions.undecided
        )

    # --- user events --------------------------------------------------------------------------

    def _user_handlers(self) -> dict[type, _Handler]:
        return {
            e.SpeechStarted: (self._speech_started, EVERYTHING),
            e.SpeechWentOn: (self._speech_went_on, NOTHING),
            e.SpeechPaused: (self._speech_paused, EVERYTHING),
            e.SilenceGrew: (self._silence_grew, NOTHING),
            e.EndpointScored: (self.user.endpoint_scored, After(answers=True)),
            e.SilenceCommitted: (self._idle.silence_committed, EVERYTHING),
            e.TranscriptGrew: (self._transcript_grew, NOTHING),
            e.TranscriptFinished: (self._transcript_finished, EVERYTHING),
            e.TranscriberFailed: (self._transcript_failed, EVERYTHING),
            e.TranscriberConnected: (self.user.utterances.stt_connected, NOTHING),
            e.TranscriberChanged: (self.user.utterances.stt_changed, NOTHING),
        }

    def _speech_started(self, event: e.SpeechStarted, now_ms: int) -> None:
        """Handle speech of the user. The client is notified of the speech first, and then of what it ends."""
        if self.user.ignores_speech or self._soft.speech_started(event, now_ms):
            return
        if self._interruptions.speech_started(event, now_ms):
            return
        turn, may_interrupt = self.user.turn, self.context.may_interrupt
        resumed, ended = self.user.state is UserState.HOLDING, self.user.state is UserState.ENDED
        is_answered = turn is not None and ended and self._is_still_answered(turn)
        if turn is not None and is_answered:
            self._answers.postpone(turn, now_ms)
        self.user.speech_started(event, now_ms)
        self._actions.stop_filler(now_ms)
        if turn is not None and not is_answered:
            self.agent.revise(turn)
        if may_interrupt and not resumed and not is_answered:
            self._answers.interrupt(now_ms)

    @property
    def _is_suspended(self) -> bool:
        """Return whether the user's voice has stopped an answer that began softly, and may have no words."""
        turn = self.user.turn
        return turn is not None and turn.reply.gate is Gate.SUSPENDED

    def _speech_went_on(self, event: e.SpeechWentOn, now_ms: int) -> None:
        if self._is_suspended:
            self._soft.speech_went_on(event)
        else:
            self._interruptions.speech_went_on(event, now_ms)

    def _speech_paused(self, event: e.SpeechPaused, now_ms: int) -> None:
        if not self._interruptions.speech_paused(event):
            self.user.speech_paused(event, now_ms)
            if self._is_suspended:
                self._soft.speech_paused(event, now_ms)

    def _silence_grew(self, event: e.SilenceGrew, now_ms: int) -> None:
        if self._interruptions.overlap is not None:
            self._interruptions.silence_grew(event, now_ms)
            self.context.transitions.changed = True
            return
        self.user.silence_grew(event, now_ms, undecided=self._is_suspended)
        if self._answers.words_known:  # the pause may be long enough now for an early reply
            self._advance_replies(now_ms)

    def _transcript_grew(self, event: e.TranscriptGrew, now_ms: int) -> None:
        self.user.transcript_grew(event)
        if self._is_suspended:
            self._soft.transcript_grew(event, now_ms)
        self._interruptions.transcript_grew(event, now_ms)

    def _transcript_finished(self, event: e.TranscriptFinished, now_ms: int) -> None:
        self.user.transcript_finished(event, now_ms)
        if self._is_suspended:
            self._soft.transcript_finished(event, now_ms)
        self._interruptions.transcript_finished(event, now_ms)

    def _transcript_failed(self, event: e.TranscriberFailed, now_ms: int) -> None:
        self.user.transcript_failed(event)
        if self._is_suspended:
            self._soft.transcript_failed(event, now_ms)
        self._interruptions.transcript_failed(now_ms)

    def _is_still_answered(self, turn: Turn) -> bool:
        """Return whether a turn that is over is answered although the user goes on before any audio is played."""
        return turn.question.revisable is Revisable.OVERLONG or (
            not self.context.may_interrupt and self.agent.turn is turn
        )

    # --- client events ------------------------------------------------------------------------

    def _client_handlers(self) -> dict[type, _Handler]:
        item_requests, answers = self._item_requests, self._answers
        return {
            e.SettingsChanged: (self._settings_changed, EVERYTHING),
            e.CommitRequested: (self._commit_requested, EVERYTHING),
            e.ClearRequested: (self._clear_requested, EVERYTHING),
            e.ReplyRequested: (answers.request, EVERYTHING),
            e.ConversationRestored: (self._conversation_restored, NOTHING),
            e.ReplyRestored: (lambda event, now_ms: answers.restore(event), EVERYTHING),
            e.GreetingDue: (answers.greet, EVERYTHING),
            e.ToolFinished: (self._server_tools.finished, EVERYTHING),
            e.CancelRequested: (answers.cancel, EVERYTHING),
            e.ItemCreateRequested: (item_requests.create_requested, NOTHING),
            e.ItemTruncateRequested: (item_requests.truncated, EVERYTHING),
            e.ItemDeleteRequested: (lambda event, now_ms: item_requests.deleted(event), NOTHING),
            e.PlaybackReported: (self.agent.playback_reported, EVERYTHING),
            e.ItemRetrieveRequested: (lambda event, now_ms: item_requests.retrieve_requested(event), NOTHING),
            e.PhrasesReady: (self._phrases_ready, BUDGET),
            e.HistorySummarized: (self._history_summarized, NOTHING),
            e.TimePassed: (self._time_passed, EVERYTHING),
            e.EventLoopStalled: (self._event_loop_stalled, NOTHING),
            e.ConnectionLost: (self._connection_lost, NOTHING),
            e.ConnectionResumed: (self._connection_resumed, EVERYTHING),
            e.UserLeft: (self._user_left, EVERYTHING),
        }

    def _settings_changed(self, event: e.SettingsChanged, now_ms: int) -> None:
        if event.settings.detection == "none":
            self._soft.drop(now_ms)
        dropped = self._audio_requests.settings_changed(event)
        self._interruptions.settings_changed(now_ms)
        if dropped is not None:
            self._answers.drop(dropped, "turn detection changed", now_ms)

    def _conversation_restored(self, event: e.ConversationRestored, now_ms: int) -> None:
        for item in event.items:
            self.context.conversation.claim(item)
        self.context.counts.update(event.counts)
        self.context.skipped_ids = event.skipped
        self.context.requests.extend(event.requests)

    def _commit_requested(self, event: e.CommitRequested, now_ms: int) -> None:
        if event.buffered_ms >= MIN_COMMIT_MS:  # otherwise it is refused, and ends nothing
            self._soft.take_for_speech(now_ms)
            self._interruptions.committed(now_ms)
        committed = self._audio_requests.commit_requested(event, now_ms)
        if committed is None:
            return
        if self.agent.turn is committed:
            self.agent.revise(committed)  # a commit starts no reply, so the speculative reply is wasted
        self._answers.leave_open(committed, now_ms)

    def _clear_requested(self, event: e.ClearRequested, now_ms: int) -> None:
        self._soft.drop(now_ms)
        self._interruptions.drop(now_ms)
        dropped = self._audio_requests.clear_requested()
        if dropped is not None:
            self._answers.drop(dropped, "cleared by the client", now_ms)

    def _phrases_ready(self, event: e.PhrasesReady, now_ms: int) -> None:
        self.context.phrases = event.texts

    def _history_summarized(self, event: e.HistorySummarized, now_ms: int) -> None:
        self.context.history.summarized(event.number, event.text)
        self.context.learned.cost_tracker.add_summary(event.usd)

    # --- reply events -------------------------------------------------------------------------

    def _handlers_of_reply(self) -> dict[type, _ReplyHandler]:
        agent = self.agent
        return {
            e.KnowledgeSearched: (route.knowledge_searched, NOTHING),
            e.ModelRequested: (agent.model_requested, After(answers=True, budget=True)),
            e.SpeechRequested: (agent.speech_requested, After(answers=True)),
            e.ModelConnected: (lambda turn, event, now_ms: turn.mark(attribution.CONNECTED, now_ms), NOTHING),
            e.ModelJoined: (route.model_joined, NOTHING),
            e.ModelChosen: (route.model_chosen, NOTHING),
            e.ModelAttempted: (route.model_attempted, NOTHING),
            e.ModelTextReceived: (agent.model_spoke, BUDGET),
            e.CallGrew: (agent.call_grew, BUDGET),
            e.TokensCounted: (agent.tokens_counted, NOTHING),
            e.ModelFinished: (agent.model_finished, BUDGET),
            e.ClauseHandedOver: (agent.clause_handed_over, BUDGET),
            e.SynthesizerChanged: (route.synthesizer_changed, NOTHING),
            e.SynthesizerConnected: (route.synthesizer_connected, NOTHING),
            e.SynthesisUnused: (route.speech_unused, NOTHING),
            e.CachedSpeechUsed: (route.cached_speech_used, NOTHING),
            e.SoundArrived: (agent.sound_arrived, BUDGET),
            e.SynthesisFinished: (agent.synthesis_finished, NOTHING),
            e.OutputSent: (agent.output_sent, BUDGET),
            e.FillerSent: (agent.filler_sent, NOTHING),
            e.StageFailed: (self._stage_failed, EVERYTHING),
        }

    def _of_reply(self, event: Any, now_ms: int) -> After:
        turn, fills = self.context.replies.find(event.turn, event.revision), isinstance(event, e.FillerSent)
        if turn is None and fills:
            turn = self.context.replies.filled(event.turn, self.context.turns.awaits_tools)
        over = turn is not None and turn.reply.gate is Gate.OPEN and not turn.reply.response_open
        if turn is None or (over and not (fills or isinstance(event, e.OutputSent))):
            self.ignored += 1
            return NOTHING
        handler, after = self._reply_handlers[type(event)]
        handler(turn, event, now_ms)
        return after

    def _stage_failed(self, turn: Turn, event: e.StageFailed, now_ms: int) -> None:
        turn.account.providers[event.stage] = event.provider
        self._reply_failed(turn, event.stage, f"{event.provider}: {event.why}", now_ms)

    def _reply_failed(self, turn: Turn, stage: FailedStage, why: str, now_ms: int) -> None:
        """Handle a failed reply. A speculative reply is dropped: the LLM request is repeated at the turn's end."""
        if self.user.turn is turn and self.user.state is not UserState.ENDED:
            turn.speculation_failed = True
            self.agent.revise(turn)
        else:
            self.agent.fail(turn, stage, why, now_ms)

    def _vad_contradicts(self) -> None:
        """Drop the speculative reply: the user speaks on."""
        if (turn := self.user.go_on()) is not None:
            self.agent.revise(turn)

    # --- time and connection ------------------------------------------------------------------

    def _event_loop_stalled(self, event: e.EventLoopStalled, now_ms: int) -> None:
        self.context.turns.add_stall((event.from_ms, event.until_ms))

    def _connection_lost(self, event: e.ConnectionLost, now_ms: int) -> None:
        self.context.timers.lose_connection(now_ms)

    def _connection_resumed(self, event: e.ConnectionResumed, now_ms: int) -> None:
        self.context.timers.resume(now_ms)
        self.agent.connection_resumed(dict(event.missed), now_ms)

    def _time_passed(self, event: e.TimePassed, now_ms: int) -> None:
        for timer in self.context.timers.passed(now_ms):
            self._timer_handlers[timer.due](timer, now_ms)

    def _handlers_of_timers(self) -> dict[Due, _TimerHandler]:
        user, interruptions = self.user, self._interruptions
        return {
            Due.CONTINUE: lambda timer, now_ms: self._soft.overdue(now_ms),
            Due.VAD_CONFIRMS: lambda timer, now_ms: self._vad_contradicts(),
            Due.EFFECTS: lambda timer, now_ms: self._soft.effects_due(timer.number, now_ms),
            Due.FILLER: lambda timer, now_ms: None,  # `BudgetActions.update` acts on it, as after every event
            Due.FINAL_TEXT: lambda timer, now_ms: user.text_overdue(timer.number, now_ms),
            Due.FIRST_OUTPUT: self._reply_overdue,
            Due.HOLDING: lambda timer, now_ms: self._end_overdue(now_ms),
            Due.IDLE: lambda timer, now_ms: self._idle.overdue(),
            Due.IRREVOCABLE: lambda timer, now_ms: self._end_is_irrevocable(now_ms),
            Due.OVERLAP: lambda timer, now_ms: interruptions.overdue(now_ms),
            Due.PLAYBACK: lambda timer, now_ms: self.agent.played(now_ms),
            Due.PROGRESS: self._reply_overdue,
            Due.REPLY: self._reply_overdue,
            Due.REVERSIBLE: lambda timer, now_ms: self.agent.finalize(now_ms),
            Due.SHORTEN: lambda timer, now_ms: None,  # as `FILLER`
            Due.TOOL: lambda timer, now_ms: self.agent.give_up_tools(now_ms),
            Due.TRANSCRIPT: lambda timer, now_ms: user.transcript_overdue(timer.number),
            Due.UTTERANCE: lambda timer, now_ms: self._end_overdue(now_ms, overlong=True),
            Due.INTERRUPTION: lambda timer, now_ms: interruptions.interruption_due(now_ms),
            Due.WATCHDOG: lambda timer, now_ms: self._watchdog.overdue(now_ms),
        }

    def _reply_overdue(self, timer: Timer, now_ms: int) -> None:
        if (overdue := self.agent.overdue(timer)) is not None:
            self._reply_failed(*overdue, now_ms)

    def _end_overdue(self, now_ms: int, *, overlong: bool = False) -> None:
        self._soft.take_for_speech(now_ms)
        self.user.end(now_ms, overlong=overlong)

    def _end_is_irrevocable(self, now_ms: int) -> None:
        turn = self.user.turn
        # The same wake-up may have ended the turn: its reply was overdue, too.
        if turn is not None and turn.outcome is None and self.user.state is UserState.ENDED:
            self._answers.postpone(turn, now_ms)

    def _user_left(self, event: e.UserLeft, now_ms: int) -> None:
        self._soft.user_left(now_ms)
        self._interruptions.drop(now_ms)
        self._answers.hang_up(event.why, now_ms)
        self.agent.give_up_tools(now_ms)
        self.context.timers.clear_all()
        self.context.issue(DropAudio())
        self._over = True
        # No event is handled any more, and the handlers refer to this core.
        self.handlers, self._reply_handlers, self._timer_handlers = {}, {}, {}
