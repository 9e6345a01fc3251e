"""The simulated capacity: one loop in virtual time, fleets with the server's admission rule, the comparison."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path

import msgspec
import pytest

from tests.measure import capacity as compared
from voicepipe.bench import capacity_fleet, capacity_loop
from voicepipe.bench.capacity_fleet import Calls, Fleet, FleetLoad, LoopCurve, loops_needed, simulate_fleet
from voicepipe.bench.capacity_loop import Costs, LoopLoad, Talk, fitted, simulate_loop
from voicepipe.bench.load.concurrent_users import Cost, LoadRun
from voicepipe.bench.load.user import MeasuredSentence
from voicepipe.cli import main
from voicepipe.cli.simulate_capacity import read_costs
from voicepipe.errors import ConfigError, Overload
from voicepipe.server.head_room import MAX_CPU_SHARE, HeadRoom
from voicepipe.values import replace

TALK = Talk()
FREE = Costs(wake_us=0, cold_us=0, voiced_us=0, silent_us=0, chunk_us=0, token_us=0, turn_us=0, wait_share=0)
SOUND = Path(__file__).parents[1] / "data" / "clean" / "vctk_p287_002.flac"


class Limit:
    """Admits a fixed number of sessions."""

    def __init__(self, most: int) -> None:
        self.most = most

    def check(self, n_sessions: int) -> None:
        if n_sessions >= self.most:
            raise Overload("full")

    def measure(self, n_sessions: int) -> None:
        pass


def limit(most: int) -> Callable[[Callable[[], float | None]], Limit]:
    return lambda cpu_share: Limit(most)


@pytest.fixture(scope="module")
def curve() -> LoopCurve:
    return LoopCurve(TALK, Costs(), (1, 10, 40, 80, 120, 160))


@pytest.fixture
def each_simulated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same arguments give the same load, so each simulation that a test asks for again is done once."""
    loop, fleet = cache(simulate_loop), cache(simulate_fleet)
    for module in (capacity_loop, compared):
        monkeypatch.setattr(module, "simulate_loop", loop)
    monkeypatch.setattr(capacity_fleet, "simulate_fleet", fleet)


# --- one loop -------------------------------------------------------------------------------------


def test_a_loop_without_costs_answers_as_soon_as_the_providers_allow() -> None:
    load = simulate_loop(20, TALK, FREE, duration_s=10)
    assert load.cpu_share == 0
    assert len(load.latencies_ms) > 15
    assert {round(ms) for ms in load.latencies_ms} == {TALK.minimum_ms} == {390}


def test_a_long_silence_is_waited_for() -> None:
    load = simulate_loop(5, replace(TALK, silence_ms=600), FREE, duration_s=10)
    assert {round(ms) for ms in load.latencies_ms} == {600}


def test_cpu_is_the_sum_of_the_work() -> None:
    """50 frames a second and session at 100 us, and nothing else."""
    load = simulate_loop(40, TALK, replace(FREE, voiced_us=100, silent_us=100), duration_s=10)
    assert load.cpu_share == pytest.approx(40 * 50 * 100e-6, rel=0.01)


def test_wake_ups_are_shared_by_more_messages_under_load() -> None:
    few, many = (simulate_loop(n, TALK, Costs(), duration_s=10) for n in (10, 80))
    assert many.wakes_per_s < 8 * few.wakes_per_s
    assert many.cpu_share / 80 < few.cpu_share / 10


def test_a_wake_up_costs_more_after_a_longer_sleep() -> None:
    """So sessions cost less each while the loop is busy: with ten times as many, it sleeps far less."""
    costs = replace(FREE, cold_us=200, silent_us=80, voiced_us=80)
    one, few, many = (simulate_loop(n, TALK, costs, duration_s=10) for n in (1, 10, 100))
    assert one.cpu_share == pytest.approx(50 * (200 + 80) * 1e-6, rel=0.05), "it sleeps for 20 ms before each frame"
    assert few.cold_wakes_per_s < few.wakes_per_s
    assert many.cpu_share < 10 * few.cpu_share


def test_users_wait_beyond_the_core() -> None:
    quiet, full, beyond = (simulate_loop(n, TALK, Costs(), duration_s=20) for n in (1, 80, 240))
    # For one session each wake-up is cold, so many may have their answers a little sooner.
    assert quiet.latency_ms(0.5) - 1 <= full.latency_ms(0.5) < quiet.latency_ms(0.5) + 50
    assert beyond.latency_ms(0.5) > 2 * full.latency_ms(0.5)


def test_failures_and_spread_delay_answers() -> None:
    failing = simulate_loop(10, replace(TALK, failures=0.5), FREE, duration_s=20)
    assert failing.latency_ms(0.95) >= TALK.minimum_ms + TALK.llm_ms
    spread = simulate_loop(10, replace(TALK, spread=0.5), FREE, duration_s=20)
    assert spread.latency_ms(0.95) > TALK.minimum_ms + 50


def test_the_same_seed_gives_the_same_load() -> None:
    talk = replace(TALK, spread=0.3)
    first, second, other = (simulate_loop(5, talk, Costs(), duration_s=5, seed=seed) for seed in (1, 1, 2))
    assert first == second != other


def test_costs_are_fitted_to_what_was_measured() -> None:
    mine = Costs(wake_us=30, cold_us=150, voiced_us=200, silent_us=80, chunk_us=900, token_us=80, turn_us=10_000)
    measured = [(n, simulate_loop(n, TALK, mine, duration_s=15).cpu_share) for n in (5, 20, 50)]
    found = fitted(measured, TALK)
    for n in (10, 35, 60):
        expected = simulate_loop(n, TALK, mine, duration_s=15).cpu_share
        assert simulate_loop(n, TALK, found, duration_s=15).cpu_share == pytest.approx(expected, rel=0.05)


@pytest.mark.slow
def test_no_fitted_cost_is_negative() -> None:
    """Many users may cost more than the model has it: a cost is 0 then, not negative."""
    found = fitted([(10, 0.06), (40, 0.26), (100, 0.80)], TALK)
    assert min(msgspec.to_builtins(found).values()) >= 0
    assert found.cold_us == 0
    assert simulate_loop(100, TALK, found, duration_s=15).cpu_share == pytest.approx(0.80, rel=0.2)
    with pytest.raises(ValueError, match="got those of wake-ups alone"):
        fitted([(10, 0.30), (40, 0.31), (100, 0.32)], TALK)


@pytest.mark.parametrize("shares", [(0.5, 0.4, 0.6), (0.2, 0.5, 1.5), (0.0, 0.4, 0.6), (0.2, 0.4)])
def test_shares_that_no_loop_has_are_refused(shares: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="expected CPU shares that grow with the sessions, of 3 runs or more"):
        fitted(list(zip((10, 50, 90), shares, strict=False)), TALK)


# --- a fleet --------------------------------------------------------------------------------------


def test_calls_are_carried_or_refused(curve: LoopCurve) -> None:
    """As Erlang's formula B has it for each loop: here no user calls again."""
    erlang_b = 1.0
    for n in range(1, 41):
        erlang_b = 45 * erlang_b / (n + 45 * erlang_b)
    calls = Calls(users=45 * 32, retries=0)
    load = simulate_fleet(Fleet(loops=32), calls, curve, limit(40))
    assert load.refused == pytest.approx(erlang_b, abs=0.015)
    assert load.gave_up == load.refused
    assert load.sessions_at(1.0) == 40


def test_users_who_call_again_get_in_later(curve: LoopCurve) -> None:
    calls = Calls(users=45 * 32)
    once, again = (simulate_fleet(Fleet(loops=32), replace(calls, retries=n), curve, limit(50)) for n in (0, 2))
    assert again.gave_up < once.gave_up / 2


def test_the_emptiest_loop_refuses_fewer(curve: LoopCurve) -> None:
    calls = Calls(users=38 * 32)
    random, least = (
        simulate_fleet(Fleet(loops=32, balance=how), calls, curve, limit(45)) for how in ("random", "least")
    )
    assert least.refused < random.refused
    assert least.sessions_at(0.99) < random.sessions_at(0.99)


def test_a_large_fleet_is_simulated_by_a_sample(curve: LoopCurve) -> None:
    """The sample's loops have the load of all: only chance differs."""
    small, large = (
        simulate_fleet(Fleet(loops=loops), Calls(users=30 * loops), curve, limit(60)) for loops in (32, 3_200)
    )
    assert abs(small.sessions_at(0.5) - large.sessions_at(0.5)) <= 1


def test_lost_nodes_bring_their_users_to_the_others(curve: LoopCurve) -> None:
    calls = Calls(users=30 * 32, retries=0)
    whole = simulate_fleet(Fleet(loops=32, balance="least"), calls, curve, limit(40))
    broken = simulate_fleet(Fleet(loops=32, balance="least"), replace(calls, lost_nodes=2), curve, limit(40))
    assert whole.refused == 0
    assert broken.refused > 0.05


@pytest.mark.slow
@pytest.mark.usefixtures("each_simulated_once")
def test_as_many_nodes_as_are_needed(curve: LoopCurve) -> None:
    limited = limit(50)

    def needed(max_refused: float, lost_nodes: int = 0) -> FleetLoad:
        calls = Calls(users=3_000, lost_nodes=lost_nodes)
        return loops_needed(calls, curve, limited, loops_per_node=8, balance="random", max_refused=max_refused)

    strict, loose = needed(0.001), needed(0.05)
    assert strict.refused <= 0.001
    assert loose.refused <= 0.05
    assert 3_000 / 50 < loose.fleet.loops < strict.fleet.loops < 3_000 / 25
    assert needed(0.01, lost_nodes=3).fleet.nodes > needed(0.01).fleet.nodes
    fewer = Fleet(loops=strict.fleet.loops - 16)
    assert simulate_fleet(fewer, Calls(users=3_000), curve, limited).refused > 0.001


def test_the_servers_own_rule_leaves_the_loops_below_their_limit(curve: LoopCurve) -> None:
    """Twice as many users as fit: those inside do not wait."""
    load = simulate_fleet(Fleet(loops=8), Calls(users=1_600), curve, HeadRoom)
    assert load.refused > 0.3
    assert 115 <= load.sessions_at(0.5) <= 190
    assert curve.cpu_share(load.sessions_at(0.5)) == pytest.approx(MAX_CPU_SHARE, abs=0.07)


# --- the command ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_command_prints_a_line_for_each_number_of_users(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t.csv"
    assert main(["simulate", "capacity", "--users", "50", "--users", "2000", "--csv", str(path)]) == 0
    head, _, small, large = capsys.readouterr().out.splitlines()
    assert head.startswith("| users | cores | nodes |")
    assert small.startswith("| 50 | 8 | 1 |")
    cores = int(large.split("|")[2])
    assert 2_000 / 130 < cores < 2_000 / 80
    assert path.read_text().splitlines()[2].startswith(f"2000,{cores},{cores // 8},")


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--users", "0"], "--users: expected 1 to 1000000, got 0"),
        (["--call-s", "1"], "--call-s: expected 10 to 86400, got 1.0"),
        (["--refused", "0"], "--refused: expected 0.0001 to 0.5, got 0.0"),
        (["--failures", "1"], "--failures: expected 0 to 0.9, got 1.0"),
    ],
)
def test_a_wrong_option_is_named(capsys: pytest.CaptureFixture[str], arguments: list[str], why: str) -> None:
    assert main(["simulate", "capacity", *arguments]) == 2
    assert why in capsys.readouterr().err


def test_costs_are_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text(compared.costs_toml(Costs(wake_us=12.5)))
    assert read_costs(path) == Costs(wake_us=12.5)
    for text, why in (
        ("wake_ms = 1", "wake_ms: expected one of wake_us, cold_us, voiced_us"),
        ("wake_us = -1", "wake_us: expected 0 or more, got -1.0"),
        ('wake_us = "a"', "expected a TOML file of numbers"),
        ("wake_us", "expected a TOML file of numbers"),
    ):
        path.write_text(text)
        with pytest.raises(ConfigError, match=why):
            read_costs(path)


# --- the comparison with a real run ---------------------------------------------------------------


def real_load(simulated: LoopLoad, *, slower_ms: int = 0) -> LoadRun:
    """A run of the load bench that came out as simulated."""
    turns = tuple(MeasuredSentence(1_000, 1_000 + round(ms) + slower_ms, 4_900.0) for ms in simulated.latencies_ms)
    cost = Cost(cpu_pct=100 * simulated.cpu_share, rss_mib=1.0, rss_before_mib=1.0)
    n_users = simulated.n_sessions
    return LoadRun(target="t", n_users=n_users, turns=turns, cost=cost, late_p95_ms=1.0, stray=0, errors=())


@pytest.mark.slow
@pytest.mark.usefixtures("each_simulated_once")
def test_a_real_run_is_compared_with_the_simulation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--sound", str(SOUND), "--fit", "10", "30", "40"]
    arguments = [*options, "--users", "20", "60", "--out", str(tmp_path / "c.toml")]
    silent = [real_load(simulate_loop(1, TALK, Costs(), duration_s=10))]
    talk = compared.talk_of(SOUND, 200, silent)
    assert talk.minimum_ms == 390
    *few, most = (simulate_loop(n, talk, Costs()) for n in (10, 20, 30, 40, 60))
    loads = [real_load(each) for each in (*few, most)]
    assert compared.main(arguments, loads=loads) == 0
    out = capsys.readouterr().out
    assert out.startswith("| users | CPU a user, % |")
    assert all(f"| {n} | " in out for n in (20, 60))
    assert tomllib.loads((tmp_path / "c.toml").read_text()).keys() == set(Costs.__slots__)
    slow = [*loads[:4], real_load(most, slower_ms=100)]
    assert compared.main(arguments, loads=slow) == 1
    assert compared.main(options, loads=loads) == 2
    assert "expected the CPU of a run with 120 users" in capsys.readouterr().err


def test_runs_are_stored_one_by_one_and_measured_once(tmp_path: Path) -> None:
    """A run that is ended goes on where it was."""
    file, measured = tmp_path / "loads.jsonl", list[int]()

    def measure_one(n_users: int) -> LoadRun:
        measured.append(n_users)
        if n_users == 60:
            raise KeyboardInterrupt
        return a_load(n_users)

    with pytest.raises(KeyboardInterrupt):
        compared.measured_loads([10, 20, 60], file, measure_one)
    assert list(compared.stored_loads(file)) == [10, 20]
    assert compared.measured_loads([10, 20], file, measure_one) == [a_load(10), a_load(20)]
    assert measured == [10, 20, 60]
    assert compared.measured_loads([10, 20, 10, 20], file, measure_one) == [a_load(10), a_load(20)] * 2
    assert measured == [10, 20, 60, 10, 20], "a second round measures each again"
    assert compared.stored_loads(file) == {n: [a_load(n)] * 2 for n in (10, 20)}


def test_a_busy_machine_is_refused_and_a_full_server_ends_the_run(tmp_path: Path) -> None:
    """What a busy machine has measured is not stored."""
    file = tmp_path / "loads.jsonl"
    with pytest.raises(ValueError, match=r"too busy: with 10 users .* 11 ms late"):
        compared.measured_loads([10, 20], file, lambda n: replace(a_load(n), late_p95_ms=11.0))
    assert compared.stored_loads(file) == {}
    full = compared.measured_loads([10, 60, 120], None, lambda n: a_load(n, failed=n == 60))
    assert [load.n_users for load in full] == [10, 60]


def a_load(n_users: int, *, failed: bool = False) -> LoadRun:
    turns = (MeasuredSentence(0, 400, 5_000.0, error="no answer" if failed else ""),)
    return LoadRun(
        target="t", n_users=n_users, turns=turns, cost=Cost(10.0, 100.0, 90.0), late_p95_ms=1.0, stray=0, errors=()
    )
