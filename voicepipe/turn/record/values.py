"""A turn's record: every mark, every stage judged, and the cause of each millisecond."""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct, field

from voicepipe.turn.record.arm import NO_ARM, Arm

Cause = Literal["vad", "commit", "create", "tool", "idle", "greeting", "apology"]
Outcome = Literal["completed", "interrupted", "failed", "abandoned"]
Verdict = Literal["within", "over"]
LatencySource = Literal["reported", "estimated", "none"]
FailedStage = Literal["stt", "llm", "tts", "client", "reply"]


EarlierAudio = Literal["filler", "announcement", "greeting", "phrase", "answer"]
"""What still played when an answer's first audio was sent: `announcement`, words before a function call; `phrase`, an
apology or words about the user's silence.
"""

ToolResult = Literal["returned", "failed", "timed_out", "cancelled"]
"""How a call that the server runs ended."""

ToolOutcome = Literal["running", "unanswered"] | ToolResult


class StageSpan(Struct, frozen=True):
    """One stage of a turn, judged."""

    stage: str
    duration_ms: int
    """From its first mark to its last, without the time in which our own blocked event loop delayed it: that counts as
    `overhead`.
    """

    limit_ms: int
    verdict: Verdict
    """`over`: the user waited for it for longer than its limit; in a turn without a total, it took longer."""

    critical_ms: int
    """The part that the user waited for."""

    hidden_ms: int
    """The part that ran while another stage was the bottleneck."""

    owner: str
    """The component that could make it shorter: a provider's name, `settings`, `client` or `server`."""


class Contribution(Struct, frozen=True):
    """A span of the critical path between two marks. A stage that a blocked event loop cut into pieces has several."""

    stage: str
    from_mark: str
    to_mark: str
    duration_ms: int


class Breach(Struct, frozen=True):
    """The stage whose excess over its limit the user waited for longest, and what would have helped.

    `total`: no stage exceeded its limit, and all together did; the owner is that of the longest wait.
    """

    stage: str
    over_ms: int
    owner: str
    depends_on: str
    """What would make the answer sooner (`attribution.DEPENDS_ON`, `settings.SilenceSetBy`); readers name the setting
    (`telemetry.advice`). Empty: no setting is known to help.
    """

    saves_ms: int = 0
    """How much sooner the answer would have been heard with that stage at its limit, in ms, all else as it was."""


class TokenCount(Struct, frozen=True):
    """Tokens as the provider counts them."""

    input: int = 0
    output: int = 0
    cached: int = 0
    """Input tokens read from the provider's cache."""

    cache_write: int = 0
    """Input tokens written into the provider's cache, where it charges for that."""


class ContextUse(Struct, frozen=True, kw_only=True):
    """The part of the conversation that the LLM was given for an answer. Tokens are estimated from the text."""

    tokens_before: int = 0
    """Instructions, tools and the whole conversation."""

    tokens_after: int = 0
    """The part that was sent."""

    items_dropped: int = 0
    """Items of the conversation that were left out."""

    limit_tokens: int | None = None
    """The limit of what is sent: the agent's `context_tokens`, or a lower one; None: only `conversation`'s limits."""


class CitedPassage(Struct, frozen=True):
    """A passage of the agent's documents that the LLM was given for an answer."""

    document: str
    """Its path in the folder."""

    passage: int
    """Its place in the document, from 1."""


class KnowledgeUse(Struct, frozen=True):
    """The search of the agent's documents for an answer."""

    passages: tuple[CitedPassage, ...] = ()
    """What was found, best first."""

    took_ms: int | None = None
    """None: the agent has no documents, or they were not searched."""

    embedding_ms: int | None = None
    """The part of it in which the query was embedded; None: it was searched for by its words only."""

    embedding_usd: float | None = 0.0
    """The cost of that, estimated from the query's text; None: the price is unknown."""


MAX_ARGUMENTS_CHARS: Final = 2_000
"""The longest arguments of a function call in a record."""


class ToolCall(Struct, frozen=True, kw_only=True):
    """One function call of a turn."""

    name: str
    ran_by: Literal["client", "server"] = "client"
    """The side that ran the function."""

    took_ms: int | None = None
    """From the call, sent to the client or started, to its result; None: none has come."""

    early_ms: int = 0
    """How long before that the server had started the function, since it changes nothing."""

    arguments: str = ""
    """What the LLM has written, at most `MAX_ARGUMENTS_CHARS` of it; empty when texts are not kept."""

    outcome: ToolOutcome = "running"
    """`unanswered`: the client requested no reply with its result before the turn was over."""


class ModelAttempt(Struct, frozen=True, kw_only=True):
    """One request to one LLM, for an answer for which several were tried."""

    provider: str
    role: str
    """`primary`, `hedge`, `replacement` (another LLM had failed) or `continuation` (of an answer that broke off)."""

    outcome: str
    """`spoke`, `lost` (another LLM was sooner) or `failed`."""

    began_ms: int
    """Start of the request, in ms after the first request."""

    first_ms: int | None
    """From its start to its first word, in ms; None: there was none while it ran."""

    why: str = ""
    """What failed."""

    cost_usd: float | None = None
    """None: the price is unknown."""


class Speculation(Struct, frozen=True, kw_only=True):
    """Replies that were started before the turn was over: of one turn, or of a session so far."""

    starts: int = 0
    used: int = 0
    """Number of them that were played to the user, or were about to be."""

    refused: int = 0
    """Number of replies not started early, because that would not have paid or a limit was reached."""

    saved_ms: int = 0
    """How much sooner the kept replies could be audible than replies started at the end of the turn, in ms."""

    wasted_input_tokens: int = 0
    wasted_output_tokens: int = 0
    """Tokens of the other replies: read, and written until they were cancelled."""

    estimated: bool = False
    """Some of these tokens are estimated from the text, at 4 characters each: few providers report the count of a
    cancelled answer.
    """

    @property
    def wasted_tokens(self) -> int:
        """Return the wasted tokens, read and written."""
        return self.wasted_input_tokens + self.wasted_output_tokens


class TurnCost(Struct, frozen=True, kw_only=True):
    """The cost of a turn, in USD. Parts without a known price count as 0."""

    usd: float = 0.0
    """The sum of the others."""

    answer_usd: float = 0.0
    """The LLM's answer, or that of a speech-to-speech model."""

    hedge_usd: float = 0.0
    """Requests for it to other LLMs, which were slower or failed, and TTS requests that lost to a sooner TTS."""

    speculation_usd: float = 0.0
    """Replies that were started before the turn was over and that were never played."""

    tts_usd: float = 0.0
    """The TTS whose audio was played, each for its own text; audio cached on disk costs nothing."""

    stt_usd: float = 0.0
    """The STTs whose texts came, for the audio that they were given since the text before."""

    embedding_usd: float = 0.0
    """The embedding models of the agent's documents, for the queries of all searches, also those in vain."""

    whole: bool = True
    """False: a part of it has no known price."""

    estimated: bool = False
    """The answer's tokens are estimated from the text, since the provider did not report them."""


class SessionCost(Struct, frozen=True, kw_only=True):
    """The cost of a session's turns up to a record, and of the summaries beside them, in USD."""

    usd: float = 0.0
    hedge_usd: float = 0.0
    speculation_usd: float = 0.0
    summary_usd: float = 0.0
    """The summaries of what has left the LLM's history; a part of `usd`, and of no turn's cost."""

    active_ms: int = 0
    """The part of the session's time spent in turns: from the user's first audio to the last of the answer, in ms."""

    usd_per_active_minute: float | None = None
    cached_share: float | None = None
    """Of the tokens that LLMs read, the share read from their caches; None: no provider reported it."""

    whole: bool = True
    """False: a part of it has no known price."""


class TurnRecord(Struct, frozen=True, kw_only=True):
    """The complete record of one turn. A record without an outcome belongs to a turn that is still running."""

    id: str
    session: str
    turn: int
    revision: int
    cause: Cause
    outcome: Outcome | None
    reason: str
    """Why it ended with this outcome; empty when it simply completed."""

    marks: tuple[tuple[str, int], ...]
    """(mark, session ms), in time order."""

    total_ms: int | None
    """Turn latency: from t0 to the first audible sample at the client; to the first text for a text-only reply."""

    total_limit_ms: int
    total_verdict: Verdict | None
    latency_source: LatencySource
    stages: tuple[StageSpan, ...]
    parts: tuple[tuple[str, int], ...]
    """Sub-parts of stages, (name, ms): `stt_final`, `gate_wait`, `connect`."""

    contributions: tuple[Contribution, ...]
    unattributed_ms: int
    breach: Breach | None
    providers: tuple[tuple[str, str], ...]
    """(stage, provider) that served the turn."""

    tokens: TokenCount
    user_text: str
    agent_text: str
    played_text: str
    """The part of the reply that the user heard; the same as `agent_text` unless the reply was cut."""

    spoken_ms: int
    """How much audio of the reply was sent, in ms."""

    actions: tuple[str, ...] = ()
    """Actions taken to save the budget: `hedge`, `fallback`, `continuation`, `short_clause`, `filler`, `apology`."""

    projected: tuple[tuple[str, int], ...] = ()
    """(mark, ms): the turn latency that was expected when that mark was stamped."""

    filler: str = ""
    """The filler said while the answer was awaited; not part of `agent_text`."""

    language: str = ""
    """The language of the user's speech, as BCP-47: as the STT detected it, or else as configured; empty: unknown."""

    route: str = ""
    """Why that LLM answered, as text, and the fallbacks of STT and TTS; empty when there was no choice."""

    pool: str = ""
    """The pool whose LLMs might answer; empty: none has a name, or none has answered. Published beside the record."""

    arm: Arm = NO_ARM
    """The arm of an A/B experiment. Published beside the record."""

    attempts: tuple[ModelAttempt, ...] = ()
    """The requests made for the answer, if a router made them."""

    itl_ms: float | None = None
    """The mean time from one token of the answer to the next; None: its tokens were not counted, or they came at once.
    """

    tokens_per_s: float | None = None
    """How many tokens came per second after the first one; None likewise."""

    tts_connect_hidden_ms: int | None = None
    """How much of connecting to the TTS was over when its reply began, in ms; None when it has no connection of its
    own.
    """

    carrier_estimated_ms: int | None = None
    """Of a phone call: the estimated part of the turn latency between the server and the carrier, both ways, in ms.
    None: no phone call, or no estimate."""

    resumed: int = 0
    """How often the user went on while an answer was audible that had begun softly, and the turn continued."""

    taken_back_ms: int = 0
    """How much the user had heard of the answers that were dropped for that, in ms."""

    tools: tuple[ToolCall, ...] = ()
    """The function calls that the turn's answer waited for, or would have waited for, in order."""

    first_audio_ms: int | None = None
    """From t0 to the first audible sample of any kind: the answer's, a filler's, or of what was said before a function
    call; None: nothing was heard.
    """

    answer_audio_ms: int | None = None
    """From t0 to the first audible sample of the answer itself; None: no answer was heard."""

    failed_stage: FailedStage | None = None
    """The stage in which it failed: a provider's, `client` (it took no more, or disabled truncation), or `reply` (not
    complete in time); None: it did not fail.
    """

    stt_connect_hidden_ms: int | None = None
    """How much of connecting to the STT was over when the user began to speak, in ms; None likewise."""

    context: ContextUse = field(default_factory=ContextUse)
    knowledge: KnowledgeUse = field(default_factory=KnowledgeUse)
    speculation: Speculation = field(default_factory=Speculation)
    session_speculation: Speculation = field(default_factory=Speculation)
    """The same for all turns of the session, up to this record."""

    cost: TurnCost = field(default_factory=TurnCost)
    session_cost: SessionCost = field(default_factory=SessionCost)
    """The cost of all turns of the session, up to this record."""


class TurnElsewhere(Struct, frozen=True, kw_only=True):
    """A turn of another process, as far as the record of its rest needs it: for the user it is one turn."""

    id: str
    cause: Cause
    user_text: str = ""
    played_text: str = ""
    """The words of the answer that the user has heard from there."""
