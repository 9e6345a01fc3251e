"""The rules of the package, read off the source: layers, no circles, one clock, tasks with an owner, names, sizes.

Each rule is a function from the source of modules to what is wrong with them. It is tried on the package, which must
have nothing wrong, and on a small sample that has.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

import voicepipe
from voicepipe.providers.built_in import VENDORS

PACKAGE = Path(voicepipe.__file__).parent

ALSO = {"bench": {"client"}, "evals": {"client"}, "testing": {"agents", "config", "wiring"}}
"""The modules that may import a neighbour of the same layer: the bench and the evals call a server with the client, as
a user would. The test kit runs a whole server, and nothing that is shipped to be run imports the kit.
"""

CORE_IMPORTS = {
    "__future__",
    "collections",
    "dataclasses",
    "enum",
    "json",
    "math",
    "msgspec",
    "re",
    "typing",
    "unicodedata",
}
"""All that the core may import beside `errors` and `values`: no I/O, no clock, no task, no log, no chance."""

CLOCKS = re.compile(
    r"\b(?:time\.(?:time|monotonic|perf_counter)(?:_ns)?|time\.(?:localtime|gmtime|sleep)|datetime\.(?:now|utcnow)"
    r"|(?:datetime|date)\.today)\(|loop(?:\(\))?\.time\("
)
"""What reads a clock. `time.process_time` does not: it measures work."""

TASKS = re.compile(r"create_task|ensure_future|run_coroutine_threadsafe")
"""What a module has in its source that starts a task: no other needs to be parsed."""

SPLIT = re.compile(r"""\.(?:partition\(["']/["']\)|split\(["']/["'], (?:maxsplit=)?1\))""")
"""What splits `provider/model` or `experiment/pool`. Paths have more parts."""

NAMELESS = {"manager", "handler", "utils", "util", "base", "common"}
"""Names that say nothing."""

MAX_LINES = 600
"""Refused above. At 400 ask which second noun has moved in; a file is cut by noun, never to satisfy a length."""

MAX_FUNCTION_LINES = 60
"""Refused above, from the signature to the last line, with the docstring. Functions have around ten lines; one of more
than 60 has a second part, which gets an object or a function of its own.
"""

ONE_VENDOR_ELSEWHERE = {
    ("server.gateway.default_models", "gemini"): "names of models that clients send to any server",
    ("bench.load.processes", "deepgram"): "the fake STT of the load bench has its messages",
    ("bench.load.providers", "deepgram"): "the fake STT of the load bench has its messages",
    ("bench.load.stt_stream", "deepgram"): "the fake STT of the load bench has its messages",
    ("ports.provider_events", "cartesia"): "an example of a message",
    ("providers.net.connection_pool", "cartesia"): "the source of a figure",
    ("providers.net.failures", "deepgram"): "errors of all vendors are read in one place",
    ("providers.net.failures", "gemini"): "errors of all vendors are read in one place",
    ("providers.net.failures", "google"): "errors of all vendors are read in one place",
    ("providers.net.grpc_errors", "google"): "google.rpc.Code is gRPC's list of codes",
    ("server.endpoints", "inworld"): "a path of the Realtime API at another server",
    ("testing.fakes.inworld_realtime", "openai_realtime"): "its protocol is the other vendor's",
    ("testing.chromium", "google"): "google-chrome is a browser",
}
"""(module, a vendor's name) -> why it may stand outside the vendor's package and fake."""

Sources = Mapping[str, str]
"""Module (`turn.agent`) -> its source. A package bears its own name."""


def server() -> Sources:
    """The whole package."""
    paths = {path: path.relative_to(PACKAGE).with_suffix("").parts for path in PACKAGE.rglob("*.py")}
    return {".".join(part for part in parts if part != "__init__"): path.read_text() for path, parts in paths.items()}


def layers() -> dict[str, int]:
    """Package -> layer, as the package's own docstring has it. Entry points stand with the command line."""
    assert voicepipe.__doc__ is not None
    lines = re.findall(r"^ +(\d)  (.+)$", voicepipe.__doc__, re.M)
    table = {package.rstrip("/"): int(layer) for layer, packages in lines for package in packages.split()}
    return table | {"__main__": table["cli"] + 1, "": 0, "__version__": 0}


@cache
def imported(source: str) -> tuple[tuple[int, str], ...]:
    """(line, module) of every import in a module, wherever it stands; what is below `voicepipe` without that.

    Stored, since four rules read it.
    """
    return tuple(_imports(source))


def _imports(source: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names):
                yield from ((node.lineno, _within(name.name)) for name in names)
            case ast.ImportFrom(str(module), names, 0):
                yield from ((node.lineno, _within(f"{module}.{name.name}")) for name in names)
            case ast.ImportFrom():
                yield node.lineno, f"relative import of {node.module}"


def _within(name: str) -> str:
    top, _, below = name.partition(".")
    return below if top == "voicepipe" else f"/{name}"


def _package(module: str) -> str:
    return module.partition(".")[0]


# --- the rules ------------------------------------------------------------------------------------


def climbing(sources: Sources) -> list[str]:
    """Imports of a package that is not in a lower layer, or of one that has no layer."""
    table, wrong = layers(), []
    for module, source in sources.items():
        package = _package(module)
        for line, target in imported(source):
            other = _package(target)
            if other.startswith("/") or other == package or other in ALSO.get(package, ()):
                continue
            if other not in table or package not in table or table[other] >= table[package]:
                wrong.append(f"{module}:{line} imports {target}")
    return wrong


def circles(sources: Sources) -> list[str]:
    """Modules that import one another, over however many corners."""
    edges = {module: _imported_modules(source, sources) - {module} for module, source in sources.items()}
    while leaves := [module for module, targets in edges.items() if not targets]:
        edges = {module: targets - set(leaves) for module, targets in edges.items() if targets}
    return sorted(edges)


def _imported_modules(source: str, sources: Sources) -> set[str]:
    targets = {target for _, target in imported(source)}
    return {t if t in sources else t.rpartition(".")[0] for t in targets} & sources.keys() - {""}


def kit_imports(sources: Sources) -> list[str]:
    """Imports of the test kit by what is shipped to be run."""
    outside = {module: source for module, source in sources.items() if _package(module) != "testing"}
    return [f"{m}:{line}" for m, source in outside.items() for line, t in imported(source) if _package(t) == "testing"]


def impure(sources: Sources) -> list[str]:
    """Imports of the core that are not plain data and text."""
    core = {module: source for module, source in sources.items() if _package(module) == "turn"}
    allowed = {"turn", "errors", "values"} | {f"/{name}" for name in CORE_IMPORTS}
    return [
        f"{m}:{line} {t}" for m, source in core.items() for line, t in imported(source) if _package(t) not in allowed
    ]


def clock_readers(sources: Sources) -> list[str]:
    """Return the modules that read a clock beside the one module that may."""
    return [module for module, source in sources.items() if module != "clock" and CLOCKS.search(source)]


def ownerless_tasks(sources: Sources) -> list[str]:
    """Tasks that are born outside a TaskGroup."""
    mention = {module: source for module, source in sources.items() if TASKS.search(source)}
    return [f"{module}:{line}" for module, source in mention.items() for line in _bare_tasks(source)]


def _bare_tasks(source: str) -> Iterator[int]:
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Attribute(owner, "create_task" | "ensure_future" | "run_coroutine_threadsafe")):
                name = ast.unparse(owner)
                if name == "asyncio" or "loop" in name:
                    yield node.lineno
            case ast.ImportFrom("asyncio", names) if {"create_task", "ensure_future"} & {n.name for n in names}:
                yield node.lineno


def unnamed(sources: Sources) -> list[str]:
    """Modules and classes whose name says nothing."""
    names = [(module, module.rpartition(".")[2]) for module in sources]
    for module, source in sources.items():
        classes = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef))
        names += [(module, node.name) for node in classes]
    return [f"{module}: {name}" for module, name in names if NAMELESS & _words(name)]


def _words(name: str) -> set[str]:
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


def too_long(sources: Sources) -> list[str]:
    """Files in which a second noun has surely moved in."""
    return [module for module, source in sources.items() if source.count("\n") > MAX_LINES]


def long_functions(sources: Sources) -> list[str]:
    """Functions with a part that belongs elsewhere."""
    return [
        f"{module}:{node.lineno} {node.name}: {n_lines} lines"
        for module, source in sources.items()
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (n_lines := (node.end_lineno or node.lineno) - node.lineno + 1) > MAX_FUNCTION_LINES
    ]


def vendors_elsewhere(sources: Sources) -> list[str]:
    """Names of a vendor outside its package, its fake and the two lists."""
    lists = {"providers.built_in", "testing.fakes.vendor_rules"}
    folded = {module: source.casefold() for module, source in sources.items()}
    return [
        f"{module}: {name}"
        for name, package in _vendor_names().items()
        for module, source in sources.items()
        if name in folded[module]  # a quick look, before the exact one
        and module not in lists
        and not f"{module}.".startswith(f"providers.{package}.")
        and not (module.startswith("testing.fakes.") and _names_vendor(module.rpartition(".")[2], package))
        and (module, name) not in ONE_VENDOR_ELSEWHERE
        and re.search(rf"(?<![A-Za-z])(?i:{name})|{name.title()}", source)
    ]


def _vendor_names() -> dict[str, str]:
    """Package, kinds and providers of each vendor -> its package. `openai` is the name of the wire, too, `gguf`
    that of a file format, and `together` a word."""
    names = {
        name: package
        for package, vendor in VENDORS.items()
        for name in (package, *(api.kind for api in vendor.apis), *(each.name for each in vendor.providers))
    }
    return {name: package for name, package in names.items() if name not in ("openai", "local", "gguf", "together")}


def _names_vendor(file: str, package: str) -> bool:
    own = {name for name, owner in _vendor_names().items() if owner == package} | {package}
    return any(f"_{file}_".find(f"_{name}_") >= 0 for name in own)


Rule = Callable[[Sources], list[str]]


def stubs(modules: Sources) -> list[str]:
    """Functions that refuse to do their work: the shape of their port is wrong."""
    return [
        f"{module}:{node.lineno} raises NotImplementedError"
        for module, source in modules.items()
        if "NotImplementedError" in source
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Raise) and node.exc is not None and "NotImplementedError" in ast.unparse(node.exc)
    ]


def split_names(modules: Sources) -> list[str]:
    """Texts of two names that are split beside the types that read them: a spec's and an arm's."""
    readers = {"registry", "turn.record.arm"}
    return [module for module, source in modules.items() if module not in readers and SPLIT.search(source)]


RULES: list[Rule] = [
    climbing,
    circles,
    kit_imports,
    impure,
    clock_readers,
    ownerless_tasks,
    unnamed,
    too_long,
    long_functions,
    vendors_elsewhere,
    stubs,
    split_names,
]


# --- the package, and what would be wrong ---------------------------------------------------------


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_package_follows_its_rules(rule: Rule) -> None:
    """Nothing is wrong with the package as it stands."""
    assert rule(server()) == []


@pytest.mark.parametrize("folder", ["deploy", "tests"])
def test_functions_outside_the_package_are_as_short(folder: str) -> None:
    """The tools and the tests are held to the same number of lines."""
    sources = {str(path): path.read_text() for path in (PACKAGE.parent / folder).rglob("*.py")}
    assert sources
    assert long_functions(sources) == []


@pytest.mark.parametrize("folder", ["deploy", "tests", "web"])
def test_files_outside_the_package_are_as_short(folder: str) -> None:
    """The tools, the tests and the pages are cut by noun too; scripts of others stay as they are."""
    paths = [
        path for path in (PACKAGE.parent / folder).rglob("*.*") if path.suffix in {".py", ".js", ".mjs", ".ts", ".css"}
    ]
    sources = {str(path): path.read_text(encoding="utf-8") for path in paths if "vendor" not in path.parts}
    assert sources
    assert too_long(sources) == []


def test_every_package_has_a_layer() -> None:
    """A new package is entered in the table of layers before it gets modules."""
    assert {_package(module) for module in server()} <= layers().keys()


WRONG: list[tuple[Rule, Sources]] = [
    (climbing, {"turn.agent": "from voicepipe.session import outbox"}),
    (climbing, {"session.reply": "import voicepipe.router.race"}),
    (climbing, {"providers.llm": "def late() -> None:\n    from voicepipe.session.outbox import Outbox"}),
    (climbing, {"client.call": "from voicepipe.bench import load"}),
    (climbing, {"attic.box": "from voicepipe import errors"}),
    (climbing, {"turn.agent": "from . import context"}),
    (circles, {"turn.a": "from voicepipe.turn import b", "turn.b": "from voicepipe.turn.a import x"}),
    (circles, {"a": "import voicepipe.b", "b": "from voicepipe.c import x", "c": "from voicepipe import a"}),
    (kit_imports, {"cli.talk": "from voicepipe.testing.fakes import model"}),
    (impure, {"turn.agent": "import asyncio"}),
    (impure, {"turn.agent": "from voicepipe import clock"}),
    (impure, {"turn.agent": "from random import random"}),
    (clock_readers, {"session.reply": "import time\n\nstart = time.monotonic()"}),
    (clock_readers, {"session.reply": "now = asyncio.get_running_loop().time()"}),
    (clock_readers, {"telemetry.log": "at = datetime.now(UTC)"}),
    (ownerless_tasks, {"session.reply": "asyncio.create_task(run())"}),
    (ownerless_tasks, {"session.reply": "asyncio.get_running_loop().create_task(run())"}),
    (ownerless_tasks, {"session.reply": "from asyncio import ensure_future"}),
    (unnamed, {"session.utils": ""}),
    (unnamed, {"session.reply": "class SessionManager: ..."}),
    (too_long, {"session.reply": "x = 1\n" * 601}),
    (long_functions, {"session.reply": "def run():\n" + "    x = 1\n" * 60}),
    (long_functions, {"session.reply": "class Reply:\n    async def run(self):\n" + "        x = 1\n" * 60}),
    (vendors_elsewhere, {"registry": "KINDS = ['deepgram']"}),
    (vendors_elsewhere, {"providers.rime.tts": "from voicepipe.providers.deepgram import tts"}),
    (vendors_elsewhere, {"testing.fakes.rime_tts": "class FakeDeepgram: ..."}),
    (split_names, {"router.race": "provider, _, model = candidate.spec.partition('/')"}),
    (split_names, {"router.race": 'model = spec.split("/", 1)[1]'}),
    (stubs, {"server.speech": "def fail():\n    raise NotImplementedError"}),
    (stubs, {"server.speech": "def fail():\n    raise NotImplementedError('nothing is streamed')"}),
]


@pytest.mark.parametrize(("rule", "sources"), WRONG, ids=lambda part: getattr(part, "__name__", ""))
def test_a_rule_finds_what_breaks_it(rule: Rule, sources: Sources) -> None:
    """Each rule can fail."""
    assert rule(sources) != []


def test_what_is_allowed_is_not_found() -> None:
    """Lower layers, the bench's client, tasks of a group, the core's own modules."""
    fine = {
        "session.reply": "from voicepipe.turn import events\n\nasync def f(group):\n    group.create_task(g())",
        "bench.load": "from voicepipe.client import call",
        "turn.agent": "from voicepipe.errors import ProtocolError\nfrom voicepipe.turn.context import TurnContext",
        "turn.context": "from dataclasses import dataclass",
        "cli.talk": "from voicepipe import __version__",
        "providers.deepgram.stt": "KIND = 'flux'",
        "testing.fakes.deepgram_flux": "class FakeDeepgram: ...",
    }
    assert [rule(fine) for rule in RULES] == [[]] * len(RULES)
