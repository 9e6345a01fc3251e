"""Build the parser of one command: its help with defaults, its files, and the options that commands share."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any, Final

from voicepipe.cli.defaults import default_of
from voicepipe.cli.options import Options

KIND: Final = "options"
"""The attribute of a command's parser that names the class of its options."""

Commands = argparse._SubParsersAction  # the type of what `add_subparsers` returns has no public name


def add_command(
    commands: Commands[argparse.ArgumentParser], kind: type[Options] | None, name: str, does: str
) -> argparse.ArgumentParser:
    """Add a command, or an action of one (`kind` None: it has actions of its own), with its meaning.

    Its options become a `kind`, whose defaults its help prints.
    """
    command = commands.add_parser(
        name,
        help=does,
        description=f"{does[0].upper()}{does[1:]}.",
        argument_default=argparse.SUPPRESS,
        formatter_class=partial(_Help, kind=kind or Options),
    )
    if kind is not None:  # else its actions have options
        command.set_defaults(**{KIND: kind})
    return command


def add_python_file(command: argparse.ArgumentParser) -> None:
    """Add the argument for a Python file with agents."""
    command.add_argument(
        "file", nargs="?", type=Path, default=None, metavar="FILE.py", help="a Python file with agents"
    )


def add_settings(command: argparse.ArgumentParser, *, scripted: bool = True) -> None:
    """Add the options of all commands that run a stage; `scripted`: the LLM may be a script."""
    command.add_argument("--stt", metavar="SPEC", help="the STT of agents that name no other, as provider/model")
    command.add_argument(
        "--llm",
        metavar="SPEC",
        help="the LLM of agents that name no other: provider/model, a GGUF file"
        + ", or a script, scripted/FILE.yaml" * scripted,
    )
    command.add_argument("--tts", metavar="SPEC", help="the TTS of agents that name no other, as provider/model")
    add_config(command)


def add_config(command: argparse.ArgumentParser) -> None:
    """Add the options of every command."""
    command.add_argument("--config", metavar="FILE", help="the settings file")
    command.add_argument("--data-dir", metavar="FOLDER", help="the folder for everything written at run time")
    command.add_argument(
        "--set", action="append", metavar="KEY=VALUE", help="any other setting by its dotted name; may be repeated"
    )


class _Help(argparse.HelpFormatter):
    """Prints the default of each option behind its meaning."""

    def __init__(self, prog: str, *, kind: type[Options], **more: Any) -> None:
        super().__init__(prog, **more)
        self._kind = kind

    def _get_help_string(self, action: argparse.Action) -> str | None:
        default = default_of(self._kind, action.dest)
        return f"{action.help} ({default})" if default else action.help


class Files(argparse.Action):
    """Puts the Python file with agents among the files of a command into `file`, and the others where they belong."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option_string: object = None
    ) -> None:
        in_python = [path for path in values if path.suffix == ".py"]
        others = [path for path in values if path.suffix != ".py"]
        if len(in_python) > 1:
            parser.error(f"expected one Python file with agents, got {len(in_python)}")
        if in_python:
            namespace.file = in_python[0]
        setattr(namespace, self.dest, self._rest(parser, others))

    def _rest(self, parser: argparse.ArgumentParser, others: list[Path]) -> list[Path] | Path | None:
        return others


class OneFile(Files):
    """The same for a command that takes at most one other file."""

    def _rest(self, parser: argparse.ArgumentParser, others: list[Path]) -> list[Path] | Path | None:
        if len(others) > 1:
            parser.error(f"expected one {self.metavar}, got {len(others)}")
        return others[0] if others else None
