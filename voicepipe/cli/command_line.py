"""Parse the command line: the tree of commands and their options."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from voicepipe import __version__
from voicepipe.auth.scopes import KEY_DEFAULT
from voicepipe.cli.bench_commands import add_bench, add_simulate
from voicepipe.cli.command_parser import (
    KIND,
    Commands,
    Files,
    OneFile,
    add_command,
    add_config,
    add_python_file,
    add_settings,
)
from voicepipe.cli.options import (
    KEY_VARIABLE,
    CheckOptions,
    EvalOptions,
    KeysOptions,
    Options,
    ProvidersOptions,
    RecordsOptions,
    RegionsOptions,
    ReplayOptions,
    RevokeOptions,
    ServeOptions,
    TalkOptions,
    TokenOptions,
)
from voicepipe.cli.suggestions import SuggestingParser

_KEY: Final = f"an API key or client secret; better in ${KEY_VARIABLE}, which other users of the machine can't see"


def parse(arguments: Sequence[str] | None) -> Options | None:
    """Return the command's options; None without a command. argparse itself answers `--help` and wrong options."""
    written: dict[str, Any] = vars(parser().parse_args(arguments))
    kind: Callable[..., Options] | None = written.pop(KIND, None)
    if kind is None:
        return None
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in written.items()})


def parser() -> argparse.ArgumentParser:
    """Return the whole tree of commands and options; `web/docs/commands.md` is generated from it."""
    tree: argparse.ArgumentParser = SuggestingParser(
        prog="voicepipe",
        description="A realtime voice agent server that holds every stage of a turn to a one-second budget.",
        argument_default=argparse.SUPPRESS,
    )
    tree.add_argument("--version", action="version", version=f"voicepipe {__version__}")
    commands = tree.add_subparsers(dest="command", metavar="COMMAND")
    _serve(commands)
    _talk(commands)
    _eval(commands)
    _check(commands)
    _providers(commands)
    _regions(commands)
    _keys(commands)
    _token(commands)
    _revoke(commands)
    _records(commands)
    add_bench(commands)
    add_simulate(commands)
    _replay(commands)
    return tree


def _serve(commands: Commands[argparse.ArgumentParser]) -> None:
    command = add_command(commands, ServeOptions, "serve", "run the server until Ctrl-C")
    add_python_file(command)
    command.add_argument("--host", help="the address to listen on")
    command.add_argument("--port", help="the port; 0 takes a free one and prints it")
    command.add_argument(
        "--workers",
        metavar="N",
        help="how many processes serve the port; 0: one for each core, less one where local models run",
    )
    command.add_argument("--tls-cert", metavar="FILE", help="use https and wss with this certificate chain (PEM)")
    command.add_argument("--tls-key", metavar="FILE", help="the certificate's private key (PEM)")
    command.add_argument(
        "--tls-dev", action="store_const", const="true", help="use https and wss with a certificate for testing"
    )
    command.add_argument(
        "--trust-proxy",
        action="append",
        metavar="ADDRESS",
        help="trust this proxy, or network of proxies, to name the client's address; may be repeated",
    )
    add_settings(command)


def _talk(commands: Commands[argparse.ArgumentParser]) -> None:
    command = add_command(
        commands,
        TalkOptions,
        "talk",
        "send a recording, or talk by microphone; print and store the answers, show where the time went",
    )
    command.add_argument(
        "sound",
        type=Path,
        nargs="*",
        action=OneFile,
        metavar="SOUND",
        help="the question: a wav, flac, ogg or mp3 file, without it the microphone; FILE.py: a file with agents",
    )
    command.add_argument("--out", type=Path, metavar="FILE", help="write the answer's audio to this wav file")
    command.add_argument(
        "--play",
        action="store_true",
        help="play the answer to a recording; answers to the microphone are always played",
    )
    command.add_argument("--turns", type=int, metavar="N", help="end a conversation by microphone after N answers")
    command.add_argument(
        "--url",
        help="the server, ws://... or http://...; without it the usual address, or a server started for this session",
    )
    command.add_argument("--key", help=_KEY)
    command.add_argument("--agent", metavar="NAME", help="the agent that answers")
    command.add_argument("--type", metavar="TEXT", help="send this typed question, in place of a recording")
    command.add_argument("--text", action="store_true", help="request a text answer only, to any kind of question")
    add_settings(command)


def _eval(commands: Commands[argparse.ArgumentParser]) -> None:
    command = add_command(commands, EvalOptions, "eval", "hold scripted conversations with the agent, and judge them")
    command.add_argument(
        "scenarios",
        nargs="+",
        type=Path,
        action=Files,
        metavar="SCENARIO",
        help="YAML files, or folders of them; FILE.py: a Python file with the agents",
    )
    command.add_argument("--runs", type=int, metavar="N", help="how often each scenario is run")
    command.add_argument(
        "--time",
        choices=("real", "virtual"),
        help="virtual: with a clock that jumps over waits, other than those for a real model",
    )
    command.add_argument(
        "--url", help="the server, ws://... or http://...; without it one is started with the settings"
    )
    command.add_argument("--key", help=_KEY)
    command.add_argument("--agent", metavar="NAME", help="the agent that answers, whatever the scenarios name")
    command.add_argument("--judge", metavar="SPEC", help="the LLM that judges `judge` expectations, as provider/model")
    command.add_argument("--persona", metavar="SPEC", help="the LLM that plays the user in `persona` steps")
    command.add_argument(
        "--user-tts",
        metavar="SPEC",
        help="the TTS that speaks the user's texts; without it that of the scenario, or local/hibari",
    )
    command.add_argument("--junit", type=Path, metavar="FILE", help="write the results as JUnit XML to this file")
    command.add_argument("--html", type=Path, metavar="FILE", help="write a page with the audio to this file")
    add_settings(command, scripted=False)


def _check(commands: Commands[argparse.ArgumentParser]) -> None:
    command = add_command(
        commands, CheckOptions, "check", "test every stage of every agent and print the settings in force"
    )
    add_python_file(command)
    command.add_argument("--agent", metavar="NAME", help="test only this agent's stages")
    add_settings(command)


def _providers(commands: Commands[argparse.ArgumentParser]) -> None:
    command = add_command(
        commands,
        ProvidersOptions,
        "providers",
        "list LLMs (keys, reachable providers, prices, speed as published and as measured here), then STT and TTS",
    )
    command.add_argument("names", nargs="*", metavar="NAME", help="show all known models of these providers only")
    command.add_argument(
        "--probe",
        action="store_true",
        help="send each model with a key one short question, a clip to each STT and a sentence to each TTS; prints the "
        "cost in advance",
    )
    command.add_argument("--json", action="store_true", help="print JSON, with the sources of all figures")
    command.add_argument("--project", metavar="NAME", help="the project whose turns are measured")
    add_config(command)


def _regions(commands: Commands[argparse.ArgumentParser]) -> None:
    command = add_command(
        commands,
        RegionsOptions,
        "regions",
        "measure how far the providers' addresses are from this machine, and advise where to put it",
    )
    command.add_argument("names", nargs="*", metavar="NAME", help="these providers only")
    command.add_argument("--tries", type=int, metavar="N", help="connections to each address; the shortest counts")
    command.add_argument(
        "--probe", action="store_true", help="also send each LLM in use one short question, which is paid"
    )
    command.add_argument("--json", action="store_true", help="print JSON")
    add_config(command)


def _keys(commands: Commands[argparse.ArgumentParser]) -> None:
    command = add_command(commands, None, "keys", "make, list and revoke API keys")
    actions = command.add_subparsers(dest="action", metavar="ACTION", required=True)
    create = add_command(actions, KeysOptions, "create", "make an API key and print it, only this once")
    create.add_argument("--project", metavar="NAME", help="the owner of the key's turns, sessions and tokens")
    create.add_argument("--name", metavar="TEXT", help="your name for the key")
    create.add_argument(
        "--scope",
        action="append",
        metavar="SCOPE",
        help=f"what it may do: {', '.join(KEY_DEFAULT)} (all of these without this option), operate (its project's "
        "dashboard, webhooks, deletions; reads turns too), operate_all (the same for all projects); may be repeated",
    )
    listing = add_command(actions, KeysOptions, "list", "show all keys, without their secrets")
    revoke = add_command(actions, KeysOptions, "revoke", "revoke an API key")
    revoke.add_argument("id", metavar="ID", help="the eight characters that `keys list` shows")
    rotate = add_command(
        actions, KeysOptions, "rotate", "make a new secret that signs client secrets; issued client secrets stay valid"
    )
    remove = add_command(
        actions, KeysOptions, "remove", "delete an older signing secret; client secrets that it signed become invalid"
    )
    remove.add_argument("id", metavar="KID", help="its name, as `keys rotate` prints it")
    for each in (create, listing, revoke, rotate, remove):
        add_config(each)


def _token(commands: Commands[argparse.ArgumentParser]) -> None:
    command = add_command(commands, TokenOptions, "token", "mint a client secret and print it")
    command.add_argument("--project", metavar="NAME", help="the project of its turns and sessions")
    command.add_argument("--agent", metavar="NAME", help="the only agent that may answer")
    command.add_argument("--subject", metavar="NAME", help="your name for the user; tokens can be revoked by it")
    command.add_argument("--identity", metavar="TEXT", help="a name for people to read")
    command.add_argument("--seconds", type=int, metavar="N", help="how long it opens sessions; without it 600")
    command.add_argument(
        "--scope",
        action="append",
        metavar="SCOPE",
        help="what it may do: realtime, turns (both without this option), chat, audio; may be repeated",
    )
    command.add_argument("--origin", action="append", metavar="URL", help="a page that may use it; may be repeated")
    command.add_argument("--max-sessions", type=int, metavar="N", help="the most sessions it can start (1: single-use)")
    command.add_argument("--session-seconds", type=int, metavar="N", help="the longest duration of a session")
    command.add_argument("--turns", type=int, metavar="N", help="the most turns of all its sessions")
    command.add_argument("--spend-usd", type=float, metavar="USD", help="the highest cost of all its sessions")
    command.add_argument("--session", metavar="JSON", help="the session that it starts, as in session.update")
    command.add_argument(
        "--lock", action="append", metavar="FIELD", help="a field that session.update may not change; may be repeated"
    )
    command.add_argument(
        "--hide",
        action="append",
        metavar="FIELD",
        help="the same, and the client does not see it either; may be repeated",
    )
    add_config(command)


def _revoke(commands: Commands[argparse.ArgumentParser]) -> None:
    command = add_command(
        commands, RevokeOptions, "revoke", "revoke client secrets, and end the sessions that they opened"
    )
    command.add_argument("id", metavar="ID", nargs="?", help="the client secret's id, as `token` prints it")
    command.add_argument("--subject", metavar="NAME", help="all secrets issued to this user so far")
    command.add_argument("--project", metavar="NAME", help="their project")
    add_config(command)


def _records(commands: Commands[argparse.ArgumentParser]) -> None:
    command = add_command(commands, None, "records", "change the tables of the turn records")
    actions = command.add_subparsers(dest="action", metavar="ACTION", required=True)
    downgrade = add_command(
        actions, RecordsOptions, "downgrade", "bring the tables back to an older version, for an older voicepipe"
    )
    downgrade.add_argument("version", type=int, metavar="VERSION", help="the version that the older voicepipe reads")
    add_config(downgrade)


def _replay(commands: Commands[argparse.ArgumentParser]) -> None:
    command = add_command(
        commands,
        ReplayOptions,
        "replay",
        "replay a session's journal and show the first difference, or the latency under other settings",
    )
    command.add_argument("files", nargs="+", type=Path, metavar="JOURNAL", help="files, folders, ids of sessions")
    command.add_argument(
        "--what-if",
        nargs="+",
        action="extend",
        metavar="KEY=VALUE",
        help="compute the latencies with these settings; several may follow",
    )
    command.add_argument("--json", action="store_true", help="print a line of JSON for each journal")
    add_config(command)
