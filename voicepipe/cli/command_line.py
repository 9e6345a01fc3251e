"""Parse the command line: the tree of commands and their options."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from voicepipe import __version__
from voicepipe.cli.options import (
    KEY_VARIABLE,
    CapacityOptions,
    CheckOptions,
    CompareOptions,
    EndpointingBenchOptions,
    EvalOptions,
    KeysOptions,
    LlmBenchOptions,
    LoadBenchOptions,
    Options,
    ProvidersOptions,
    ReplayOptions,
    RevokeOptions,
    ServeOptions,
    SimulateOptions,
    SttBenchOptions,
    TalkOptions,
    TokenOptions,
    TtsBenchOptions,
)
from voicepipe.cli.suggestions import SuggestingParser

_KIND: Final = "options"
"""Where a command's parser says which class its options are."""


def parse(arguments: Sequence[str] | None) -> Options | None:
    """Return the command's options; None without a command. argparse itself answers `--help` and wrong options."""
    written: dict[str, Any] = vars(parser().parse_args(arguments))
    kind: Callable[..., Options] | None = written.pop(_KIND, None)
    if kind is None:
        return None
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in written.items()})


class _Files(argparse.Action):
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


class _OneFile(_Files):
    """The same for a command that takes at most one other file."""

    def _rest(self, parser: argparse.ArgumentParser, others: list[Path]) -> list[Path] | Path | None:
        if len(others) > 1:
            parser.error(f"expected one {self.metavar}, got {len(others)}")
        return others[0] if others else None


def parser() -> argparse.ArgumentParser:
    """Return the whole tree of commands and options; a test checks the README's table against it."""
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
    _keys(commands)
    _token(commands)
    _revoke(commands)
    _bench(commands)
    _simulate(commands)
    _replay(commands)
    return tree


Commands = argparse._SubParsersAction  # the type of what `add_subparsers` returns has no public name


def _serve(commands: Commands[argparse.ArgumentParser]) -> None:
    command = _add(commands, ServeOptions, "serve", "run the server until Ctrl-C")
    _python_file(command)
    command.add_argument("--host", help="the address to listen on (127.0.0.1)")
    command.add_argument("--port", help="the port (8080); 0 picks a free one")
    command.add_argument("--workers", metavar="N", help="how many processes serve the port (0: what the limits need)")
    command.add_argument("--tls-cert", metavar="FILE", help="use https with this certificate chain (PEM)")
    command.add_argument("--tls-key", metavar="FILE", help="the certificate's private key (PEM)")
    command.add_argument(
        "--tls-dev", action="store_const", const="true", help="use https with a certificate for testing"
    )
    command.add_argument(
        "--trust-proxy",
        action="append",
        metavar="ADDRESS",
        help="trust this proxy, or network of proxies, for client addresses; may be repeated",
    )
    _settings(command)


def _talk(commands: Commands[argparse.ArgumentParser]) -> None:
    command = _add(commands, TalkOptions, "talk", "speak to the agent, print its answers and their latency")
    command.add_argument(
        "sound",
        type=Path,
        nargs="*",
        action=_OneFile,
        metavar="SOUND",
        help="the question: a wav, flac, ogg or mp3 file, without it the microphone; FILE.py: a file with agents",
    )
    command.add_argument("--out", type=Path, metavar="FILE", help="write the answer's audio to this wav file")
    command.add_argument("--play", action="store_true", help="play the answer to a recording")
    command.add_argument("--turns", type=int, metavar="N", help="end a conversation by microphone after N answers")
    command.add_argument("--url", help="the server; by default the configured address, or a temporary server")
    command.add_argument("--key", help=f"an API key or client secret; better in ${KEY_VARIABLE}")
    command.add_argument("--agent", metavar="NAME", help="the agent that answers")
    command.add_argument("--type", metavar="TEXT", help="ask this typed question, in place of a recording")
    command.add_argument("--text", action="store_true", help="request a text answer only, to any kind of question")
    _settings(command)


def _eval(commands: Commands[argparse.ArgumentParser]) -> None:
    command = _add(commands, EvalOptions, "eval", "hold scripted conversations with the agent, and judge them")
    command.add_argument(
        "scenarios",
        nargs="+",
        type=Path,
        action=_Files,
        metavar="SCENARIO",
        help="YAML files, or folders of them; FILE.py: a Python file with the agents",
    )
    command.add_argument("--runs", type=int, metavar="N", help="how often each scenario is run (1)")
    command.add_argument("--url", help="a running server; by default one is started with the settings")
    command.add_argument("--key", help=f"an API key or client secret; better in ${KEY_VARIABLE}")
    command.add_argument("--agent", metavar="NAME", help="the agent that answers, whatever the scenarios say")
    command.add_argument("--judge", metavar="SPEC", help="the language model that judges, as provider/model")
    command.add_argument("--persona", metavar="SPEC", help="the language model that plays the user")
    command.add_argument("--user-tts", metavar="SPEC", help="the TTS model that speaks the user's texts")
    command.add_argument("--junit", type=Path, metavar="FILE", help="write the results as JUnit XML to this file")
    command.add_argument("--html", type=Path, metavar="FILE", help="write a page with the audio to this file")
    _settings(command)


def _check(commands: Commands[argparse.ArgumentParser]) -> None:
    command = _add(commands, CheckOptions, "check", "test every stage of every agent and print the settings in force")
    _python_file(command)
    command.add_argument("--agent", metavar="NAME", help="test only this agent's stages")
    _settings(command)


def _providers(commands: Commands[argparse.ArgumentParser]) -> None:
    command = _add(commands, ProvidersOptions, "providers", "list providers: keys, prices, measured latency")
    command.add_argument("names", nargs="*", metavar="NAME", help="show all known models of these providers only")
    command.add_argument("--probe", action="store_true", help="make a request to each provider whose key is set")
    command.add_argument("--json", action="store_true", help="print JSON, with the sources of all figures")
    command.add_argument("--project", metavar="NAME", help="the project whose turns are measured (default)")
    _config(command)


def _keys(commands: Commands[argparse.ArgumentParser]) -> None:
    command = _add(commands, None, "keys", "make, list and revoke API keys")
    actions = command.add_subparsers(dest="action", metavar="ACTION", required=True)
    create = _add(actions, KeysOptions, "create", "make a key and print it, this once")
    create.add_argument("--project", metavar="NAME", help="the owner of the key's turns, sessions and tokens (default)")
    create.add_argument("--name", metavar="TEXT", help="a name for the key")
    create.add_argument("--scope", action="append", metavar="SCOPE", help="what it may do; may be repeated")
    listing = _add(actions, KeysOptions, "list", "show all keys, without their secrets")
    revoke = _add(actions, KeysOptions, "revoke", "revoke a key")
    revoke.add_argument("id", metavar="ID", help="the eight characters that `keys list` shows")
    rotate = _add(actions, KeysOptions, "rotate", "make a new signing secret; issued client secrets stay valid")
    remove = _add(actions, KeysOptions, "remove", "delete an older signing secret; what it signed is no longer valid")
    remove.add_argument("id", metavar="KID", help="its name, as `keys rotate` prints it")
    for each in (create, listing, revoke, rotate, remove):
        _config(each)


def _token(commands: Commands[argparse.ArgumentParser]) -> None:
    command = _add(commands, TokenOptions, "token", "mint a client secret and print it")
    command.add_argument("--project", metavar="NAME", help="the project of its turns and sessions (default)")
    command.add_argument("--agent", metavar="NAME", help="the only agent that may answer")
    command.add_argument("--subject", metavar="NAME", help="your id of the user; tokens can be revoked by it")
    command.add_argument("--identity", metavar="TEXT", help="a display name")
    command.add_argument("--seconds", type=int, metavar="N", help="how long it can start sessions (600)")
    command.add_argument("--scope", action="append", metavar="SCOPE", help="what it may do; may be repeated")
    command.add_argument("--origin", action="append", metavar="URL", help="a page that may use it; may be repeated")
    command.add_argument("--max-sessions", type=int, metavar="N", help="the most sessions it can start (1: single-use)")
    command.add_argument("--session-seconds", type=int, metavar="N", help="the longest duration of a session")
    command.add_argument("--turns", type=int, metavar="N", help="the most turns of all its sessions")
    command.add_argument("--spend-usd", type=float, metavar="USD", help="the highest cost of all its sessions")
    command.add_argument("--session", metavar="JSON", help="the session's configuration, as in session.update")
    command.add_argument("--lock", action="append", metavar="FIELD", help="a field that session.update may not change")
    command.add_argument("--hide", action="append", metavar="FIELD", help="the same, and hidden from the client")
    _config(command)


def _revoke(commands: Commands[argparse.ArgumentParser]) -> None:
    command = _add(commands, RevokeOptions, "revoke", "revoke client secrets and end their sessions")
    command.add_argument("id", metavar="ID", nargs="?", help="the client secret's id, as `token` prints it")
    command.add_argument("--subject", metavar="NAME", help="all secrets issued to this user so far")
    command.add_argument("--project", metavar="NAME", help="their project (default)")
    _config(command)


def _bench(commands: Commands[argparse.ArgumentParser]) -> None:
    command = _add(commands, None, "bench", "measure the latency of providers")
    actions = command.add_subparsers(dest="action", metavar="ACTION", required=True)
    llm = _add(
        actions,
        LlmBenchOptions,
        "llm",
        "measure how fast several language models answer the same questions",
    )
    llm.add_argument("specs", nargs="+", metavar="SPEC", help="the models, as provider/model")
    llm.add_argument("--prompts", type=Path, metavar="FILE", help='a question on each line, or {"system", "user"}')
    llm.add_argument("--cache", choices=("cold", "warm", "both"), help="new questions, repeated ones, or both (cold)")
    llm.add_argument("--max-tokens", type=int, metavar="N", help="the most tokens of an answer (100)")
    _repeated(llm, "llm")
    stt = _add(
        actions,
        SttBenchOptions,
        "stt",
        "measure latency and word errors of several STT providers",
    )
    stt.add_argument("specs", nargs="+", metavar="SPEC", help="the STT models, as provider/model")
    stt.add_argument("--manifest", type=Path, metavar="FILE", help='{"path", "text"} of a recording on each line')
    stt.add_argument("--language", metavar="TAG", help="BCP 47; without it the STT model detects it")
    _repeated(stt, "stt")
    tts = _add(
        actions,
        TtsBenchOptions,
        "tts",
        "measure latency and steadiness of several TTS providers",
    )
    tts.add_argument("specs", nargs="+", metavar="SPEC", help="the TTS models, as provider/model")
    tts.add_argument("--texts", type=Path, metavar="FILE", help="a text on each line")
    tts.add_argument("--cached", action="store_true", help="measure each voice's sounds from disk, too")
    tts.add_argument("--voice", metavar="NAME", help="the voice's name at its provider")
    tts.add_argument("--language", metavar="TAG", help="BCP-47")
    _repeated(tts, "tts")
    _bench_load(actions)
    _bench_endpointing(actions)
    _bench_compare(actions)


def _bench_load(actions: Commands[argparse.ArgumentParser]) -> None:
    load = _add(
        actions, LoadBenchOptions, "load", "measure the latency and the cost of many sessions, with fake providers"
    )
    load.add_argument("--users", type=int, nargs="+", metavar="N", help="numbers of sessions at once (1)")
    load.add_argument("--sound", type=Path, metavar="FILE", help="what users say: a few seconds of one voice")
    load.add_argument("--turns", type=int, metavar="N", help="turns of each user in a round (5)")
    load.add_argument("--rounds", type=int, metavar="N", help="how often each server is measured (1)")
    load.add_argument("--silence-ms", type=int, metavar="MS", help="the silence that ends a turn (200)")
    load.add_argument(
        "--server", nargs="+", metavar="NAME", help="voicepipe, defaults, no-speculation: measured in turn (voicepipe)"
    )
    load.add_argument("--profile", action="store_true", help="also print where the event loop's CPU goes")
    load.add_argument("--pin", action="store_true", help="servers on the first core, all else on the second (Linux)")
    load.add_argument("--admission", type=int, metavar="N", help="offer N users to one server, then flood it")
    load.add_argument("--flooded", type=int, metavar="N", help="the users under the flood (20)")
    load.add_argument("--target", metavar="URL", help="measure this running server; its key in $VOICEPIPE_KEY")
    load.add_argument("--pid", type=int, metavar="PID", help="the target's process, for CPU and memory")
    load.add_argument("--label", metavar="NAME", help="what the table calls the target (server)")
    load.add_argument("--providers-port", type=int, metavar="PORT", help="run the fake providers there for the target")
    load.add_argument("--out", type=Path, metavar="FOLDER", help="store the rows there; a run again measures the rest")
    _config(load)


def _repeated(command: argparse.ArgumentParser, stage: str) -> None:
    command.add_argument("--n", type=int, metavar="N", help="answers of each model (20)")
    command.add_argument("--concurrency", type=int, metavar="N", help="concurrent requests (1)")
    command.add_argument(
        "--out", type=Path, metavar="FOLDER", help=f"write {stage}.md, {stage}.csv and {stage}.svg there"
    )
    _config(command)


def _simulate(commands: Commands[argparse.ArgumentParser]) -> None:
    command = _add(commands, None, "simulate", "simulate what the settings would do")
    actions = command.add_subparsers(dest="action", metavar="ACTION", required=True)
    router = _add(
        actions, SimulateOptions, "router", "simulate how pools of language models share the work, in virtual time"
    )
    router.add_argument("--pool", action="append", metavar="NAME", help="a pool of the settings, or a built-in one")
    router.add_argument("--policy", action="append", metavar="POLICY", help="only this policy; may be repeated")
    router.add_argument("--turns", type=int, metavar="N", help="number of turns (20000)")
    router.add_argument("--seed", type=int, metavar="N", help="seed of the drawn latencies (7)")
    router.add_argument("--latencies", type=Path, metavar="FILE", help="recorded latencies: a CSV with model, ttft_ms")
    router.add_argument("--slower", type=float, metavar="FACTOR", help="all models are slower than published (1)")
    router.add_argument(
        "--cached-factor", type=float, metavar="FACTOR", help="time of a model that has read the session (1)"
    )
    router.add_argument("--csv", type=Path, metavar="FILE", help="also write the table to this file")
    _config(router)
    _simulate_capacity(actions)


def _simulate_capacity(actions: Commands[argparse.ArgumentParser]) -> None:
    command = _add(
        actions,
        CapacityOptions,
        "capacity",
        "simulate how many cores and nodes serve a number of users, in virtual time",
    )
    command.add_argument(
        "--users", type=int, action="append", metavar="N", help="users in calls at once; may be repeated"
    )
    command.add_argument("--call-s", type=float, metavar="S", help="mean length of a call, in seconds (180)")
    command.add_argument("--speech-ms", type=int, metavar="MS", help="what a user says in a turn (2500)")
    command.add_argument("--answer-ms", type=int, metavar="MS", help="an answer's audio (4900)")
    command.add_argument("--pause-ms", type=int, metavar="MS", help="from an answer to the user's next word (400)")
    command.add_argument("--silence-ms", type=int, metavar="MS", help="the silence that ends a turn (200)")
    command.add_argument("--stt-ms", type=int, metavar="MS", help="the STT's time to its text (50)")
    command.add_argument("--llm-ms", type=int, metavar="MS", help="the LLM's time to its first token (200)")
    command.add_argument("--tts-ms", type=int, metavar="MS", help="the TTS's time to its first audio (80)")
    command.add_argument("--spread", type=float, metavar="X", help="how much these vary: 0 not at all, 0.5 much (0)")
    command.add_argument("--failures", type=float, metavar="SHARE", help="share of LLM requests that fail (0)")
    command.add_argument("--lost-nodes", type=int, metavar="N", help="nodes that die at once (0)")
    command.add_argument("--cores", type=int, metavar="N", help="cores of a node, each with a worker (8)")
    command.add_argument("--balance", choices=("random", "least"), help="to which worker a call goes (random)")
    command.add_argument("--refused", type=float, metavar="SHARE", help="the most calls that may be refused (0.01)")
    command.add_argument("--costs", type=Path, metavar="FILE", help="your machine's costs, measured")
    command.add_argument("--seed", type=int, metavar="N", help="seed of the random draws (7)")
    command.add_argument("--csv", type=Path, metavar="FILE", help="also write the table to this file")
    _config(command)


def _replay(commands: Commands[argparse.ArgumentParser]) -> None:
    command = _add(
        commands, ReplayOptions, "replay", "replay a journal through the core and print the first difference"
    )
    command.add_argument("files", nargs="+", type=Path, metavar="JOURNAL", help="files, folders, ids of sessions")
    command.add_argument(
        "--what-if", nargs="+", action="extend", metavar="KEY=VALUE", help="recompute the latencies with these settings"
    )
    command.add_argument("--json", action="store_true", help="print a line of JSON for each journal")
    _config(command)


def _bench_endpointing(actions: Commands[argparse.ArgumentParser]) -> None:
    command = _add(
        actions, EndpointingBenchOptions, "endpointing", "measure turn latency and overlaps of end-of-turn rules"
    )
    command.add_argument("data", nargs="+", type=Path, metavar="FOLDER", help="labelled speech, with manifest.jsonl")
    command.add_argument(
        "--rule", action="append", metavar="RULE", help="NAME or NAME:SILENCE_MS of a strategy; may be repeated"
    )
    command.add_argument("--smart-turn", type=Path, metavar="FILE", help="the ONNX file of smart-turn, to compare with")
    command.add_argument("--traces", type=Path, metavar="FILE", help="add the measured pauses to it, and reuse them")
    command.add_argument("--without-words", action="store_true", help="transcribe nothing")
    command.add_argument("--without-sentence-end", action="store_true", help="do not run the local language model")
    command.add_argument(
        "--out", type=Path, metavar="FOLDER", help="write endpointing.md, endpointing.csv and endpointing.svg there"
    )
    _config(command)


def _bench_compare(actions: Commands[argparse.ArgumentParser]) -> None:
    command = _add(actions, CompareOptions, "compare", "fail when users wait longer in a second run than in a first")
    command.add_argument(
        "files", nargs=2, type=Path, metavar="RUN", help="before and after: journals, exported turns, a bench's CSV"
    )
    command.add_argument("--p95-ms", type=float, metavar="MS", help="the most growth of the 95th percentile (50)")
    command.add_argument("--misses", type=float, metavar="SHARE", help="the most growth of late turns' share (0.01)")
    command.add_argument("--min-turns", type=int, metavar="N", help="the fewest turns of each run (72)")
    _config(command)


def _add(
    commands: Commands[argparse.ArgumentParser], kind: type[Options] | None, name: str, does: str
) -> argparse.ArgumentParser:
    command = commands.add_parser(
        name, help=does, description=f"{does[0].upper()}{does[1:]}.", argument_default=argparse.SUPPRESS
    )
    if kind is not None:  # else its actions have options
        command.set_defaults(**{_KIND: kind})
    return command


def _python_file(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "file", nargs="?", type=Path, default=None, metavar="FILE.py", help="a Python file with agents"
    )


def _settings(command: argparse.ArgumentParser) -> None:
    command.add_argument("--stt", metavar="SPEC", help="the STT model, as provider/model")
    command.add_argument(
        "--llm", metavar="SPEC", help="the language model: provider/model, a GGUF file, scripted/FILE.yaml"
    )
    command.add_argument("--tts", metavar="SPEC", help="the TTS model, as provider/model")
    _config(command)


def _config(command: argparse.ArgumentParser) -> None:
    command.add_argument("--config", metavar="FILE", help="the settings file (voicepipe.toml)")
    command.add_argument("--data-dir", metavar="FOLDER", help="the folder for everything that the server writes")
    command.add_argument(
        "--set", action="append", metavar="KEY=VALUE", help="any other setting by its dotted name; may be repeated"
    )
