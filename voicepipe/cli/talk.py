"""`voicepipe talk`: run one turn with a recording and print where its time went, or converse by microphone."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from pathlib import Path
from typing import Final

from rich.console import Console

from voicepipe.audio.files import UnreadableSound, read_sound, write_wav
from voicepipe.audio.samples import Samples, to_pcm
from voicepipe.cli.live_call import converse
from voicepipe.cli.local_server import reachable_server
from voicepipe.cli.options import KEY_VARIABLE, TalkOptions
from voicepipe.cli.scripted_llm import names_a_script, scripted_llm
from voicepipe.cli.sound_device import open_devices
from voicepipe.cli.turn_chart import TurnChart
from voicepipe.client import RATE_HZ, Answer, CallFailed, CallRefused, SessionOptions, closed_turn, connect
from voicepipe.errors import ConfigError
from voicepipe.telemetry.waterfall import waterfall
from voicepipe.turn.record.values import TurnRecord

RECORD_LATE_MS: Final = 5_000
"""How long after the end of its audio a turn's record may take to become available."""


def run(options: TalkOptions) -> int:
    """Send the recording or the microphone to a server; 0 when the server answered.

    Raises:
        ConfigError: the recording can't be read, there is no microphone, or a setting is wrong.
        CallFailed: no server, no answer, or a refusal.
    """
    out, err = Console(highlight=False), Console(stderr=True, highlight=False)
    if options.url is not None and names_a_script(options.llm):
        raise ConfigError(f"--url: expected no script, since that server has its own LLM; got {options.llm}")
    with scripted_llm(options, lambda line: err.print(line, markup=False, soft_wrap=True)) as talk_options:
        talk = _converse if talk_options.type is None and talk_options.sound is None else _talk
        try:
            return asyncio.run(talk(talk_options, out, err))
        except CallRefused as why:
            if why.status != 401 or talk_options.credential is not None:
                raise
            text = f"{why.why} This server needs a key: give one with --key, or in ${KEY_VARIABLE}."
            raise CallRefused(why.status, text, code=why.code) from None


async def _converse(options: TalkOptions, out: Console, err: Console) -> int:
    for option, is_set in (("--out", options.out is not None), ("--play", options.play)):
        if is_set:
            raise ConfigError(f"{option}: expected a recording, got none: the microphone's answers are played anyway")
    if options.turns is not None and options.turns < 1:
        raise ConfigError(f"--turns: expected 1 or more, got {options.turns}")
    session_options = SessionOptions(text_only=options.text)

    def report(answer: Answer) -> None:
        print_answer(answer, out)
        _status(answer, err)
        out.print()

    with open_devices(microphone=True) as devices:
        async with (
            reachable_server(options, lambda line: err.print(line, style="dim", markup=False)) as url,
            connect(url, key=options.credential, agent=options.agent, session_options=session_options) as call,
        ):
            err.print(
                "speak; Ctrl-C ends the conversation (with a headset, the agent does not hear itself)", style="dim"
            )
            await converse(call, devices, report, text_only=options.text, turns=options.turns)
    return 0


async def _talk(options: TalkOptions, out: Console, err: Console) -> int:
    question = await asyncio.to_thread(_question, options)
    with open_devices(microphone=False) if options.play else nullcontext() as devices:
        async with reachable_server(options, lambda line: err.print(line, style="dim", markup=False)) as url:
            answer, record, agent = await _one_turn(options, question, url, err)
        print_answer(answer, out, typed=options.type or "")
        await asyncio.to_thread(_write_audio, options, answer, out)
        if devices is not None and len(answer.samples):
            devices.play(to_pcm(answer.samples))
            await devices.played()
    if record is not None:
        out.print()
        out.print(TurnChart(waterfall(record), agent))
    return _status(answer, err)


def _question(options: TalkOptions) -> Samples | str:
    """Return the recording, or what is typed.

    Raises:
        ConfigError: there are both, or neither; or the file of an option is of no use.
    """
    if options.out is not None and not options.out.absolute().parent.is_dir():
        raise ConfigError(f"--out: expected a file in a folder that is there, got {options.out}")
    if options.type is None:
        assert options.sound is not None
        return _read(options.sound)
    if options.sound is not None:
        raise ConfigError(f"--type: expected no recording beside a typed question, got {options.sound}")
    if not options.type.strip():
        raise ConfigError("--type: expected a question, got an empty text")
    return options.type


def _read(path: Path) -> Samples:
    try:
        sound = read_sound(path, RATE_HZ)
    except UnreadableSound as why:
        raise ConfigError(f"expected a sound file (wav, flac, ogg, mp3), got {why}") from why
    if not len(sound):
        raise ConfigError(f"expected a recording with sound in it, got an empty one: {path}")
    return sound


async def _one_turn(
    options: TalkOptions, question: Samples | str, url: str, err: Console
) -> tuple[Answer, TurnRecord | None, str]:
    """Return the answer, its record if there is one, and the name of the agent."""
    session_options, key = SessionOptions(text_only=options.text), options.credential
    async with connect(url, key=key, agent=options.agent, session_options=session_options) as call:
        if isinstance(question, str):
            with err.status("listening"):
                answer = await call.text_turn(question)
        else:
            with err.status(f"speaking for {len(question) / RATE_HZ:.1f} s, then listening"):
                answer = await call.turn(question)
        if not answer.turn_id:
            return answer, None, call.model
        with err.status("the answer plays"):
            return answer, await _record(url, answer, key, err), call.model


async def _record(url: str, answer: Answer, key: str | None, err: Console) -> TurnRecord | None:
    """Return the turn's record, which is closed when the answer has been played; a missing record is not an error."""
    try:
        timeout_ms = answer.duration_ms + RECORD_LATE_MS
        record = await closed_turn(url, answer.turn_id, key=key, timeout_ms=timeout_ms)
    except CallFailed as why:
        err.print(f"no waterfall: {why}", markup=False)
        return None
    if record is None:
        err.print(f"no waterfall: the server has no record of {answer.turn_id}", markup=False)
    return record


def print_answer(answer: Answer, out: Console, *, typed: str = "") -> None:
    """Print both sides' text, the called functions, and the latency as measured here. An answer to no question is a
    greeting.
    """
    if answer.other_text:
        out.print(f"agent  {answer.other_text}", markup=False)
    if answer.t0_ms is not None:
        out.print(f"you    {typed or answer.user_text or '(nothing understood)'}", markup=False)
    if answer.preamble:
        out.print(f"agent  {answer.preamble}", markup=False)
    for call in answer.calls:
        by = "the server's" if call.by_server else "the client's"
        out.print(f"calls  {call.name}({call.arguments}), {by}", markup=False, soft_wrap=True)
    out.print(f"agent  {answer.agent_text or answer.apology or '(nothing said)'}", markup=False)
    if answer.status in ("incomplete", "cancelled"):
        out.print(f"(cut short: {answer.why})", markup=False)
    if answer.earlier:
        out.print(f"(answer {answer.earlier + 1}: the agent started one after each of your pauses)", markup=False)
    if answer.latency_ms is None:
        return
    since = "message" if typed else "last voiced sample"
    first = f"{answer.first_audio_ms} ms to the first sound, " if answer.first_audio_ms != answer.latency_ms else ""
    out.print(f"\n{first}{answer.latency_ms} ms from your {since} to the answer, measured here")


def _write_audio(options: TalkOptions, answer: Answer, out: Console) -> None:
    if options.out is None or not len(answer.samples):
        return
    try:
        write_wav(options.out, answer.samples, RATE_HZ)
    except OSError as why:
        raise ConfigError(f"--out: expected a file that can be written, got {options.out}: {why.strerror}") from why
    out.print(f"{answer.duration_ms / 1_000:.1f} s of sound written to {options.out}", markup=False)


def _status(answer: Answer, err: Console) -> int:
    if answer.status == "failed":
        err.print(f"voicepipe: the answer failed: {answer.why or 'without a reason'}", markup=False)
        return 1
    if not answer.agent_text and not len(answer.samples):
        err.print("voicepipe: the answer is empty", markup=False)
        return 1
    return 0
