"""The phrases of a session's agent are ready in the voices that speak them."""

from __future__ import annotations

from voicepipe.audio.samples import Samples
from voicepipe.ports.synthesizer import Voice
from voicepipe.session.phrases import PhraseCache
from voicepipe.session.session_voice import SessionVoice
from voicepipe.testing.fakes.cues import TtsCue
from voicepipe.testing.fakes.synthesizer import FakeSynthesizer
from voicepipe.testing.scenario import Scenario
from voicepipe.turn.settings import BudgetActionSettings, LanguageSettings, ReplySettings

FILLER = "Un momento."
SPANISH = LanguageSettings(tag="es-ES", voice="Ana", filler=FILLER)
MEXICAN = LanguageSettings(tag="es-MX", voice="Maria", filler=FILLER)


class NotedVoice(PhraseCache):
    """Notes in which voice a phrase was last looked for."""

    voice: str | None = None

    def sound(self, voice: Voice, words: str) -> Samples | None:
        """Return the phrase's audio."""
        self.voice = voice.voice
        return super().sound(voice, words)


async def test_a_filler_of_several_languages_is_ready_in_the_voice_of_each() -> None:
    """The one that the user speaks counts. In no language of these the agent's own voice says it."""
    context = Scenario(
        reply=ReplySettings(voice="Heart"),
        languages=(SPANISH, MEXICAN),
        budget_actions=BudgetActionSettings(filler=FILLER),
    ).driver.core.context
    tts = FakeSynthesizer(TtsCue())
    phrase_cache = NotedVoice(tts, prepared=(FILLER,))
    voices = SessionVoice(tts, "m", phrase_cache, context, lambda event: None, lambda usd, by_client: None)
    await voices.prepare()
    assert not voices.lacks()
    for language, voice in (("es-ES", "Ana"), ("es-MX", "Maria"), ("en", "Heart"), (None, "Heart")):
        context.user_language = language
        assert voices.sound(FILLER) is not None
        assert phrase_cache.voice == voice
