"""A random world: the user, the transcriber, the client and the provider act at random instants.

Some act late, twice, or never. The core receives all of these events, and every command is checked as it comes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st

from voicepipe.testing.core_driver import CoreDriver
from voicepipe.turn import commands as c
from voicepipe.turn import events as e
from voicepipe.turn import notifications as a
from voicepipe.turn.context import Due, Timer
from voicepipe.turn.conversation import InputText, Message
from voicepipe.turn.settings import BudgetActionSettings, CoreSettings, Deadlines, ReplySettings, TurnSettings
from voicepipe.turn.states import AgentState
from voicepipe.values import replace

CLAUSE = "One two three four five."
ALONE = """
    start pause quiet text empty_text interim stt_failed commit clear create out_of_band cancel offer truncate delete
    want asked token call usage finished clause sound sent voice_done report stage_failed manual auto stale impostor
    misplaced lost back silent greet summary lasts echo mhm stop_word phrases no_phrases filler_sent reached joined
    synthesizer_connected
""".split()  # noqa: SIM905 - a column of these strings reads worse
TOGETHER = {
    "an_utterance": ["start", "pause", "text"],
    "an_ended_utterance": ["start", "pause", "text", "quiet"],
    "a_late_text": ["start", "pause", "quiet", "text"],
    "a_beginning": ["asked", "token", "clause", "sound", "sent"],
    "an_answer": ["asked", "token", "clause", "sound", "sent", "finished", "voice_done"],
    "an_overlap": ["an_ended_utterance", "a_beginning", "start", "lasts"],
    "a_murmur": ["a_beginning", "start", "pause", "mhm", "quiet"],
    "a_resume": ["an_ended_utterance", "a_beginning", "start", "pause", "text", "quiet"],
    "a_cough": ["an_ended_utterance", "a_beginning", "start", "pause", "empty_text"],
    "a_soft_call": ["an_utterance", "quiet", "asked", "token", "clause", "sound", "call", "finished", "voice_done"],
    "a_filler": ["phrases", "asked", "wait", "filler_sent"],
    "a_call": ["asked", "call", "finished", "voice_done"],
}
"""What usually comes together: without it chance alone would hardly ever get as far as a reply."""

ACTIONS = [*ALONE, *TOGETHER, *TOGETHER, *TOGETHER]


@dataclass
class World:
    """The knowledge of the providers and the client: only what the core sent them."""

    driver: CoreDriver
    utterance: int = 0
    flush: int = 0
    replies: list[tuple[int, int]] = field(default_factory=list)
    clauses: dict[tuple[int, int], int] = field(default_factory=dict)
    stopped: set[tuple[int, int]] = field(default_factory=set)
    opened: set[tuple[int, int]] = field(default_factory=set)
    requested: set[tuple[int, int]] = field(default_factory=set)
    spoke: set[tuple[int, int]] = field(default_factory=set)
    audible: set[tuple[int, int]] = field(default_factory=set)
    sounded: set[tuple[int, int]] = field(default_factory=set)
    unsent: dict[tuple[int, int], int] = field(default_factory=dict)
    open_responses: set[str] = field(default_factory=set)
    in_conversation: set[str] = field(default_factory=set)
    ended_responses: set[str] = field(default_factory=set)
    filled: set[tuple[int, int]] = field(default_factory=set)
    suspended: set[tuple[int, int]] = field(default_factory=set)
    softly: bool = False
    ducked: str = ""
    outputs: dict[str, str] = field(default_factory=dict)

    def event(self, action: str, pick: int) -> e.Event | None:
        return self._users_event(action, pick) or self._clients_event(action, pick) or self._replys_event(action, pick)

    def _users_event(self, action: str, pick: int) -> e.Event | None:
        now_ms = self.driver.now_ms
        match action:
            case "start":
                return e.SpeechStarted(now_ms - 60, now_ms)
            case "pause":
                return e.SpeechPaused(now_ms - 80, now_ms)
            case "quiet":
                return e.SilenceGrew(100 + pick * 100)
            case "text":
                return e.TranscriptFinished(self.utterance, self.flush, f"words {pick}")
            case "lasts":
                return e.SpeechWentOn(100 + pick * 150)
            case "echo":
                return e.SpeechWentOn(500 + pick * 100, echoes=True)
            case "mhm":
                return e.TranscriptFinished(self.utterance, self.flush, "Mhm, yeah.")
            case "stop_word":
                return e.TranscriptGrew(self.utterance, "Wait, please")
            case "empty_text":
                return e.TranscriptFinished(self.utterance, self.flush, "")
            case "interim":
                return e.TranscriptGrew(self.utterance, "words and more " + "x" * pick)
            case "stt_failed":
                return e.TranscriberFailed(self.utterance, "fake/stt", "broke")
            case "silent":
                return e.SilenceCommitted(now_ms)
        return None

    def _clients_event(self, action: str, pick: int) -> e.Event | None:
        items = [item.id for item in self.driver.core.context.conversation.items] or ["nobody"]
        item_id = items[pick % len(items)]
        match action:
            case "commit":
                return e.CommitRequested("evt", pick * 60, None)
            case "clear":
                return e.ClearRequested("evt")
            case "create":
                return e.ReplyRequested("evt", ReplySettings(audible=pick % 3 != 0))
            case "out_of_band":
                return e.ReplyRequested("evt", ReplySettings(in_conversation=False, audible=pick % 2 == 0))
            case "cancel":
                return e.CancelRequested("evt", None)
            case "offer":
                return e.ItemCreateRequested("evt", Message("", "user", (InputText("hello"),)), None)
            case "truncate":
                return e.ItemTruncateRequested("evt", item_id, 0, pick * 100)
            case "summary":
                return e.HistorySummarized(pick, "short" * (pick % 2))
            case "greet":
                return e.GreetingDue("Hello." * (pick % 2), interruptible=pick % 3 != 0, at_any_time=pick % 5 == 0)
            case "lost":
                return e.ConnectionLost()
            case "back":
                return e.ConnectionResumed(tuple((key[0], pick * 50) for key in self.opened if pick % 2))
            case "report":
                return e.PlaybackReported(item_id, pick * 150 - 100, pick, pick * 500 - 100)
            case "delete":
                return e.ItemDeleteRequested("evt", item_id)
            case "want":
                return e.ItemRetrieveRequested("evt", item_id)
            case "manual":
                return e.SettingsChanged(TurnSettings(detection="none"))
            case "auto":
                changed = replace(
                    self.driver.settings,
                    interrupt_response=pick % 3 != 0,
                    create_response=pick % 5 != 0,
                    interruption="immediate" if pick == 9 else "confirmed",
                )
                return e.SettingsChanged(changed)
            case "phrases":
                return e.PhrasesReady(frozenset(("One moment.", "Sorry.")))
            case "no_phrases":
                return e.PhrasesReady(frozenset())
            case "impostor":
                next_number = self.driver.core.context.counts.get("item", 0) + pick % 2
                return e.ItemCreateRequested("evt", Message(f"item_s_{next_number:04d}", "user", ()), None)
        return None

    def _replys_event(self, action: str, pick: int) -> e.Event | None:
        running = [key for key in self.replies if key not in self.stopped]
        turn, revision = running[pick % len(running)] if running else (1, 0)
        clause = self.clauses.get((turn, revision), 0)
        match action:
            case "asked" if running:
                self.requested.add((turn, revision))
                return e.ModelRequested(turn, revision, "fake/llm")
            case "token" if (turn, revision) in self.requested:
                self.spoke.add((turn, revision))
                return e.ModelTextReceived(turn, revision, "token ")
            case "call" if (turn, revision) in self.requested:
                return e.CallGrew(turn, revision, pick % 2, f"call_{pick % 2}", "tool", "{}")
            case "usage":
                return e.TokensCounted(turn, revision, 10, 5, 0)
            case "finished" if (turn, revision) in self.requested:
                return e.ModelFinished(turn, revision, "stop")
            case "clause" if (turn, revision) in self.spoke & self.audible:
                self.clauses[turn, revision] = clause + 1
                return e.ClauseHandedOver(turn, revision, clause, CLAUSE, "fake/tts")
            case "sound" if clause:
                self.sounded.add((turn, revision))
                self.unsent[turn, revision] = self.unsent.get((turn, revision), 0) + 200 + pick * 500
                return e.SoundArrived(turn, revision, clause - 1, 200 + pick * 500, 10)
            case "sent" if (turn, revision) in (self.opened & self.spoke) - self.suspended:
                usual_ms = 100 if (turn, revision) in self.sounded else 0
                return e.OutputSent(turn, revision, self.unsent.pop((turn, revision), usual_ms))
            case "voice_done" if (turn, revision) in self.requested:
                return e.SynthesisFinished(turn, revision)
            case "stage_failed":
                return e.StageFailed(turn, revision, "llm", "fake/llm", "broke")
            case "filler_sent" if (turn, revision) in self.filled:
                return e.FillerSent(turn, revision, 200)
            case "reached":
                return e.ModelConnected(turn, revision)
            case "synthesizer_connected":
                return e.SynthesizerConnected(turn, revision, 80)
            case "joined":
                return e.ModelJoined(turn, revision, "other/llm", "hedge")
            case "stale":
                return e.SoundArrived(turn, revision + 7, 0, 100, 0)
            case "misplaced" if (turn, revision) in self.requested:
                return e.SoundArrived(turn, revision, 99, 100, None)
        return None

    def until(self, now_ms: int) -> None:
        """Let time pass, and check the commands of each timer by themselves."""
        while (wakes_at_ms := self.driver.wakes_at_ms) is not None and wakes_at_ms <= now_ms:
            self.watch(self.driver.at(max(self.driver.now_ms, wakes_at_ms)))
        self.watch(self.driver.at(now_ms))

    def watch(self, commands: list[c.Command]) -> None:
        """Check each command as the session would carry it out."""
        for command in commands:
            match command:
                case c.BeginUtterance(utterance):
                    self.utterance = utterance
                case c.FlushTranscript(_, flush):
                    self.flush = flush
                case c.StartReply():
                    key = (command.turn, command.revision)
                    assert key not in self.replies, "a reply of one revision starts once"
                    self.replies.append(key)
                    if command.reply.audible:
                        self.audible.add(key)
                case c.StopReply():
                    self.stopped.add((command.turn, command.revision))
                case c.OpenGate():
                    key = (command.turn, command.revision)
                    assert key in self.replies
                    assert key not in self.stopped, "nothing of a stopped reply goes out"
                    assert key not in self.opened, "the gate of a revision opens once"
                    self.opened.add(key)
                    assert command.response_id in self.open_responses
                    assert not (command.reversible and not self.softly), "only a soft end is reversible"
                case c.SuspendReply():
                    key = (command.turn, command.revision)
                    assert key in self.opened, "what is stopped was audible"
                    assert key not in self.stopped | self.suspended
                    self.suspended.add(key)
                case c.ContinueReply():
                    key = (command.turn, command.revision)
                    assert key in self.suspended, "only a suspended reply goes on"
                    assert key not in self.stopped
                    assert command.response_id in self.open_responses
                    self.renamed(key, (command.turn, command.next_revision))
                case c.ReleaseCalls() | c.FinalizeReply():
                    assert (command.turn, command.revision) in self.opened
                case c.SayFiller():
                    key = (command.turn, command.revision)
                    assert key in self.replies
                    assert key not in self.stopped, "a reply that is stopped has no filler"
                    waiting = self.driver.core.context.turns.awaits_tools
                    while_tools_run = waiting is not None and waiting.number == command.turn
                    assert key not in self.opened or while_tools_run, "a filler comes before its answer"
                    assert command.response_id in self.open_responses
                    assert command.turn not in {turn for turn, _ in self.filled}, "a turn has one filler"
                    self.filled.add(key)
                case c.Notify(what):
                    self.announced(what)
                case _:
                    pass

    def renamed(self, old: tuple[int, int], new: tuple[int, int]) -> None:
        """The reply goes on as another revision, with what has come of it."""
        self.suspended.discard(old)
        self.stopped.add(old)
        self.replies.append(new)
        for known in (self.opened, self.requested, self.spoke, self.audible, self.sounded):
            if old in known:
                known.add(new)
        self.clauses[new] = self.clauses.get(old, 0)
        turn = self.driver.core.agent.turn
        self.unsent[new] = 0 if turn is None else turn.audio.arrived_ms  # None: it is over already

    def announced(self, what: a.Notification) -> None:
        match what:
            case a.ResponseStarted():
                self.open_responses.add(what.response_id)
                if what.reply.in_conversation:
                    self.in_conversation.add(what.response_id)
                    assert len(self.in_conversation & self.open_responses) == 1, "one answer at a time"
            case a.ResponseEnded():
                assert what.response_id in self.open_responses, "each response ends once"
                self.open_responses.remove(what.response_id)
                self.ended_responses.add(what.response_id)
            case a.AgentDucked():
                self.ducked = what.item_id
            case a.AgentUnducked() | a.AgentInterrupted():
                assert what.after_ms >= 0
                if isinstance(what, a.AgentUnducked):
                    assert self.ducked, "what is raised was lowered"
                self.ducked = ""
            case a.OutputStarted():
                assert what.response_id in self.open_responses, "output belongs to an open response"
            case _:
                pass


steps = st.lists(st.tuples(st.integers(0, 700), st.sampled_from(ACTIONS), st.integers(0, 9)), max_size=60)
cores = st.builds(
    CoreSettings,
    short_words=st.booleans(),
    speculate=st.booleans(),
    budget_actions=st.sampled_from(
        (BudgetActionSettings(), BudgetActionSettings(filler="One moment.", filler_over_ms=600, apology="Sorry."))
    ),
    deadlines=st.just(Deadlines(utterance_ms=5_000, transcript_ms=900, first_output_ms=2_000, progress_ms=1_500)),
)


def parts_of(action: str) -> list[str]:
    """What an action is made of."""
    together = TOGETHER.get(action)
    return [action] if together is None else [part for each in together for part in parts_of(each)]


def play(
    plot: list[tuple[int, str, int]],
    core: CoreSettings,
    *,
    reply_audible: bool = True,
    late_ms: int = 0,
    softly: bool = False,
) -> World:
    session = TurnSettings(
        transcribe=True,
        ducks=True,
        idle_timeout_ms=3_000,
        reply=ReplySettings(audible=reply_audible),
        end_of_turn="soft" if softly else "silence",
    )
    world = World(CoreDriver(session, core, late_ms=late_ms), softly=softly)
    now_ms = 1_000
    for wait_ms, action, pick in plot:
        for part in parts_of(action):
            now_ms += wait_ms
            world.until(now_ms)
            event = world.event(part, pick)
            if event is not None:
                world.watch(world.driver.at(now_ms, event))
            if world.driver.core.agent.state is AgentState.DUCKED and not late_ms:
                assert Timer(Due.INTERRUPTION) in world.driver.core.context.timers.due, (
                    "a lowered voice has its deadline"
                )
    return world
