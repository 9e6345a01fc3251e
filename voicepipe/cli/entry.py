"""From what was written to an exit status, and never a traceback for what a person can put right."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Final

from voicepipe.cli.options import Options, parser
from voicepipe.client.failures import CallRefused, NoAnswer, ServerUnreachable
from voicepipe.errors import ConfigError, StoreUnavailable, VoicepipeError

DONE: Final = 0
FAILED: Final = 1
"""The command ran, and what it was to do did not work: no answer, a stage that fails its probe."""

WRONG: Final = 2
"""A wrong option, setting or file; argparse ends with the same."""

NO_SERVER: Final = 3
"""Nobody answers at the address, or the server refuses the key."""

INTERRUPTED: Final = 130
"""128 and the number of SIGINT, as shells have it."""

NOBODY_READS: Final = 141
"""128 and the number of SIGPIPE: whoever read our output has left."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status. `arguments` are those of the process unless given."""
    known = parser()
    options = Options.of(known.parse_args(arguments))
    if not options.command:
        known.print_help()
        return DONE
    try:
        return _command(options.command)(options)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Python would complain once more when it flushes stdout at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return NOBODY_READS
    except VoicepipeError as error:
        return _told(error)
    except BaseExceptionGroup as group:
        ours, _ = group.split(VoicepipeError)
        if ours is None:
            raise
        return _told(_first(ours))


def _command(name: str) -> Callable[[Options], int]:
    """Import a command only now: each needs libraries that the others can do without."""
    run: Callable[[Options], int] = import_module(f"voicepipe.cli.{name}").run
    return run


def _told(error: BaseException) -> int:
    # At the shell the store's own words are of use.
    said = error.detail if isinstance(error, StoreUnavailable) and error.detail else error
    sys.stderr.write(f"voicepipe: {said}\n")
    match error:
        case ServerUnreachable() | CallRefused():
            return NO_SERVER
        case NoAnswer():
            return FAILED
        case ConfigError():
            return WRONG
        case _:
            return FAILED


def _first(group: BaseException) -> BaseException:
    while isinstance(group, BaseExceptionGroup):
        group = group.exceptions[0]
    return group
