"""Policies one by one: who is left, and in what order."""

from __future__ import annotations

import tomllib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given as examples
from hypothesis import strategies as st

from voicepipe.errors import ConfigError
from voicepipe.router import policies
from voicepipe.router.affinity import MIN_CACHED_TOKENS, WARM_MS, Affinity, warm_specs
from voicepipe.router.build import build_pool, policy_of
from voicepipe.router.candidate import Candidate
from voicepipe.router.complexity import ENTRY_POINT_GROUP, judge, looks_easy, words
from voicepipe.router.options import PoolOptions, RouterOptions
from voicepipe.router.policies import Candidates, Experiment, RoutingQuery
from voicepipe.router.pool import SharedStats
from voicepipe.turn.cost import Price
from voicepipe.values import replace

PROMPTS = Path(__file__).with_name("prompts")

DEAR = Candidate(spec="dear/m", price=Price(3.0, 15.0), region="us-east-1")
CHEAP = Candidate(spec="cheap/m", price=Price(0.1, 0.4), region="eu-central-1")
ODD = Candidate(spec="odd/m", region="eu-west-1")
ALL = (DEAR, CHEAP, ODD)


@dataclass
class Moment:
    """Statistics with scripted values."""

    ttfts_ms: dict[str, float] = field(default_factory=dict)
    running: dict[str, int] = field(default_factory=dict)
    distances_ms: dict[str, float] = field(default_factory=dict)

    def distance_ms(self, candidate: Candidate) -> float | None:
        return self.distances_ms.get(candidate.spec)

    def ttft_ms(self, candidate: Candidate) -> float:
        return self.ttfts_ms.get(candidate.spec, 400.0)

    def in_flight(self, candidate: Candidate) -> int:
        return self.running.get(candidate.spec, 0)


def names(candidates: Candidates) -> list[str]:
    return [each.spec.partition("/")[0] for each in candidates]


def ordered(options: RouterOptions, query: RoutingQuery | None = None, moment: Moment | None = None) -> list[str]:
    return names(policy_of(options, key="k")(ALL, query or RoutingQuery(), moment or Moment()))


def test_orders_of_the_settings() -> None:
    """A model without a price is taken for a common fast one."""
    assert ordered(RouterOptions(order="given")) == ["dear", "cheap", "odd"]
    assert ordered(RouterOptions()) == ["dear", "cheap", "odd"]
    assert ordered(RouterOptions(order="learned")) == ["dear", "cheap", "odd"]
    assert ordered(RouterOptions(order="price")) == ["cheap", "odd", "dear"]
    moment = Moment(ttfts_ms={"odd/m": 90, "dear/m": 300})
    assert ordered(RouterOptions(order="ttft"), moment=moment) == ["odd", "dear", "cheap"]
    assert ordered(RouterOptions(order="region", region="eu-west-3")) == ["odd", "cheap", "dear"]
    assert ordered(RouterOptions(order="region", region="eu")) == ["cheap", "odd", "dear"]
    assert ordered(RouterOptions(order="region")) == ["dear", "cheap", "odd"]
    near = Moment(distances_ms={"odd/m": 12.0, "cheap/m": 14.9, "dear/m": 90.0})
    assert ordered(RouterOptions(order="region"), moment=near) == ["cheap", "odd", "dear"]
    assert ordered(RouterOptions(order="region", region="eu-west-3"), moment=near) == ["odd", "cheap", "dear"]
    partly = Moment(distances_ms={"dear/m": 90.0})
    assert ordered(RouterOptions(order="region", region="eu"), moment=partly) == ["dear", "cheap", "odd"]
    orders = {tuple(ordered(RouterOptions(order="sticky"), RoutingQuery(session=str(i)))) for i in range(100)}
    assert {order[0] for order in orders} == {"dear", "cheap", "odd"}


@examples(st.text(min_size=1, max_size=20))
def test_a_session_sticks_and_moves_only_when_its_own_model_goes(session: str) -> None:
    query, moment = RoutingQuery(session=session), Moment()
    first, second, third = policies.sticky(ALL, query, moment)
    assert policies.sticky(tuple(reversed(ALL)), query, moment) == (first, second, third)
    assert policies.sticky((first, third), query, moment)[0] is first
    assert policies.sticky((second, third), query, moment)[0] is second


def test_sessions_are_spread_and_a_loaded_model_lets_them_go() -> None:
    firsts = Counter(policies.sticky(ALL, RoutingQuery(session=str(i)), Moment())[0].spec for i in range(900))
    assert all(220 < n < 380 for n in firsts.values())
    home = policies.sticky(ALL, RoutingQuery(session="s"), Moment())[0]
    busy = Moment(running={home.spec: 10})
    assert policies.sticky(ALL, RoutingQuery(session="s"), busy)[0] is not home


def test_an_answer_may_be_no_shorter_than_a_token() -> None:
    assert RouterOptions(max_output_tokens=1).max_output_tokens == 1
    with pytest.raises(ConfigError, match="max_output_tokens: expected 1 or more, got 0"):
        RouterOptions(max_output_tokens=0)


def test_a_user_is_the_same_in_every_session() -> None:
    one, other = (policies.sticky(ALL, RoutingQuery(session=s, user="ada"), Moment()) for s in ("a", "b"))
    assert one == other


def test_easy_questions_have_their_own_models() -> None:
    pool = PoolOptions(models=("dear/m", "odd/m"), easy_models=("cheap/m",))
    assert ordered(pool, RoutingQuery(text="What time is it?")) == ["cheap"]
    assert ordered(pool, RoutingQuery(text="Explain why the train was late.")) == ["dear", "odd"]
    only_hard = policies.cascade(frozenset({"none/m"}), frozenset(), words)
    assert names(only_hard(ALL, RoutingQuery(text="Hi"), Moment())) == ["dear", "cheap", "odd"]


def test_models_of_the_other_kind_get_the_request_when_all_others_have_failed() -> None:
    options = PoolOptions(models=("dear/m", "odd/m"), easy_models=("cheap/m",), policy="single")
    pool = build_pool("p", ALL, options, SharedStats())
    easy = pool.decide(RoutingQuery(text="What time is it?"), 0.0).plan
    assert names((easy.first, *easy.reserve)) == ["cheap", "dear", "odd"]
    hard = pool.decide(RoutingQuery(text="Explain why the train was late."), 0.0).plan
    assert names((hard.first, *hard.reserve)) == ["dear", "odd", "cheap"]


def test_a_pool_in_the_order_of_times_learns_them() -> None:
    """Published times count until then."""
    published = tuple(replace(each, ttft_p50_ms=ms) for each, ms in zip(ALL, (300.0, 400.0, 500.0), strict=True))
    stats = SharedStats()
    pool = build_pool("p", published, RouterOptions(order="ttft", policy="single"), stats)
    assert pool.decide(RoutingQuery(), 0.0).plan.first.spec == "dear/m"
    for _ in range(100):
        stats.latency.survival(published[2]).spoke(90.0, 1_000.0)
    assert pool.decide(RoutingQuery(), 60_000.0).plan.first.spec == "odd/m"


def easy_ones(part: str, label: str) -> tuple[list[str], int]:
    """The prompts with that label that are judged easy, and how many there are."""
    prompts = tomllib.loads((PROMPTS / f"{part}.toml").read_text(encoding="utf-8"))[label]
    return [text for text in prompts if looks_easy(RoutingQuery(text=text))], len(prompts)


@pytest.mark.parametrize("part", ["tuning", "held_out"])
def test_hard_prompts_do_not_go_to_the_easy_models(part: str) -> None:
    """At most 5 % of them; and most of the easy ones do go there."""
    wrong, n_hard = easy_ones(part, "hard")
    assert len(wrong) <= 0.05 * n_hard, wrong
    right, n_easy = easy_ones(part, "easy")
    assert len(right) >= 0.6 * n_easy


def test_hard_prompts_of_the_latest_set_do_not_go_to_the_easy_models() -> None:
    """At most 5 % of them. Many of its easy ones go to the other models: what has no known form counts as hard."""
    wrong, n_hard = easy_ones("fresh", "hard")
    assert n_hard == 140
    assert len(wrong) <= 0.05 * n_hard, wrong


def test_no_prompt_is_in_two_parts() -> None:
    names = ("tuning", "held_out", "fresh")
    parts = [tomllib.loads((PROMPTS / f"{part}.toml").read_text(encoding="utf-8")) for part in names]
    tuning, held_out, fresh = ({text.casefold() for label in part.values() for text in label} for part in parts)
    assert not tuning & held_out
    assert not fresh & (tuning | held_out)
    assert min(len(held_out), len(fresh)) >= 100


@pytest.mark.parametrize(
    "text",
    ["How much is a human life?", "Hello in ten languages.", "Combien coûte une guerre ?", "¿Cuánto vale mi casa?"],
)
def test_what_no_fact_answers_is_not_easy(text: str) -> None:
    """Though it is worded like a question for a price, or begins with a greeting."""
    assert not looks_easy(RoutingQuery(text=text))


def test_functions_and_long_questions_are_hard() -> None:
    assert looks_easy(RoutingQuery(text="Book it."))
    assert not looks_easy(RoutingQuery(text="Book it.", n_functions=2))
    assert not looks_easy(RoutingQuery(text=" ".join(["Yes"] * 40)))


def test_a_heuristic_that_is_not_there_is_refused() -> None:
    assert judge("words", key="k") is words
    with pytest.raises(ConfigError, match="k: expected 'words' or the name of an installed one, got 'oracle'"):
        judge("oracle", key="k")


def test_an_installed_heuristic_judges_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    functions = (
        "def is_easy(query):\n    return query.text == 'Six times nine?'\n\ndef class_of(query):\n    return 'medium'\n"
    )
    (tmp_path / "oracle.py").write_text(functions)
    (tmp_path / "oracle-1.dist-info").mkdir()
    (tmp_path / "oracle-1.dist-info" / "METADATA").write_text("Name: oracle\nVersion: 1\n")
    entry = f"[{ENTRY_POINT_GROUP}]\noracle = oracle:is_easy\nclasses = oracle:class_of\n"
    (tmp_path / "oracle-1.dist-info" / "entry_points.txt").write_text(entry)
    monkeypatch.syspath_prepend(tmp_path)
    class_of = judge("oracle", key="k")
    assert [class_of(RoutingQuery(text=text)) for text in ("Six times nine?", "Hi")] == ["easy", "hard"]
    assert judge("classes", key="k")(RoutingQuery()) == "medium"


def right_classes(part: str) -> tuple[int, list[str], int]:
    """How many questions `words` puts into their class, the hard ones it takes for easy, and how many there are."""
    labelled = tomllib.loads((PROMPTS / f"classes_{part}.toml").read_text(encoding="utf-8"))
    found = [(label, words(RoutingQuery(text=text)), text) for label, texts in labelled.items() for text in texts]
    wrong = [text for label, found_class, text in found if (label, found_class) == ("hard", "easy")]
    return sum(label == found_class for label, found_class, _ in found), wrong, len(found)


@pytest.mark.parametrize(("part", "least"), [("tuning", 98), ("held_out", 74)])
def test_questions_go_to_the_models_of_their_class(part: str, least: int) -> None:
    """The figures of the table in the docs; a hard question never goes to the small models."""
    right, wrong, n_questions = right_classes(part)
    assert n_questions == 100
    assert right >= least
    assert wrong == []


def test_three_classes_have_their_models() -> None:
    pool = PoolOptions(models=("dear/m",), medium_models=("odd/m",), easy_models=("cheap/m",))
    for text, name in (("What time is it?", "cheap"), ("Why do cats purr?", "odd"), ("Write a poem.", "dear")):
        assert ordered(pool, RoutingQuery(text=text)) == [name]
    assert ordered(pool, RoutingQuery(text="What time is it?", complexity="hard")) == ["dear"]
    assert ordered(pool, RoutingQuery(text="Why do cats purr?", n_functions=1)) == ["dear"]
    without_easy = PoolOptions(models=("dear/m", "cheap/m"), medium_models=("odd/m",))
    assert ordered(without_easy, RoutingQuery(text="What time is it?")) == ["odd"]


def test_an_experiment_shares_out_by_percentage() -> None:
    trial = Experiment("trial", (), (("a", 20.0), ("b", 30.0)))
    arms = Counter(trial.arm(RoutingQuery(session=f"s{i}")).pool for i in range(4_000))
    assert arms["a"] / 4_000 == pytest.approx(0.2, abs=0.03)
    assert arms["b"] / 4_000 == pytest.approx(0.3, abs=0.03)
    other = Experiment("another", (), (("a", 50.0),))
    both = sum(
        trial.arm(RoutingQuery(session=f"s{i}")).pool == "a" == other.arm(RoutingQuery(session=f"s{i}")).pool
        for i in range(4_000)
    )
    assert both / 4_000 == pytest.approx(0.1, abs=0.025)  # arms of two experiments are independent


def test_memory_is_warm_for_a_while_and_for_prompts_that_are_cached() -> None:
    memory = Affinity()
    memory.record("s", ("a/m", "b/m"), "b/m", MIN_CACHED_TOKENS, 1_000.0)
    assert memory.of("s").last == "b/m"
    assert warm_specs(memory.of("s"), 1_000 + WARM_MS - 1) == {"a/m", "b/m"}
    assert not warm_specs(memory.of("s"), 1_000 + WARM_MS)
    memory.record("short", ("a/m",), "a/m", MIN_CACHED_TOKENS - 1, 0.0)
    assert not warm_specs(memory.of("short"), 0.0)
    memory.record("", ("a/m",), "a/m", 5_000, 0.0)
    assert not warm_specs(memory.of(""), 0.0)


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The session that was silent the longest is forgotten."""
    monkeypatch.setattr("voicepipe.router.affinity.MAX_SESSIONS", 3)
    memory = Affinity()
    for session in ("a", "b", "c", "a", "d"):
        memory.record(session, ("x/m",), "x/m", 5_000, 0.0)
    assert [memory.of(session).last for session in "abcd"] == ["x/m", "", "x/m", "x/m"]
