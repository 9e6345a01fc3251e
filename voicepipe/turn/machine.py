"""The core: events in, commands out. It holds the handlers for the table of `states`, and the gate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from voicepipe.turn import budget, route
from voicepipe.turn import events as e
from voicepipe.turn.actions import Actions
from voicepipe.turn.agent import AgentSide
from voicepipe.turn.answers import Answers
from voicepipe.turn.caller import CallerSide
from voicepipe.turn.commands import DropAudio, Order, WakeAt
from voicepipe.turn.endpointing.built_in import BUILT_IN
from voicepipe.turn.endpointing.strategy import Strategies
from voicepipe.turn.floor import Floor
from voicepipe.turn.history import History
from voicepipe.turn.idle import Idle
from voicepipe.turn.interruptions import Interruptions
from voicepipe.turn.live import Spotlight
from voicepipe.turn.settings import CoreSettings, TurnSettings
from voicepipe.turn.states import Agent, Caller, Steps
from voicepipe.turn.timers import Due, Timer
from voicepipe.turn.turns import Turn
from voicepipe.turn.watchdog import Watchdog


@dataclass(frozen=True, slots=True)
class After:
    """The passes that an event of this kind needs even if it moves neither machine and begins or ends no reply."""

    answers: bool = False
    """It may let a reply begin, or be heard."""

    budget: bool = False
    """It may change when the answer is expected: a mark, or what the user hears meanwhile."""

    idle: bool = False
    """It may begin or end the silence of both sides."""


NOTHING: Final = After()
EVERYTHING: Final = After(answers=True, budget=True, idle=True)
BUDGET: Final = After(budget=True)

_Hand = tuple[Callable[[Any, int], None], After]
_ReplyHand = tuple[Callable[[Turn, Any, int], None], After]
_TimerHand = Callable[[Timer, int], None]


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
        self.floor = Floor(session, core or CoreSettings(), settings)
        self.steps = Steps()
        """The moves of each event, and the moves that the table does not allow."""

        self.ignored = 0
        """Number of events of stale revisions."""

        self.caller = CallerSide(self.floor, self.steps, strategies)
        self.agent = AgentSide(self.floor, self.steps)
        self._answers = Answers(self.floor, self.caller, self.agent)
        self._interruptions = Interruptions(self.floor, self.caller, self.agent, self._answers)
        self._idle = Idle(self.floor, self.caller, self.agent, self._answers)
        self._actions = Actions(self.floor, self.caller, self.agent, self._answers)
        self._watchdog = Watchdog(self.floor, self.caller, self.agent, self._answers)
        self._history = History(self.floor, self.caller, self.agent)
        self._spotlight = Spotlight(self.floor)
        self._over = False
        self.hands = self._caller_hands() | self._client_hands()
        """The dispatch table: the handler of each kind of event, and the passes after it."""

        self._reply_hands = self._hands_of_the_reply()
        self._timer_hands = self._hands_of_the_timers()

    @property
    def unlawful(self) -> list[str]:
        """Return the moves that the table does not name: bugs of ours. Empty, or a test fails."""
        return self.steps.unlawful

    @property
    def n_stuck(self) -> int:
        """Return how often work had to be ended that no deadline would have ended: bugs of ours, too."""
        return self._watchdog.n_stuck

    @property
    def undecided(self) -> bool:
        """Return whether the agent is ducked, since the user speaks over it."""
        return self._interruptions.undecided

    def handle(self, fact: e.Fact, now_ms: int) -> tuple[Order, ...]:
        """Handle one event; return the commands that follow from it, in order."""
        if self._over:
            return ()
        steps, kind = self.steps, type(fact)
        steps.fact, steps.moves = kind, []
        steps.changed = now_ms >= self.floor.timers.nearest_ms  # whatever the late timer is for may happen now
        if (row := self.hands.get(kind)) is not None:
            hand, after = row
            hand(fact, now_ms)
        else:
            after = self._of_reply(fact, now_ms)
        self._follow(after, now_ms)
        orders, self.floor.orders = tuple(self.floor.orders), []
        return orders

    def _follow(self, after: After, now_ms: int) -> None:
        """Run the passes that the event needs; all of them once it has changed who speaks or what is answered."""
        steps, timers, actions = self.steps, self.floor.timers, self._actions
        if after.answers or steps.changed or self._interruptions.overlap is not None:
            self._settle(now_ms)
        if self.floor.turns.failed and actions.apologise(now_ms):
            self._settle(now_ms)
        if (after.budget and not actions.over) or steps.changed or actions.restless:
            actions.follow(now_ms)
        if after.idle or steps.changed:
            self._idle.follow(now_ms)
        if (steps.changed or timers.changed) and timers.unguarded:
            self._watchdog.follow(now_ms)
        if self.floor.turns.begun or self._spotlight.watched:
            self._spotlight.follow(now_ms)
        if timers.changed and (at_ms := timers.wake_ms()) is not None:
            self.floor.order(WakeAt(at_ms))

    # --- the gate -----------------------------------------------------------------------------

    def _settle(self, now_ms: int) -> None:
        """Start the replies that may start, and open the gate if it may open.

        A reply that is complete the moment its gate opens makes way for the next reply, so this loops until nothing
        changes. Each pass starts, opens or ends a turn, and no turn does any of it twice.
        """
        before = None
        while before != (before := self._standing()):
            if self._interruptions.overlap is not None:
                self._interruptions.follow(now_ms)
            if self._interruptions.overlap is None or not self._interruptions.undecided:
                self._answers.settle(now_ms)
            self._open_gate(now_ms)

    def _standing(self) -> tuple[object, ...]:
        return self.caller.state, self.agent.state, self.agent.turn, self._answers.n_pending

    def _open_gate(self, now_ms: int) -> None:
        turn = self.agent.turn
        if turn is not None and self.agent.state is Agent.READY and self._may_open(turn):
            self.agent.open_gate(turn, now_ms)
        if (
            self.caller.state is Caller.ENDED
            and (t := self.caller.turn) is not None
            and (t.reply.released or t.outcome)
        ):
            self.caller.leave()

    def _may_open(self, turn: Turn) -> bool:
        """Return whether the gate may open: the turn is over, the reply is current, and it answers what was said."""
        over = self.caller.state is Caller.ENDED and self.caller.turn is turn
        return (turn.question.settled or (over and turn.current)) and not self._interruptions.undecided

    # --- user events --------------------------------------------------------------------------

    def _caller_hands(self) -> dict[type, _Hand]:
        return {
            e.SpeechStarted: (self._speech_started, EVERYTHING),
            e.SpeechWentOn: (self._interruptions.speech_went_on, NOTHING),
            e.SpeechPaused: (self._speech_paused, EVERYTHING),
            e.SilenceGrew: (self._silence_grew, NOTHING),
            e.EndpointScored: (self.caller.endpoint_scored, After(answers=True)),
            e.SilenceCommitted: (self._idle.silence_committed, EVERYTHING),
            e.TranscriptGrew: (self._transcript_grew, NOTHING),
            e.TranscriptFinished: (self._transcript_finished, EVERYTHING),
            e.TranscriberFailed: (self._transcript_failed, EVERYTHING),
            e.EarReached: (self.caller.utterances.ear_reached, NOTHING),
            e.EarChanged: (self.caller.utterances.ear_changed, NOTHING),
        }

    def _speech_started(self, fact: e.SpeechStarted, now_ms: int) -> None:
        """Handle speech of the user. The client is notified of the speech first, and then of what it ends."""
        if self.caller.deaf or self._interruptions.speech_started(fact, now_ms):
            return
        turn, may_interrupt = self.caller.turn, self.floor.settings.interrupt_response
        resumed, ended = self.caller.state is Caller.HOLDING, self.caller.state is Caller.ENDED
        is_kept = turn is not None and ended and self._keeps_its_answer(turn)
        if turn is not None and is_kept:
            self._answers.postpone(turn, now_ms)
        self.caller.speech_started(fact, now_ms)
        if turn is not None and not is_kept:
            self.agent.revise(turn)
        if may_interrupt and not resumed and not is_kept:
            self._answers.interrupt(now_ms)

    def _speech_paused(self, fact: e.SpeechPaused, now_ms: int) -> None:
        if not self._interruptions.speech_paused(fact):
            self.caller.speech_paused(fact, now_ms)

    def _silence_grew(self, fact: e.SilenceGrew, now_ms: int) -> None:
        if self._interruptions.overlap is not None:
            self._interruptions.silence_grew(fact, now_ms)
            self.steps.changed = True
            return
        self.caller.silence_grew(fact, now_ms)
        if self._answers.words_known:  # the pause may be long enough now for an early reply
            self._settle(now_ms)

    def _transcript_grew(self, fact: e.TranscriptGrew, now_ms: int) -> None:
        self.caller.transcript_grew(fact)
        self._interruptions.transcript_grew(fact, now_ms)

    def _transcript_finished(self, fact: e.TranscriptFinished, now_ms: int) -> None:
        self.caller.transcript_finished(fact, now_ms)
        self._interruptions.transcript_finished(fact, now_ms)

    def _transcript_failed(self, fact: e.TranscriberFailed, now_ms: int) -> None:
        self.caller.transcript_failed(fact)
        self._interruptions.transcript_failed(now_ms)

    def _keeps_its_answer(self, turn: Turn) -> bool:
        """Return whether a turn that is over is answered although the user goes on before any audio is played."""
        return turn.question.overlong or (not self.floor.settings.interrupt_response and self.agent.turn is turn)

    # --- client events ------------------------------------------------------------------------

    def _client_hands(self) -> dict[type, _Hand]:
        history, answers = self._history, self._answers
        return {
            e.SettingsChanged: (self._settings_changed, EVERYTHING),
            e.CommitRequested: (self._commit_requested, EVERYTHING),
            e.ClearRequested: (self._clear_requested, EVERYTHING),
            e.ReplyRequested: (answers.request, EVERYTHING),
            e.CancelRequested: (answers.cancel, EVERYTHING),
            e.ItemOffered: (lambda fact, now_ms: history.offered(fact), NOTHING),
            e.ItemTruncated: (history.truncated, EVERYTHING),
            e.ItemDeleted: (lambda fact, now_ms: history.deleted(fact), NOTHING),
            e.PlaybackReported: (self.agent.playback_reported, EVERYTHING),
            e.ItemWanted: (lambda fact, now_ms: history.wanted(fact), NOTHING),
            e.PhrasesReady: (self._phrases_ready, BUDGET),
            e.TimePassed: (self._time_passed, EVERYTHING),
            e.LoopHeld: (self._loop_held, NOTHING),
            e.LineLost: (self._line_lost, NOTHING),
            e.LineResumed: (self._line_resumed, EVERYTHING),
            e.CallerLeft: (self._caller_left, EVERYTHING),
        }

    def _settings_changed(self, fact: e.SettingsChanged, now_ms: int) -> None:
        dropped = self.caller.settings_changed(fact)
        self._interruptions.settings_changed(now_ms)
        if dropped is not None:
            self._answers.drop(dropped, "turn detection changed", now_ms)

    def _commit_requested(self, fact: e.CommitRequested, now_ms: int) -> None:
        self._interruptions.committed(now_ms)
        committed = self.caller.commit_requested(fact, now_ms)
        if committed is None:
            return
        if self.agent.turn is committed:
            self.agent.revise(committed)  # a commit starts no reply, so the speculative reply is wasted
        self._answers.leave_open(committed, now_ms)

    def _clear_requested(self, fact: e.ClearRequested, now_ms: int) -> None:
        self._interruptions.drop(now_ms)
        dropped = self.caller.clear_requested()
        if dropped is not None:
            self._answers.drop(dropped, "cleared by the client", now_ms)

    def _phrases_ready(self, fact: e.PhrasesReady, now_ms: int) -> None:
        self.floor.phrases = fact.texts

    # --- reply events -------------------------------------------------------------------------

    def _hands_of_the_reply(self) -> dict[type, _ReplyHand]:
        agent = self.agent
        return {
            e.ModelAsked: (agent.model_asked, After(answers=True, budget=True)),
            e.ModelReached: (lambda turn, fact, now_ms: turn.mark(budget.CONNECTED, now_ms), NOTHING),
            e.ModelJoined: (route.model_joined, NOTHING),
            e.ModelChosen: (route.model_chosen, NOTHING),
            e.ModelAttempted: (route.model_attempted, NOTHING),
            e.ModelSpoke: (agent.model_spoke, BUDGET),
            e.CallGrew: (agent.call_grew, BUDGET),
            e.TokensCounted: (agent.tokens_counted, NOTHING),
            e.ModelFinished: (agent.model_finished, BUDGET),
            e.ClauseHandedOver: (agent.clause_handed_over, BUDGET),
            e.VoiceChanged: (route.voice_changed, NOTHING),
            e.VoiceReached: (route.voice_reached, NOTHING),
            e.VoiceUnheard: (route.voice_unheard, NOTHING),
            e.VoiceRecited: (route.voice_recited, NOTHING),
            e.SoundArrived: (agent.sound_arrived, BUDGET),
            e.VoiceFinished: (agent.voice_finished, NOTHING),
            e.OutputSent: (agent.output_sent, BUDGET),
            e.FillerSent: (agent.filler_sent, NOTHING),
            e.StageFailed: (self._stage_failed, EVERYTHING),
        }

    def _of_reply(self, fact: Any, now_ms: int) -> After:
        turn = self.agent.find(fact.turn, fact.revision)
        over = turn is not None and turn.reply.released and not turn.reply.response_open
        if turn is None or (over and not isinstance(fact, e.OutputSent)):
            self.ignored += 1
            return NOTHING
        hand, after = self._reply_hands[type(fact)]
        hand(turn, fact, now_ms)
        return after

    def _stage_failed(self, turn: Turn, fact: e.StageFailed, now_ms: int) -> None:
        turn.account.providers[fact.stage] = fact.provider
        self._reply_failed(turn, fact.stage, f"{fact.provider}: {fact.why}", now_ms)

    def _reply_failed(self, turn: Turn, stage: str, why: str, now_ms: int) -> None:
        """Handle a failed reply. A speculative reply is dropped: the LLM is asked again at the turn's end."""
        if self.caller.turn is turn and self.caller.state is not Caller.ENDED:
            turn.guess_failed = True
            self.agent.revise(turn)
        else:
            self.agent.fail(turn, stage, why, now_ms)

    def _put_away_the_guess_of(self, turn: Turn | None) -> None:
        if turn is not None:
            self.agent.revise(turn)

    # --- time and connection ------------------------------------------------------------------

    def _loop_held(self, fact: e.LoopHeld, now_ms: int) -> None:
        self.floor.turns.note_hold((fact.from_ms, fact.until_ms))

    def _line_lost(self, fact: e.LineLost, now_ms: int) -> None:
        self.floor.timers.lose_connection(now_ms)

    def _line_resumed(self, fact: e.LineResumed, now_ms: int) -> None:
        self.floor.timers.resume(now_ms)
        self.agent.line_resumed(dict(fact.missed), now_ms)

    def _time_passed(self, fact: e.TimePassed, now_ms: int) -> None:
        for timer in self.floor.timers.passed(now_ms):
            self._timer_hands[timer.due](timer, now_ms)

    def _hands_of_the_timers(self) -> dict[Due, _TimerHand]:
        caller, interruptions = self.caller, self._interruptions
        return {
            Due.DOUBT: lambda timer, now_ms: self._put_away_the_guess_of(caller.go_on()),
            Due.FILLER: lambda timer, now_ms: None,  # `Actions.follow` acts on it, as after every event
            Due.FINAL_TEXT: lambda timer, now_ms: caller.text_overdue(timer.number, now_ms),
            Due.FIRST_OUTPUT: self._reply_overdue,
            Due.HOLDING: lambda timer, now_ms: caller.end(now_ms),
            Due.IDLE: lambda timer, now_ms: self._idle.overdue(),
            Due.IRREVOCABLE: lambda timer, now_ms: self._end_is_irrevocable(now_ms),
            Due.OVERLAP: lambda timer, now_ms: interruptions.overdue(now_ms),
            Due.PLAYBACK: lambda timer, now_ms: self.agent.played(now_ms),
            Due.PROGRESS: self._reply_overdue,
            Due.REPLY: self._reply_overdue,
            Due.SHORTEN: lambda timer, now_ms: None,  # as `FILLER`
            Due.TRANSCRIPT: lambda timer, now_ms: caller.transcript_overdue(timer.number),
            Due.UTTERANCE: lambda timer, now_ms: caller.overdue(now_ms),
            Due.VERDICT: lambda timer, now_ms: interruptions.verdict_due(now_ms),
            Due.WATCHDOG: lambda timer, now_ms: self._watchdog.overdue(now_ms),
        }

    def _reply_overdue(self, timer: Timer, now_ms: int) -> None:
        if (overdue := self.agent.overdue(timer)) is not None:
            self._reply_failed(*overdue, now_ms)

    def _end_is_irrevocable(self, now_ms: int) -> None:
        turn = self.caller.turn
        if turn is not None and self.caller.state is Caller.ENDED:
            self._answers.postpone(turn, now_ms)

    def _caller_left(self, fact: e.CallerLeft, now_ms: int) -> None:
        self._interruptions.drop(now_ms)
        self._answers.hang_up(fact.why, now_ms)
        self.floor.timers.clear_all()
        self.floor.order(DropAudio())
        self._over = True
        # No event is handled any more, and the handlers refer to this core.
        self.hands, self._reply_hands, self._timer_hands = {}, {}, {}
