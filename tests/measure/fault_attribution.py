"""Check that delays are attributed to their cause: plant one at each stage of a turn, and compare the turn's record.

`python -m tests.measure.fault_attribution --recording FILE` starts a server with providers that answer at once, calls
it, and sends the recording, once as it is and once with each delay: a late STT, LLM or TTS, also as a stand-in for one
that fails, or as one that hangs before its stand-in answers, a longer silence, a client that buffers, a server that is
stopped (SIGSTOP) while an answer is on its way. The budget is the one that is shipped. It prints the planted delays and
the records' attribution, and ends with 1 if one record names another component.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.measure.fault_attribution_provider import CALL_ID, DelayedProvider, Delays, StageName
from voicepipe.audio.files import read_sound
from voicepipe.audio.samples import Samples
from voicepipe.bench.load.processes import started
from voicepipe.client import RATE_HZ, Call, closed_turn, connect, until_ready
from voicepipe.client.events import ReplyEnded
from voicepipe.config.agents import AgentSettings
from voicepipe.errors import VoicepipeError
from voicepipe.telemetry.advice import setting_for
from voicepipe.turn.record.values import TurnRecord
from voicepipe.values import replace

DELAY_MS: Final = 1_000
"""Default delay, longer than each limit of the budget. A model that writes slowly is cut short before it is over."""

SILENCE_MS: Final = AgentSettings().silence_ms

RECORD_LATE_MS: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectedDelay:
    """One delay, and its expected owner in the record. `{ms}` is its length."""

    what: str
    stage: str
    owner: str
    setting: str
    vendor: str = ""
    """The increased delay of the provider: a field of `Delays`."""

    per: int = 1
    """Number of repetitions that make up the whole delay."""

    agent: str = "default"
    buffer: bool = False
    """The client buffers audio for this long before it plays it."""

    hangs: bool = False
    """The first provider of a list sends nothing: the wait for it is the delay, and the one that answers is on time."""

    calls: bool = False
    """The LLM calls a function. It takes the client this long, unless a provider is late."""

    stopped_at: StageName | None = None
    """The server is stopped after a request to this provider; the answer comes meanwhile."""


STOPPED: Final[dict[StageName, str]] = {
    "stt": "the server is held for {ms} ms while the STT's text comes",
    "llm": "the server is held for {ms} ms while the LLM's first word comes",
    "tts": "the server is held for {ms} ms while the TTS's first sound comes",
}

INJECTED_DELAYS: Final = (
    InjectedDelay(
        what="the STT's text comes {ms} ms late",
        stage="endpoint",
        owner="bench/stt",
        setting="agents.default.stt",
        vendor="stt_ms",
    ),
    InjectedDelay(
        what="the agent waits for {ms} ms more of silence",
        stage="silence",
        owner="settings",
        setting="agents.patient.silence_ms",
        agent="patient",
    ),
    InjectedDelay(
        what="the LLM's first word comes {ms} ms late",
        stage="llm_ttft",
        owner="bench/llm",
        setting="agents.default.llm",
        vendor="llm_ms",
    ),
    InjectedDelay(
        what="the LLM takes {ms} ms to write its first sentence",
        stage="first_clause",
        owner="bench/llm",
        setting="agents.plain.instructions",
        vendor="token_ms",
        per=7,
        agent="plain",
    ),
    InjectedDelay(
        what="the TTS's first sound comes {ms} ms late",
        stage="tts_ttfb",
        owner="bench/tts",
        setting="agents.default.tts",
        vendor="tts_ms",
    ),
    InjectedDelay(
        what="the client keeps sound for {ms} ms before it plays it",
        stage="playback",
        owner="client",
        setting="the client's own buffer",
        buffer=True,
    ),
    InjectedDelay(
        what="the LLM that stands in for one that fails is {ms} ms late",
        stage="llm_ttft",
        owner="bench/llm",
        setting="agents.second_llm.llm",
        vendor="llm_ms",
        agent="second_llm",
    ),
    InjectedDelay(
        what="the TTS that stands in for one that fails is {ms} ms late",
        stage="tts_ttfb",
        owner="bench/tts",
        setting="agents.second_tts.tts",
        vendor="tts_ms",
        agent="second_tts",
    ),
    *(
        InjectedDelay(
            what=f"the first {stage_name.upper()} of two hangs until the second takes over",
            stage=stage,
            owner=f"hanging/{stage_name}",
            setting=f"agents.hanging_{stage_name}.{stage_name}",
            agent=f"hanging_{stage_name}",
            hangs=True,
        )
        for stage_name, stage in (("stt", "endpoint"), ("llm", "llm_ttft"), ("tts", "tts_ttfb"))
    ),
    InjectedDelay(
        what="the client takes {ms} ms to run the tool",
        stage="tool",
        owner="client",
        setting="",
        calls=True,
    ),
    InjectedDelay(
        what="the LLM is {ms} ms late behind a tool",
        stage="llm_ttft",
        owner="bench/llm",
        setting="agents.default.llm",
        vendor="llm_ms",
        calls=True,
    ),
    *(
        InjectedDelay(what=what, stage="overhead", owner="server", setting="", stopped_at=stage_name)
        for stage_name, what in STOPPED.items()
    ),
)


@dataclass(frozen=True, slots=True)
class Finding:
    """The records' attribution of one planted delay: the most frequent breach, and medians."""

    injected: InjectedDelay
    stage: str
    owner: str
    setting: str
    later_ms: int
    """The growth of that stage."""

    total_later_ms: int
    """The growth of the turn latency."""

    n_wrong: int
    """Number of records that name another stage, owner or remedy."""

    n: int = 1
    """Number of records."""


class DelayInjector:
    """Calls one server, with a chosen delay."""

    def __init__(self, vendor: DelayedProvider, url: str, pid: int, recording: Samples, *, delay_ms: int) -> None:
        self._vendor, self._url, self._pid, self._recording = vendor, url, pid, recording
        self._delay_ms = delay_ms

    async def record(self, injected: InjectedDelay | None, agent: str = "default") -> TurnRecord:
        """Return the record of one turn, of this agent unless the delay names one."""
        self._vendor.delays = Delays()
        if injected is not None and injected.vendor:
            more_ms = getattr(Delays(), injected.vendor) + self._delay_ms // injected.per
            self._vendor.delays = replace(Delays(), **{injected.vendor: more_ms})
        self._vendor.calls = injected is not None and injected.calls
        self._vendor.hangs = injected is not None and injected.hangs
        agent = injected.agent if injected else agent
        buffer_ms = self._delay_ms if injected is not None and injected.buffer else 0
        async with connect(self._url, agent=agent, buffer_ms=buffer_ms) as call, asyncio.TaskGroup() as group:
            self._vendor.on_request = self._stopping(injected, group)
            answer = await call.turn(self._recording)
            if injected is not None and injected.calls:
                await self._run_tool(call, 0 if injected.vendor else self._delay_ms)
            record = await closed_turn(self._url, answer.turn_id, timeout_ms=RECORD_LATE_MS)
        if record is None:
            raise RuntimeError(f"expected the record of {answer.turn_id}, got none")
        return record

    async def _run_tool(self, call: Call, tool_ms: int) -> None:
        """Send the function's result after this time, and hear the answer to it."""
        await asyncio.sleep(tool_ms / 1_000)
        await call.return_result(CALL_ID, "It is noon.")
        await call.respond()
        async for event in call:
            if isinstance(event, ReplyEnded):
                return

    def _stopping(self, injected: InjectedDelay | None, group: asyncio.TaskGroup) -> Callable[[StageName], None]:
        def on_request(stage: StageName) -> None:
            if injected is not None and stage == injected.stopped_at:
                self._vendor.on_request = lambda stage: None  # once
                os.kill(self._pid, signal.SIGSTOP)
                group.create_task(self._go_on(), name="go-on")

        return on_request

    async def _go_on(self) -> None:
        try:
            await asyncio.sleep(self._delay_ms / 1_000)
        finally:
            os.kill(self._pid, signal.SIGCONT)


async def run(
    recording: Samples,
    injected_delays: Sequence[InjectedDelay],
    *,
    delay_ms: int,
    rounds: int,
    say: Callable[[str], None],
) -> list[Finding]:
    """Start the server, plant each delay, and return the findings.

    Raises:
        VoicepipeError: the connection to the server failed.
        RuntimeError: it did not start, or stores no records.
    """
    vendor = DelayedProvider(sound_ms=2 * delay_ms)  # audio still plays when a buffering client reports playback
    with tempfile.TemporaryDirectory() as folder:
        async with vendor.serving() as base_url, started(*_server(Path(folder), base_url, delay_ms)) as server:
            await until_ready(server.url, say)
            injector = DelayInjector(vendor, server.url, server.pid, recording, delay_ms=delay_ms)
            for agent in dict.fromkeys(injected.agent for injected in injected_delays):
                await injector.record(None, agent)  # the first turn opens every connection, and finds what fails
            usual = [await injector.record(None) for _ in range(rounds)]
            findings = []
            for injected in injected_delays:
                records = [await injector.record(injected) for _ in range(rounds)]
                findings.append(judge(injected, records, usual))
                for record in records:
                    if named(injected, record) != expected(injected):
                        say(f"wrong: {named(injected, record)} in {record.id}, with {dict(record.marks)}")
                say(f"{len(findings)} of {len(injected_delays)} planted")
            return findings


def _server(folder: Path, base_url: str, delay_ms: int) -> list[str]:
    second = "failing/{stage},bench/{stage}"
    hanging = {f"agents.hanging_{each}.{each}": f"hanging/{each},bench/{each}" for each in ("stt", "tts")}
    agents = {f"agents.default.{stage}": f"bench/{stage}" for stage in ("stt", "llm", "tts")} | {
        "agents.plain.speculate": "false",  # or the first sentence is written while the user may still go on
        "agents.patient.silence_ms": SILENCE_MS + delay_ms,
        "agents.patient.end_of_turn": "silence",
        "agents.second_llm.llm": second.format(stage="llm"),
        "agents.second_tts.tts": second.format(stage="tts"),
    }
    settings = {
        "server.port": 0,
        "server.workers": 1,
        "server.data_dir": folder / "data",
        "server.drain_ms": 0,
        "server.audio_cache_mb": 0,
        "providers.bench.base_url": base_url,
        "providers.failing.base_url": base_url.replace("/v1", "/failing/v1"),
        "providers.hanging.base_url": base_url.replace("/v1", "/hanging/v1"),
        # Else the second is started in time to answer within the limit.
        "pools.hanging.models": "hanging/llm,bench/llm",
        "pools.hanging.policy": "fallback",
        "pools.hanging.fallback_after_ms": delay_ms,
        "agents.hanging_llm.llm": "pool/hanging",
        **hanging,
        **agents,
    }
    return ["voicepipe", "serve", *(word for key, value in settings.items() for word in ("--set", f"{key}={value}"))]


def named(injected: InjectedDelay, record: TurnRecord) -> tuple[str, str, str]:
    """Return (stage, owner, setting) as the record has them; empty texts: it names none."""
    breach = record.breach
    return (breach.stage, breach.owner, setting_for(breach.depends_on, injected.agent)) if breach else ("", "", "")


def expected(injected: InjectedDelay) -> tuple[str, str, str]:
    """Return what a record of this delay is to name."""
    return injected.stage, injected.owner, injected.setting


def judge(injected: InjectedDelay, records: Sequence[TurnRecord], usual: Sequence[TurnRecord]) -> Finding:
    """Compare these records with those without the delay."""
    found = [named(injected, record) for record in records]
    n_wrong = sum(each != expected(injected) for each in found)
    breach = statistics.mode(found)
    later_ms = _median_ms(records, breach[0]) - _median_ms(usual, breach[0])
    total_later_ms = _median_ms(records, "total") - _median_ms(usual, "total")
    return Finding(injected, *breach, later_ms, total_later_ms, n_wrong, len(records))


def _median_ms(records: Sequence[TurnRecord], stage: str) -> int:
    if stage == "total":
        return round(statistics.median(record.total_ms or 0 for record in records))
    found = (sum(span.duration_ms for span in record.stages if span.stage == stage) for record in records)
    return round(statistics.median(found))


def report(findings: Sequence[Finding], delay_ms: int) -> Iterator[str]:
    """Yield the table in Markdown, line by line."""
    yield "| planted | added latency | recorded | stage | owner | what would move it | |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for each in findings:
        what = each.injected.what.format(ms=delay_ms)
        setting = f"`{each.setting}`" if each.setting else "-"
        names = f"`{each.stage}` | {each.owner} | {setting}" if each.stage else "nothing | - | -"
        right = f"**{each.n_wrong} wrong of {each.n}**" if each.n_wrong else f"right, {each.n} of {each.n}"
        yield f"| {what} | {each.total_later_ms} ms | {each.later_ms} ms | {names} | {right} |"
    yield ""
    yield f"{sum(each.n_wrong for each in findings)} wrong of {sum(each.n for each in findings)}."


def say(line: str) -> None:
    """Print a line of progress now."""
    sys.stderr.write(f"{line}\n")


def main(arguments: list[str] | None = None) -> int:
    """Print the table; 1 when a delay was attributed wrongly, 2 when the server does not start."""
    parser = argparse.ArgumentParser(prog="python -m tests.measure.fault_attribution", description=__doc__)
    parser.add_argument("--recording", type=Path, required=True, help="what the user says")
    parser.add_argument("--delay-ms", type=int, default=DELAY_MS, help=f"how long each delay is ({DELAY_MS})")
    parser.add_argument("--rounds", type=int, default=5, help="turns for each (5)")
    options = parser.parse_args(arguments)
    try:
        recording = read_sound(options.recording, RATE_HZ)
        findings = asyncio.run(
            run(recording, INJECTED_DELAYS, delay_ms=options.delay_ms, rounds=options.rounds, say=say)
        )
    except (VoicepipeError, RuntimeError, OSError) as why:
        sys.stderr.write(f"planted: {why}\n")
        return 2
    sys.stdout.write("".join(f"{line}\n" for line in report(findings, options.delay_ms)))
    return 1 if any(each.n_wrong for each in findings) else 0


if __name__ == "__main__":
    sys.exit(main())
