"""A session's settings for its turns: how they end, how they are answered, how long each step may take."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from voicepipe.errors import ConfigError
from voicepipe.turn.conversation import Item
from voicepipe.turn.conversation_limits import ConversationLimits
from voicepipe.turn.cost import PriceList
from voicepipe.turn.truncation import Truncation

InterruptionMode = Literal["confirmed", "immediate"]
SilenceSetBy = Literal["agent_silence", "client_silence", "client_eagerness", "client_commit"]


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the agent may call. `parameters_json` is its JSON Schema as text."""

    name: str
    description: str
    parameters_json: str
    strict: bool | None = None
    """Whether the arguments must match the schema exactly. None: the provider's default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTool:
    """A function that the agent may call and the server runs."""

    tool: Tool
    label: str
    """Where it comes from, for the client: `server_label` of the wire."""

    side_effects: bool = True
    """Whether it changes something. The same call then runs once in a turn."""

    runs_early: bool = False
    """Whether it may run before the end of the turn is certain: it changes nothing, so that its result can be dropped.
    """

    cancellable: bool = False
    """Whether the user's next turn cancels it while it runs."""

    needs_approval: bool = False
    """Whether the client must approve each call before it runs."""

    ends_session: bool = False
    """Whether the session ends after the answer, once it has returned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplySettings:
    """The settings of one reply: the session's own, with the overrides of `response.create`."""

    audible: bool = True
    """False: the reply is text only."""

    instructions: str = ""
    tools: tuple[Tool, ...] = ()
    """The functions that the client runs."""

    server_tools: tuple[ServerTool, ...] = ()
    """The functions that the server runs."""

    tool_choice: str = "auto"
    """`auto`, `none`, `required`, or the name of the one function to call."""

    tool_server: str = ""
    """The label of the server whose functions may be called, by a choice of the client; empty: all functions may."""

    max_output_tokens: int | None = None
    temperature: float | None = None
    voice: str | None = None
    speed: float = 1.0
    language: str | None = None
    """The user's language, which the reply follows, as BCP-47; None: the session's."""

    metadata: tuple[tuple[str, str], ...] = ()
    """Free strings of the client; the server sends them back."""

    in_conversation: bool = True
    """False: out of band; the reply joins no history and may run beside another."""

    context: tuple[Item, ...] | None = None
    """What the LLM reads instead of the conversation, or None for the conversation."""

    may_be_empty: bool = False
    """It goes on with words that the user has heard: the LLM may have nothing to add."""

    def server_tool(self, name: str) -> ServerTool | None:
        """Return the server's function of that name, or None."""
        return next((each for each in self.server_tools if each.tool.name == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageSettings:
    """The voice and the instructions for a language, once the STT detects that the user speaks it."""

    tag: str
    """BCP-47, of what the agent says."""

    voice: str | None = None
    """None: the usual voice."""

    instructions: str = ""
    """What the LLM reads behind the usual instructions."""

    filler: str = ""
    """A filler in this language; empty: the usual one."""

    user_tag: str = ""
    """The user's language, where an interpreter answers in this one; empty: the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnSettings:
    """The detection of the user's turns, and their answers."""

    detection: Literal["vad", "none"] = "vad"
    """`none`: the client ends a turn with a commit."""

    silence_ms: int = 500
    """How long the user must be silent before the turn is over."""

    silence_set_by: SilenceSetBy = "client_silence"
    """What set it, to name that when turns should end sooner."""

    end_of_turn: str = "silence"
    """The name of the strategy that decides when the user has finished (`endpointing.strategy`); `silence_ms` is its
    wait where the evidence shows nothing. `silence`: exactly that.
    """

    create_response: bool = True
    interrupt_response: bool = True
    idle_timeout_ms: int | None = None
    """How long both sides may be silent before the agent speaks; None: forever."""

    idle_ends: bool = False
    """Whether the session ends when the user stays silent after that for as long again."""

    transcribe: bool = False
    """Whether the client requested the user's transcript."""

    watched: bool = False
    """Whether the client requested live updates of its turns."""

    interruption: InterruptionMode = "confirmed"
    """When the client is notified of speech over the agent's: once it is an interruption, or at once. A client that is
    notified silences the agent by itself, so `immediate` makes all such speech an interruption.
    """

    ducks: bool = False
    """Whether the client can lower the agent's volume on request."""

    telephone: bool = False
    """Whether the user's audio is a telephone's: G.711 at 8 kHz."""

    language: str | None = None
    """BCP-47; None: the STT detects it."""

    languages: tuple[LanguageSettings, ...] = ()
    """The languages in which the agent follows the user; only used without a `language`."""

    metadata: tuple[tuple[str, str], ...] = ()
    """Names and values that routing rules for the LLM read."""

    truncation: Truncation = field(default_factory=Truncation)
    """What happens to a conversation that is longer than the LLM's window."""

    reply: ReplySettings = field(default_factory=ReplySettings)

    def __post_init__(self) -> None:
        if self.silence_ms < 0:
            raise ConfigError(f"silence_ms: expected 0 ms or more, got {self.silence_ms}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetLimits:
    """The one-second budget: how long each stage may take before it counts as over, in ms."""

    silence_ms: int = 500
    """The silence that is chosen to end a turn. A longer one counts as over only where the total is over: then it is
    compared with the other stages.
    """

    endpoint_ms: int = 150
    """From the end of the chosen silence to the LLM request: what the server adds to that silence."""

    llm_ttft_ms: int = 600
    """From the LLM request to the LLM's first speakable text or tool call."""

    first_clause_ms: int = 100
    """From the LLM's first text to the first clause given to the TTS."""

    tts_ttfb_ms: int = 150
    """From the first clause to the TTS's first audible sample."""

    speech_to_speech_ms: int = 850
    """From the request to a speech-to-speech model to its first audible sample: the three stages before in one."""

    earlier_audio_ms: int = 200
    """From the first audio written to the socket to the end of what still plays before it, such as a filler or the
    greeting. A longer wait counts as over only where the total is over.
    """

    playback_ms: int = 50
    """From the first audio written to the socket, or the end of what still plays then, to the first audible sample at
    the client.
    """

    tool_ms: int = 500
    """From a function call sent to the client to the client's request for the reply with its result."""

    overhead_ms: int = 20
    """Our own queues and CPU."""

    total_ms: int = 1_000
    """From the user's last voiced sample to the first audible sample at the client; judged separately."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if getattr(self, name) <= 0:
                raise ConfigError(f"budget.{name}: expected a positive number of ms, got {getattr(self, name)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """The longest duration of each state, in ms; then the turn moves on or ends with a reason."""

    utterance_ms: int = 120_000
    """Speech without a pause. Then the turn ends as if the user had stopped, so that noise cannot keep a turn open."""

    interruption_ms: int = 280
    """How long the agent stays ducked while an interruption is undecided. Longer sounds like a broken connection."""

    transcript_ms: int = 5_000
    """From the end of the turn to the transcriber's answer."""

    first_output_ms: int = 10_000
    """From the LLM request until there is something to say or show."""

    progress_ms: int = 10_000
    """From any step of a running reply to the next."""

    reply_ms: int = 300_000
    """A whole reply, from the LLM request to the end of its generation."""

    tool_ms: int = 60_000
    """From function calls sent to the client to its request for the reply with their results. Then the turn is over,
    and a later result is answered in a turn of its own.
    """

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if getattr(self, name) <= 0:
                raise ConfigError(f"deadlines.{name}: expected a positive number of ms, got {getattr(self, name)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculationLimits:
    """Limits on the cost of replies that are started before the turn is over."""

    max_starts: int = 3
    """How many early starts a turn may have."""

    max_wasted_tokens: int | None = None
    """How many tokens a session may spend on replies that are never heard; None: no limit."""

    max_wasted_share: float | None = None
    """The share of all tokens of a session's replies that may be wasted; None: no limit."""

    ms_per_1000_tokens: float = 50.0
    """How much sooner an answer must be for 1,000 wasted tokens, both as expected; otherwise a start does not pay. 100
    ms in each of 6 turns may be worth a tenth of a minute's price, about half a cent of five. That buys some 10,000
    tokens of a small LLM, and 2,000 of a large one. With 50 ms a prompt of 1,000 tokens is worth a start while the user
    ends one pause in seven. A prompt of 10,000 is worth one
    while the user ends two in three.
    """

    def __post_init__(self) -> None:
        if self.max_starts < 0:
            raise ConfigError(f"max_starts: expected 0 or more, got {self.max_starts}")
        if self.max_wasted_tokens is not None and self.max_wasted_tokens < 0:
            raise ConfigError(f"max_wasted_tokens: expected 0 or more, got {self.max_wasted_tokens}")
        if self.max_wasted_share is not None and not 0 <= self.max_wasted_share <= 1:
            raise ConfigError(f"max_wasted_share: expected 0 to 1, got {self.max_wasted_share}")
        if self.ms_per_1000_tokens < 0:
            raise ConfigError(f"ms_per_1000_tokens: expected 0 or more, got {self.ms_per_1000_tokens}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetActionSettings:
    """Actions for when the user would wait too long. The router's settings cover other LLMs."""

    shorten_after_ms: int | None = 400
    """Time from the LLM's first text, in ms: if no clause has closed by then, the TTS gets the text so far. None: the
    TTS waits for the clause, however long that takes.
    """

    filler: str = ""
    """A phrase to say while the answer is late; empty: none."""

    filler_over_ms: int = 1_200
    """The filler is said only if the user is expected to wait longer than this for the answer."""

    apology: str = ""
    """What to say in place of an answer that failed; empty: nothing, or the usual phrase."""

    apologises: bool = False
    """Without an `apology`, one in the session's language is said, if the phrases of `apology` include that language.
    """

    def __post_init__(self) -> None:
        if self.shorten_after_ms is not None and self.shorten_after_ms < 0:
            raise ConfigError(f"shorten_after_ms: expected 0 ms or more, got {self.shorten_after_ms}")
        if self.filler_over_ms < 0:
            raise ConfigError(f"filler_over_ms: expected 0 ms or more, got {self.filler_over_ms}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreSettings:
    """The operator's settings for every turn of a session."""

    budget: BudgetLimits = field(default_factory=BudgetLimits)
    deadlines: Deadlines = field(default_factory=Deadlines)
    speculate: bool = False
    """Start the reply during the user's silence, and hold it until the turn is really over."""

    speculation: SpeculationLimits = field(default_factory=SpeculationLimits)
    calls_wait_ms: int = 0
    """How long calls of the client's functions wait after the end of the user's speech, in ms. Some clients lose a call
    that comes with the end.
    """

    truncation_ends_reply: bool = False
    """Whether a client that truncates a reply which is still being made gets, and pays for, no more of it."""

    client_tool_rounds: int = 0
    """How often a turn may call functions of the client one after another; then the LLM must answer without. 0: without
    limit, as in old journals.
    """

    max_flushes: int = 3
    """How often a turn may request the text from its transcriber before the turn is over."""

    budget_actions: BudgetActionSettings = field(default_factory=BudgetActionSettings)
    """The actions for when the user would wait too long."""

    prices: PriceList = field(default_factory=PriceList)
    """The prices of LLMs, STT and TTS."""

    conversation: ConversationLimits = field(default_factory=ConversationLimits)
    """How large the conversation may grow."""

    context_tokens: int | None = None
    """Tokens that the LLM may read for an answer: instructions, tools and conversation. None: unknown."""

    summarizes: bool = False
    """Whether an LLM summarizes the items that are about to leave the history of the answering LLM."""

    short_words: bool = True
    """Whether the STT's text of less than 1 s of speech is reliable."""

    def __post_init__(self) -> None:
        if self.max_flushes < 1:
            raise ConfigError(f"max_flushes: expected 1 or more, got {self.max_flushes}")
        if self.client_tool_rounds < 0:
            raise ConfigError(f"client_tool_rounds: expected 0 or more, got {self.client_tool_rounds}")
        if self.calls_wait_ms < 0:
            raise ConfigError(f"calls_wait_ms: expected 0 ms or more, got {self.calls_wait_ms}")
