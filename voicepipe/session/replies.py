"""The replies of one session: the task of each, and its output."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from voicepipe.ports.model import Model
from voicepipe.protocol.outbound import EventRenderer, Frames
from voicepipe.session.audio_input import AudioInput
from voicepipe.session.outbox import Outbox
from voicepipe.session.output import GatedOutput
from voicepipe.session.phrases import CannedModel
from voicepipe.session.prompt import PromptBuilder
from voicepipe.session.reply import Reply
from voicepipe.session.session_voice import Voices
from voicepipe.turn import commands as c
from voicepipe.turn import events as e

Key = tuple[int, int]
"""(turn, revision)"""


class Replies:
    """Carries out the commands about replies."""

    def __init__(
        self,
        model: Model,
        prompt_builder: PromptBuilder,
        voices: Voices,
        audio_input: AudioInput,
        *,
        wire: EventRenderer,
        outbox: Outbox,
        post: Callable[[e.Event], None],
    ) -> None:
        self._model, self._prompt_builder, self._voices, self._audio_input = model, prompt_builder, voices, audio_input
        self._wire, self._outbox, self._post = wire, outbox, post
        self._held: dict[Key, GatedOutput] = {}
        self._filled: set[Key] = set()
        self._running: dict[Key, tuple[Reply, asyncio.Task[None]]] = {}
        self._responses: dict[str, GatedOutput] = {}

    def start(self, command: c.StartReply, group: asyncio.TaskGroup) -> None:
        """Send the request to the LLM, or speak a known text, in a task of `group`."""
        key = (command.turn, command.revision)
        output = GatedOutput(*key, self._wire, self._outbox, self._audio_input.agent_says)
        reply = Reply(
            command,
            self._prompt_builder.question(command),
            self._voices.voice(command.reply),
            model=CannedModel(command.words) if command.words else self._model,
            synthesizer=self._voices.phrase_synthesizer() if command.words else self._voices.synthesizer,
            output=output,
            post=self._post,
        )
        task = group.create_task(reply.run(), name=f"reply-{command.turn}.{command.revision}")
        task.add_done_callback(lambda _: self._remove(key))
        self._held[key], self._running[key] = output, (reply, task)

    def open(self, command: c.OpenGate) -> None:
        """Release a reply's output."""
        output = self._held.pop((command.turn, command.revision), None)
        if output is not None:
            self._responses[command.response_id] = output
            output.open(command.response_id)

    def shorten(self, command: c.ShortenClause) -> None:
        """Make the synthesizer begin with the text that is available."""
        if (running := self._running.get((command.turn, command.revision))) is not None:
            running[0].shorten()

    def fill(self, command: c.SayFiller) -> None:
        """Say a phrase before the reply, if its audio is available in the present voice."""
        samples = self._voices.book.sound(self._voices.usual, command.words)
        if samples is None:
            return  # the voice has changed since
        key = (command.turn, command.revision)
        self._filled.add(key)
        output = GatedOutput(*key, self._wire, self._outbox, self._audio_input.agent_says, fills=True)
        output.open(command.response_id)
        output.text(command.words)
        output.sound(samples)

    def stop(self, command: c.StopReply) -> None:
        """Cancel a reply, and drop its queued output."""
        key = (command.turn, command.revision)
        if self._held.pop(key, None) is None or key in self._filled:
            self._audio_input.agent_stops()  # its gate was open
        if (running := self._running.pop(key, None)) is not None:
            running[1].cancel()
        self._filled.discard(key)
        self._outbox.drop_sound(command.turn)

    def end(self, response_id: str, last_words: Frames) -> bool:
        """Send the events that end a response after its output; False when none of the output was released."""
        output = self._responses.pop(response_id, None)
        if output is not None:
            output.last_words(last_words)
        return output is not None

    def _remove(self, key: Key) -> None:
        self._running.pop(key, None)
        self._filled.discard(key)
