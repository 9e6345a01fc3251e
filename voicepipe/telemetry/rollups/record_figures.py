"""Read one turn's figures from its record as JSON."""

from __future__ import annotations

from typing import Final

import msgspec

from voicepipe.quantile import Sketch, SketchState, state_of_one
from voicepipe.telemetry.rollups.aggregates import Figures, LateStage, ProviderFigures, StageFigures, StageProvider

LATENCY_OF_STAGE: Final = {
    "stt": "stt_final",
    "llm": "llm_ttft",
    "tts": "tts_ttfb",
    "speech_to_speech": "speech_to_speech",
}
"""Stage of a provider -> the part or stage of a turn that is the provider's latency."""


class _Span(msgspec.Struct):
    stage: str
    duration_ms: int
    limit_ms: int
    verdict: str
    hidden_ms: int


class _Contribution(msgspec.Struct):
    stage: str
    duration_ms: int


class _Breach(msgspec.Struct):
    stage: str
    owner: str


class _Tokens(msgspec.Struct):
    input: int = 0
    output: int = 0
    cached: int = 0


class _Attempt(msgspec.Struct):
    provider: str
    outcome: str
    cost_usd: float | None = None


class _Cost(msgspec.Struct):
    usd: float = 0.0
    answer_usd: float = 0.0
    hedge_usd: float = 0.0
    speculation_usd: float = 0.0
    tts_usd: float = 0.0
    stt_usd: float = 0.0


class _Speculation(msgspec.Struct):
    starts: int = 0
    used: int = 0
    refused: int = 0
    saved_ms: int = 0
    wasted_input_tokens: int = 0
    wasted_output_tokens: int = 0


class RecordFigures(msgspec.Struct):
    """The fields of a JSON record that the figures need. Skipping the others saves half the time."""

    outcome: str | None
    total_ms: int | None
    total_limit_ms: int
    total_verdict: str | None
    stages: list[_Span]
    contributions: list[_Contribution]
    parts: dict[str, int]
    providers: dict[str, str]
    tokens: _Tokens
    breach: _Breach | None = None
    actions: list[str] = []
    attempts: list[_Attempt] = []
    itl_ms: float | None = None
    speculation: _Speculation = msgspec.field(default_factory=_Speculation)
    cost: _Cost = msgspec.field(default_factory=_Cost)

    @classmethod
    def read(cls, record: bytes) -> RecordFigures:
        """Read a record that `record_json` wrote.

        Raises:
            ValueError: the record is damaged.
        """
        return _DECODER.decode(record)

    def figures(self) -> Figures:
        """Return the figures of this turn alone."""
        late = self.total_verdict == "over"
        limit_ms = 0 if self.total_ms is None else self.total_limit_ms
        cost, speculation, breach = self.cost, self.speculation, self.breach
        return Figures(
            turns=1,
            over=int(late),
            measured=int(self.total_ms is not None),
            usd=cost.usd,
            outcomes={self.outcome or "": 1},
            waited_ms=self._waited_ms(),
            total=StageFigures(int(late), limit_ms, 0, _sketch_of(self.total_ms)),
            actions=dict.fromkeys(self.actions, 1),
            usd_for=[
                *(cost.answer_usd, cost.hedge_usd, cost.speculation_usd),
                *(cost.tts_usd, cost.stt_usd),
            ],
            tokens=[self.tokens.input, self.tokens.output, self.tokens.cached],
            speculation=[
                *(speculation.starts, speculation.used, speculation.refused, speculation.saved_ms),
                *(speculation.wasted_input_tokens, speculation.wasted_output_tokens),
            ],
            stages={span.stage: _stage(span) for span in self.stages},
            providers=self._providers(),
            late_causes={LateStage(breach.stage, breach.owner): 1} if late and breach is not None else {},
        )

    def _waited_ms(self) -> dict[str, int]:
        """Return stage -> ms that the user waited for the stage. Its whole span does not count: an answer that is ready
        early waits for the end of the turn."""
        waited_ms: dict[str, int] = {}
        for part in self.contributions:
            waited_ms[part.stage] = waited_ms.get(part.stage, 0) + part.duration_ms
        return waited_ms

    def _providers(self) -> dict[StageProvider, ProviderFigures]:
        """Return the figures of the providers that answered, and of those whose attempts did not."""
        latencies_ms = self.parts | {span.stage: span.duration_ms for span in self.stages}
        figures = {}
        for stage, spec in self.providers.items():
            took_ms = latencies_ms.get(LATENCY_OF_STAGE.get(stage, ""))
            figures[StageProvider(stage, spec)] = ProviderFigures(calls=1, durations=_sketch_of(took_ms))
        answering = figures.get(StageProvider("llm", self.providers.get("llm", "")))
        if answering is not None:
            answering.read_tokens, answering.cached_tokens = self.tokens.input, self.tokens.cached
            answering.usd += self.cost.answer_usd
            if self.itl_ms is not None:
                answering.itl_ms, answering.n_itl = self.itl_ms, 1
        for stage, usd in (("tts", self.cost.tts_usd), ("stt", self.cost.stt_usd)):
            if stage in self.providers:
                figures[StageProvider(stage, self.providers[stage])].usd += usd
        for attempt in self.attempts:
            if attempt.outcome != "spoke":
                attempted = figures.setdefault(StageProvider("llm", attempt.provider), ProviderFigures())
                attempted.calls += 1
                attempted.errors += attempt.outcome == "failed"
                attempted.usd += attempt.cost_usd or 0.0
        return figures


def _stage(span: _Span) -> StageFigures:
    over = int(span.verdict == "over")
    return StageFigures(over, span.limit_ms, span.hidden_ms, _sketch_of(span.duration_ms))


def _sketch_of(duration_ms: int | None) -> SketchState:
    """Return a sketch of one duration. A negative duration counts as 0: work before t0 adds no latency."""
    return Sketch().state if duration_ms is None else state_of_one(max(0, duration_ms))


_DECODER: Final = msgspec.json.Decoder(RecordFigures)
