"""A whole server with fake vendors, a short recording to say to it, and the rule of what is slow."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

import tests.hypothesis_profiles  # noqa: F401  the import chooses how examples are drawn
from voicepipe.agents import Agent
from voicepipe.audio.files import read_sound, write_wav
from voicepipe.config import load
from voicepipe.session.session import Session
from voicepipe.session.socket import ClientSocket
from voicepipe.testing.attribution import Attribution
from voicepipe.testing.fakes.vendor import FakeVendor
from voicepipe.testing.free_port import free_port
from voicepipe.testing.recording import RecordedConnections
from voicepipe.turn import record_builder
from voicepipe.wiring import running

pytest.register_assert_rewrite(*(f"tests.{path.name}" for path in Path(__file__).parent.iterdir() if path.is_dir()))
"""A failed assertion of a module that tests share shows its values, as one of a test does."""

T = TypeVar("T")

DATA = Path(__file__).parent / "data"

RATE_HZ = 24_000
SPOKEN_MS = 1_300
"""The word is over after 1045 ms."""

SLOW_FIXTURES = {
    "browsers": "starts a browser",
    "talking": "starts a browser",
    "engine_socket": "loads the local models",
    "voicepipe": "runs the command line in a process of its own",
    "drive": "runs a client in a process of its own",
    "postgres_url": "starts a database",
    "redis": "starts a server of shared state",
    "installed": "installs a package with pip",
}
"""Fixture -> why each test with it is slow."""

SLOW_PROGRAMS = (
    "chromium",
    "google-chrome",
    "node",
    "postgres",
    "nginx",
    "haproxy",
    "prometheus",
    "redis-server",
    "valkey-server",
)
"""How the names of programs begin that take a second or so to start, as this Python does, which imports voicepipe."""


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect the tests without the garbage collector, and exempt from it what stays: modules and tests.

    Scanning these objects again and again took a third of the time of the collection, in each process of a run.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark as slow what needs a slow fixture, before `-m` selects by the marks; and let the long tests begin first."""
    for item in items:
        if not SLOW_FIXTURES.keys().isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow)
    n_processes = getattr(config, "workerinput", {"workercount": 1})["workercount"]
    long = [item for item in items if item.get_closest_marker("long") is not None]
    others = [item for item in items if item.get_closest_marker("long") is None]
    items[:] = long_first(long, others, n_processes)


def long_first(long: Sequence[T], others: Iterable[T], n_processes: int) -> list[T]:
    """Return the tests in an order in which each process of a run begins with its share of the long ones.

    `--dist worksteal` gives each process an equal part of the list, in order. A process with all the long tests would
    end long after the others.
    """
    others = [*others]
    n_left, ordered = len(long) + len(others), list[T]()
    for number in range(n_processes):
        n_part = n_left // (n_processes - number)
        n_left -= n_part
        first = long[number::n_processes]
        n_others = max(0, n_part - len(first))
        ordered += [*first, *others[:n_others]]
        del others[:n_others]
    return ordered + others


def is_slow(program: str) -> bool:
    """Return whether a test that starts the program is a slow one."""
    return program == sys.executable or Path(program).name.startswith(SLOW_PROGRAMS)


@pytest.fixture(scope="session")
def started_programs() -> Iterator[list[str]]:
    """The slow programs that this process has started and no test has answered for."""
    started: list[str] = []
    start = subprocess.Popen.__init__

    def noted(process: Any, args: Any, *more: Any, **options: Any) -> None:
        command = [args] if isinstance(args, str | bytes | Path) else list(args)
        if is_slow(str(command[0])):
            started.append(" ".join(map(str, command))[:200])
        start(process, args, *more, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess.Popen, "__init__", noted)
        yield started


@pytest.fixture(autouse=True)
def slow_programs_are_for_slow_tests(request: pytest.FixtureRequest, started_programs: list[str]) -> Iterator[None]:
    """A test that starts a browser, a server, a local model or another Python is marked slow."""
    yield
    started = started_programs.copy()  # also by a fixture of its module, which is set up before this one
    started_programs.clear()
    if started and request.node.get_closest_marker("slow") is None:
        pytest.fail(f"mark this test slow, since it starts {'; '.join(started)}", pytrace=False)


@pytest.fixture(scope="session", autouse=True)
def whole_run() -> Iterator[Attribution]:
    """Looks at every record that a core makes in this process, also between two tests."""
    attribution = Attribution()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_builder, "record_of", attribution.watching(record_builder.record_of))
        yield attribution
    assert attribution.taken() == []


@pytest.fixture(autouse=True)
def attribution(whole_run: Attribution) -> Iterator[Attribution]:
    """The records of any test account for each of their milliseconds."""
    yield whole_run
    assert whole_run.taken() == []


@pytest.fixture(autouse=True)
def recorded_wire(monkeypatch: pytest.MonkeyPatch) -> Iterator[RecordedConnections]:
    """Every event that a session sends in any test is of its published shape, in order, with ids that match."""
    recording, run = RecordedConnections(), Session.run

    async def run_recorded(session: Session, socket: ClientSocket) -> None:
        await run(session, recording.of(socket))

    monkeypatch.setattr(Session, "run", run_recorded)
    yield recording
    assert recording.problems() == []


@dataclass(frozen=True)
class FakeServer:
    """A server that answers, and the vendor behind all its stages."""

    url: str
    vendor: FakeVendor
    folder: Path
    """Everything that it writes is below."""


Open = Callable[..., AbstractAsyncContextManager[FakeServer]]


@pytest.fixture
def fake_server(tmp_path: Path) -> Open:
    """`async with fake_server({"server.max_sessions": 1}) as server:`; a setting more by its dotted key."""

    @asynccontextmanager
    async def opened(
        more: dict[str, object] | None = None, *, agents: Sequence[Agent] = ()
    ) -> AsyncIterator[FakeServer]:
        async with FakeVendor() as vendor:
            overrides = {
                "server.port": 0,
                "server.drain_ms": 0,
                "server.data_dir": str(tmp_path / "data"),
                "providers.fake.base_url": vendor.base_url,
                "agents.default.stt": "fake/stt",
                "agents.default.llm": "fake/llm",
                "agents.default.tts": "fake/tts",
                **(more or {}),
            }
            settings = load(overrides=overrides, environ={"HOME": str(tmp_path)}, folder=tmp_path, agents=agents)
            async with running(settings) as server:
                yield FakeServer(server.base_url, vendor, tmp_path)

    return opened


@pytest.fixture(scope="session")
def node_packages() -> Path:
    """The packages for Node of the tests' environment."""
    packages = Path(sys.prefix) / "clients" / "node_modules"
    assert (packages / "typescript").is_dir(), "`python3 deploy/up.py test` installs them"
    return packages


@pytest.fixture
def unused_tcp_port_factory() -> Callable[[], int]:
    """Choose ports for programs that listen a while later. The one of pytest-asyncio chooses among those that the
    kernel gives to connections: one of another test may have it by then."""
    return free_port


@pytest.fixture
def unused_tcp_port() -> int:
    """Return such a port."""
    return free_port()


@pytest.fixture
def question(tmp_path: Path) -> Path:
    """Return the path of a wav file with a spoken "no"."""
    path = tmp_path / "question.wav"
    sound = read_sound(DATA / "clean" / "cv_22058264.flac", RATE_HZ)
    write_wav(path, sound[: SPOKEN_MS * RATE_HZ // 1_000], RATE_HZ)
    return path
