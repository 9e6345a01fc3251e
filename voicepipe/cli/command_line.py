"""Parse the command line: the tree of commands and their options."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from voicepipe import __version__
from voicepipe.auth.scopes import KEY_DEFAULT
from voicepipe.cli.defaults import default_of
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

_KEY: Final = f"an API key or client secret; better in ${KEY_VARIABLE}, which other users of the machine can't see"


def parse(arguments: Sequence[str] | None) -> Options | None:
    """Return the command's options; None without a command. argparse itself answers `--help` and wrong options."""
    written: dict[str, Any] = vars(parser().parse_args(arguments))
    kind: Callable[..., Options] | None = written.pop(_KIND, None)
    if kind is None:
        return None
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in written.items()})


class _Help(argparse.HelpFormatter):
    """Prints the default of each option behind its meaning."""

    def __init__(self, prog: str, *, kind: type[Options], **more: Any) -> None:
        super().__init__(prog, **more)
        self._kind = kind

    def _get_help_string(self, action: argparse.Action) -> str | None:
        default = default_of(self._kind, action.dest)
        return f"{action.help} ({default})" if default else action.help


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
    command.add_argument("--host", help="the address to listen on")
    command.add_argument("--port", help="the port; 0 takes a free one and prints it")
    command.add_argument(
        "--workers", metavar="N", help="how many processes serve the port; 0: as many as the limit of sessions needs"
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
    _settings(command)


def _talk(commands: Commands[argparse.ArgumentParser]) -> None:
    command = _add(
        commands,
        TalkOptions,
        "talk",
        "send a recording, or talk by microphone; print and store the answers, show where the time went",
    )
    command.add_argument(
        "sound",
        type=Path,
        nargs="*",
        action=_OneFile,
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
    command.add_argument("--runs", type=int, metavar="N", help="how often each scenario is run")
    command.add_argument(
        "--url", help="the server, ws://... or http://...; without it one is started with the settings"
    )
    command.add_argument("--key", help=_KEY)
    command.add_argument("--agent", metavar="NAME", help="the agent that answers, whatever the scenarios say")
    command.add_argument("--judge", metavar="SPEC", help="the LLM that judges `judge` expectations, as provider/model")
    command.add_argument("--persona", metavar="SPEC", help="the LLM that plays the user in `persona` steps")
    command.add_argument(
        "--user-tts",
        metavar="SPEC",
        help="the TTS that speaks the user's texts; without it that of the scenario, or local/hibari",
    )
    command.add_argument("--junit", type=Path, metavar="FILE", help="write the results as JUnit XML to this file")
    command.add_argument("--html", type=Path, metavar="FILE", help="write a page with the audio to this file")
    _settings(command, scripted=False)


def _check(commands: Commands[argparse.ArgumentParser]) -> None:
    command = _add(commands, CheckOptions, "check", "test every stage of every agent and print the settings in force")
    _python_file(command)
    command.add_argument("--agent", metavar="NAME", help="test only this agent's stages")
    _settings(command)


def _providers(commands: Commands[argparse.ArgumentParser]) -> None:
    command = _add(
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
    _config(command)


def _keys(commands: Commands[argparse.ArgumentParser]) -> None:
    command = _add(commands, None, "keys", "make, list and revoke API keys")
    actions = command.add_subparsers(dest="action", metavar="ACTION", required=True)
    create = _add(actions, KeysOptions, "create", "make an API key and print it, only this once")
    create.add_argument("--project", metavar="NAME", help="the owner of the key's turns, sessions and tokens")
    create.add_argument("--name", metavar="TEXT", help="your name for the key")
    create.add_argument(
        "--scope",
        action="append",
        metavar="SCOPE",
        help=f"what it may do: {', '.join(KEY_DEFAULT)} (all of these without this option), operate (its project's "
        "dashboard, webhooks, deletions; reads turns too), operate_all (the same for all projects); may be repeated",
    )
    listing = _add(actions, KeysOptions, "list", "show all keys, without their secrets")
    revoke = _add(actions, KeysOptions, "revoke", "revoke an API key")
    revoke.add_argument("id", metavar="ID", help="the eight characters that `keys list` shows")
    rotate = _add(
        actions, KeysOptions, "rotate", "make a new secret that signs client secrets; issued client secrets stay valid"
    )
    remove = _add(
        actions, KeysOptions, "remove", "delete an older signing secret; client secrets that it signed become invalid"
    )
    remove.add_argument("id", metavar="KID", help="its name, as `keys rotate` prints it")
    for each in (create, listing, revoke, rotate, remove):
        _config(each)


def _token(commands: Commands[argparse.ArgumentParser]) -> None:
    command = _add(commands, TokenOptions, "token", "mint a client secret and print it")
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
    _config(command)


def _revoke(commands: Commands[argparse.ArgumentParser]) -> None:
    command = _add(commands, RevokeOptions, "revoke", "revoke client secrets, and end the sessions that they opened")
    command.add_argument("id", metavar="ID", nargs="?", help="the client secret's id, as `token` prints it")
    command.add_argument("--subject", metavar="NAME", help="all secrets issued to this user so far")
    command.add_argument("--project", metavar="NAME", help="their project")
    _config(command)


def _bench(commands: Commands[argparse.ArgumentParser]) -> None:
    command = _add(commands, None, "bench", "measure the latency of providers")
    actions = command.add_subparsers(dest="action", metavar="ACTION", required=True)
    llm = _add(
        actions,
        LlmBenchOptions,
        "llm",
        "send several LLMs the same questions, print the speed and the price of each",
    )
    llm.add_argument("specs", nargs="+", metavar="SPEC", help="the models, as provider/model")
    llm.add_argument(
        "--prompts",
        type=Path,
        metavar="FILE",
        help='your own questions: one on each line, or {"system": "...", "user": "..."}',
    )
    llm.add_argument(
        "--cache",
        choices=("cold", "warm", "both"),
        help="cold: each question is unique, so no provider has cached it; warm: each question was sent before",
    )
    llm.add_argument("--max-tokens", type=int, metavar="N", help="the most tokens of an answer")
    _repeated(llm, "llm")
    stt = _add(
        actions,
        SttBenchOptions,
        "stt",
        "play the same recordings to several STTs, print the speed and the accuracy of each",
    )
    stt.add_argument("specs", nargs="+", metavar="SPEC", help="the STT models, as provider/model")
    stt.add_argument(
        "--manifest",
        type=Path,
        metavar="FILE",
        help='your recordings: {"path": "a.wav", "text": "what is said"} on each line, and speech_end_ms if known',
    )
    stt.add_argument("--language", metavar="TAG", help="the language, BCP-47; without it the STT model detects it")
    _repeated(stt, "stt")
    tts = _add(
        actions,
        TtsBenchOptions,
        "tts",
        "have several TTSs speak the same texts, print the speed and the steadiness of each",
    )
    tts.add_argument("specs", nargs="+", metavar="SPEC", help="the TTS models, as provider/model")
    tts.add_argument("--texts", type=Path, metavar="FILE", help="your own texts, one on each line")
    tts.add_argument(
        "--cached",
        action="store_true",
        help="measure each TTS a second time with its audio on disk (server.audio_cache_mb)",
    )
    tts.add_argument("--voice", metavar="NAME", help="the voice's name at its provider")
    tts.add_argument("--language", metavar="TAG", help="the language, BCP-47")
    _repeated(tts, "tts")
    _bench_load(actions)
    _bench_endpointing(actions)
    _bench_compare(actions)


def _bench_load(actions: Commands[argparse.ArgumentParser]) -> None:
    load = _add(
        actions,
        LoadBenchOptions,
        "load",
        "measure the latency and the cost of many sessions, and who is admitted, with fake providers",
    )
    load.add_argument(
        "--users",
        type=int,
        nargs="+",
        metavar="N",
        help="users in calls at once; several numbers are measured in turn, a row each",
    )
    load.add_argument(
        "--sound", type=Path, metavar="FILE", help="what users say: a few seconds of one voice, whose pauses are cut"
    )
    load.add_argument("--turns", type=int, metavar="N", help="turns of each user in a round")
    load.add_argument("--rounds", type=int, metavar="N", help="how often each server is measured")
    load.add_argument("--silence-ms", type=int, metavar="MS", help="the silence that ends a turn")
    load.add_argument(
        "--server",
        nargs="+",
        metavar="NAME",
        help="voicepipe, defaults (settings as shipped: soft start), no-speculation; several are measured in turn",
    )
    load.add_argument(
        "--profile", action="store_true", help="also print the functions with the most CPU of the event loop's thread"
    )
    load.add_argument("--pin", action="store_true", help="servers on the first core, all else on the second (Linux)")
    load.add_argument(
        "--admission", type=int, metavar="N", help="offer N users to one server, then flood it while a few talk; 0: not"
    )
    load.add_argument("--flooded", type=int, metavar="N", help="the users under the flood")
    load.add_argument("--target", metavar="URL", help="measure this running server; its key in $VOICEPIPE_KEY")
    load.add_argument("--pid", type=int, metavar="PID", help="the target's process, for CPU and memory")
    load.add_argument("--label", metavar="NAME", help="what the table calls the target")
    load.add_argument("--providers-port", type=int, metavar="PORT", help="run the fake providers there for the target")
    load.add_argument("--out", type=Path, metavar="FOLDER", help="store the rows there; a run again measures the rest")
    _config(load)


def _repeated(command: argparse.ArgumentParser, stage: str) -> None:
    command.add_argument("--n", type=int, metavar="N", help="answers of each model")
    command.add_argument("--concurrency", type=int, metavar="N", help="concurrent requests")
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
    router.add_argument(
        "--pool", action="append", metavar="NAME", help="only this pool, from the settings or built in; may be repeated"
    )
    router.add_argument("--policy", action="append", metavar="POLICY", help="only this policy; may be repeated")
    router.add_argument("--turns", type=int, metavar="N", help="number of simulated turns")
    router.add_argument("--seed", type=int, metavar="N", help="seed of the drawn latencies")
    router.add_argument(
        "--latencies",
        type=Path,
        metavar="FILE",
        help="recorded latencies in place of drawn ones: a CSV with model, ttft_ms, as bench llm writes it",
    )
    router.add_argument(
        "--slower", type=float, metavar="FACTOR", help="all models are this many times slower than published"
    )
    router.add_argument(
        "--cached-factor",
        type=float,
        metavar="FACTOR",
        help="factor of the time to the first token of a model that has read the session: 0.8 is a fifth sooner",
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
    command.add_argument("--call-s", type=float, metavar="S", help="mean length of a call, in seconds")
    command.add_argument("--speech-ms", type=int, metavar="MS", help="what a user says in a turn")
    command.add_argument("--answer-ms", type=int, metavar="MS", help="an answer's audio")
    command.add_argument("--pause-ms", type=int, metavar="MS", help="from an answer to the user's next word")
    command.add_argument("--silence-ms", type=int, metavar="MS", help="the silence that ends a turn")
    command.add_argument("--stt-ms", type=int, metavar="MS", help="the STT's time to its text")
    command.add_argument("--llm-ms", type=int, metavar="MS", help="the LLM's time to its first token")
    command.add_argument("--tts-ms", type=int, metavar="MS", help="the TTS's time to its first audio")
    command.add_argument(
        "--spread",
        type=float,
        metavar="X",
        help="how much these times vary, the standard deviation of their logarithm: 0 not at all, 0.5 much",
    )
    command.add_argument("--failures", type=float, metavar="SHARE", help="share of LLM requests that fail")
    command.add_argument("--lost-nodes", type=int, metavar="N", help="nodes that die at once")
    command.add_argument("--cores", type=int, metavar="N", help="cores of a node, each with a worker")
    command.add_argument(
        "--balance", choices=("random", "least"), help="the worker of a call: any, or the one with the fewest sessions"
    )
    command.add_argument("--refused", type=float, metavar="SHARE", help="the most calls that may be refused")
    command.add_argument(
        "--costs", type=Path, metavar="FILE", help="the CPU costs of your machine, as you measured them"
    )
    command.add_argument("--seed", type=int, metavar="N", help="seed of the random draws")
    command.add_argument("--csv", type=Path, metavar="FILE", help="also write the table to this file")
    _config(command)


def _replay(commands: Commands[argparse.ArgumentParser]) -> None:
    command = _add(
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
    _config(command)


def _bench_endpointing(actions: Commands[argparse.ArgumentParser]) -> None:
    command = _add(
        actions,
        EndpointingBenchOptions,
        "endpointing",
        "measure the turn latency of end-of-turn rules on labelled speech, and how often they answer too soon",
    )
    command.add_argument("data", nargs="+", type=Path, metavar="FOLDER", help="labelled speech, with manifest.jsonl")
    command.add_argument(
        "--rule",
        action="append",
        metavar="RULE",
        help="only this rule: NAME or NAME:SILENCE_MS of an end-of-turn strategy, without a silence as sessions of the "
        "agent `default` use it; may be repeated",
    )
    command.add_argument(
        "--smart-turn",
        type=Path,
        metavar="FILE",
        help="also compare smart-turn: its ONNX file from the wheel of `pipecat-ai`; needs onnxruntime",
    )
    command.add_argument(
        "--traces",
        type=Path,
        metavar="FILE",
        help="add the measured pauses to this file, and do not measure them again",
    )
    command.add_argument("--without-words", action="store_true", help="transcribe nothing")
    command.add_argument("--without-sentence-end", action="store_true", help="do not run the local language model")
    command.add_argument(
        "--out", type=Path, metavar="FOLDER", help="write endpointing.md, endpointing.csv and endpointing.svg there"
    )
    _config(command)


def _bench_compare(actions: Commands[argparse.ArgumentParser]) -> None:
    command = _add(actions, CompareOptions, "compare", "fail if users wait longer in the second run than in the first")
    command.add_argument(
        "files", nargs=2, type=Path, metavar="RUN", help="before and after: journals, exported turns, a bench's CSV"
    )
    command.add_argument("--p95-ms", type=float, metavar="MS", help="the most growth of the 95th percentile")
    command.add_argument("--misses", type=float, metavar="SHARE", help="the most growth of late turns' share")
    command.add_argument("--min-turns", type=int, metavar="N", help="the fewest turns of each run; without it 72")
    _config(command)


def _add(
    commands: Commands[argparse.ArgumentParser], kind: type[Options] | None, name: str, does: str
) -> argparse.ArgumentParser:
    command = commands.add_parser(
        name,
        help=does,
        description=f"{does[0].upper()}{does[1:]}.",
        argument_default=argparse.SUPPRESS,
        formatter_class=partial(_Help, kind=kind or Options),
    )
    if kind is not None:  # else its actions have options
        command.set_defaults(**{_KIND: kind})
    return command


def _python_file(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "file", nargs="?", type=Path, default=None, metavar="FILE.py", help="a Python file with agents"
    )


def _settings(command: argparse.ArgumentParser, *, scripted: bool = True) -> None:
    command.add_argument("--stt", metavar="SPEC", help="the STT of agents that name no other, as provider/model")
    command.add_argument(
        "--llm",
        metavar="SPEC",
        help="the LLM of agents that name no other: provider/model, a GGUF file"
        + ", or a script, scripted/FILE.yaml" * scripted,
    )
    command.add_argument("--tts", metavar="SPEC", help="the TTS of agents that name no other, as provider/model")
    _config(command)


def _config(command: argparse.ArgumentParser) -> None:
    command.add_argument("--config", metavar="FILE", help="the settings file")
    command.add_argument("--data-dir", metavar="FOLDER", help="the folder for everything written at run time")
    command.add_argument(
        "--set", action="append", metavar="KEY=VALUE", help="any other setting by its dotted name; may be repeated"
    )
