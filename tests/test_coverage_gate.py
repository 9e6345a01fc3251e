"""Coverage is judged as the rule says: a hole without a name, a name without a hole, a package below its floor."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.coverage_gate import NAMED, ROOT, Covered, Hole, Named, complaints, holes_in, main, package_of

REASON = {Hole("voicepipe/turn/a.py", "return None"): "only after a crash"}


def covered(package: str, n_covered: int, *holes: Hole) -> Covered:
    return Covered(package, n_covered, 100, frozenset(holes))


def test_the_repositorys_own_file_is_read_and_names_files_that_are_there() -> None:
    named = Named.read(NAMED.read_text(encoding="utf-8"))
    for hole in named.holes:
        lines = (ROOT / hole.file).read_text(encoding="utf-8").splitlines()
        assert hole.line in [line.strip() for line in lines], hole


def test_an_entry_without_a_reason_is_refused() -> None:
    with pytest.raises(ValueError, match="expected a reason"):
        Named.read('[[hole]]\nfile = "voicepipe/turn/a.py"\nline = "return"\nreason = " "\n')
    with pytest.raises(ValueError, match="expected a reason"):
        Named.read('[[floor]]\npackage = "bench"\npercent = 80\n')


def test_several_lines_may_have_one_reason() -> None:
    named = Named.read('[[hole]]\nfile = "voicepipe/turn/a.py"\nlines = ["return", "pass"]\nreason = "a fork"\n')
    assert named.holes == {Hole("voicepipe/turn/a.py", line): "a fork" for line in ("return", "pass")}


def test_a_run_of_missing_lines_is_one_hole_and_a_branch_is_one_where_its_target_runs() -> None:
    lines = ["def f(x):", "    if x:", "        y()", "        z()", "    for _ in x:", "        y()", "    return"]
    report = {
        "executed_lines": [1, 2, 5, 6, 7],
        "missing_lines": [3, 4],
        "missing_branches": [[2, 3], [5, 7], [6, -1]],
    }
    holes = [hole.line for hole in holes_in("voicepipe/turn/a.py", lines, report)]
    assert holes == ["y()", "for _ in x:", "y()"]


def test_a_file_belongs_to_the_package_below_voicepipe() -> None:
    assert [package_of(f"voicepipe/{file}") for file in ("turn/a.py", "providers/llm/b.py", "clock.py")] == [
        "turn",
        "providers",
        "voicepipe",
    ]


def test_each_hole_of_a_complete_package_needs_a_name() -> None:
    known, unknown = next(iter(REASON)), Hole("voicepipe/turn/b.py", "raise")
    assert list(complaints([covered("turn", 90, known)], Named(REASON, {}))) == []
    (complaint,) = complaints([covered("turn", 99, known, unknown)], Named(REASON, {}))
    assert complaint.startswith("voicepipe/turn/b.py: no test covers `raise`")


def test_a_name_without_a_hole_is_taken_out() -> None:
    """Of the packages that were measured: the others may have it still."""
    (complaint,) = complaints([covered("turn", 100)], Named(REASON, {}))
    assert complaint.startswith("voicepipe/turn/a.py: `return None` is covered or gone")
    assert list(complaints([covered("auth", 100)], Named(REASON, {}))) == []


@pytest.mark.parametrize(
    ("percent", "least", "wrong"),
    [(95, {}, 0), (94, {}, 1), (80, {"cli": 80}, 0), (79, {"cli": 80}, 1), (95, {"cli": 80}, 1)],
)
def test_the_other_packages_have_a_least_share(percent: int, least: dict[str, float], wrong: int) -> None:
    """A floor of its own goes once a package no longer needs it."""
    hole = Hole("voicepipe/cli/a.py", "pass")
    assert len(list(complaints([covered("cli", percent, hole)], Named({}, least)))) == wrong


@pytest.mark.slow
def test_a_run_is_measured_in_its_subprocesses_and_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A test that runs one function of `voicepipe.auth` in a process of its own: that line is covered, others are not,
    and that fails."""
    program = "from voicepipe.auth.tokens import new_token_id; new_token_id()"
    test = (
        f"import subprocess, sys\ndef test_it():\n    subprocess.run([sys.executable, '-c', {program!r}], check=True)\n"
    )
    (tmp_path / "test_it.py").write_text(test)
    assert main(["--only", "auth", "-q", "-p", "no:cacheprovider", str(tmp_path / "test_it.py")]) == 1
    said = capsys.readouterr().out
    assert "auth " in said
    assert "no test covers `digest = hashlib" in said
    assert "no test covers `return secrets.token_hex(16)`" not in said
