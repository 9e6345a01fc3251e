"""Write core tests as scenarios in verbs, without numbers of turns, utterances and flushes."""

from __future__ import annotations

from typing import Any, Literal

from voicepipe.testing.core_driver import CoreDriver
from voicepipe.turn import events as e
from voicepipe.turn import notifications as a
from voicepipe.turn.commands import (
    BeginUtterance,
    Command,
    ContinueReply,
    Duck,
    FlushTranscript,
    OpenGate,
    RunTool,
    StartReply,
    SuspendReply,
)
from voicepipe.turn.conversation import Item
from voicepipe.turn.conversation_limits import ConversationLimits
from voicepipe.turn.cost import PriceList
from voicepipe.turn.endpointing.built_in import BUILT_IN
from voicepipe.turn.endpointing.strategy import Strategies
from voicepipe.turn.record.arm import NO_ARM, Arm
from voicepipe.turn.record.values import ModelAttempt, ToolResult
from voicepipe.turn.settings import (
    BudgetActionSettings,
    CoreSettings,
    Deadlines,
    ReplySettings,
    SpeculationLimits,
    TurnSettings,
)
from voicepipe.values import replace

STEP_MS = 50
"""Time before each event, unless the test sets more."""

REPORT_MS = 100
"""Interval of the VAD's reports of how long speech over the agent's has lasted."""


Role = Literal["hedge", "replacement", "continuation"]


class Scenario:
    """A scenario whose components get only their own commands: the transcriber its flushes, the provider its replies.

    Verbs about a reply mean the latest one that was started, unless `of` names another (0 for the first).
    Every verb returns the commands that followed.
    """

    def __init__(
        self,
        *,
        speculate: bool = False,
        speculation: SpeculationLimits | None = None,
        max_flushes: int = 3,
        calls_wait_ms: int = 0,
        truncation_ends_reply: bool = False,
        client_tool_rounds: int = 0,
        short_words: bool = True,
        deadlines: Deadlines | None = None,
        budget_actions: BudgetActionSettings | None = None,
        prices: PriceList | None = None,
        conversation: ConversationLimits | None = None,
        context_tokens: int | None = None,
        summarizes: bool = False,
        strategies: Strategies = BUILT_IN,
        **settings: Any,
    ) -> None:
        core = CoreSettings(
            speculate=speculate,
            speculation=speculation or SpeculationLimits(),
            max_flushes=max_flushes,
            calls_wait_ms=calls_wait_ms,
            truncation_ends_reply=truncation_ends_reply,
            client_tool_rounds=client_tool_rounds,
            short_words=short_words,
            deadlines=deadlines or Deadlines(),
            budget_actions=budget_actions or BudgetActionSettings(),
            prices=prices or PriceList(),
            conversation=conversation or ConversationLimits(),
            context_tokens=context_tokens,
            summarizes=summarizes,
        )
        self.driver = CoreDriver(TurnSettings(transcribe=True, **settings), core, now_ms=1_000, strategies=strategies)
        self._utterances: list[int] = []
        self._flushes: dict[int, int] = {}
        self._replies: list[StartReply] = []
        self._tools: list[RunTool] = []
        self._n_clauses: dict[tuple[int, int], int] = {}
        self._opened: set[tuple[int, int]] = set()
        self._revisions: dict[tuple[int, int], int] = {}
        """(turn, revision) -> the revision as which that reply goes on."""

    # --- the user ---------------------------------------------------------------------------

    def speaks(self, for_ms: int = 1_000) -> list[Command]:
        """The user begins to speak, and continues for `for_ms`."""
        now_ms = self.driver.now_ms + STEP_MS
        got = self._post(e.SpeechStarted(now_ms - 60, now_ms - 360))
        if not any(isinstance(command, Duck) for command in got):
            return got + self.passes(for_ms)
        return got + self.goes_on(for_ms)

    def goes_on(self, for_ms: int, *, voiced_ms: int = 0, echoes: bool = False) -> list[Command]:
        """The speech over the agent's continues for `for_ms`; `voiced_ms` of it were voiced before."""
        got, until_ms = [], self.driver.now_ms + for_ms
        while self.driver.now_ms + REPORT_MS <= until_ms:
            voiced_ms += REPORT_MS
            got += self._post(e.SpeechWentOn(voiced_ms, echoes), after_ms=REPORT_MS)
        return got + self.passes(until_ms - self.driver.now_ms)

    def pauses(self) -> list[Command]:
        """The user falls silent for a moment."""
        now_ms = self.driver.now_ms + STEP_MS
        return self._post(e.SpeechPaused(now_ms - 80, now_ms - 80))

    def is_silent(self, silence_ms: int) -> list[Command]:
        """The pause has lasted `silence_ms`, and is not over."""
        return self._post(e.SilenceGrew(silence_ms))

    def is_scored(self, name: str, score: float) -> list[Command]:
        """A model outside the core has scored the pause."""
        turn = self.driver.core.user.turn
        return self._post(e.EndpointScored(turn.marks["voiced_last"] if turn else 0, name, score))

    def stops(self) -> list[Command]:
        """The silence has lasted long enough."""
        return self._post(e.SilenceGrew(self.driver.settings.silence_ms), after_ms=400)

    def goes_silent(self, audio_ms: int) -> list[Command]:
        """The session was silent for long: the audio so far is committed."""
        return self._post(e.SilenceCommitted(audio_ms), after_ms=0)

    def utters(self, words: str = "What time is it?") -> list[Command]:
        """The user says a whole utterance; its text is known before the silence is over."""
        return self.speaks() + self.pauses() + self.transcribes(words) + self.stops()

    def leaves(self) -> list[Command]:
        """The user hangs up."""
        return self._post(e.UserLeft("the user left"))

    # --- the transcriber ----------------------------------------------------------------------

    def transcribes(
        self,
        words: str = "What time is it?",
        *,
        of: int | None = None,
        language: str | None = None,
        provider: str = "fake/stt",
    ) -> list[Command]:
        """The transcriber answers the latest flush: of all, or of an utterance (0 for the first)."""
        utterance = max(self._flushes) if of is None else self._utterances[of]
        flush = self._flushes[utterance]
        return self._post(e.TranscriptFinished(utterance, flush, words, language, provider))

    def ends_it(self, words: str = "What time is it?") -> list[Command]:
        """The transcriber ends the utterance by itself."""
        return self._post(e.TranscriptFinished(self._utterances[-1], 0, words, provider="fake/stt"))

    def guesses(self, words: str) -> list[Command]:
        """The transcriber sends an interim text of the utterance."""
        return self._post(e.TranscriptGrew(self._utterances[-1], words))

    def stt_fails(self, *, of: int = -1) -> list[Command]:
        """The transcriber breaks."""
        return self._post(e.TranscriberFailed(self._utterances[of], "fake/stt", "broke"))

    # --- the client ---------------------------------------------------------------------------

    def creates(self, **reply: Any) -> list[Command]:
        """The client requests a reply."""
        return self._post(e.ReplyRequested("evt", ReplySettings(**reply)))

    def is_greeted(
        self, text: str = "Hello.", *, interruptible: bool = True, at_any_time: bool = False
    ) -> list[Command]:
        """The agent speaks first."""
        return self._post(e.GreetingDue(text, interruptible, at_any_time))

    def tool_ends(
        self, output: str = "sunny", outcome: ToolResult = "returned", *, final: bool = False, of: int = -1
    ) -> list[Command]:
        """A function of the server that was started is over: the latest, or that of a number (0 for the first)."""
        started = self._tools[of]
        return self._post(e.ToolFinished(started.turn, started.call_id, output, outcome, final, started.revision))

    def cancels(self, response_id: str | None = None) -> list[Command]:
        """The client cancels a reply."""
        return self._post(e.CancelRequested("evt", response_id))

    def commits(
        self, buffered_ms: int = 1_000, last_voiced_ms: int | None = None, last_voiced_audio_ms: int | None = None
    ) -> list[Command]:
        """The client ends the turn."""
        return self._post(e.CommitRequested("evt", buffered_ms, last_voiced_ms, last_voiced_audio_ms))

    def clears(self) -> list[Command]:
        """The client clears the input audio."""
        return self._post(e.ClearRequested("evt"))

    def changes(self, **settings: Any) -> list[Command]:
        """The client changes the session's settings."""
        self.driver.settings = replace(self.driver.settings, **settings)
        return self._post(e.SettingsChanged(self.driver.settings))

    def creates_item(self, item: Item, *, after: str | None = None) -> list[Command]:
        """The client adds an item."""
        return self._post(e.ItemCreateRequested("evt", item, after))

    def deletes_item(self, item_id: str) -> list[Command]:
        """The client deletes an item."""
        return self._post(e.ItemDeleteRequested("evt", item_id))

    def truncates(self, item_id: str, audio_ms: int, *, content_index: int = 0) -> list[Command]:
        """The client reports how much of a reply was played."""
        return self._post(e.ItemTruncateRequested("evt", item_id, content_index, audio_ms))

    def reports(
        self,
        played_ms: int,
        *,
        input_ms: int = 0,
        of: int = -1,
        after_ms: int = STEP_MS,
        carrier_estimated_ms: int | None = None,
    ) -> list[Command]:
        """The client reports the played amount of a reply."""
        event = e.PlaybackReported(self._replies[of].item_id, played_ms, 0, input_ms, carrier_estimated_ms)
        return self._post(event, after_ms=after_ms)

    def is_away(self, for_ms: int, *, missed_ms: int = 0, of: int = -1) -> list[Command]:
        """Break the connection and resume it after `for_ms`; `missed_ms` of a reply's audio had not arrived."""
        got = self._post(e.ConnectionLost()) + self.passes(for_ms)
        missed = ((self._replies[of].turn, missed_ms),) if missed_ms else ()
        return got + self._post(e.ConnectionResumed(missed), after_ms=0)

    # --- the reply ----------------------------------------------------------------------------

    def model_requested(self, *, of: int = -1) -> list[Command]:
        """The request was sent to the model."""
        return self._post(e.ModelRequested(*self._key(of), "fake/llm"))

    def speech_requested(self, *, of: int = -1) -> list[Command]:
        """The reply is requested from a speech-to-speech model."""
        return self._post(e.SpeechRequested(*self._key(of), "fake/speech"))

    def model_reached(self, *, of: int = -1) -> list[Command]:
        """The request has a connection."""
        return self._post(e.ModelConnected(*self._key(of)))

    def synthesizer_connected(self, hidden_ms: int, *, of: int = -1) -> list[Command]:
        """The reply has a connection to its TTS."""
        return self._post(e.SynthesizerConnected(*self._key(of), hidden_ms))

    def model_joined(self, provider: str, role: Role = "hedge", *, of: int = -1) -> list[Command]:
        """A router sends the request to another model too."""
        return self._post(e.ModelJoined(*self._key(of), provider, role))

    def model_chosen(
        self, provider: str, why: str, pool: str = "", arm: Arm = NO_ARM, *, of: int = -1
    ) -> list[Command]:
        """A router reports the provider that answers."""
        return self._post(e.ModelChosen(*self._key(of), provider, why, pool, arm))

    def model_attempted(self, attempt: ModelAttempt, *, of: int = -1) -> list[Command]:
        """A router reports the outcome of one call."""
        return self._post(e.ModelAttempted(*self._key(of), attempt))

    def token(self, text: str = "It is noon.", *, of: int = -1) -> list[Command]:
        """The model sends text."""
        return self._post(e.ModelTextReceived(*self._key(of), text))

    def call(self, arguments: str = "{}", *, index: int = 0, of: int = -1, first: bool = True) -> list[Command]:
        """The model calls a function; only the first piece names it."""
        named = (f"call_{index}", "look_up") if first else ("", "")
        return self._post(e.CallGrew(*self._key(of), index, *named, arguments))

    def counts(
        self,
        n_in: int,
        n_out: int,
        n_cached: int = 0,
        n_cache_write: int = 0,
        *,
        usd: float | None = None,
        of: int = -1,
    ) -> list[Command]:
        """The model's provider reports the usage."""
        return self._post(e.TokensCounted(*self._key(of), n_in, n_out, n_cached, n_cache_write, usd))

    def model_done(self, reason: e.FinishReason = "stop", *, of: int = -1) -> list[Command]:
        """The model's answer is complete."""
        return self._post(e.ModelFinished(*self._key(of), reason))

    def clause(self, text: str = "It is noon.", *, shortened: bool = False, of: int = -1) -> list[Command]:
        """A clause goes to the TTS."""
        key = self._key(of)
        number = self._n_clauses[key] = self._n_clauses.get(key, -1) + 1
        return self._post(e.ClauseHandedOver(*key, number, text, "fake/tts", shortened))

    def sound(self, duration_ms: int = 1_000, *, of: int = -1) -> list[Command]:
        """The TTS sends audio of the latest clause."""
        key = self._key(of)
        return self._post(e.SoundArrived(*key, self._n_clauses[key], duration_ms, 20))

    def sent(self, duration_ms: int = 1_000, *, of: int = -1) -> list[Command]:
        """Output has left for the client."""
        return self._post(e.OutputSent(*self._key(of), duration_ms))

    def has_ready(self, *phrases: str) -> list[Command]:
        """Audio of these phrases is prepared."""
        return self._post(e.PhrasesReady(frozenset(phrases)))

    def filler_sent(self, duration_ms: int = 600, *, of: int = -1) -> list[Command]:
        """Audio of the filler was sent to the client."""
        return self._post(e.FillerSent(*self._key(of), duration_ms))

    def voice_done(self, *, of: int = -1) -> list[Command]:
        """All audio has arrived."""
        return self._post(e.SynthesisFinished(*self._key(of)))

    def breaks(self, stage: e.StageName = "llm", *, of: int = -1) -> list[Command]:
        """A provider of the reply breaks."""
        return self._post(e.StageFailed(*self._key(of), stage, f"fake/{stage}", "broke"))

    def begins_to_answer(self, text: str = "It is noon.", duration_ms: int = 1_000, *, of: int = -1) -> list[Command]:
        """One clause of the reply arrives, and is sent to the client if the release gate is open."""
        got = self.model_requested(of=of) + self.token(text, of=of) + self.clause(text, of=of)
        got += self.sound(duration_ms, of=of)
        return got + self.sent(duration_ms, of=of) if self._key(of) in self._opened else got

    def answers(self, text: str = "It is noon.", duration_ms: int = 1_000, *, of: int = -1) -> list[Command]:
        """The reply is complete, and plays on."""
        got = self.begins_to_answer(text, duration_ms, of=of)
        return got + self.model_done(of=of) + self.voice_done(of=of)

    # --- time, and how it went ----------------------------------------------------------------

    def is_summarized(self, number: int, text: str) -> list[Command]:
        """The summary of that number has come."""
        return self._post(e.HistorySummarized(number, text))

    def loop_stalled(self, for_ms: int) -> list[Command]:
        """The event loop was blocked until now, which delayed the last event."""
        return self._post(e.EventLoopStalled(self.driver.now_ms - for_ms, self.driver.now_ms), after_ms=0)

    def passes(self, duration_ms: int) -> list[Command]:
        """Let time pass without events."""
        return self._see(self.driver.at(self.driver.now_ms + duration_ms))

    def notified(self, kind: type) -> list[Any]:
        """Return all notifications of one kind, in order."""
        return [what for what in self.driver.announced if isinstance(what, kind)]

    def ended(self) -> list[tuple[str, str]]:
        """Return how the responses ended: (status, reason), in order."""
        return [(what.status, what.reason) for what in self.notified(a.ResponseEnded)]

    def outcomes(self) -> list[tuple[str | None, str]]:
        """Return how the turns ended: (outcome, reason), in the order of their numbers."""
        records = sorted(self.driver.records.values(), key=lambda record: record.turn)
        return [(record.outcome, record.reason) for record in records]

    def started(self) -> list[StartReply]:
        """Return all replies that were started."""
        return self._replies

    def _key(self, of: int) -> tuple[int, int]:
        turn, revision = self._replies[of].turn, self._replies[of].revision
        while (turn, revision) in self._revisions:
            revision = self._revisions[turn, revision]
        return turn, revision

    def _post(self, event: e.Event, *, after_ms: int = STEP_MS) -> list[Command]:
        return self._see(self.driver.at(self.driver.now_ms + after_ms, event))

    def _see(self, commands: list[Command]) -> list[Command]:
        for command in commands:
            match command:
                case BeginUtterance(utterance):
                    self._utterances.append(utterance)
                case FlushTranscript(utterance, flush):
                    self._flushes[utterance] = flush
                case StartReply():
                    self._replies.append(command)
                case OpenGate(turn, revision):
                    self._opened.add((turn, revision))
                case RunTool():
                    self._tools.append(command)
                case SuspendReply(turn, revision):
                    self._opened.discard((turn, revision))
                case ContinueReply():
                    key = (command.turn, command.next_revision)
                    self._opened.add(key)
                    self._n_clauses[key] = self._n_clauses.get((command.turn, command.revision), -1)
                    self._revisions[command.turn, command.revision] = command.next_revision
                case _:
                    pass
        return commands
