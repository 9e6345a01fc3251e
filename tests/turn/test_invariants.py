"""Whatever happens in whatever order, the promises of a turn hold.

In a random world the user, the transcriber, the client and the provider act at random instants. Some act late, twice,
or never. The core receives all of these events, and every command is checked as it comes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from voicepipe.testing.core_driver import CoreDriver
from voicepipe.turn import commands as c
from voicepipe.turn import events as e
from voicepipe.turn import notifications as a
from voicepipe.turn.context import Due, Timer
from voicepipe.turn.conversation import InputText, Message
from voicepipe.turn.settings import BudgetActionSettings, CoreSettings, Deadlines, ReplySettings, TurnSettings
from voicepipe.turn.states import AgentState, UserState

pytestmark = pytest.mark.slow

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


FILLER = BudgetActionSettings(filler="One moment.", filler_over_ms=600, apology="Sorry.")
EAGER = CoreSettings()
LATE = CoreSettings(speculate=False)
"""Replies begin in a pause, or at the end of the turn."""

SOFT_END = [(0, "start", 0), (0, "pause", 0), (0, "text", 0), (0, "quiet", 4)]
"""An utterance that ends softly, so that function calls still wait."""


@example(  # the client cancels a reply of function calls that wait for a certain end
    plot=[*SOFT_END, (0, "asked", 0), (0, "voice_done", 0), (0, "cancel", 0)], core=LATE, softly=True
)
@example(  # the words of such a reply come after its calls
    plot=[*SOFT_END, (0, "asked", 0), (0, "voice_done", 0), (0, "token", 0), (0, "back", 0)], core=LATE, softly=True
)
@example(  # the user speaks over the answer to an overlong turn, after another turn
    plot=[
        *[(668, "start", 0), (668, "pause", 0), (668, "text", 0), (668, "quiet", 0), (629, "start", 0)],
        *[(629, "pause", 0), (629, "quiet", 0), (629, "text", 0), (607, "create", 0)],
        *SOFT_END,
        *[(0, "asked", 0), (0, "token", 0), (0, "clause", 0), (0, "sound", 0), (0, "start", 0), (0, "lasts", 6)],
    ],
    core=LATE,
    softly=True,
)
@example(  # a commit that is refused, while an overlap is judged
    plot=[
        *[(0, "start", 0), (0, "pause", 0), (286, "quiet", 4), (0, "text", 0), (0, "asked", 0), (0, "call", 0)],
        *[(0, "token", 0), (0, "clause", 0), (0, "sound", 0), (92, "quiet", 0), (92, "text", 0)],
        *[(0, "start", 0), (0, "pause", 0), (0, "text", 0), (100, "commit", 0)],
    ],
    core=replace(EAGER, short_words=False, budget_actions=FILLER),
    softly=False,
)
@example(  # a sound stops a reply that was played to its end, and whose outcome waits
    plot=[
        *SOFT_END,
        *[(0, "asked", 0), (256, "voice_done", 0), (270, "start", 0), (0, "pause", 0), (0, "empty_text", 0)],
    ],
    core=LATE,
    softly=True,
)
@example(  # the same of a reply whose function calls wait: its LLM goes on in another response
    plot=[
        *SOFT_END,
        *[(0, "asked", 0), (0, "call", 0), (0, "token", 0), (0, "voice_done", 0)],
        *[(0, "start", 0), (0, "pause", 0), (667, "token", 0)],
    ],
    core=LATE,
    softly=True,
)
@example(  # a sound stops an answer that was played to its end, twice
    plot=[
        *SOFT_END,
        *[(0, "asked", 0), (424, "voice_done", 0), (0, "start", 0), (0, "token", 0), (0, "clause", 0)],
        *[(0, "sound", 0), (0, "pause", 0), (0, "empty_text", 0), (0, "start", 0)],
    ],
    core=EAGER,
    softly=True,
)
@example(  # the agent's audio comes after the end of its synthesis, and a voice stops it
    plot=[
        *[(0, "start", 7), (0, "pause", 7), (0, "text", 7), (100, "quiet", 7), (0, "asked", 0), (0, "token", 0)],
        *[(0, "clause", 0), (0, "finished", 0), (0, "voice_done", 0), (0, "sound", 1), (0, "sent", 0)],
        *[(332, "start", 7), (0, "pause", 7), (0, "text", 7)],
    ],
    core=replace(EAGER, short_words=False),
    softly=True,
)
@example(  # a reply that is stopped while its function runs
    plot=[
        *[(0, "start", 0), (0, "pause", 0), (672, "phrases", 0), (0, "mhm", 0), (505, "asked", 0)],
        *[(505, "finished", 0), (505, "voice_done", 0), (0, "misplaced", 0), (373, "asked", 0), (373, "call", 0)],
        *[(373, "finished", 0), (373, "voice_done", 0), (474, "text", 0), (271, "text", 0), (271, "quiet", 0)],
    ],
    core=replace(
        EAGER,
        short_words=False,
        budget_actions=FILLER,
        deadlines=Deadlines(utterance_ms=5_000, transcript_ms=900, first_output_ms=2_000, progress_ms=1_500),
    ),
    softly=True,
)
@example(  # a sound over an answer that began softly, after the client has requested another
    plot=[
        (0, "start", 0),
        (0, "commit", 2),
        (0, "start", 0),
        (0, "pause", 0),
        (0, "mhm", 0),
        (0, "quiet", 9),
        (0, "asked", 0),
        (0, "token", 0),
        (0, "clause", 0),
        (0, "sound", 0),
        (0, "finished", 0),
        (0, "voice_done", 0),
        (0, "create", 0),
        (0, "start", 0),
        (0, "pause", 0),
        (0, "text", 0),
    ],
    core=replace(
        EAGER,
        short_words=False,
        speculate=False,
        deadlines=Deadlines(utterance_ms=5_000, transcript_ms=900, first_output_ms=2_000, progress_ms=1_500),
    ),
    softly=True,
)
@example(  # an out-of-band text while the session learns how long answers take
    plot=[
        (0, "start", 0),
        (0, "pause", 0),
        (0, "text", 0),
        (0, "quiet", 6),
        (0, "asked", 0),
        (0, "token", 0),
        (0, "clause", 0),
        (0, "sound", 0),
        (0, "start", 0),
        (0, "pause", 0),
        (0, "text", 0),
        (0, "quiet", 5),
        (0, "asked", 0),
        (0, "token", 0),
        (0, "clause", 0),
        (0, "sound", 0),
        (0, "start", 0),
        (0, "pause", 0),
        (0, "text", 0),
        (0, "quiet", 8),
        (0, "asked", 0),
        (0, "token", 0),
        (0, "clause", 0),
        (0, "sound", 0),
        (0, "out_of_band", 7),
        (110, "start", 0),
        (110, "pause", 0),
        (110, "text", 0),
        (0, "asked", 0),
        (0, "token", 0),
    ],
    core=replace(
        EAGER,
        short_words=True,
        speculate=True,
        deadlines=Deadlines(utterance_ms=5_000, transcript_ms=900, first_output_ms=2_000, progress_ms=1_500),
    ),
    softly=False,
)
@example(  # a long voice takes back an answer, and an overlong turn waits for its words
    plot=[
        (0, "start", 0),
        (0, "pause", 0),
        (0, "text", 0),
        (0, "start", 0),
        (543, "phrases", 0),
        (543, "asked", 0),
        (543, "wait", 0),
        (543, "filler_sent", 0),
        (641, "asked", 0),
        (641, "token", 0),
        (641, "clause", 0),
        (641, "sound", 0),
        (641, "sent", 0),
        (0, "start", 0),
        (0, "pause", 0),
        (66, "text", 0),
        (66, "quiet", 6),
        (66, "asked", 0),
        (66, "token", 0),
        (66, "clause", 0),
        (66, "sound", 0),
        (66, "start", 0),
        (66, "lasts", 6),
    ],
    core=replace(
        EAGER,
        short_words=True,
        speculate=False,
        deadlines=Deadlines(utterance_ms=5_000, transcript_ms=900, first_output_ms=2_000, progress_ms=1_500),
    ),
    softly=True,
)
@example(  # the client cancels function calls that wait, over a reply that plays
    plot=[
        (0, "start", 0),
        (0, "lost", 0),
        (0, "create", 0),
        (0, "pause", 0),
        (0, "text", 0),
        (0, "quiet", 9),
        (0, "asked", 0),
        (0, "finished", 0),
        (0, "voice_done", 0),
        (0, "asked", 5),
        (0, "call", 5),
        (0, "cancel", 0),
    ],
    core=replace(
        EAGER,
        short_words=True,
        speculate=False,
        deadlines=Deadlines(utterance_ms=5_000, transcript_ms=900, first_output_ms=2_000, progress_ms=1_500),
    ),
    softly=True,
)
@settings(max_examples=400, deadline=None)
@given(plot=steps, core=cores, softly=st.booleans())
def test_no_event_order_makes_an_illegal_move(
    plot: list[tuple[int, str, int]], core: CoreSettings, softly: bool
) -> None:
    """No move that is not allowed, no second end, no output of a stopped reply; every turn's parts sum to its total."""
    world = play(plot, core, softly=softly)
    assert world.driver.illegal_moves == []
    assert world.driver.core.n_stuck == 0
    for record in world.driver.records.values():
        if record.outcome == "completed" and record.total_ms is not None and record.latency_source != "none":
            assert record.unattributed_ms == 0
            assert sum(part.duration_ms for part in record.contributions) == record.total_ms


@settings(max_examples=300, deadline=None)
@given(plot=steps, core=cores, softly=st.booleans())
@example(  # the user speaks over an answer whose turn an interruption had ended
    plot=[(0, "start", 0), (294, "a_resume", 0), (295, "a_filler", 0), (0, "a_resume", 4)],
    core=CoreSettings(speculate=False),
    softly=True,
)
@example(  # the client commits what the user says over an answer that began softly, and requests no other
    plot=[
        *SOFT_END,
        *[
            (0, "asked", 0),
            (0, "token", 0),
            (0, "finished", 0),
            (0, "voice_done", 0),
            (0, "start", 0),
            (0, "commit", 4),
        ],
    ],
    core=LATE,
    softly=True,
)
@example(  # a filler is said while a function runs, after the calls have waited for a certain end
    plot=[(0, "phrases", 0), *SOFT_END, (0, "asked", 0), (0, "call", 0), (0, "finished", 0), (0, "voice_done", 0)],
    core=replace(LATE, budget_actions=FILLER),
    softly=True,
)
def test_every_turn_ends_within_its_deadlines(
    plot: list[tuple[int, str, int]], core: CoreSettings, softly: bool
) -> None:
    """Whatever was going on: leave it alone, and within the sum of the deadlines all is quiet and has a reason."""
    world = play(plot, core, softly=softly)
    driver = world.driver
    world.watch(driver.at(driver.now_ms, e.ConnectionResumed()))  # a line that stays down ends the session
    d = core.deadlines
    end_ms = driver.now_ms + d.utterance_ms + d.transcript_ms + d.first_output_ms + d.progress_ms + d.reply_ms + 30_000
    world.until(end_ms)
    assert driver.core.agent.state is AgentState.IDLE
    assert driver.core.agent.turn is None
    assert driver.core.user.state is UserState.QUIET
    assert world.open_responses == set()
    assert not driver.core.context.timers.due, "no deadline is left behind"
    assert not driver.core.undecided, "whose the floor is has been said"
    assert driver.core.n_stuck == 0, "a deadline ended it, not the last resort"
    assert driver.illegal_moves == []
    unfinished = [record for record in driver.records.values() if record.outcome is None]
    assert len(unfinished) <= 1, "one turn may wait for the client's request"
    assert all(record.resumed for record in unfinished), "and has a record if an answer to it was taken back"
    for record in driver.records.values():
        assert record.outcome in ("completed", None) or record.reason


@example(  # two turns call functions, and the second begins before the calls of the first
    plot=[
        *[(0, "start", 0), (627, "start", 0), (627, "pause", 0), (627, "mhm", 0), (627, "quiet", 0)],
        *[(680, "no_phrases", 0), (1_200, "start", 0), (0, "asked", 0), (0, "call", 0), (0, "finished", 0)],
        *[(0, "voice_done", 0), (0, "pause", 0), (0, "quiet", 4), (0, "text", 0)],
        *[(0, "asked", 5), (0, "call", 5), (0, "finished", 5), (0, "voice_done", 5)],
    ],
    core=replace(
        EAGER, deadlines=Deadlines(utterance_ms=5_000, transcript_ms=900, first_output_ms=2_000, progress_ms=1_500)
    ),
    softly=False,
)
@settings(max_examples=200, deadline=None)
@given(plot=steps, core=cores, softly=st.booleans())
def test_leaving_ends_everything_at_once(plot: list[tuple[int, str, int]], core: CoreSettings, softly: bool) -> None:
    """When the user hangs up, every reply is stopped, every turn has an outcome, and nothing happens after."""
    world = play(plot, core, softly=softly)
    world.watch(world.driver.at(world.driver.now_ms, e.UserLeft("the user left")))
    assert world.open_responses == set()
    n_turns = world.driver.core.context.counts.get("turn", 0)
    assert len(world.driver.records) == n_turns, "every turn has a record"
    assert all(record.outcome is not None for record in world.driver.records.values())
    assert world.driver.at(world.driver.now_ms + 60_000, e.SpeechStarted(0, 0)) == []
    assert world.driver.illegal_moves == []


FILLED_TWICE = [
    (0, "an_ended_utterance", 4),
    (31, "a_filler", 0),
    (241, "an_overlap", 0),
    (0, "create", 1),
    (518, "an_overlap", 0),
]
"""A turn with a filler is revised while another one is answered, and comes back."""


@example(
    plot=FILLED_TWICE,
    softly=False,
    core=CoreSettings(
        short_words=False,
        budget_actions=FILLER,
        deadlines=Deadlines(utterance_ms=5_000, transcript_ms=900, first_output_ms=2_000, progress_ms=1_500),
    ),
)
@settings(max_examples=200, deadline=None)
@given(plot=steps, core=cores, softly=st.just(True))
def test_the_same_events_give_the_same_commands(
    plot: list[tuple[int, str, int]], core: CoreSettings, softly: bool
) -> None:
    """The core is a function of its events: what a journal replays is what happened."""
    once, again = (play(plot, core, softly=softly) for _ in range(2))
    assert once.driver.commands == again.driver.commands
