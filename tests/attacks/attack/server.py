"""A server in a process of its own, so that its memory, CPU and descriptors can be read from /proc."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from attack.target import Target
from voicepipe.auth.apikeys import ApiKeys
from voicepipe.auth.scopes import ALL
from voicepipe.clock import unix_s

START_S = 90.0
"""The bound of a start and of an end; only a hang meets it."""

PROGRAM = "import sys; from voicepipe.cli.main import main; sys.exit(main(sys.argv[1:]))"

SECRET_SCOPES = ("realtime", "turns", "chat", "audio")

TOML = """
[server]
port = 0
metrics_allow = ["127.0.0.1"]
max_sessions = 400
workers = 1
drain_ms = 0
{server}
[providers.fake]
base_url = "{good}"
input_usd_per_million = 1
output_usd_per_million = 1
[providers.bad]
base_url = "{bad}"
input_usd_per_million = 1
output_usd_per_million = 1
[agents.default]
stt = "fake/stt"
llm = "fake/llm"
tts = "fake/tts"
{more}
"""


class ServerProcess:
    """One `voicepipe serve`. Start it again after an end: the folder and the API key stay."""

    def __init__(self, folder: Path, toml: str, *, program: Sequence[str] | None = None) -> None:
        """`program` runs voicepipe's command line; None runs it in this Python."""
        self.data = folder / "data"
        self.data.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._config, self._log_path = folder / "voicepipe.toml", folder / "server.log"
        self._config.write_text(toml)
        self._program = program or (sys.executable, "-c", PROGRAM)
        self.key = ApiKeys(self.data).create("acme", now_s=unix_s(), scopes=ALL).text
        self.process: subprocess.Popen[bytes] | None = None
        self.url = ""

    # --- its life -----------------------------------------------------------------------------

    def start(self, before: Callable[[], None] | None = None) -> None:
        """Start it and wait until it is ready.

        Args:
            before: called in the new process before the program, such as to set limits.

        Raises:
            AssertionError: it ended, or was not ready within `START_S`; with its log's end.
        """
        environ = {name: value for name, value in os.environ.items() if not name.startswith("VOICEPIPE_")}
        arguments = ["serve", "--config", str(self._config), "--data-dir", str(self.data)]
        with self._log_path.open("ab") as log:
            log_begins = log.tell()
            self.process = subprocess.Popen(
                [*self._program, *arguments],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env=environ,
                preexec_fn=before,
            )
        self._wait(lambda: self._is_ready(log_begins))

    def _is_ready(self, log_begins: int) -> bool:
        found = re.search(r"listens on (http\S+)", self._log_path.read_bytes()[log_begins:].decode(errors="replace"))
        if found is None:
            return False
        self.url = found[1]
        try:
            return self.get("/readyz")[0] == 200
        except OSError:
            return False

    def _wait(self, ready: Callable[[], bool]) -> None:
        assert self.process is not None
        end = time.monotonic() + START_S
        while not ready():
            assert self.process.poll() is None, f"the server ended: {self.log()[-2_000:]}"
            assert time.monotonic() < end, f"the server is not ready: {self.log()[-2_000:]}"
            time.sleep(0.05)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int | None:
        """End it if it runs; return its exit code."""
        if self.process is None:
            return None
        if self.process.poll() is None:
            self.process.send_signal(number)
            try:
                self.process.wait(START_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
        return self.process.wait()

    @property
    def pid(self) -> int:
        """Of the process that runs."""
        assert self.process is not None
        return self.process.pid

    # --- what it took -------------------------------------------------------------------------

    def memory_mb(self) -> tuple[float, float]:
        """Resident memory now, and at its highest since `reset_peak`."""
        found = dict(re.findall(r"^(VmRSS|VmHWM):\s+(\d+) kB", Path(f"/proc/{self.pid}/status").read_text(), re.M))
        return int(found["VmRSS"]) / 1_024, int(found["VmHWM"]) / 1_024

    def reset_peak(self) -> None:
        """Let the highest resident memory begin anew: proc(5), clear_refs."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def descriptors(self) -> int:
        """How many files and sockets it has open."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def cpu_s(self) -> float:
        """CPU time of all of its threads."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def log(self) -> str:
        """All that it has written, of every start."""
        return self._log_path.read_text(errors="replace")

    def logged(self, event: str) -> int:
        """How many lines of the log bear that event."""
        return len(re.findall(rf'"event": ?"{event}"', self.log()))

    # --- what it says -------------------------------------------------------------------------

    def request(self, method: str, path: str, body: Any = None, *, credential: str = "") -> tuple[int, Any]:
        """Ask over HTTP; the status and the body, read as JSON where it is."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {credential or self.key}", "Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, data=data, method=method, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=START_S) as answer:
                return answer.status, _read(answer.read())
        except urllib.error.HTTPError as refusal:
            return refusal.code, _read(refusal.read())

    def get(self, path: str) -> tuple[int, Any]:
        """`request` without a body."""
        return self.request("GET", path)

    def metrics(self) -> dict[str, float]:
        """Every series by its name with labels."""
        status, text = self.get("/metrics")
        assert status == 200, text
        lines = (line.rpartition(" ") for line in text.splitlines() if line and not line.startswith("#"))
        return {name: float(value) for name, _, value in lines}

    def stored_turns(self) -> set[str]:
        """The ids of all turns in the store."""
        found: set[str] = set()
        path = "/v1/turns?limit=200"
        while True:
            status, page = self.get(path)
            assert status == 200, page
            found |= {turn["id"] for turn in page["data"]}
            if not page["next"]:
                return found
            path = f"/v1/turns?limit=200&before={page['next']}"

    def mint(self, **voicepipe: Any) -> str:
        """A client secret."""
        claims = {"scopes": SECRET_SCOPES, **voicepipe}
        status, body = self.request("POST", "/v1/realtime/client_secrets", {"voicepipe": claims})
        assert status == 200, body
        return str(body["value"])

    def target(self, **more: Any) -> Target:
        """What an attack needs of it."""
        return Target(url=self.url, key=self.key, secret=self.mint(), **more)


def _read(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return body.decode(errors="replace")


async def in_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    """Ask the server without holding the loop of those who talk to it."""
    return await asyncio.to_thread(function, *arguments)
