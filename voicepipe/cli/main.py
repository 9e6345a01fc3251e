"""Run a command and map its result to an exit status, without a traceback for errors that the operator can fix."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Final

from voicepipe.cli.command_line import parse, parser
from voicepipe.cli.options import ServeOptions
from voicepipe.errors import ConfigError, StoreUnavailable, VoicepipeError
from voicepipe.huge_pages import restart_with_huge_pages

DONE: Final = 0
FAILED: Final = 1
"""The command ran and its task failed: no answer, or a stage failed its probe."""

WRONG: Final = 2
"""A wrong option, setting or file; argparse exits with the same status."""

NO_SERVER: Final = 3
"""No server answers at the address, or the server refuses the key."""

INTERRUPTED: Final = 130
"""128 and the number of SIGINT, as shells do."""

BROKEN_PIPE: Final = 141
"""128 and the number of SIGPIPE: the reader of our output has closed the pipe."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status. `arguments` default to those of the process.

    Without them the process is the command's own: `serve` then starts it again, with huge pages, where Linux has them.
    """
    options = parse(arguments)
    if options is None:
        parser().print_help()
        return DONE
    try:
        if arguments is None and isinstance(options, ServeOptions):
            restart_with_huge_pages()  # now, as the server's libraries are not imported yet
        return _command(options.command)(options)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        return _reader_gone()
    except VoicepipeError as error:
        return _report_error(error)
    except BaseExceptionGroup as group:
        if group.split(BrokenPipeError)[0] is not None:
            return _reader_gone()
        known, _ = group.split(VoicepipeError)
        if known is None:
            raise
        return _report_error(_first(known))


def _command(name: str) -> Callable[[Any], int]:
    """Import a command on use: each needs libraries that the other commands do not."""
    run: Callable[[Any], int] = import_module(f"voicepipe.cli.{name}").run
    return run


def _reader_gone() -> int:
    # Otherwise Python would report it again when it flushes stdout at exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return BROKEN_PIPE


def _report_error(error: BaseException) -> int:
    # Imported late: the client loads an HTTP library, which many commands do without.
    from voicepipe.client.errors import CallRefused, NoAnswer, ServerUnreachable

    # On the command line the store's own error text is useful.
    text = error.detail if isinstance(error, StoreUnavailable) and error.detail else error
    sys.stderr.write(f"voicepipe: {text}\n")
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
