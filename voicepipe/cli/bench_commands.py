"""Parse the commands that measure and simulate: `bench` and `simulate`."""

from __future__ import annotations

import argparse
from pathlib import Path

from voicepipe.cli.command_parser import Commands, add_command, add_config
from voicepipe.cli.options import (
    CapacityOptions,
    CompareOptions,
    EndpointingBenchOptions,
    LlmBenchOptions,
    LoadBenchOptions,
    ScheduleOptions,
    SimulateOptions,
    SttBenchOptions,
    TtsBenchOptions,
)


def add_bench(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add `bench` with its actions."""
    command = add_command(commands, None, "bench", "measure the latency of providers")
    actions = command.add_subparsers(dest="action", metavar="ACTION", required=True)
    llm = add_command(
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
    stt = add_command(
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
    tts = add_command(
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
    _bench_schedule(actions)


def _bench_load(actions: Commands[argparse.ArgumentParser]) -> None:
    load = add_command(
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
    add_config(load)


def _bench_endpointing(actions: Commands[argparse.ArgumentParser]) -> None:
    command = add_command(
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
        "agent `default` use it; with smart-turn's score as NAME+smart-turn; may be repeated",
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
    add_config(command)


def _bench_compare(actions: Commands[argparse.ArgumentParser]) -> None:
    command = add_command(
        actions, CompareOptions, "compare", "fail if users wait longer in the second run than in the first"
    )
    command.add_argument(
        "files", nargs=2, type=Path, metavar="RUN", help="before and after: journals, exported turns, a bench's CSV"
    )
    command.add_argument("--p95-ms", type=float, metavar="MS", help="the most growth of the 95th percentile")
    command.add_argument("--misses", type=float, metavar="SHARE", help="the most growth of late turns' share")
    command.add_argument("--min-turns", type=int, metavar="N", help="the fewest turns of each run; without it 72")
    add_config(command)


def _bench_schedule(actions: Commands[argparse.ArgumentParser]) -> None:
    command = add_command(
        actions,
        ScheduleOptions,
        "schedule",
        "measure the benches of the settings when they are due, within their cost limits, until Ctrl-C",
    )
    command.add_argument("--once", action="store_true", help="measure what is due now, and end: 1 if any has changed")
    command.add_argument("--list", action="store_true", help="show the results so far, and measure nothing")
    add_config(command)


def _repeated(command: argparse.ArgumentParser, stage: str) -> None:
    command.add_argument("--n", type=int, metavar="N", help="answers of each model")
    command.add_argument("--concurrency", type=int, metavar="N", help="concurrent requests")
    command.add_argument(
        "--out", type=Path, metavar="FOLDER", help=f"write {stage}.md, {stage}.csv and {stage}.svg there"
    )
    add_config(command)


def add_simulate(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add `simulate` with its actions."""
    command = add_command(commands, None, "simulate", "simulate what the settings would do")
    actions = command.add_subparsers(dest="action", metavar="ACTION", required=True)
    router = add_command(
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
    add_config(router)
    _simulate_capacity(actions)


def _simulate_capacity(actions: Commands[argparse.ArgumentParser]) -> None:
    command = add_command(
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
    add_config(command)
