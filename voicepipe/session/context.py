"""The server's parts of a session: its providers, and the callbacks for reports and checks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from voicepipe.pii.redact import Kind
from voicepipe.ports.endpoint_scorer import AudioScorer, EndpointScorer
from voicepipe.ports.model import Model, ModelRequest
from voicepipe.ports.server_tool import ServerTool, ToolServer
from voicepipe.ports.synthesizer import Synthesizer
from voicepipe.ports.transcriber import Transcriber
from voicepipe.protocol.mcp import McpRequest
from voicepipe.protocol.session_config import SessionConfig
from voicepipe.session.endpoint_scoring import CountScore, discard
from voicepipe.session.item_audio import ItemAudio
from voicepipe.session.knowledge import Knowledge
from voicepipe.session.phrases import PhraseCache
from voicepipe.session.speech_model import SpeechStage
from voicepipe.session.summaries import SummaryModel
from voicepipe.telemetry.journal.port import Journal, no_journal
from voicepipe.telemetry.recording.port import CallRecorder
from voicepipe.telemetry.stall_log import StallLog
from voicepipe.turn import commands as c
from voicepipe.turn.endpointing.built_in import BUILT_IN
from voicepipe.turn.endpointing.strategy import Strategies
from voicepipe.turn.journal import Opening
from voicepipe.turn.notifications import Notification
from voicepipe.turn.record.values import TurnRecord
from voicepipe.turn.settings import ReplySettings


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStages:
    """The providers of one session, and the model's name at each."""

    transcriber: Transcriber
    model: Model
    synthesizer: Synthesizer
    stt_model: str
    llm_model: str
    tts_model: str
    strategies: Strategies = field(default_factory=lambda: BUILT_IN)
    """The end-of-turn strategies that the session's settings may name."""

    endpoint_scorer: EndpointScorer | None = None
    """The local model that judges whether the user's words are a whole sentence; None: none runs here."""

    audio_scorer: AudioScorer | None = None
    """The model that judges from the audio whether the user has finished; None: none runs."""

    redact_for_llm: frozenset[Kind] = frozenset()
    """Kinds of personal data that are replaced in what the LLM reads."""

    knowledge: Knowledge | None = None
    """The agent's documents; None: it has none."""

    summary_model: SummaryModel | None = None
    """The LLM that summarizes what is about to leave the conversation; None: it leaves without a summary."""

    pronunciations: tuple[tuple[str, str], ...] = ()
    """Written words, and their spelling for the TTS."""

    speech: SpeechStage | None = None
    """The speech-to-speech model that answers in place of LLM and TTS; None: there is none."""

    tools: tuple[ServerTool, ...] = ()
    """The functions that the server runs."""

    phrases: PhraseCache | None = None
    """Phrases spoken earlier in that voice; None: the session has a book of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NextAgent:
    """The agent that goes on with a session."""

    name: str
    config: SessionConfig
    """The session as it would begin with this agent."""

    stages: SessionStages
    before_reply: Callable[[ModelRequest], Awaitable[ModelRequest]] | None = None
    """As in `SessionHooks`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Greeting:
    """The agent's first words."""

    text: str = ""
    """What it says, with the names of variables; empty: the LLM decides."""

    interruptible: bool = True
    """Whether the user's speech may stop it."""

    at_any_time: bool = False
    """Whether it may come after another turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecording:
    """The recorder of a call, and its announcement."""

    open_recorder: Callable[[], CallRecorder]
    announcement: str = ""
    """What the agent says before anything is recorded, with the names of variables; empty: nothing."""


StartTask = Callable[[Coroutine[Any, Any, None], str], "asyncio.Task[None]"]
"""Starts a task of that name."""


def _free(usd: float, by_client: bool) -> None:
    """Charge nothing."""


class LiveSubscribers(Protocol):
    """The subscribers outside the session that follow its turns live."""

    is_watched: bool
    """Whether there are any now."""


class NoSubscribers:
    """No marks of running turns are reported."""

    is_watched = False


def _do_nothing() -> None:
    """Do nothing."""


async def _written() -> None:
    """Nothing is stored: there is nothing to wait for."""


def _discard(what: Notification) -> None:
    """Do nothing; never called while there are no subscribers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionHooks:
    """A session's callbacks to the server. Those that are not awaited return at once."""

    store_record: Callable[[TurnRecord], None]
    report_overrun: Callable[[c.ReportOverrun], None]
    report_stuck: Callable[[c.ReportStuck], None]
    report_strategy_failure: Callable[[c.ReportStrategyFailure], None]

    check_update: Callable[[SessionConfig, SessionConfig], None]
    """Check the session before and after an update. Raises ProtocolError when this client may not make the update."""

    check_reply: Callable[[SessionConfig, ReplySettings], None]
    """Check the session and a reply that its client requests. Raises ProtocolError likewise."""

    is_another_agent: Callable[[str], bool] = lambda model: False
    """Return whether a model's name is that of an agent other than the session's: an update cannot change it."""

    count_score: CountScore = discard
    """Count whether a model has judged a pause in time."""

    report_unserved: Callable[[str], None] | None = None
    """Report a field of the client's that has no effect; None: the client gets an `error` that names it."""

    show: Callable[[SessionConfig], SessionConfig]
    """Return the session as its client may see it. Fields that the wire depends on, such as formats, stay as they
    are."""

    records_written: Callable[[], Awaitable[None]] = _written
    """Wait until all records of the session so far are stored; without end while the database is away."""

    restore_record: Callable[[TurnRecord], None] = lambda record: None
    """Store a record that another process has closed, and may have stored. Nothing is counted again."""

    charge: Callable[[float, bool], None] = _free
    """Charge the cost, in USD, of phrases spoken ahead, and whether the client's change of voice caused it."""

    charge_summary: Callable[[float], None] = lambda usd: None
    """Charge the cost of a summary, in USD."""

    session_started: Callable[[], Awaitable[Mapping[str, str]]] | None = None
    """Return variables for the instructions. The greeting waits for it; None: there is nothing to wait for."""

    before_reply: Callable[[ModelRequest], Awaitable[ModelRequest]] | None = None
    """Return the request for the LLM, perhaps with more text. The user waits for it; None: the request stays. Raises
    StageBroken when the reply cannot be made."""

    open_mcp: Callable[[McpRequest], ToolServer] | None = None
    """Return a connection to an MCP server that the client requests; `check_update` has allowed it."""

    hand_over: Callable[[str], NextAgent] | None = None
    """Return the agent of that name, which goes on with the session; records and hooks are that agent's from now on."""

    start_detached: StartTask | None = None
    """Start a task that outlasts the session: a call with side effects, which is completed although the user hangs up.
    None: it ends with the session."""

    session_ended: Callable[[], None] = _do_nothing
    """Start what follows the session."""

    open_journal: Callable[[Opening], Journal] = no_journal
    """Open the journal that records what the session does."""

    recording: CallRecording | None = None
    """How the call is recorded; None: it is not."""

    items: ItemAudio | None = None
    """Stores the newest audio of items; None: it is not stored."""

    stalls: StallLog = field(default_factory=StallLog)
    """The delays of the event loop."""

    live: LiveSubscribers = field(default_factory=NoSubscribers)
    """The subscribers outside the session that follow its turns live."""

    publish_live: Callable[[Notification], None] = _discard
    """Send a mark, a verdict or an action to the live subscribers."""
