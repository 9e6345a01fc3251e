"""What can be written, and what it means."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from voicepipe import __version__
from voicepipe.cli import main
from voicepipe.cli.command_line import parse
from voicepipe.errors import ConfigError


def read(*arguments: str) -> Any:
    return parse(arguments)


def test_options_become_settings_by_their_dotted_keys() -> None:
    options = read("serve", "--port", "0", "--llm", "ollama/llama3.2", "--set", "budget.total_ms=900", "--set", "a=b=c")
    expected = {"server.port": "0", "agents.default.llm": "ollama/llama3.2", "budget.total_ms": "900", "a": "b=c"}
    assert options.overrides() == expected


@pytest.mark.parametrize(
    ("written", "spec"),
    [
        ("/m/Qwen.GGUF", "gguf//m/Qwen.GGUF"),
        ("a.gguf", f"gguf/{Path.cwd()}/a.gguf"),
        ("gguf//m/a.gguf", "gguf//m/a.gguf"),
        ("ollama/a", "ollama/a"),
    ],
)
def test_a_model_file_is_a_language_model(written: str, spec: str) -> None:
    assert read("serve", "--llm", written).overrides() == {"agents.default.llm": spec}


async def test_a_model_file_that_is_not_there_is_named(voicepipe: Any, tmp_path: Path) -> None:
    with TemporaryDirectory() as short:  # the engine's socket below it has a name of at most 107 bytes
        ran = await voicepipe("serve", "--port", "0", "--data-dir", short, "--llm", "nothing.gguf")
    why = f"voicepipe: gguf: expected a GGUF file, got {tmp_path}/nothing.gguf: No such file or directory\n"
    assert (ran.status, ran.err.splitlines(keepends=True)[-1]) == (2, why)  # a busy machine logs its stalls before


def test_a_set_without_a_value_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"--set: expected KEY=VALUE.*got 'server.port'"):
        read("serve", "--set", "server.port").overrides()


def test_a_key_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VOICEPIPE_KEY", raising=False)
    assert read("talk", "a.wav").credential is None
    monkeypatch.setenv("VOICEPIPE_KEY", "vp_env")
    assert read("talk", "a.wav").credential == "vp_env"
    assert read("talk", "a.wav", "--key", "vp_given").credential == "vp_given"


def test_named_models_require_a_local_server() -> None:
    assert read("talk", "a.wav", "--tts", "openai/tts-1").picks_models
    assert not read("talk", "a.wav").picks_models
    assert read("talk", "a.wav").sound == Path("a.wav")


def test_without_a_command_the_help_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    printed = capsys.readouterr().out
    assert all(f"    {command} " in printed for command in ("serve", "talk", "check", "keys"))


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"voicepipe {__version__}\n"


@pytest.mark.parametrize("arguments", [["sing"], ["talk", "a.wav", "b.wav"], ["keys"], ["serve", "--nothing"]])
def test_what_makes_no_sense_ends_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert "usage: voicepipe" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [(["serv"], "serve"), (["chekc"], "check"), (["keys", "creat"], "create"), (["bench", "lmm", "x/y"], "llm")],
)
def test_a_mistyped_command_is_answered_with_the_one_that_was_meant(
    arguments: list[str], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert capsys.readouterr().err.endswith(f"; did you mean {meant}?\n")


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["serve", "--lm", "x/y"], "--llm"),
        (["bench", "load", "--usrs=3"], "--users"),
        (["--verson"], "--version"),
    ],
)
def test_a_mistyped_option_is_answered_with_the_one_that_was_meant(
    arguments: list[str], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the usage of its own command."""
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    error = capsys.readouterr().err
    assert error.endswith(f"; did you mean {meant}?\n")
    assert meant in error.partition("error:")[0]


def test_an_option_that_looks_like_none_gets_no_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    """The hyphens are no likeness."""
    with pytest.raises(SystemExit, match="2"):
        main(["check", "--jsn"])
    assert capsys.readouterr().err.endswith("error: unknown: --jsn\n")


def test_an_option_like_no_other_is_named_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["serve", "--zzz"])
    assert capsys.readouterr().err.endswith("error: unknown: --zzz\n")


def test_a_word_like_no_command_gets_the_list_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["sing"])
    error = capsys.readouterr().err
    assert "expected one of serve, talk, eval, check, " in error
    assert error.endswith(", got 'sing'\n")


async def test_a_wrong_setting_is_one_line_and_no_traceback(voicepipe: Any) -> None:
    for command in ("serve", "check"):
        ran = await voicepipe(command, "--set", "server.prot=1")
        assert (ran.status, ran.out) == (2, "")
        assert ran.err.startswith("voicepipe: server.prot: unknown setting")
        assert "did you mean server.port" in ran.err
        assert ran.err.count("\n") == 1


@pytest.mark.slow
def test_a_reader_who_leaves_is_no_reason_for_a_traceback(tmp_path: Path) -> None:
    """As in `voicepipe check | head -1`: the pipe's other end is closed before anything is written."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    code = "import sys; from voicepipe.cli import main; sys.exit(main(['check', '--set', 'agents.default.llm=x/y', "
    code += f"'--set', 'providers.x.base_url=http://127.0.0.1:1', '--data-dir', {str(tmp_path)!r}]))"
    try:
        ran = subprocess.run([sys.executable, "-c", code], stdout=write_end, stderr=subprocess.PIPE, timeout=60)
    finally:
        os.close(write_end)
    assert (ran.returncode, ran.stderr) == (141, b"")


@pytest.mark.slow
def test_what_is_only_drawn_with_is_loaded_by_what_draws(tmp_path: Path) -> None:
    code = f"import sys; from voicepipe.cli import main; main(['keys', 'list', '--data-dir', {str(tmp_path)!r}]); "
    ran = subprocess.run(
        [sys.executable, "-c", code + "print(*sys.modules)"], capture_output=True, text=True, check=True, timeout=60
    )
    modules = set(ran.stdout.split())
    assert "voicepipe.cli.keys" in modules
    assert modules.isdisjoint({"rich", "voicepipe.cli.talk", "voicepipe.wiring", "onnxruntime"})


def test_a_command_has_its_own_options_and_no_others() -> None:
    assert type(read("serve")).__name__ == "ServeOptions"
    assert not hasattr(read("serve"), "sound")
    assert read("bench", "stt", "local/x").n == 20
    assert not hasattr(read("bench", "stt", "local/x"), "prompts")
    assert parse([]) is None


@pytest.mark.parametrize(
    ("written", "sound", "file"),
    [
        (["talk"], None, None),
        (["talk", "a.wav"], Path("a.wav"), None),
        (["talk", "clinic.py"], None, Path("clinic.py")),
        (["talk", "clinic.py", "a.wav"], Path("a.wav"), Path("clinic.py")),
    ],
)
def test_a_python_file_is_recognised_by_its_name(written: list[str], sound: Path | None, file: Path | None) -> None:
    options = read(*written)
    assert (options.sound, options.file, options.picks_models) == (sound, file, file is not None)


@pytest.mark.parametrize(
    ("written", "why"),
    [
        (["talk", "a.wav", "b.wav"], "expected one SOUND, got 2"),
        (["eval", "a.yaml", "a.py", "b.py"], "expected one Python file with agents, got 2"),
    ],
)
def test_too_many_files_are_refused(written: list[str], why: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        read(*written)
    assert ended.value.code == 2
    assert why in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "option", "default"),
    [
        (("serve",), "--port PORT", "(8080)"),
        (("check",), "--tts SPEC", "(local/hibari)"),
        (("simulate", "capacity"), "--users N", "(100 1000 10000 100000)"),
        (("bench", "compare"), "--p95-ms MS", "(50)"),
        (("keys", "create"), "--project NAME", "(default)"),
    ],
)
def test_the_help_prints_the_default_of_an_option(
    command: tuple[str, ...],
    option: str,
    default: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit, match="0"):
        read(*command, "--help")
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.strip().startswith(option + "  "))
    assert line.endswith(default)


def test_an_option_without_a_default_shows_none(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit, match="0"):
        read("talk", "--help")
    help_text = capsys.readouterr().out
    assert "None" not in help_text
    assert "False" not in help_text
