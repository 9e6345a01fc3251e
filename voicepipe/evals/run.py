"""Run a scenario once: connect, act, fetch the turns' records, and judge."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from voicepipe.audio.samples import Samples
from voicepipe.client import RATE_HZ, CallFailed, closed_turn
from voicepipe.client.microphone import FRAME_MS
from voicepipe.errors import StageError
from voicepipe.evals.connection import open_connection
from voicepipe.evals.conversation import AgentReply, ObservedConversation, agent_audio, joined
from voicepipe.evals.expectations import Seen, SeenCall, loops, unmet
from voicepipe.evals.persona import NamedModel, Persona, judged
from voicepipe.evals.scenario import Expect, Part, Scenario, texts
from voicepipe.evals.speech import StepSpeech, UserSpeech
from voicepipe.evals.user import RecordSpeech, Report, ScriptedUser, StepRun, read_arguments
from voicepipe.tasks import background_tasks
from voicepipe.turn.record.values import TurnRecord

RECORD_LATE_MS = 5_000
"""How long after the end of its audio a turn's record may take to become available."""

_OUTCOMES = {"completed": "completed", "cancelled": "interrupted", "failed": "failed", "incomplete": "completed"}
"""Status of a response -> outcome, for servers that keep no record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The server, and the parts of the eval."""

    url: str
    key: str | None
    speech: UserSpeech
    record_speech: RecordSpeech
    persona: NamedModel | None = None
    judge: NamedModel | None = None


@dataclass(frozen=True, slots=True)
class StepResult:
    """The result of a step."""

    title: str
    agent_text: str
    transcript: str
    latencies_ms: tuple[int, ...]
    failures: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunResult:
    """The result of one run of a scenario."""

    steps: tuple[StepResult, ...]
    failures: tuple[str, ...]
    """Expectations of the whole conversation that were not met, and why the run could not be carried out."""

    audio: Samples
    """The user on the left, the agent on the right: int16, (n_samples, 2), 24 kHz."""

    notes: tuple[str, ...] = ()
    """The server's error events."""

    @property
    def passed(self) -> bool:
        """Return whether every expectation was met."""
        return not self.failures and not any(step.failures for step in self.steps)

    @property
    def latencies_ms(self) -> list[int]:
        """Return the latencies of all answers that were audible."""
        return [ms for step in self.steps for ms in step.latencies_ms]


async def run_scenario(scenario: Scenario, target: Target, report: Report) -> RunResult:
    """Run a scenario once. A server that refuses or breaks makes the run fail; it raises nothing for that.

    Raises:
        ConfigError: a recording or the user's TTS does not work.
        ServerUnreachable: no server answers.
    """
    utterances = await utterances_of(scenario, target.speech)
    persona = None if target.persona is None else Persona(target.persona, _speaker(scenario, target.speech))
    user: ScriptedUser | None = None
    records, problem = dict[str, TurnRecord](), ""
    try:
        async with open_connection(target.url, target.key, scenario) as connection, background_tasks() as tasks:
            user = ScriptedUser(
                scenario,
                connection,
                utterances=utterances,
                record_speech=target.record_speech,
                persona=persona,
                tasks=tasks,
            )
            tasks.start(user.microphone.run(connection.send, user.tick), name="microphone")
            tasks.start(user.listen(), name="events")
            await user.act(report)
            if not scenario.steps[-1].hang_up:
                records = await _records(user.conversation.replies, target)
        if scenario.steps[-1].hang_up:
            records = await _records(user.conversation.replies, target)
    except StageError as failure:
        problem = f"persona: {failure}"
    except CallFailed as failure:
        if user is None:
            raise
        problem = str(failure)
    assert user is not None
    return await _judge(scenario, user, records, target.judge, problem)


async def utterances_of(scenario: Scenario, speech: UserSpeech) -> dict[int, StepSpeech]:
    """Return what the user says, by step.

    Raises:
        ConfigError: a recording or the user's TTS does not work.
    """
    folder, user = scenario.path.parent, scenario.user
    return {
        n: await speech.utterance(step.parts, folder, user.tts, user.voice)
        for n, step in enumerate(scenario.steps)
        if step.parts
    }


def _speaker(scenario: Scenario, speech: UserSpeech) -> Callable[[str], Awaitable[StepSpeech]]:
    user = scenario.user

    async def speak(words: str) -> StepSpeech:
        return await speech.utterance((Part(text=words),), scenario.path.parent, user.tts, user.voice)

    return speak


async def _records(replies: Sequence[AgentReply], target: Target) -> dict[str, TurnRecord]:
    """Return the turns' records by id, without those that the server does not have or does not give to this key."""
    found = dict[str, TurnRecord]()
    for turn_id in dict.fromkeys(reply.turn_id for reply in replies if reply.turn_id):
        try:
            record = await closed_turn(target.url, turn_id, key=target.key, timeout_ms=RECORD_LATE_MS)
        except CallFailed:
            return found
        if record is not None:
            found[turn_id] = record
    return found


# --- judging --------------------------------------------------------------------------------------


async def _judge(
    scenario: Scenario, user: ScriptedUser, records: dict[str, TurnRecord], judge: NamedModel | None, problem: str
) -> RunResult:
    conversation, results, all_seen = user.conversation, list[StepResult](), list[Seen]()
    ends = [(run.first_reply, run.first_transcript) for run in user.steps[1:]]
    ends.append((len(conversation.replies), len(conversation.transcripts)))
    dialogue = list[str]()
    for run, (last_reply, last_transcript) in zip(user.steps, ends, strict=True):
        replies = conversation.replies[run.first_reply : last_reply]
        transcript = " ".join(conversation.transcripts[run.first_transcript : last_transcript])
        seen = _seen(run, replies, transcript, records, conversation.replies[last_reply:])
        title = " / ".join(run.spoken) or run.step.title
        dialogue += [f"User: {title}", f"Assistant: {seen.text}"]
        failures = [run.problem] if run.problem else []
        failures += _failed(run, replies)
        failures += await _unmet(run.step.expect, seen, "\n".join(dialogue), judge)
        if failures:
            failures = [*loops(seen.calls), *failures]
        all_seen.append(seen)
        latencies_ms = tuple(ms for ms in seen.latencies_ms if ms is not None)
        results.append(StepResult(title, seen.text, seen.transcript, latencies_ms, tuple(failures)))
    whole = _whole(all_seen)
    failures = [problem] if problem else []
    failures += await _unmet(scenario.expect, whole, "\n".join(dialogue), judge)
    n_left = len(scenario.steps) - len(user.steps)
    if n_left and not problem:
        failures.append(f"expected {len(scenario.steps)} steps, got the last {n_left} not carried out")
    return RunResult(tuple(results), tuple(failures), _audio(user, conversation), tuple(conversation.errors))


def _failed(run: StepRun, replies: Sequence[AgentReply]) -> list[str]:
    """Return why answers failed, unless that is expected."""
    if run.step.expect is not None and run.step.expect.outcome == "failed":
        return []
    ended = [reply.ended for reply in replies if reply.ended is not None]
    return [f"the answer failed: {each.why or 'without a reason'}" for each in ended if each.status == "failed"]


def _seen(
    run: StepRun,
    replies: Sequence[AgentReply],
    transcript: str,
    records: dict[str, TurnRecord],
    later: Sequence[AgentReply],
) -> Seen:
    """Return the facts about a step, from its replies and from those of the later steps."""
    resumed = {reply.turn_id for reply in later}
    own = [reply for reply in replies if not reply.apologises]
    turns = list(dict.fromkeys(reply.turn_id for reply in own if reply.turn_id in records))
    calls = [SeenCall(call.name, read_arguments(call.arguments)) for reply in own for call in reply.calls]
    calls += [SeenCall(tool.name, None) for turn in turns for tool in records[turn].tools if tool.ran_by != "client"]
    outcome: str | None = None
    if own:
        last = own[-1]
        status = last.ended.status if last.ended is not None else "cancelled"
        known = last.turn_id in records and not _taken_back(last, resumed)
        outcome = records[last.turn_id].outcome if known else _OUTCOMES[status]
    return Seen(
        text=" ".join(text for reply in own if (text := _spoken(reply, records, resumed).strip())),
        transcript=transcript.strip(),
        calls=tuple(calls),
        outcome=outcome,
        latencies_ms=tuple(_latencies_ms(run, replies)),
        answers=sum(reply.audible_ms is not None for reply in own),
    )


def _taken_back(reply: AgentReply, resumed: set[str]) -> bool:
    """Return whether the user resumed the turn while this reply was played: its record is of the next reply."""
    return reply.turn_id in resumed and reply.ended is not None and reply.ended.status == "cancelled"


def _spoken(reply: AgentReply, records: dict[str, TurnRecord], resumed: set[str]) -> str:
    """Return what the user heard of a reply, where its record or the user's voice shows it."""
    if _taken_back(reply, resumed):
        return reply.played_text()
    record = records.get(reply.turn_id)
    cut = record is not None and record.outcome == "interrupted" and bool(record.agent_text)
    return record.played_text if record is not None and cut else reply.text


def _latencies_ms(run: StepRun, replies: Sequence[AgentReply]) -> Iterator[int | None]:
    """Yield for each turn the time from the user's last voiced sample to the first audible one behind it, on the user's
    clock.
    """
    ends = [*(n_before for _, n_before in run.turns[1:]), run.first_reply + len(replies)]
    for (spoken_ms, n_before), end in zip(run.turns, ends, strict=False):  # without a turn there is no end
        audible = [
            reply.audible_ms - spoken_ms
            for reply in replies[n_before - run.first_reply : end - run.first_reply]
            if not reply.apologises and reply.audible_ms is not None and reply.audible_ms > spoken_ms
        ]
        yield min(audible, default=None)


def _whole(seen: Sequence[Seen]) -> Seen:
    return Seen(
        text=" ".join(each.text for each in seen if each.text),
        transcript=" ".join(each.transcript for each in seen if each.transcript),
        calls=tuple(call for each in seen for call in each.calls),
        outcome=next((each.outcome for each in reversed(seen) if each.outcome), None),
        latencies_ms=tuple(ms for each in seen for ms in each.latencies_ms),
        answers=sum(each.answers for each in seen),
    )


async def _unmet(expect: Expect | None, seen: Seen, dialogue: str, judge: NamedModel | None) -> list[str]:
    if expect is None:
        return []
    failures = list(unmet(expect, seen))
    for statement in texts(expect.judge):
        assert judge is not None
        why = await judged(judge, dialogue, statement)
        failures += [f"judge: expected {statement!r}, got: {why}"] if why else []
    return failures


def _audio(user: ScriptedUser, conversation: ObservedConversation) -> Samples:
    # What was captured while the records were fetched is no part of the conversation, and its length is luck.
    own = joined(user.microphone.captured[: user.acted_until_ms // FRAME_MS])
    agent = agent_audio(conversation.replies, len(own) * 1_000 // RATE_HZ)
    tracks: Samples = np.stack((own[: len(agent)], agent), axis=1)
    return tracks
