"""Have a model score the answers of turns that are in an arm of an experiment, after they have ended."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections import deque
from collections.abc import Callable
from typing import Final

from voicepipe.clock import unix_ms
from voicepipe.config.settings import QualitySettings, Settings
from voicepipe.errors import ConfigError
from voicepipe.pii.redact import KINDS, Redactor, kinds_of
from voicepipe.ports.model import Content, Model, ModelRequest, Text, TextDelta, Usage, text_chars
from voicepipe.registry import Spec
from voicepipe.router.race_runner import failure_of
from voicepipe.telemetry.rollups.buckets import DAY_MS
from voicepipe.telemetry.store.port import StoredTurn, StoreError, TurnStore
from voicepipe.turn.cost import Price, estimated_tokens
from voicepipe.wiring.prices import price_of
from voicepipe.wiring.stages import Stages

PROMPT: Final = (
    "You rate one answer of a voice assistant. Rate from 1 (wrong or useless) to 5 (right, helpful, and short enough "
    "to listen to). Reply with the digit and nothing else."
)

MAX_CHARS: Final = 4_000
"""The part of each side's words that is judged."""

MAX_WAITING: Final = 100
"""Turns that wait for the judge. Full: further ones are dropped and counted."""

STORE_TRIES: Final = 5
STORE_S: Final = 1.0
"""A turn is stored in a batch, soon after its end; a verdict may come earlier."""

SOURCE: Final = "judge"


class JudgedTurns:
    """The turns that wait for the judge. Full: it drops and counts."""

    def __init__(self, settings: QualitySettings) -> None:
        self._share = settings.judged_share if settings.judge_model else 0.0
        self._waiting: deque[StoredTurn] = deque()
        self._arrived = asyncio.Event()
        self.dropped = 0

    def on_turn_end(self, turn: StoredTurn) -> None:
        """Queue a turn that is to be judged. Returns at once."""
        record = turn.record
        if not (turn.arm and record.user_text and record.agent_text) or not _is_chosen(record.id, self._share):
            return
        if len(self._waiting) >= MAX_WAITING:
            self.dropped += 1
            return
        self._waiting.append(turn)
        self._arrived.set()

    async def next(self) -> StoredTurn:
        """Return the next turn."""
        while not self._waiting:
            self._arrived.clear()
            await self._arrived.wait()
        return self._waiting.popleft()


class AnswerJudge:
    """Scores one answer after the other."""

    def __init__(
        self,
        settings: Callable[[], Settings],
        spec: Spec,
        price: Price,
        model: Model,
        store: TurnStore,
        turns: JudgedTurns,
        n_processes: int,
    ) -> None:
        """`settings` returns those in force: a reload changes agents. Each of `n_processes` has its share of the
        cost."""
        self._settings, self._spec, self._price = settings, spec, price
        self._model, self._store, self._turns = model, store, turns
        self._n_processes = n_processes
        self._n_judged = self._n_failed = self._n_over = 0
        self.cost_usd = 0.0
        self._day, self._day_usd = 0, 0.0

    @property
    def counts(self) -> dict[str, int]:
        """Return how many turns were judged, failed, and dropped."""
        return {
            "judged": self._n_judged,
            "failed": self._n_failed,
            "dropped": self._turns.dropped + self._n_over,
        }

    async def run(self) -> None:
        """Judge turns until this is cancelled. No failure ends it."""
        while True:
            turn = await self._turns.next()
            if self._spent_today_usd() >= self._settings().quality.usd_per_day / self._n_processes:
                self._n_over += 1
            # Only counted: no circuit breaker has these calls. A bug is logged.
            elif await failure_of("llm", str(self._spec), self._judge(turn)) is not None:
                self._n_failed += 1

    async def _judge(self, turn: StoredTurn) -> None:
        score = await self._score_of(turn)
        try:
            is_stored = score is not None and await self._keep(turn, score)
        except StoreError:  # the store's health reports it
            is_stored = False
        self._n_judged += is_stored
        self._n_failed += not is_stored

    async def _keep(self, turn: StoredTurn, score: float) -> bool:
        """Store the score, once the turn itself is stored."""
        for _ in range(STORE_TRIES):
            if await self._store.store_feedback(turn.record.id, turn.project, SOURCE, score, unix_ms()):
                return True
            await asyncio.sleep(STORE_S)
        return False

    def _spent_today_usd(self) -> float:
        if (day := unix_ms() // DAY_MS) != self._day:
            self._day, self._day_usd = day, 0.0
        return self._day_usd

    async def _score_of(self, turn: StoredTurn) -> float | None:
        words = await asyncio.to_thread(_words_of, turn, self._redactor(turn.agent))
        request = ModelRequest(
            model=self._spec.model,
            messages=(Content("system", (Text(PROMPT),)), Content("user", (Text(words),))),
            max_output_tokens=4,
        )
        text, usage = "", None
        async with self._model.open(request) as events:
            try:
                async for event in events:
                    match event:
                        case TextDelta(more):
                            text += more
                        case Usage() if event.is_possible:
                            usage = event
            finally:  # an answer that breaks is charged too
                self._charge(request, text, usage)
        found = re.match(r"\D*([1-5])\b", text)
        return (int(found[1]) - 1) / 4 if found else None

    def _redactor(self, agent: str) -> Redactor:
        """Return what hides the personal data that no LLM may read; all of it for an agent that a reload removed."""
        options = self._settings().agents.get(agent)
        return Redactor(
            KINDS if options is None else kinds_of(options.redact_for_llm, key=f"agents.{agent}.redact_for_llm")
        )

    def _charge(self, request: ModelRequest, text: str, usage: Usage | None) -> None:
        """Count the cost of an answer: by its provider's count, else by an estimate."""
        if usage is None:
            usd = self._price.cost_usd(estimated_tokens(text_chars(request)), estimated_tokens(len(text)))
        else:
            tokens = (usage.input_tokens, usage.output_tokens, usage.cached_tokens, usage.cache_write_tokens)
            usd = self._price.cost_usd(*tokens)
        self.cost_usd += usd
        self._day_usd += usd


def answer_judge_of(
    in_force: Callable[[], Settings], stages: Stages, store: TurnStore, turns: JudgedTurns, *, n_processes: int
) -> AnswerJudge | None:
    """Return the judge of the settings, or None without one.

    Raises:
        ConfigError: its model can't be made, or has no known price.
    """
    settings = in_force()
    if not settings.quality.judge_model:
        return None
    key = "quality.judge_model"
    spec = Spec.parse(settings.quality.judge_model, key=key)
    model = stages.get("llm", spec, key=key)
    if (price := price_of(settings, spec)) is None:
        missing = f"providers.{spec.provider}.input_usd_per_million and output_usd_per_million"
        raise ConfigError(f"{key}: expected a model with a known price, for quality.usd_per_day; set {missing}")
    return AnswerJudge(in_force, spec, price, model, store, turns, n_processes)


def _words_of(turn: StoredTurn, redact: Redactor) -> str:
    """Return what was said in a turn, without what `redact` hides. It may take long: call it in a thread."""
    user, agent = (redact(text)[:MAX_CHARS] for text in (turn.record.user_text, turn.record.agent_text))
    return f"User: {user}\nAssistant: {agent}"


def _is_chosen(id: str, share: float) -> bool:
    """Return whether a turn is in the share that is judged: the same turn always is, in each process."""
    return int.from_bytes(hashlib.blake2b(id.encode(), digest_size=8).digest()) / 2**64 < share
