"""Several models for one agent: as a list, as a pool, by rules and in experiments."""

from __future__ import annotations

from pathlib import Path

import pytest

from voicepipe.config import Settings, load
from voicepipe.errors import ConfigError
from voicepipe.registry import Spec
from voicepipe.router.policies import PoolChoice, RoutingQuery, pool_of

MINE = '[providers.mine]\nbase_url = "http://127.0.0.1:1/v1"\n'


def read(tmp_path: Path, text: str, **overrides: object) -> Settings:
    (tmp_path / "voicepipe.toml").write_text(MINE + text)
    return load(environ={"HOME": "/h"}, folder=tmp_path, overrides=overrides)


def test_an_agent_may_have_a_list_of_models(tmp_path: Path) -> None:
    settings = read(tmp_path, '[agents.default]\nllm = ["mine/a", "ollama/b:3b"]\n')
    agent = settings.agents["default"]
    assert agent.specs("llm") == (Spec("mine", "a"), Spec("ollama", "b:3b"))
    assert agent.spec("llm") == Spec("mine", "a")
    assert agent.specs("stt") == (agent.spec("stt"),)
    assert settings.pooled == {}


def test_a_list_is_written_with_commas_where_there_are_no_lists(tmp_path: Path) -> None:
    settings = read(tmp_path, "", **{"agents.default.llm": "mine/a,ollama/b"})
    assert settings.agents["default"].specs("llm") == (Spec("mine", "a"), Spec("ollama", "b"))


def test_a_pool_is_named_like_a_model(tmp_path: Path) -> None:
    settings = read(
        tmp_path,
        '[router]\ndeadline_ms = 700\n[agents.default]\nllm = "pool/voice"\n'
        '[pools.voice]\nmodels = ["mine/a", "mine/b"]\neasy_models = ["mine/c", "mine/b"]\norder = "learned"\n',
    )
    assert settings.pooled == {("default", "llm"): "voice"}
    assert [str(spec) for spec in settings.agents["default"].specs("llm")] == ["mine/a", "mine/b", "mine/c"]
    pool = settings.routing.pools["voice"]
    assert (pool.deadline_ms, pool.order, settings.router.order) == (700, "learned", "given")


def test_stt_and_tts_have_pools_too(tmp_path: Path) -> None:
    """With options of their own; what no pool serves has the router's. Such a pool is no pool of LLMs."""
    settings = read(
        tmp_path,
        '[router]\nfallback_after_ms = 900\n[agents.default]\nstt = "pool/dictation"\ntts = "pool/voices"\n'
        '[agents.desk]\ntts = "mine/a"\n'
        '[pools.dictation]\nmodels = ["mine/s", "local/moonshine-tiny"]\nfallback_after_ms = 700\n'
        '[pools.voices]\nmodels = ["mine/t", "local/hibari"]\npolicy = "fallback"\n'
        '[pools.answers]\nmodels = ["mine/a"]\n',
    )
    default = settings.agents["default"]
    assert [str(spec) for spec in default.specs("stt")] == ["mine/s", "local/moonshine-tiny"]
    assert [str(spec) for spec in default.specs("tts")] == ["mine/t", "local/hibari"]
    assert settings.routing_of("default", "stt").fallback_after_ms == 700
    voices = settings.routing_of("default", "tts")
    assert (voices.policy, voices.fallback_after_ms) == ("fallback", 900)
    assert settings.routing_of("desk", "tts") is settings.router
    assert settings.routing_of("desk", "stt").fallback_after_ms == 700, "inherited"
    assert settings.model_pools == ("answers",)


def test_rules_keep_their_order_and_the_first_that_applies_counts(tmp_path: Path) -> None:
    settings = read(
        tmp_path,
        '[pools.gold]\nmodels = ["mine/g"]\n[pools.german]\nmodels = ["mine/d"]\n'
        '[rules.vip]\nwhen = ["user_tier=gold|platinum"]\npool = "gold"\n'
        '[rules.de]\nwhen = ["language=de|de-AT", "agent=*"]\npool = "german"\n',
    )
    rules = settings.routing.rules

    def pool(**metadata: str) -> PoolChoice:
        return pool_of(RoutingQuery(metadata=metadata), PoolChoice("home"), rules, ())

    assert pool(user_tier="Gold", language="de", agent="default") == PoolChoice("gold", "rule vip")
    assert pool(language="de-AT", agent="default") == PoolChoice("german", "rule de")
    assert pool(language="de") == PoolChoice("home")
    assert settings.routing.reached == {"gold", "german"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[agents.default]\nllm = "pool/x"\n', "agents.default.llm: expected a pool that has a section [pools.NAME]"),
        ('[agents.default]\ntts = "pool/x"\n', "agents.default.tts: expected a pool that has a section [pools.NAME]"),
        (
            '[agents.default]\nstt = "pool/p"\nllm = "pool/p"\n[pools.p]\nmodels = ["mine/a"]\n',
            "agents.default.llm: expected a pool of LLM, got 'p', whose models are those of agents.default.stt",
        ),
        (
            '[agents.default]\ntts = "pool/p"\n[pools.p]\nmodels = ["mine/a"]\n[rules.r]\nwhen = ["a=b"]\npool = "p"\n',
            "agents.default.tts: expected a pool of TTS, got 'p', whose models are those of rules and experiments",
        ),
        (
            '[agents.default]\ntts = "pool/p"\n[pools.p]\nmodels = ["mine/a"]\neasy_models = ["mine/b"]\n',
            "pools.p.easy_models: expected none in a pool of TTS (agents.default.tts)",
        ),
        ('[agents.default]\nllm = ["mine/a", "b"]\n', 'agents.default.llm: expected "provider/model"'),
        ('[agents.default]\nllm = ["mine/a", "nobody/b"]\n', "agents.default.llm: no provider is called 'nobody'"),
        ("[agents.default]\nllm = []\n", 'agents.default.llm: expected "provider/model"'),
        ("[agents.default]\nllm = [1]\n", "agents.default.llm: expected text, or a list of texts, got [1]"),
        ("[pools.p]\n", "pools.p.models: expected one or more of provider/model, got none"),
        ('[pools.p]\nmodels = ["nobody/b"]\n', "pools.p.models: no provider is called 'nobody'"),
        (
            '[pools.p]\nmodels = ["mine/a"]\neasy_models = ["nobody/b"]\n',
            "pools.p.easy_models: no provider is called 'nobody'",
        ),
        (
            '[pools.p]\nmodels = ["mine/a"]\nmedium_models = ["nobody/b"]\n',
            "pools.p.medium_models: no provider is called 'nobody'",
        ),
        (
            '[pools.p]\nmodels = ["mine/a"]\neasy_models = ["mine/b"]\njudge_model = "nobody/b"\n',
            "pools.p.judge_model: no provider is called 'nobody'",
        ),
        (
            '[pools.p]\nmodels = ["mine/a"]\njudge_model = "mine/b"\n',
            "pools.p.judge_model: expected easy_models or medium_models too",
        ),
        (
            '[agents.default]\ntts = "pool/p"\n[pools.p]\nmodels = ["mine/a"]\nmedium_models = ["mine/b"]\n',
            "pools.p.medium_models: expected none in a pool of TTS (agents.default.tts)",
        ),
        ('[pools.p]\nmodels = ["mine/a"]\ndeadline_ms = 9000\n', "pools.p.deadline_ms: expected 50 to 4000 ms"),
        (
            '[pools.p]\nmodels = ["pool/q"]\n[pools.q]\nmodels = ["mine/a"]\n',
            "pools.p.models: expected provider/model, got the pool 'pool/q'; name its models instead",
        ),
        (
            '[pools.p]\nmodels = ["mine/a"]\neasy_models = ["pool/p"]\n',
            "pools.p.easy_models: expected provider/model, got the pool 'pool/p'",
        ),
        (
            '[agents.default]\nllm = ["mine/a", "pool/p"]\n[pools.p]\nmodels = ["mine/b"]\n',
            "agents.default.llm: expected provider/model, got the pool 'pool/p'",
        ),
        ("[router]\ndeadline_ms = 10\n", "router.deadline_ms: expected 50 to 4000 ms, got 10"),
        ("[router]\nrace_width = 9\n", "router.race_width: expected 2 to 4, got 9"),
        ("[router]\nhedge_budget_usd = -1\n", "router.hedge_budget_usd: expected 0 to 10 dollars, got -1"),
        ("[router]\nlate_turn_usd = 0\n", "router.late_turn_usd: expected more than 0 and at most 10 dollars, got 0"),
        ('[router]\npolicy = "guess"\n', 'router.policy: expected "hedge" or "race" or "fallback" or "single"'),
        ('[rules.r]\nwhen = ["a=b"]\npool = "x"\n', "rules.r.pool: expected a pool that has a section [pools.NAME]"),
        ('[rules.r]\nwhen = ["a"]\npool = "x"\n', 'rules.r.when: expected "name=value" or "name=one|other", got'),
        ('[experiments.e]\nsplit = ["x=10"]\n', "experiments.e.split: expected a pool that has a section"),
        ('[experiments."a/b"]\nsplit = ["x=10"]\n', "experiments.a/b: expected a name without a slash, got 'a/b'"),
        ('[experiments.e]\nsplit = ["x"]\n', 'experiments.e.split: expected "pool=percent", got'),
        ('[experiments.e]\nsplit = ["x=60", "y=60"]\n', "experiments.e.split: expected pools with percentages up to"),
        ("[providers.pool]\nkind = 'openai'\n", "providers.pool: expected another name"),
    ],
)
def test_what_leads_nowhere_is_refused_with_its_key(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        read(tmp_path, text)
    assert str(refusal.value).startswith(words)
