"""The scripted user: runs a scenario's steps on an open connection, and answers tool calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from voicepipe.client import CallFailed
from voicepipe.client import events as e
from voicepipe.evals.connection import UserConnection
from voicepipe.evals.conversation import AgentReply, ObservedConversation
from voicepipe.evals.microphone import UserMicrophone
from voicepipe.evals.persona import Persona
from voicepipe.evals.scenario import Scenario, ScriptedTool, Step, Trigger
from voicepipe.evals.speech import StepSpeech
from voicepipe.tasks import BackgroundTasks

LAST_ANSWER_MS: Final = 400
"""Time after the user's last word after which a complete answer counts as the last one. A server needs some 100 ms to
detect that the user goes on speaking."""

MAX_ROUNDS: Final = 50
"""Replies to one step whose calls the user answers; with one more the step fails. An agent that calls again at each
result never ends its turn, and the server begins a new turn when the rounds of one are over."""

RecordSpeech = Callable[[StepSpeech, int], None]
"""Records an utterance and its start on the monotonic clock, for a scripted STT."""

Report = Callable[[str], None]
"""Gets progress lines."""


@dataclass(slots=True)
class StepRun:
    """The run of one step."""

    step: Step
    first_reply: int
    """Number of answers before it."""

    first_transcript: int
    turns: list[tuple[int, int]] = field(default_factory=list)
    """(position of the user's last voiced sample, or of the typed message; number of answers before), one for each
    turn; a persona takes several.
    """

    problem: str = ""
    """Why the step failed; empty: it did not."""

    spoken: list[str] = field(default_factory=list)
    """The texts that a persona said."""


class ScriptedUser:
    """One run of a scenario on one connection."""

    def __init__(
        self,
        scenario: Scenario,
        connection: UserConnection,
        *,
        utterances: Mapping[int, StepSpeech],
        record_speech: RecordSpeech,
        persona: Persona | None,
        tasks: BackgroundTasks,
    ) -> None:
        """`utterances`: number of a step -> its utterance."""
        self._scenario, self._connection = scenario, connection
        self._utterances, self._record_speech, self._persona, self._tasks = utterances, record_speech, persona, tasks
        self._changed = asyncio.Condition()
        self._closed = ""
        self._n_tools = 0
        """Responses whose tool results are due."""

        self._calls_on = False
        """Whether the agent has called functions in more than `MAX_ROUNDS` replies to the step: it gets no results."""

        self.microphone = UserMicrophone()
        self.conversation = ObservedConversation()
        self.steps: list[StepRun] = []
        self.acted_until_ms = 0
        """Position at which the last step was over. The connection may stay open longer, for the records."""

    async def tick(self) -> None:
        """Have all waiting conditions checked again."""
        async with self._changed:
            self._changed.notify_all()

    async def listen(self) -> None:
        """Handle the server's events until the connection is closed."""
        while True:
            try:
                event = await self._connection.next_event()
            except CallFailed as why:
                self._closed = str(why)
                await self.tick()
                return
            self.conversation.handle(event, self.microphone.position_ms())
            if isinstance(event, e.ReplyEnded):
                self._answer_calls(event)
            await self.tick()

    async def act(self, report: Report) -> None:
        """Run the steps up to the first that fails; `report` gets a line for each."""
        try:
            await self._run_steps(report)
        finally:
            self.acted_until_ms = self.microphone.position_ms()

    # --- one step -----------------------------------------------------------------------------

    async def _run_steps(self, report: Report) -> None:
        steps = self._scenario.steps
        for n, step in enumerate(steps):
            report(f"step {n + 1} of {len(steps)}: {step.title}")
            problem = await self._wait_for_trigger(step)
            run = StepRun(step, len(self.conversation.replies), len(self.conversation.transcripts))
            self.steps.append(run)
            interrupted = n + 1 < len(steps) and _trigger(steps[n + 1]) is not None
            run.problem = problem or await self._act(step, run, self._utterances.get(n), waits=not interrupted)
            if run.problem:
                return

    async def _act(self, step: Step, run: StepRun, utterance: StepSpeech | None, *, waits: bool) -> str:
        """Run a step; return why it failed, or an empty text."""
        if step.persona is not None:
            return await self._play_persona(step, run)
        if step.wait_ms is not None:
            await self._wait_ms(step.wait_ms)
            return self._closed
        if step.hang_up:
            return ""
        if step.type is not None:
            run.turns.append((self.microphone.position_ms(), run.first_reply))
            self.conversation.answer_due = True
            await self._connection.type_text(step.type)
        elif utterance is not None:
            run.turns.append((self._speak(utterance), run.first_reply))
        return await self._wait_for_answer(run, step.timeout_ms) if waits else ""

    def _speak(self, utterance: StepSpeech) -> int:
        """Play an utterance, and return the position of its last voiced sample."""
        start_ms = self.microphone.play(utterance.samples)
        self._record_speech(utterance, self.microphone.monotonic_ms_at(start_ms))
        return start_ms + utterance.voiced_until_ms

    async def _play_persona(self, step: Step, run: StepRun) -> str:
        assert step.persona is not None
        assert self._persona is not None
        for _ in range(step.persona.turns):
            words = await self._persona.next_words(step.persona.instructions, self._dialogue(run))
            if not words:
                return ""
            run.spoken.append(words)
            n_before = len(self.conversation.replies)
            run.turns.append((self._speak(await self._persona.speak(words)), n_before))
            if problem := await self._wait_for_answer(run, step.timeout_ms):
                return problem
        return ""

    def _dialogue(self, run: StepRun) -> list[tuple[str, str]]:
        """Return the conversation for the persona's model: (role, text), the persona as the assistant."""
        answers = [reply.text for reply in self.conversation.replies if reply.text]
        before = answers[: len(answers) - len(run.spoken)] if run.spoken else answers
        dialogue = [("user", text) for text in before]
        for spoken, answer in zip(run.spoken, answers[len(before) :], strict=False):
            dialogue += [("assistant", spoken), ("user", answer)]
        return dialogue

    # --- waiting ------------------------------------------------------------------------------

    async def _wait_for_answer(self, run: StepRun, timeout_ms: int) -> str:
        """Wait until the last answer to the step is complete and has been played; return why it is not."""
        spoken_ms, n_before = run.turns[-1] if run.turns else (self.microphone.position_ms(), run.first_reply)
        left_ms = max(0, spoken_ms - self.microphone.position_ms())
        if not await self._wait_until(
            lambda: self._calls_on or self._complete(n_before, spoken_ms), left_ms + timeout_ms
        ):
            return self._closed or f"expected an answer within {timeout_ms} ms, got {self._progress(run)}"
        if self._calls_on:
            return f"expected an answer, got calls in more than {MAX_ROUNDS} replies"
        while (left_ms := self.conversation.plays_until_ms - self.microphone.position_ms()) > 0:
            await self._wait_ms(left_ms)
        # The server may detect the user's speech late: then another answer is due.
        if not self._complete(n_before, spoken_ms):
            return await self._wait_for_answer(run, timeout_ms)
        return ""

    def _complete(self, n_before: int, spoken_ms: int) -> bool:
        conversation = self.conversation
        is_silent = self.microphone.position_ms() >= spoken_ms + LAST_ANSWER_MS
        busy = (
            conversation.speaking
            or conversation.answer_due
            or conversation.replying
            or conversation.turn_goes_on
            or self._n_tools
        )
        return is_silent and not busy and len(conversation.replies) > n_before

    def _progress(self, run: StepRun) -> str:
        conversation = self.conversation
        if conversation.errors:
            return f"an error: {conversation.errors[-1]}"
        if conversation.replying:
            return "an answer that did not end"
        if conversation.speaking:
            return "a voice without an end"
        if conversation.turn_goes_on:
            return "a tool call, and no answer to its result"
        if run.first_transcript < len(conversation.transcripts) and not conversation.transcripts[-1]:
            return "no words from the transcriber"
        name = self._scenario.agent_name
        if run.step.listen:
            return f'none: the agent {name!r} speaks first only with first_speaker = "agent"'
        return f"none: 'voicepipe check --agent {name}' tests the agent's models"

    async def _wait_for_trigger(self, step: Step) -> str:
        """Wait until the agent's audio has reached the step's place; return why it has not."""
        trigger = _trigger(step)
        if trigger is None or await self._wait_until(lambda: self._is_reached(trigger), step.timeout_ms):
            return ""
        return f"expected to act {_trigger_text(trigger)}, got {self._closed or 'an answer that did not get there'}"

    def _is_reached(self, trigger: Trigger) -> bool:
        now_ms = self.microphone.position_ms()
        reply = next((each for each in reversed(self.conversation.replies) if each.audible_ms is not None), None)
        if reply is None or not self._plays(reply, now_ms):
            return False
        if trigger.after_ms is not None:
            return now_ms >= (reply.audible_ms or 0) + trigger.after_ms
        at_ms = reply.word_ms(trigger.word)
        return at_ms is not None and now_ms >= at_ms

    def _plays(self, reply: AgentReply, now_ms: int) -> bool:
        return reply.ended is None or now_ms < reply.played_until_ms()

    async def _wait_ms(self, duration_ms: int) -> None:
        until_ms = self.microphone.position_ms() + duration_ms
        await self._wait_until(lambda: self.microphone.position_ms() >= until_ms, 2 * duration_ms + 1_000)

    async def _wait_until(self, ready: Callable[[], bool], timeout_ms: int) -> bool:
        """Wait for a condition; return False on a timeout, or if the connection is closed."""
        try:
            async with asyncio.timeout(timeout_ms / 1_000), self._changed:
                await self._changed.wait_for(lambda: bool(self._closed) or ready())
        except TimeoutError:
            return False
        return not self._closed

    # --- tools --------------------------------------------------------------------------------

    def _answer_calls(self, ended: e.ReplyEnded) -> None:
        reply = next((each for each in self.conversation.replies if each.response_id == ended.response_id), None)
        if reply is None or not reply.calls or ended.status != "completed":
            return
        tools = {tool.name: tool for tool in self._scenario.tools}
        own = [(tools[call.name], call) for call in reply.calls if call.name in tools]
        first = self.steps[-1].turns[-1][1] if self.steps and self.steps[-1].turns else 0
        n_rounds = sum(bool(each.calls) for each in self.conversation.replies[first:])
        if not own:
            return
        if n_rounds > MAX_ROUNDS:
            self._calls_on = True
            return
        self._n_tools += 1
        self._tasks.start(self._return_results(own), name=f"tools of {ended.response_id}")

    async def _return_results(self, calls: list[tuple[ScriptedTool, e.FunctionCalled]]) -> None:
        try:
            for tool, call in calls:
                result = next(
                    (each for each in tool.results if has_values(read_arguments(call.arguments), each.arguments)), None
                )
                await asyncio.sleep(result.after_ms / 1_000 if result is not None else 0)
                output = {"error": "no scripted result fits"} if result is None else result.output
                text = output if isinstance(output, str) else msgspec.json.encode(output).decode()
                await self._connection.return_result(call.call_id, text)
            await self._connection.request_answer()
        except CallFailed:
            return  # the receiving side gets the same error
        finally:
            self._n_tools -= 1


def _trigger(step: Step) -> Trigger | None:
    return step.interrupt or (step.hang_up if isinstance(step.hang_up, Trigger) else None)


def _trigger_text(trigger: Trigger) -> str:
    if trigger.after_ms is not None:
        return f"{trigger.after_ms} ms into the agent's audio"
    return f"at the agent's word {trigger.word!r}"


def read_arguments(text: str) -> dict[str, Any]:
    """Return a call's arguments; empty when they are no JSON object."""
    try:
        return msgspec.json.decode(text or "{}", type=dict[str, Any])
    except msgspec.DecodeError:
        return {}


def has_values(got: object, expected: object) -> bool:
    """Return whether `got` has the expected value; of a table only the expected keys are compared.

    Texts are compared without case and outer space: models write arguments as they like.
    """
    match got, expected:
        case dict(), dict():
            return all(key in got and has_values(got[key], value) for key, value in expected.items())
        case str(), str():
            return got.strip().casefold() == expected.strip().casefold()
        case _:
            return got == expected
