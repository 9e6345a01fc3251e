"""YAML as version 1.2 has it, with lines in error texts."""

from __future__ import annotations

from pathlib import Path

import pytest

from voicepipe.errors import ConfigError
from voicepipe.evals.yaml_file import read_yaml


def written(folder: Path, text: str) -> Path:
    path = folder / "a.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_words_that_users_say_stay_texts(tmp_path: Path) -> None:
    """YAML 1.1 would make booleans and a number in base 60 of them."""
    text = 'say: no\nthen: "7"\nat: 12:30\ndate: 2026-11-23\nn: 7\nshare: .5\nnone:\nyes: [true, on, -3, 1e3, ~]\n'
    assert read_yaml(written(tmp_path, text)).values == {
        "say": "no",
        "then": "7",
        "at": "12:30",
        "date": "2026-11-23",
        "n": 7,
        "share": 0.5,
        "none": None,
        "yes": [True, "on", -3, 1000.0, None],
    }


def test_an_error_names_the_line_of_the_nearest_value(tmp_path: Path) -> None:
    file = read_yaml(written(tmp_path, "steps:\n  - say: a\n  - say: b\n    expect:\n      contains: c\n"))
    assert str(file.wrong(("steps", 1, "expect", "contains"), "x")).endswith("a.yaml:5: steps[1].expect.contains: x")
    assert str(file.wrong(("steps", 1, "nothing"), "x")).endswith("a.yaml:3: steps[1].nothing: x")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: 1\na: 2\n", ":2: a: expected each key once"),
        ("a: [\n", ":2: expected YAML, got an error"),
        ("", ":1: expected a table with steps, got nothing"),
        ("- a\n", ":1: expected a table with steps, got another value"),
        ("[a]: 1\n", "expected a text as each key"),
        ("a: &x [*x]\n", "got an alias of a value around it"),
    ],
)
def test_what_is_no_scenario_is_refused(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(ConfigError) as error:
        read_yaml(written(tmp_path, text))
    assert why in str(error.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"b\.yaml: expected a YAML file, got No such file"):
        read_yaml(tmp_path / "b.yaml")


def test_an_alias_repeats_a_value(tmp_path: Path) -> None:
    assert read_yaml(written(tmp_path, "a: &x [1]\nb: *x\n")).values == {"a": [1], "b": [1]}
