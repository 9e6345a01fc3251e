"""The router's options, each with its meaning beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from voicepipe.errors import ConfigError
from voicepipe.router.policies import CandidateOrder, Experiment, Rule

Schedule = Literal["hedge", "race", "fallback", "single"]

LATEST_DEADLINE_MS: Final = 4_000
"""The planner looks no further than 5 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterOptions:
    """The routing options of an agent's models; every pool may have its own."""

    policy: Schedule = "hedge"
    """`hedge` starts a second model when the first is about to miss the deadline. `race` starts several at once,
    `fallback` one after the other, `single` only one and the next when it fails."""

    order: CandidateOrder = "given"
    """The policy that orders the models. `given`: as written (quality first). `learned`: the one that best makes the
    deadline for its cost, by past results; any model of the list may answer. `price`: the cheapest. `ttft`: the
    fastest first token. `region`: the nearest, by the measured round trip. `sticky`: always the same for a user or
    session."""

    deadline_ms: int = 600
    """The deadline from the request to the first speakable word."""

    hedge_budget_usd: float = 0.0002
    """The cap in dollars on what hedging may add to the cost of the first model alone, as the average of a turn. In any
    500 turns of all workers a user pays at most 1.05 times it for hedges. `late_turn_usd` spends less where little is
    late."""

    late_turn_usd: float = 0.007
    """The most that hedging may pay to prevent one late turn, within the cap: more is spent when the models are slow,
    less when they are fast, and nothing where no turn would be late. 10 sets no limit beside the cap."""

    prefer_first: bool | None = None
    """Keep a hedge that is ready until the deadline: if the first model makes it, the first model answers. False: the
    first one to speak answers. Unset: true with the order `given`, false with any other."""

    race_width: int = 2
    """The number of models that `race` starts at once."""

    fallback_after_ms: int = 2_000
    """The silence of a model after which `fallback` starts the next one."""

    attempt_timeout_ms: int = 8_000
    """The timeout of a model for its first speakable text; other output does not count."""

    continue_broken: bool = True
    """Let another model continue an answer that stalls or breaks, if it is text only; once in a turn."""

    max_output_tokens: int | None = None
    """The longest answer for speech, in tokens. Unset: the agent's limit."""

    region: str = ""
    """The server's region, for the policy `region` while nothing is measured: words separated by `-`, compared with
    `providers.NAME.region`. Empty: `cluster.region`."""

    complexity: str = "words"
    """The heuristic that decides how hard a question is, for `easy_models` and `medium_models`: `words`, or an
    installed one."""

    @property
    def prefers_first(self) -> bool:
        """Return whether the first model answers if it meets the deadline: what is set, else by the order. Only a list
        in the order as written has its best model first."""
        return self.order == "given" if self.prefer_first is None else self.prefer_first

    def __post_init__(self) -> None:
        for name, least, most in (
            ("deadline_ms", 50, LATEST_DEADLINE_MS),
            ("fallback_after_ms", 50, 60_000),
            ("attempt_timeout_ms", 100, 60_000),
        ):
            value = getattr(self, name)
            if not least <= value <= most:
                raise ConfigError(f"{name}: expected {least} to {most} ms, got {value}")
        if not 0 <= self.hedge_budget_usd <= 10:
            raise ConfigError(f"hedge_budget_usd: expected 0 to 10 dollars, got {self.hedge_budget_usd}")
        if not 0 < self.late_turn_usd <= 10:
            raise ConfigError(f"late_turn_usd: expected more than 0 and at most 10 dollars, got {self.late_turn_usd}")
        if not 2 <= self.race_width <= 4:
            raise ConfigError(f"race_width: expected 2 to 4, got {self.race_width}")
        if self.max_output_tokens is not None and self.max_output_tokens < 1:
            raise ConfigError(f"max_output_tokens: expected 1 or more, got {self.max_output_tokens}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOptions(RouterOptions):
    """A `[pools.NAME]`: models of which any may serve. Options that are not set are taken from
    `[router]`."""

    models: tuple[str, ...] = ()
    """The models as `provider/model`, best first. An agent uses all of them with `llm = "pool/NAME"`;
    STTs with `stt`, and TTSs with `tts`. A pool serves one stage."""

    easy_models: tuple[str, ...] = ()
    """The models that answer easy questions, of `models` or beside them; the others answer the rest."""

    medium_models: tuple[str, ...] = ()
    """The models that answer questions between easy and hard, likewise. Without them, medium questions count as
    hard."""

    judge_model: str = ""
    """A small model, as `provider/model`, that judges beside each answer how hard the question is. If it judges harder
    before the first word, a model for that class is started too, and preferred until the deadline; an answer never
    waits for the judge. Empty: the heuristic alone."""

    def __post_init__(self) -> None:
        RouterOptions.__post_init__(self)
        if twice := set(self.easy_models) & set(self.medium_models):
            raise ConfigError(f"medium_models: expected none of easy_models, got {min(twice)!r}")
        if self.judge_model and not self.has_classes:
            raise ConfigError("judge_model: expected easy_models or medium_models too, got neither")

    @property
    def has_classes(self) -> bool:
        """Return whether some of its models are for easier questions."""
        return bool(self.easy_models or self.medium_models)

    @property
    def specs(self) -> tuple[str, ...]:
        """Return all its models, each once."""
        return tuple(dict.fromkeys((*self.models, *self.medium_models, *self.easy_models)))


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleOptions:
    """A `[rules.NAME]`: requests that go to another pool. The first matching rule counts."""

    when: tuple[str, ...] = ()
    """Conditions on a request's metadata, as `name=value` or `name=one|other`: `language`, `agent`, and any other
    name that the client sends. All must hold."""

    pool: str = ""
    """The pool for such requests."""

    def rule(self, name: str) -> Rule:
        """Return the parsed rule.

        Raises:
            ConfigError: the syntax is wrong.
        """
        return Rule(name, conditions(self.when), self.pool)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentOptions:
    """An `[experiments.NAME]`: requests that are split between pools; a session keeps its pool."""

    when: tuple[str, ...] = ()
    """The requests that take part, as in a rule. Empty: all."""

    split: tuple[str, ...] = ()
    """Shares as `pool=percent`; the rest to 100 stays in its own pool."""

    def experiment(self, name: str) -> Experiment:
        """Return the parsed experiment.

        Raises:
            ConfigError: the syntax is wrong, or the sum is more than 100 percent.
        """
        split = tuple(_share(text) for text in self.split)
        if not split or sum(percent for _, percent in split) > 100:
            raise ConfigError(f"split: expected pools with percentages up to 100 in all, got {list(self.split)}")
        return Experiment(name, conditions(self.when), split)


def conditions(written: tuple[str, ...]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the parsed conditions `name=one|other`.

    Raises:
        ConfigError: the syntax of one is wrong.
    """
    read = []
    for text in written:
        name, equals, values = text.partition("=")
        if not (name.strip() and equals and values.strip()):
            raise ConfigError(f'when: expected "name=value" or "name=one|other", got {text!r}')
        read.append((name.strip(), tuple(value.strip().lower() for value in values.split("|"))))
    return tuple(read)


def _share(text: str) -> tuple[str, float]:
    pool, _, percent = text.partition("=")
    try:
        share = float(percent)
    except ValueError:
        share = -1.0
    if not pool.strip() or not 0 <= share <= 100:
        raise ConfigError(f'split: expected "pool=percent", got {text!r}')
    return pool.strip(), share
