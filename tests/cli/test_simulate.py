"""`voicepipe simulate router`: the figures that the hedge is held to, and what is refused."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import pytest

from voicepipe.cli import main
from voicepipe.cli.simulate import POLICIES

MINE = """
[providers.mine]
base_url = "http://127.0.0.1:1/v1"
input_usd_per_million = 0.2
output_usd_per_million = 0.8
[pools.p]
models = ["mine/a", "mine/b"]
deadline_ms = 500
"""


def table(folder: Path, *arguments: str) -> dict[tuple[str, str], dict[str, str]]:
    """(pool, policy) -> what the CSV says."""
    path = folder / "table.csv"
    assert main(["simulate", "router", "--csv", str(path), *arguments]) == 0
    with path.open(newline="") as file:
        return {(row["pool"], row["policy"]): row for row in csv.DictReader(file)}


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_hedge_misses_few_deadlines_for_a_tenth_more(tmp_path: Path) -> None:
    """Published prices and medians: from about one turn in sixteen to less than one in a hundred."""
    world = ("--pool", "mid", "--cached-factor", "0.8")
    rows = table(tmp_path, *world, "--policy", "single", "--policy", "hedge-learned")
    single, hedge = rows["mid", "single"], rows["mid", "hedge-learned"]
    assert 0.05 < float(single["missed"]) < 0.075
    assert float(hedge["missed"]) <= 0.008
    assert float(hedge["cost_factor"]) <= 1.10


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_it_gets_over_figures_that_are_wrong_by_twice(tmp_path: Path) -> None:
    rows = table(tmp_path, "--pool", "mid-wrong", "--cached-factor", "0.8", "--policy", "hedge-learned")
    assert float(rows["mid-wrong", "hedge-learned"]["missed"]) <= 0.012


@pytest.mark.slow
def test_every_policy_has_a_line_and_the_same_seed_the_same_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = table(tmp_path, "--pool", "fast", "--turns", "300")
    assert {policy for _, policy in rows} == set(POLICIES)
    assert all(row["speakers"] and float(row["failover_factor"]) >= 0 for row in rows.values())
    assert math.isfinite(float(rows["fast", "hedge"]["most_spent"]))
    printed = capsys.readouterr().out
    assert "fast: gemini-2.5-flash-lite, claude-haiku-4.5, gpt-5-mini" in printed
    assert all(f"\n{policy} " in printed for policy in POLICIES)
    assert table(tmp_path, "--pool", "fast", "--turns", "300") == rows
    assert table(tmp_path, "--pool", "fast", "--turns", "300", "--seed", "8") != rows


def test_pools_of_the_settings_come_with_their_own_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "voicepipe.toml").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    rows = table(tmp_path, "--turns", "300", "--policy", "race")
    assert set(rows) == {("p", "race")}
    printed = capsys.readouterr().out
    assert "p: mine/a, mine/b" in printed
    assert "a word by 500 ms" in printed


def test_recorded_latencies_stand_in_for_drawn_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first always takes 900 ms and the second 100; one answer in forty of the second fails."""
    (tmp_path / "voicepipe.toml").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    lines = ["model,ttft_ms", "mine/a,900", *["mine/b,100"] * 39, "mine/b,", "mine/c,1"]
    (tmp_path / "recorded.csv").write_text("\n".join(lines))
    rows = table(tmp_path, "--turns", "400", "--latencies", str(tmp_path / "recorded.csv"))
    assert float(rows["p", "single"]["missed"]) == 1.0
    assert 0.005 < float(rows["p", "race"]["missed"]) < 0.08


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--pool", "no"], "--pool: expected one of mid, mid-wrong, same-price, fast, quality, got 'no'"),
        (["--policy", "no"], "--policy: expected one of single, fallback, race"),
        (["--turns", "5"], "--turns: expected 100 to 1000000, got 5"),
        (["--pool", "mid", "--latencies", "none.csv"], "--latencies: expected CSV with the columns model and ttft_ms"),
    ],
)
def test_what_makes_no_sense_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["simulate", "router", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_latencies_without_one_of_the_models_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "voicepipe.toml").write_text(MINE)
    (tmp_path / "recorded.csv").write_text("model,ttft_ms\nmine/a,900\n")
    monkeypatch.chdir(tmp_path)
    assert main(["simulate", "router", "--turns", "100", "--latencies", "recorded.csv"]) == 2
    assert "--latencies: expected answers of mine/b" in capsys.readouterr().err
