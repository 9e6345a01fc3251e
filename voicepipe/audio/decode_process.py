"""The process that decodes uploaded recordings: C code parses them, so none of it runs in the server process.

`python -m voicepipe.audio.decode_process` loads the libraries once, then forks a process for each recording, which
takes a few milliseconds. That process has only the recording: no keys, no files, no network, limits on time and
memory. It ends with its recording. A file that breaks its process affects no other recording and no session.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pkgutil import walk_packages
from typing import Final

import msgspec

from voicepipe.audio.decode_file import Pieces, TooLong
from voicepipe.audio.files import UnreadableSound

CPU_S: Final = 120
"""CPU limit per recording. Two hours of MP3 take about 30 s."""

MEMORY_BYTES: Final = 256 << 20
"""Memory limit per recording, on top of what the libraries take."""

NICENESS: Final = 10
"""Sessions have priority."""

CONTROL: Final = struct.Struct(">cI")
"""Sent to the forking process: `s` and a number, with a socket, starts a recording; `k` and its number ends the
recording.
"""

ENDED: Final = struct.Struct(">Ii")
"""Sent by the forking process: a recording's number and the exit status of its process; below 0: the signal."""

QUESTION: Final = struct.Struct(">IIIQ")
"""Sent to a recording's process: bytes of the file, which follow; sample rate of the pieces in Hz; limits in seconds
and in samples.
"""

ANSWER: Final = struct.Struct(">cdI")
"""Sent by a recording's process: a kind, seconds read so far, number of bytes that follow. Kinds: `r` ready, sent
first; then one answer to each request: `o` opened, `p` a piece, `e` the end, `x` a refusal."""

NEXT: Final = b"n"
"""Requests the next piece."""

LIBRARIES: Final = ("soundfile", "soxr", "av")
"""Loaded completely before any fork: a recording's process can open no file."""


class DecodeRefusal(msgspec.Struct, frozen=True):
    """The refusal of a recording."""

    why: str
    too_long: bool


# --- the process of one recording -----------------------------------------------------------------


def limit_process() -> None:
    """Drop permanently every permission that decoding does not need."""
    with suppress(OSError, ValueError):
        with open("/proc/self/statm", encoding="ascii") as file:
            taken = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (taken + MEMORY_BYTES, taken + MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core dump would hold recorded speech
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))  # descriptors that are open stay open
    os.nice(NICENESS)


def serve_recording(line: socket.socket) -> None:
    """Read a file from `line` and send its pieces on request, until the other side closes the connection."""
    _answer(line, b"r", 0.0)
    n_bytes, rate_hz, max_duration_s, max_samples = QUESTION.unpack(_receive(line, QUESTION.size))
    file = _receive(line, n_bytes)
    try:
        with _refusing():
            pieces = Pieces(file, rate_hz, max_duration_s=max_duration_s, max_samples=max_samples)
        _answer(line, b"o", 0.0)
        while line.recv(1) == NEXT:
            with _refusing():
                piece = next(pieces, None)
            _answer(line, b"e" if piece is None else b"p", pieces.read_s, b"" if piece is None else piece.tobytes())
    except _Refused as refused:
        _answer(line, b"x", 0.0, msgspec.json.encode(refused.refusal))


class _Refused(Exception):
    """The rest of the file is refused."""

    def __init__(self, refusal: DecodeRefusal) -> None:
        super().__init__()
        self.refusal = refusal


@contextmanager
def _refusing() -> Iterator[None]:
    """Convert every exception of the libraries into a refusal of the file."""
    try:
        yield
    except UnreadableSound as why:
        raise _Refused(DecodeRefusal(str(why), isinstance(why, TooLong))) from None
    except MemoryError:
        raise _Refused(DecodeRefusal("the sound file needs too much memory", too_long=False)) from None
    except Exception as error:
        raise _Refused(
            DecodeRefusal(f"the sound file can't be decoded ({type(error).__name__})", too_long=False)
        ) from None


def _answer(line: socket.socket, kind: bytes, read_s: float, payload: bytes = b"") -> None:
    line.sendall(ANSWER.pack(kind, read_s, len(payload)) + payload)


def _receive(line: socket.socket, n_bytes: int) -> bytes:
    received = bytearray(n_bytes)
    view, n_received = memoryview(received), 0
    while n_received < n_bytes:
        n_more = line.recv_into(view[n_received:])
        if not n_more:
            raise EOFError
        n_received += n_more
    view.release()
    return bytes(received)


# --- the process that forks -----------------------------------------------------------------------


@dataclass(slots=True)
class _Children:
    """The processes of recordings."""

    pids: dict[int, int]
    """By recording number. Bounded by the number of recordings transcribed at once."""

    def start(self, number: int, line: socket.socket, control: socket.socket) -> None:
        try:
            pid = os.fork()
        except OSError:  # too many processes: the socket closes at the server
            line.close()
            return
        if pid:
            self.pids[number] = pid
            line.close()
            return
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            control.close()
            limit_process()
            serve_recording(line)
            status = 0
        except (EOFError, OSError):
            status = 0  # the server has closed the socket
        finally:
            os._exit(status)

    def kill(self, number: int) -> None:
        """Kill a recording's process if it runs. A process that was not waited for keeps its id, so no other process is
        hit.
        """
        if number in self.pids:
            os.kill(self.pids[number], signal.SIGKILL)

    def ended(self) -> Iterator[tuple[int, int]]:
        """Yield the number and the exit status of each recording that has ended."""
        for number, pid in tuple(self.pids.items()):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                del self.pids[number]
                yield number, os.waitstatus_to_exitcode(status)


def serve(control: socket.socket) -> None:
    """Start and end recordings as `control` requests, until `control` is closed."""
    children = _Children({})
    woken, wake = os.pipe()
    for end in (woken, wake):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    poll = select.poll()
    for readable in (control.fileno(), woken):
        poll.register(readable, select.POLLIN)
    try:
        while True:
            ready = {fd for fd, _ in poll.poll()}
            if woken in ready:
                os.read(woken, 4_096)
                for number, status in children.ended():
                    control.sendall(ENDED.pack(number, status))
            if control.fileno() in ready and not _handle_control(control, children):
                return
    finally:
        for number in tuple(children.pids):
            children.kill(number)


def _handle_control(control: socket.socket, children: _Children) -> bool:
    message, lines, *_ = socket.recv_fds(control, CONTROL.size, 1)
    if len(message) < CONTROL.size:
        return False
    what, number = CONTROL.unpack(message)
    if what == b"k":
        children.kill(number)
    for line in lines:
        children.start(number, socket.socket(fileno=line), control)
    return True


def load_whole(library: str) -> None:
    """Import a library with all submodules, which it may otherwise import only when a file needs them.

    Raises:
        ImportError: the library is not installed.
    """
    folder = getattr(import_module(library), "__path__", ())
    for part in walk_packages(folder, f"{library}."):
        with suppress(ImportError):
            import_module(part.name)


def main() -> None:
    """Load the libraries and serve on the socket whose descriptor is the only argument."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is for the server, which ends this in good order
    for library in LIBRARIES:
        with suppress(ImportError):
            load_whole(library)
    with suppress(ConnectionError):
        serve(socket.socket(fileno=int(sys.argv[1])))


if __name__ == "__main__":
    main()
