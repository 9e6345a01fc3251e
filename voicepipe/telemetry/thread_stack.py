"""The stack of another thread, while it runs.

faulthandler writes it in one call that keeps the interpreter's lock. Between two frames, Python code that walks
`f_back` gives the thread a time to run, and then reads frames that have ended: on Python 3.11.7 one was a float.
"""

from __future__ import annotations

import faulthandler
import os
import re
import sys
import tempfile
from typing import IO, Final

MAX_FRAMES: Final = 12
"""Number of stack frames, innermost first: the code that blocks a loop is at the end of the stack."""

_FRAME: Final = re.compile(r'  File "(?P<path>.*)", line (?P<line>\d+) in (?P<function>.*)')
"""A line of faulthandler's, see `_Py_DumpTraceback` of CPython."""

_SWITCH_INTERVAL_S: Final = 1.0
"""The interpreter's switch interval while a stack is read, so that no other thread runs. Reading takes some 20 us."""

_IDLE: Final = re.compile(r"\bselectors\.py:\d+ select$")

_IN_LOOP: Final = re.compile(r"\basyncio/(?:runners\.py:\d+ run|base_events\.py:\d+ run_\w+)$")


def stack_of(thread_id: int) -> tuple[str, ...]:
    """Return where a thread is, innermost first, as `file:line function`; of a file's path the last three parts.

    Empty when the thread is over.

    Args:
        thread_id: of `threading.get_ident`.

    Raises:
        OSError: no file can be made.
    """
    with _memory_file() as file:
        faulthandler.dump_traceback(file, all_threads=True)
        file.seek(0)
        text = file.read()
    _, _, own = text.partition(f"hread 0x{thread_id:016x} ")
    if not own:
        return _walked_stack(thread_id)
    frames = own.partition("\n\n")[0].splitlines()[1 : 1 + MAX_FRAMES]
    return tuple(_where(line) for line in frames)


def _walked_stack(thread_id: int) -> tuple[str, ...]:
    """Return the stack of a thread that faulthandler leaves out: it writes the 100 newest, so not the main thread where
    there are more.
    """
    found: list[str] = []
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    try:
        frame = sys._current_frames().get(thread_id)
        while frame is not None and len(found) < MAX_FRAMES:
            found.append(_place(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
            frame = frame.f_back
    finally:
        sys.setswitchinterval(interval_s)
    return tuple(found)


def is_in_loop(stack: tuple[str, ...]) -> bool:
    """Return whether a thread runs an event loop that is written in C, and no Python code: it awaits its next event, as
    a rule, or else C code blocks it.
    """
    return bool(stack) and _IN_LOOP.search(stack[0]) is not None


def is_idle(stack: tuple[str, ...]) -> bool:
    """Return whether an event loop's thread awaits its next event: no code blocks it, however late its timers are."""
    return bool(stack) and _IDLE.search(stack[0]) is not None


def _memory_file() -> IO[str]:
    """Open a file that no folder has: the server's may be read-only."""
    if hasattr(os, "memfd_create"):
        return open(os.memfd_create("stack"), "w+", encoding="utf-8", errors="replace")
    return tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")


def _where(line: str) -> str:
    found = _FRAME.fullmatch(line)
    if found is None:  # "..." behind the last frame that faulthandler writes
        return line.strip()
    return _place(found["path"], found["line"], found["function"])


def _place(path: str, line: int | str, function: str) -> str:
    return f"{'/'.join(path.replace(chr(92), '/').split('/')[-3:])}:{line} {function}"
