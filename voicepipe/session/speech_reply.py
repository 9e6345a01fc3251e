"""A reply by a speech-to-speech model; where it fails, the LLM and the TTS make the rest of it."""

from __future__ import annotations

from collections import deque
from typing import Any, Final, Literal

from voicepipe.errors import Overload, StageBroken, StageError
from voicepipe.ports.continuation import TextJoiner, continued
from voicepipe.ports.model import CallDelta, Content, Finished, ModelRequest, TextDelta
from voicepipe.ports.speech_model import SpeechModelEvent, WordsComplete
from voicepipe.ports.speech_price import SpeechPrice, SpeechUsage
from voicepipe.ports.synthesizer import Spoken
from voicepipe.ports.text_normalizer import NormalizedSpeech
from voicepipe.session.reply import RunningReply
from voicepipe.session.speech_model import SpeechSession
from voicepipe.telemetry.log import log_crash
from voicepipe.turn import events as e
from voicepipe.values import replace

MS_PER_CHAR: Final = 65
"""How long a character of text takes to say, in ms: English at 15 characters a second. The model's words come ahead of
its audio, without times: this estimates which of them were played before an interruption."""


class SpeechReply(RunningReply):
    """One revision of one turn's reply. The session's events are those of any reply, so that nothing else differs."""

    def __init__(self, *args: Any, speech: SpeechSession, spoken: bool, **kwargs: Any) -> None:
        """`spoken`: the conversation's last message is what the user has just said."""
        super().__init__(*args, **kwargs)
        self._upstream, self._spoken = speech, spoken
        self._provider = speech.name
        self._by_model = True
        """The model makes the reply: LLM and TTS do not, so far."""

        self._early: list[str] = []
        """Words that came before the first audio: LLM and TTS may still replace them."""

        self._all_words = False
        self._n_calls = 0
        self._pending: deque[str] = deque()
        """Clauses whose audio has not begun yet, by its length."""

        self._begun_chars = self._n_before = 0
        self._latest = ""
        """The latest clause whose audio has begun."""

        self._is_complete = False
        self._upstream_request = self._request
        """The request as the model gets it."""

        self._joiner: TextJoiner | None = None
        self._text = ""

    async def _generate_and_synthesize(self) -> None:
        await self._complete_request()
        self._post(e.SpeechRequested(self._turn, self._revision, self._provider))
        try:
            await self._answered()
            return
        except StageError as failure:
            why = failure.why
        except Overload as full:
            why = full.why
        except Exception as bug:
            log_crash(f"speech to speech by {self._provider}", bug)
            why = f"internal error ({type(bug).__name__})"
        if self._n_calls:
            self._finish("tool_calls")  # what was called is complete, and may not be called again
        else:
            await self._replace(why)

    async def _answered(self) -> None:
        """Pass the model's answer on as it comes; raises the model's errors."""
        async with self._upstream.answer(self._upstream_request, spoken=self._spoken) as events:
            async for event in events:
                self._take(event)
                if isinstance(event, Spoken):
                    await self._output.wait_for_space()

    def _take(self, event: SpeechModelEvent) -> None:
        match event:
            case TextDelta(text):
                self._take_words(text)
            case WordsComplete():
                self._all_words = True
            case Spoken(samples=samples):
                self._take_sound(Spoken(0, samples))
            case CallDelta():
                self._n_calls += 1
                self._release_words()
                self._take_call(event)
            case SpeechUsage():
                self._count_speech(event)
            case Finished(reason):
                if not self._audible_yet and not self._n_calls:
                    raise StageBroken("llm", provider=self._provider, why="the answer is empty", retryable=True)
                self._finish(reason)

    def _take_words(self, text: str) -> None:
        if self._audible_yet:
            self._take_text(text)
        else:
            self._early.append(text)

    def _release_words(self) -> None:
        early, self._early = self._early, []
        for text in early:
            self._take_text(text)

    def _take_sound(self, spoken: Spoken) -> None:
        if not self._by_model:
            super()._take_sound(replace(spoken, clause=spoken.clause + self._n_before))
            return
        self._begin_clauses()
        before = self._audible_yet
        super()._take_sound(Spoken(max(0, self._n_clauses - 1), spoken.samples))
        if self._audible_yet and not before:
            self._release_words()

    def _begin_clauses(self, *, all_of_them: bool = False) -> None:
        """Report the clauses whose audio has begun."""
        while self._pending and (all_of_them or self._sound_ms >= self._begun_chars * MS_PER_CHAR):
            clause = self._latest = self._pending.popleft()
            self._begun_chars += len(clause)
            key = (self._turn, self._revision)
            self._post(e.ClauseHandedOver(*key, self._n_clauses, clause, self._provider, n_chars=0))
            self._n_clauses += 1

    def _count_speech(self, usage: SpeechUsage) -> None:
        stage = self._upstream.stage
        price: SpeechPrice | None = None if stage is None else stage.price
        counts = (usage.input_tokens, usage.output_tokens, usage.cached_tokens)
        usd = None if price is None else price.cost_usd(usage)
        self._post(e.TokensCounted(self._turn, self._revision, *counts, usd=usd))

    def _finish(self, reason: e.FinishReason) -> None:
        self._release_words()
        self._push_text(self._blank.pop(None, ""), None)
        self._pending.extend(self._clauses.flush())
        self._begin_clauses(all_of_them=True)
        self._post(e.ModelFinished(self._turn, self._revision, reason))
        self._post(e.SynthesisFinished(self._turn, self._revision))

    # --- LLM and TTS in its place -------------------------------------------------------------

    async def _replace(self, why: str) -> None:
        """Have the LLM and the TTS make the reply, or go on from what was said."""
        role: Literal["continuation", "replacement"] = "continuation" if self._audible_yet else "replacement"
        self._early.clear()
        self._by_model, self._n_before = False, self._n_clauses
        key, name = (self._turn, self._revision), self._model.name
        self._post(e.ModelJoined(*key, name, role))
        self._post(e.ModelChosen(*key, name, f"{self._provider}: {why}"))
        if self._audible_yet:
            self._request = continued(self._request, self._text)
            self._joiner = TextJoiner(self._text)
        else:
            self._all_words = False
        await super()._generate_and_synthesize()

    async def _complete_request(self) -> None:
        if not self._is_complete:
            self._is_complete, before = True, self._request
            await super()._complete_request()
            self._upstream_request = passages_as_system_message(before, self._request)

    async def _pass_on(self, speech: NormalizedSpeech | None) -> None:
        """Speak what was written and not spoken, and then what the LLM adds, unless all was written."""
        unspoken = [*self._unspoken(), *self._pending, *self._clauses.flush()]
        self._pending.clear()
        self._send_clauses(unspoken, speech)
        if not self._all_words:
            await super()._pass_on(speech)
            return
        if speech is not None:
            speech.finish()
        self._post(e.ModelFinished(self._turn, self._revision, "stop"))

    def _unspoken(self) -> list[str]:
        """Return the rest of the clause whose audio broke off, from the word that was being said."""
        left_chars = max(0, self._begun_chars - self._sound_ms // MS_PER_CHAR)
        spoken = self._latest[: len(self._latest) - left_chars]
        rest = self._latest[len(spoken.rstrip()) - len(spoken.split()[-1]) :] if spoken.split() else self._latest
        return [rest] if left_chars and rest.strip() else []

    def _take_text(self, text: str, speech: NormalizedSpeech | None = None) -> None:
        if self._joiner is not None:
            text = self._joiner.push(text)
        self._text += text if self._by_model else ""
        super()._take_text(text, speech)

    def _send_clauses(self, clauses: list[str], speech: NormalizedSpeech | None) -> None:
        if self._by_model:
            self._pending.extend(clauses)
        else:
            super()._send_clauses(clauses, speech)


def passages_as_system_message(before: ModelRequest, after: ModelRequest) -> ModelRequest:
    """Return the request with what was added to the user's own message in a system message: the model has the user's
    message as audio, without the passages that were found for it.

    Args:
        before: the request as it was made from the conversation.
        after: the same with passages of documents behind the user's last words, and more.
    """
    for place in reversed(range(len(before.messages))):
        spoken, now = before.messages[place], after.messages[place]
        if isinstance(spoken, Content) and isinstance(now, Content) and spoken.role == "user":
            added = tuple(part for part in now.parts if part not in spoken.parts)
            if not added:
                return after
            messages = (*after.messages[:place], spoken, *after.messages[place + 1 :], Content("system", added))
            return replace(after, messages=messages)
    return after
