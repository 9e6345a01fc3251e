"""One session's speech settings: its voice, and the phrases that it can speak at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

from voicepipe.audio.samples import Samples
from voicepipe.errors import Overload, StageError
from voicepipe.ports.synthesizer import Synthesizer, Voice
from voicepipe.protocol.session_config import DEFAULT_VOICE
from voicepipe.session.phrases import PhraseCache, PhraseSynthesizer, clauses_of
from voicepipe.tasks import AsyncEvent
from voicepipe.telemetry.log import log_crash
from voicepipe.turn import events as e
from voicepipe.turn import languages
from voicepipe.turn.apology import phrases_of
from voicepipe.turn.context import TurnContext
from voicepipe.turn.cost import tts_usd
from voicepipe.turn.settings import LanguageSettings, ReplySettings

Charge = Callable[[float, bool], None]
"""Takes the cost, in USD, of phrases spoken ahead, and whether the client's change of voice caused it."""


class SessionVoice:
    """The voice of one session, for replies and for phrases."""

    def __init__(
        self,
        synthesizer: Synthesizer,
        model: str,
        phrase_cache: PhraseCache,
        context: TurnContext,
        post: Callable[[e.Event], None],
        charge: Charge,
        pronunciations: tuple[tuple[str, str], ...] = (),
    ) -> None:
        """`charge` gets the cost of phrases spoken ahead."""
        self._pronunciations = pronunciations
        self.synthesizer, self.phrase_cache = synthesizer, phrase_cache
        self._charge = charge
        self._first: Voice | None = None
        self._model, self._context, self._post = model, context, post
        self._changed = AsyncEvent()

    def use(self, synthesizer: Synthesizer, model: str, pronunciations: tuple[tuple[str, str], ...]) -> None:
        """Speak with another TTS from now on. The phrases stay the same, and are spoken ahead in its voice."""
        self.phrase_cache = PhraseCache(synthesizer, prepared=self.phrase_cache.prepared)
        self.synthesizer, self._model, self._pronunciations, self._first = synthesizer, model, pronunciations, None

    def voice(self, reply: ReplySettings) -> Voice:
        """Return the voice for a reply."""
        known = self.synthesizer.voices
        # Clients name another vendor's voices by habit: for a voice that this provider can't have, it chooses its
        # own.
        lacks = reply.voice == DEFAULT_VOICE or (known is not None and reply.voice not in known)
        voice = None if lacks else reply.voice
        return Voice(
            model=self._model,
            voice=voice,
            speed=reply.speed,
            language=reply.language or self._context.settings.language,
            pronunciations=self._pronunciations,
        )

    @property
    def usual(self) -> Voice:
        """Return the voice for everything except replies."""
        return self.voice(self._context.settings.reply)

    async def stay_warm(self) -> None:
        """Keep the present voice's connection ready while this runs."""
        while True:
            synthesizer, voice = self.synthesizer, self.usual
            with self._warm(voice):
                while self.usual == voice and self.synthesizer is synthesizer:
                    self._changed.clear()
                    await self._changed.wait()

    @contextmanager
    def _warm(self, voice: Voice) -> Iterator[None]:
        """Keep that voice's connection ready; after an error it stays cold."""
        with ExitStack() as stack:
            try:
                stack.enter_context(self.synthesizer.keep_warm(voice))
            except Exception as bug:
                log_crash(f"tts by {self.synthesizer.name}", bug)
            yield

    def synthesizer_of(self, words: str) -> Synthesizer:
        """Return the synthesizer for a known text: with the stored audio of phrases, or the usual one."""
        prepared = (each for each, _ in self._prepared)
        is_phrase = words in (*prepared, *self.phrase_cache.repeated, *phrases_of(self._context))
        return PhraseSynthesizer(self.phrase_cache, self.synthesizer) if is_phrase else self.synthesizer

    def lacks(self) -> bool:
        """Return whether a phrase that should be ready is not ready in the present voice."""
        return any(self.phrase_cache.sound(voice, words) is None for words, voice in self._prepared)

    def sound(self, words: str) -> Samples | None:
        """Return a phrase's audio, int16 at 24 kHz, (n_samples,), in its voice now; None: it is not ready."""
        return self.phrase_cache.sound(self._voice_of(words), words)

    @property
    def _prepared(self) -> tuple[tuple[str, Voice], ...]:
        """Return the phrases that should be ready, each with its voice: the agent's, and the fillers of its languages.
        Several languages may have the same one."""
        fillers = ((each.filler, self._voice_in(each)) for each in self._context.settings.languages if each.filler)
        return (*((words, self.usual) for words in self.phrase_cache.prepared), *fillers)

    def _voice_of(self, words: str) -> Voice:
        """Return the voice of a phrase now: the filler of the language that the user speaks has that language's."""
        spoken = languages.spoken_now(self._context)
        if (spoken is None or spoken.filler != words) and words not in self.phrase_cache.prepared:
            spoken = next((each for each in self._context.settings.languages if each.filler == words), None)
        return self.usual if spoken is None or spoken.filler != words else self._voice_in(spoken)

    def _voice_in(self, spoken: LanguageSettings) -> Voice:
        return self.voice(languages.in_that_language(self._context.settings.reply, spoken))

    def report_ready(self) -> None:
        """Send the core the list of phrases that can be spoken at once."""
        self._changed.set()
        self._first = self._first or self.usual
        late = {words for words, voice in self._prepared if self.phrase_cache.sound(voice, words) is None}
        required = (words for words in phrases_of(self._context) if words not in late)
        ready = frozenset(words for words in required if self.sound(words) is not None)
        if ready != self._context.phrases:
            self._post(e.PhrasesReady(ready))

    async def prepare(self) -> None:
        """Speak the phrases that should be ready, and report them to the core. Errors are ignored."""
        # The session's first voice is its agent's, and all of the agent's sessions share it.
        pay = partial(self._pay, by_client=self.usual != self._first)
        try:
            for words, voice in self._prepared:
                for clause in clauses_of(words):
                    await self.phrase_cache.make(voice, clause, paid=pay)
        except (StageError, Overload):
            return  # replies will fail likewise, and report it
        except Exception as bug:
            log_crash(f"tts by {self.phrase_cache.name}", bug)
            return
        self.report_ready()

    def _pay(self, provider: str, n_chars: int, *, by_client: bool) -> None:
        usd = tts_usd(n_chars, self._context.core.prices.voices.get(provider, 0.0))
        self._charge(usd, by_client)
