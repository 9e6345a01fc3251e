"""Pools of models and the rules that send requests to them: read and cross-checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, Final, TypeVar

from voicepipe.config.sources import KeyPath, Leaves
from voicepipe.errors import ConfigError
from voicepipe.registry import Spec, Stage
from voicepipe.router.options import ExperimentOptions, PoolOptions, RouterOptions, RuleOptions
from voicepipe.router.policies import Experiment, Rule

POOL: Final = "pool"
"""`pool/NAME` in place of a spec names a pool; so no provider can have this name."""

Options = TypeVar("Options")
Read = Callable[[Any, KeyPath, Leaves], Any]
"""(defaults, section, the values as written) -> the options with the values below the section applied."""


@dataclass(frozen=True, slots=True)
class Routing:
    """The settings that decide which model answers."""

    pools: Mapping[str, PoolOptions] = field(default_factory=lambda: MappingProxyType({}))
    rules: tuple[Rule, ...] = ()
    experiments: tuple[Experiment, ...] = ()

    @property
    def reached(self) -> frozenset[str]:
        """Return the pools that rules and experiments use."""
        arms = (pool for experiment in self.experiments for pool, _ in experiment.split)
        return frozenset((*(rule.pool for rule in self.rules), *arms))


def read_routing(leaves: Leaves, router: RouterOptions, read: Read) -> Routing:
    """Read `[pools]`, `[rules]` and `[experiments]`.

    Raises:
        ConfigError: naming the key of a wrong value or of a reference to a missing pool.
    """
    usual = PoolOptions(**{each.name: getattr(router, each.name) for each in fields(router)})
    pools = {name: read(usual, ("pools", name), leaves) for name in _names("pools", leaves)}
    for name, pool in pools.items():
        if not pool.models:
            raise ConfigError(f"pools.{name}.models: expected one or more of provider/model, got none")
        check_specs({name: pool}, _no_pool)
    rules = tuple(_rule(name, read, leaves) for name in _names("rules", leaves))
    experiments = tuple(_experiment(name, read, leaves) for name in _names("experiments", leaves))
    for key, pool in (
        *((f"rules.{rule.name}.pool", rule.pool) for rule in rules),
        *((f"experiments.{each.name}.split", pool) for each in experiments for pool, _ in each.split),
    ):
        check_pool(pool, pools, key=key)
    return Routing(MappingProxyType(pools), rules, experiments)


def check_pool(pool: str, pools: Mapping[str, PoolOptions], *, key: str) -> None:
    """Refuse a pool that does not exist.

    Raises:
        ConfigError: naming `key`.
    """
    if pool not in pools:
        known = f"one of {', '.join(pools)}" if pools else "a pool that has a section [pools.NAME]"
        raise ConfigError(f"{key}: expected {known}, got {pool!r}")


def _no_pool(text: str, key: str) -> None:
    """Refuse a pool among models, for which several orders and limits would count at once."""
    if Spec.read(text).provider == POOL:
        raise ConfigError(f"{key}: expected provider/model, got the pool {text!r}; name its models instead")


def check_specs(pools: Mapping[str, PoolOptions], check: Callable[[str, str], None]) -> None:
    """Check every model of every pool with `check(spec, key)`, which raises."""
    for name, pool in pools.items():
        for option in ("models", "medium_models", "easy_models"):
            for text in getattr(pool, option):
                check(text, f"pools.{name}.{option}")
        if pool.judge_model:
            check(pool.judge_model, f"pools.{name}.judge_model")


def pool_named(specs: tuple[str, ...]) -> str | None:
    """Return the pool that an agent names for a stage, or None when it names models."""
    named = Spec.read(specs[0]) if len(specs) == 1 else None
    return named.model if named is not None and named.provider == POOL else None


def pools_of(agents: Mapping[str, Mapping[Stage, tuple[str, ...]]], routing: Routing) -> dict[tuple[str, Stage], str]:
    """Return the pools that agents name: (agent, stage) -> pool. `agents`: what each names for its stages.

    Raises:
        ConfigError: a pool does not exist, or is named for two stages, or one of STT or TTS has models by class.
    """
    stage_of: dict[str, tuple[Stage, str]] = {
        pool: ("llm", "those of rules and experiments") for pool in routing.reached if pool in routing.pools
    }
    found: dict[tuple[str, Stage], str] = {}
    for agent, stages in agents.items():
        for stage, specs in stages.items():
            key = f"agents.{agent}.{stage}"
            if (name := pool_named(specs)) is None:
                for text in specs:
                    _no_pool(text, key)
                continue
            check_pool(name, routing.pools, key=key)
            other, where = stage_of.setdefault(name, (stage, f"those of {key}"))
            if other != stage:
                raise ConfigError(f"{key}: expected a pool of {stage.upper()}, got {name!r}, whose models are {where}")
            if stage != "llm" and routing.pools[name].has_classes:
                option = "easy_models" if routing.pools[name].easy_models else "medium_models"
                raise ConfigError(f"pools.{name}.{option}: expected none in a pool of {stage.upper()} ({key})")
            found[agent, stage] = name
    return found


def specs_of(texts: tuple[str, ...], *, key: str) -> tuple[Spec, ...]:
    """Parse the specs of a stage.

    Raises:
        ConfigError: naming `key`, when there is none, or one is not `provider/model`.
    """
    return tuple(Spec.parse(text, key=key) for text in texts or ("",))


def _rule(name: str, read: Read, leaves: Leaves) -> Rule:
    options: RuleOptions = read(RuleOptions(), ("rules", name), leaves)
    return _named(f"rules.{name}", lambda: options.rule(name))


def _experiment(name: str, read: Read, leaves: Leaves) -> Experiment:
    if "/" in name:  # its turns are stored with `experiment/pool`
        raise ConfigError(f"experiments.{name}: expected a name without a slash, got {name!r}")
    options: ExperimentOptions = read(ExperimentOptions(), ("experiments", name), leaves)
    return _named(f"experiments.{name}", lambda: options.experiment(name))


def _named(at: str, make: Callable[[], Options]) -> Options:
    try:
        return make()
    except ConfigError as why:
        raise ConfigError(f"{at}.{why}") from None


def _names(section: str, leaves: Leaves) -> tuple[str, ...]:
    """Return the names of `[section.NAME]` in the order of the file: the first rule that applies is used."""
    return tuple(dict.fromkeys(path[1] for path in leaves if path[0] == section and len(path) > 1))


def resolved(specs: tuple[str, ...], pools: Mapping[str, PoolOptions]) -> tuple[str, ...]:
    """Return what an agent names for a stage, with a pool's models in place of its name. The pool must exist."""
    name = pool_named(specs)
    return specs if name is None else pools[name].specs
