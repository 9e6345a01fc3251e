"""A turn's record: every mark, every stage judged, and where each millisecond went."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Cause = Literal["vad", "commit", "create", "tool", "idle", "apology"]
Outcome = Literal["completed", "interrupted", "failed", "abandoned"]
Verdict = Literal["within", "over"]
HeardBy = Literal["reported", "estimated", "nobody"]


@dataclass(frozen=True, slots=True)
class StageSpan:
    """One stage of a turn, judged."""

    stage: str
    duration_ms: int
    """From its first mark to its last, without the time that our own event loop was held up to its delay: that counts
    as `overhead`."""

    limit_ms: int
    verdict: Verdict
    critical_ms: int
    """The part that the caller waited for."""

    hidden_ms: int
    """The part that ran while another stage was the bottleneck."""

    owner: str
    """Who could make it shorter: a provider's name, `settings`, `client` or `server`."""


@dataclass(frozen=True, slots=True)
class Contribution:
    """A span of the critical path between two marks. A stage whose time was cut by a held-up event loop has several."""

    stage: str
    from_mark: str
    to_mark: str
    duration_ms: int


@dataclass(frozen=True, slots=True)
class Breach:
    """The first stage that broke its limit, and what would move it."""

    stage: str
    over_ms: int
    owner: str
    setting: str


@dataclass(frozen=True, slots=True)
class TokenCount:
    """Tokens as the provider counts them."""

    input: int = 0
    output: int = 0
    cached: int = 0
    """Of the input, those that its cache had."""

    cache_write: int = 0
    """Of the input, those that were put into its cache, where it charges for that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAttempt:
    """One call to one model, of an answer for which several were tried."""

    provider: str
    role: str
    """`primary`, `hedge`, `replacement` (another had failed) or `continuation` (of an answer that broke)."""

    outcome: str
    """`spoke`, `lost` (another was sooner) or `failed`."""

    began_ms: int
    """After the question."""

    first_ms: int | None
    """From its beginning to its first word; None: there was none while it ran."""

    why: str = ""
    """What failed."""

    cost_usd: float | None = None
    """None: no price is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """Replies that were started before the turn was over: those of one turn, or of a session so far."""

    starts: int = 0
    kept: int = 0
    """Those that the caller heard, or was about to."""

    refused: int = 0
    """Those that were not made, because they would not have paid or a limit was reached."""

    saved_ms: int = 0
    """How much sooner the kept ones could be heard than if they had been started when the turn was over."""

    wasted_input_tokens: int = 0
    wasted_output_tokens: int = 0
    """Tokens of the others: read, and written until they were cancelled."""

    estimated: bool = False
    """Some of these tokens are reckoned from the text, at four characters each: of an answer that is cancelled few
    providers tell the count."""

    @property
    def wasted_tokens(self) -> int:
        """Read and written."""
        return self.wasted_input_tokens + self.wasted_output_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnCost:
    """What one turn cost, in USD. What has no known price counts as nothing."""

    usd: float = 0.0
    """The sum of the others."""

    answer_usd: float = 0.0
    """The model's answer."""

    losers_usd: float = 0.0
    """Calls for it to other models, which were slower or failed, and voices that another was sooner than."""

    speculation_usd: float = 0.0
    """Replies that were started before the turn was over and that nobody heard."""

    speech_usd: float = 0.0
    """The voices that were heard, each for what it said; what was kept on disk costs nothing."""

    hearing_usd: float = 0.0
    """The ears whose texts came, for the sound that they were given since the text before."""

    whole: bool = True
    """False: something in it has no known price."""

    estimated: bool = False
    """The answer's tokens are reckoned from the text, since nobody told them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionCost:
    """What a session's turns cost up to a record, in USD."""

    usd: float = 0.0
    losers_usd: float = 0.0
    speculation_usd: float = 0.0
    active_ms: int = 0
    """Of its time, what was spent in turns: from the caller's first sound to the last of the answer."""

    usd_per_active_minute: float | None = None
    cached_share: float | None = None
    """Of the tokens that models read, the share that their caches had; None: nobody told."""

    whole: bool = True
    """False: something in it has no known price."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRecord:
    """All there is to know of one turn. A record without an outcome belongs to a turn still being spoken."""

    id: str
    session: str
    turn: int
    revision: int
    cause: Cause
    outcome: Outcome | None
    reason: str
    """Why it ended so; empty when it simply completed."""

    marks: tuple[tuple[str, int], ...]
    """(mark, session ms), in time order."""

    total_ms: int | None
    """Heard latency: from t0 to the first audible sample at the client; to the first text for a text-only reply."""

    total_limit_ms: int
    total_verdict: Verdict | None
    heard_by: HeardBy
    stages: tuple[StageSpan, ...]
    parts: tuple[tuple[str, int], ...]
    """Sub-parts of stages, (name, ms): `stt_final`, `gate_wait`, `connect`."""

    contributions: tuple[Contribution, ...]
    unattributed_ms: int
    breach: Breach | None
    providers: tuple[tuple[str, str], ...]
    """(stage, provider) that served the turn."""

    tokens: TokenCount
    caller_text: str
    agent_text: str
    heard_text: str
    """What the caller heard of the reply; the same as `agent_text` unless it was cut."""

    spoken_ms: int
    """How much sound of the reply was sent."""

    actions: tuple[str, ...] = ()
    """What was done to save the budget: `hedge`, `fallback`, `continuation`, `short_clause`, `filler`, `apology`."""

    projected: tuple[tuple[str, int], ...] = ()
    """(mark, ms): what the heard latency was expected to be when that mark was stamped."""

    filler: str = ""
    """What was said while the answer was awaited; no part of `agent_text`."""

    language: str = ""
    """What the caller spoke, as BCP-47: as the ear heard it, or else as it is set; empty: nobody said."""

    route: str = ""
    """Why that model answered, in words, and who stepped in for an ear or a voice; empty when there was no choice."""

    attempts: tuple[ModelAttempt, ...] = ()
    """The calls that were made for it, if a router made them."""

    itl_ms: float | None = None
    """The mean time from one token of the answer to the next; None: nobody counted its tokens, or they came at once."""

    tokens_per_s: float | None = None
    """How many tokens a second came once the first one was there; None likewise."""

    connect_hidden_ms: int | None = None
    """How much of connecting to the voice was over when its reply began; None when it has no connection of its own."""

    ear_connect_hidden_ms: int | None = None
    """How much of connecting to the ear was over when the caller began to speak; None likewise."""

    speculation: Speculation = field(default_factory=Speculation)
    session_speculation: Speculation = field(default_factory=Speculation)
    """The same of all turns of the session, up to this record."""

    cost: TurnCost = field(default_factory=TurnCost)
    session_cost: SessionCost = field(default_factory=SessionCost)
    """Of all turns of the session, up to this record."""
