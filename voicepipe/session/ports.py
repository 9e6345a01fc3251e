"""The server's side of a session: where records and costs go, which events are reported, what the client may do.

Each class is a port. It does nothing by itself; the wiring overrides what the server does. Methods that are not awaited
return at once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from msgspec import Struct, field

from voicepipe.ports.model import ModelRequest
from voicepipe.ports.server_tool import ToolServer
from voicepipe.protocol.mcp import McpRequest
from voicepipe.protocol.session_config import SessionConfig
from voicepipe.session.context import CallRecording, NextAgent, StartTask
from voicepipe.session.endpoint_scoring import Outcome
from voicepipe.session.item_audio import ItemAudio
from voicepipe.telemetry.journal.port import Journal, no_journal
from voicepipe.telemetry.stall_log import StallLog
from voicepipe.turn import commands as c
from voicepipe.turn.journal import Opening
from voicepipe.turn.notifications import Notification
from voicepipe.turn.record.values import TurnRecord
from voicepipe.turn.settings import ReplySettings


class SessionRecords:
    """Stores the records of a session's turns."""

    def store(self, record: TurnRecord) -> None:
        """Store a turn's record, new or renewed."""

    def restore(self, record: TurnRecord) -> None:
        """Store a record that another process has closed, and may have stored. Nothing is counted again."""

    async def wait_until_written(self) -> None:
        """Wait until all records of the session so far are stored; without end while the database is away."""


class SessionCosts:
    """Charges the costs of a session outside its turns."""

    def charge_phrases(self, usd: float, by_client: bool) -> None:
        """Charge the cost of phrases spoken ahead, and whether the client's change of voice caused it."""

    def charge(self, usd: float) -> None:
        """Charge the cost of a summary, or of an answer of a speech-to-speech model that was cancelled."""


class SessionObserver:
    """Logs and counts what goes wrong in a session."""

    def overran(self, command: c.ReportOverrun) -> None:
        """Report a stage over its limit."""

    def was_stuck(self, command: c.ReportStuck) -> None:
        """Report that the last-resort timeout ended work."""

    def strategy_failed(self, command: c.ReportStrategyFailure) -> None:
        """Report that the session's end-of-turn strategy failed."""

    def scored(self, name: str, outcome: Outcome) -> None:
        """Report whether a model has judged a pause in time. `name`: the score's."""


class ClientRules:
    """The rules for the session's client: what it may do and see."""

    report_unserved: Callable[[str], None] | None = None
    """Report a field of the client's that has no effect; None: the client gets an `error` that names it."""

    def check_update(self, before: SessionConfig, after: SessionConfig) -> None:
        """Check the session before and after an update.

        Raises:
            ProtocolError: this client may not make the update.
        """

    def check_reply(self, session: SessionConfig, reply: ReplySettings) -> None:
        """Check a reply that the client requests.

        Raises:
            ProtocolError: this client may not request it.
        """

    def visible(self, session: SessionConfig) -> SessionConfig:
        """Return the session as its client may see it. Fields that the wire depends on, such as formats, stay as they
        are.
        """
        return session


class OtherAgents:
    """The agents beside the session's first. Here there are none."""

    def is_another(self, model: str) -> bool:
        """Return whether a model's name is that of an agent other than the session's: an update cannot change it."""
        return False

    def hand_over(self, name: str) -> NextAgent | None:
        """Return the agent of that name, which goes on with the session; records and hooks are that agent's from now
        on. None: no other agent may.
        """
        return None


class SessionHooks(Protocol):
    """The functions of an agent in Python that run in its sessions."""

    async def session_started(self) -> Mapping[str, str]:
        """Return variables for the instructions. The greeting waits for it."""
        ...

    async def before_reply(self, request: ModelRequest) -> ModelRequest:
        """Return the request for the LLM, perhaps with more text. The user waits for it.

        Raises:
            StageBroken: the reply cannot be made.
        """
        ...

    def session_ended(self) -> None:
        """Start what follows the session."""
        ...


class LiveSubscribers(Protocol):
    """The subscribers outside the session that follow its turns live."""

    is_watched: bool
    """Whether there are any now."""


class NoSubscribers:
    """No marks of running turns are reported."""

    is_watched = False


class LiveTurns:
    """The way of a session's running turns to the subscribers."""

    def __init__(self, subscribers: LiveSubscribers | None = None) -> None:
        self.subscribers: LiveSubscribers = subscribers or NoSubscribers()

    def publish(self, what: Notification) -> None:
        """Send a mark, a verdict or an action. It is called only while there are subscribers."""


class SessionPorts(Struct, frozen=True, kw_only=True):
    """The server's side of one session."""

    records: SessionRecords = field(default_factory=SessionRecords)
    costs: SessionCosts = field(default_factory=SessionCosts)
    observer: SessionObserver = field(default_factory=SessionObserver)
    client: ClientRules = field(default_factory=ClientRules)
    agents: OtherAgents = field(default_factory=OtherAgents)
    live: LiveTurns = field(default_factory=LiveTurns)
    hooks: SessionHooks | None = None
    """The agent's functions; None: it has none, and nothing waits for them."""

    open_journal: Callable[[Opening], Journal] = no_journal
    """Open the journal that records what the session does."""

    open_mcp: Callable[[McpRequest], ToolServer] | None = None
    """Return a connection to an MCP server that the client requests; `ClientRules.check_update` has allowed it."""

    start_detached: StartTask | None = None
    """Start a task that outlasts the session: a call with side effects, which is completed although the user hangs up.
    None: it ends with the session."""

    recording: CallRecording | None = None
    """How the call is recorded; None: it is not."""

    items: ItemAudio | None = None
    """Stores the newest audio of items; None: it is not stored."""

    stalls: StallLog = field(default_factory=StallLog)
    """The delays of the event loop."""

    @property
    def before_reply(self) -> Callable[[ModelRequest], Awaitable[ModelRequest]] | None:
        """Return the hook before each reply; None: the request stays."""
        return None if self.hooks is None else self.hooks.before_reply
