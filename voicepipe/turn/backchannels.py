"""Classify speech over the agent's: a backchannel, a stop word, the agent's own echo, or an interruption.

The word lists are data, per language: to add a language is to add an entry to `LISTENERS`.
"""

from __future__ import annotations

import re
from typing import Final, Literal

from msgspec import Struct

Meaning = Literal["nothing", "acknowledgement", "echo", "stop_word", "words"]

_APOSTROPHE: Final = "\u2019"
_TOKEN: Final = re.compile(rf"[^\W_]+(?:['{_APOSTROPHE}][^\W_]+)*")

_MAX_PHRASE: Final = 3
"""Number of words in the longest entry of the lists."""

_ECHO_SHARE: Final = 2 / 3
"""Share of the words that must be the agent's, in the agent's order, to be an echo.

A transcriber gets some words of a weak echo wrong. A user's own sentence may share articles and the like with the
agent's, but not most of its words.
"""


class Listener(Struct, frozen=True, kw_only=True):
    """The words that listeners say in one language; phrases in lower case, without punctuation."""

    acknowledges: frozenset[str]
    """Backchannels: the agent should go on."""

    stops: frozenset[str]
    """Stop words: the user wants to speak."""

    discourse_markers: frozenset[str] = frozenset()
    """Words that may stand before a stop word, and have no meaning by themselves."""


def _phrases(text: str) -> frozenset[str]:
    return frozenset(phrase.strip() for phrase in text.split("/"))


SOUNDS: Final = _phrases(
    "mhm / mm / mmm / mm hmm / mmhmm / mm hm / hm / hmm / hmmm / m hm / uh huh / uhhuh / uh / um / uhm / er / erm / ah"
    " / aha / oh / ooh / huh / ok / okay / okey"
)
"""Much the same in all languages, as transcribers spell them. Hesitations are no words: a user who says "um" has not
begun.
"""

LISTENERS: Final = {
    "en": Listener(
        acknowledges=_phrases(
            "yeah / yes / yep / yup / right / sure / i see / got it / all right / alright / of course / exactly / cool"
            " / great / good / nice / true / wow / really / that's right / makes sense / fine / indeed / gotcha / ya"
        ),
        stops=_phrases(
            "stop / wait / hold on / hang on / one moment / one second / just a second / just a moment / excuse me"
            " / pause / quiet / be quiet / shut up / enough / that's enough / cancel / never mind / no no"
        ),
        discourse_markers=_phrases("please / no / but / can you / could you / hey / sorry / just / so / well"),
    ),
    "de": Listener(
        acknowledges=_phrases(
            "ja / jaja / genau / stimmt / klar / gut / alles klar / verstehe / ich verstehe / richtig / aha / achso"
            " / ach so / na klar / natürlich / sicher / schön / super / prima / eben / joa / jep"
        ),
        stops=_phrases(
            "stopp / stop / halt / warte / warten sie / moment / einen moment / moment mal / augenblick / sekunde"
            " / eine sekunde / pause / ruhe / still / genug / das reicht / reicht / entschuldigung / schluss"
            " / abbrechen"
        ),
        discourse_markers=_phrases("bitte / nein / aber / mal / äh / also / kannst du / können sie"),
    ),
    "fr": Listener(
        acknowledges=_phrases(
            "oui / ouais / d'accord / bien sûr / voilà / exactement / je vois / bien / très bien / ah bon / ah oui"
            " / c'est ça / tout à fait / entendu / parfait / super / compris / euh / hein / bon"
        ),
        stops=_phrases(
            "stop / arrête / arrêtez / attends / attendez / un instant / une seconde / un moment / pause / silence"
            " / ça suffit / suffit / excusez moi / excuse moi / pardon / taisez vous / tais toi / annule / annulez"
        ),
        discourse_markers=_phrases("s'il vous plaît / s'il te plaît / non / mais / alors / peux tu / pouvez vous"),
    ),
    "es": Listener(
        acknowledges=_phrases(
            "sí / si / ya / claro / vale / de acuerdo / entiendo / exacto / bien / muy bien / bueno / ajá"
            " / por supuesto / ya veo / perfecto / eso es / así es / genial / cierto / este"
        ),
        stops=_phrases(
            "para / pare / alto / espera / espere / un momento / un segundo / basta / detente / deténgase / silencio"
            " / pausa / perdón / disculpa / disculpe / cállate / cancela / cancelar / ya basta"
        ),
        discourse_markers=_phrases("por favor / no / pero / oye / oiga / puedes / puede"),
    ),
    "it": Listener(
        acknowledges=_phrases(
            "sì / si / certo / va bene / d'accordo / capisco / esatto / giusto / bene / ho capito / ecco / già"
            " / perfetto / vero / certamente / ottimo / eh / beh / ehm"
        ),
        stops=_phrases(
            "ferma / fermo / fermati / si fermi / stop / aspetta / aspetti / un attimo / un momento / un secondo"
            " / basta / zitto / silenzio / pausa / scusa / scusi / mi scusi / annulla"
        ),
        discourse_markers=_phrases("per favore / no / ma / ehi / puoi / può / senti / senta"),
    ),
    "pt": Listener(
        acknowledges=_phrases(
            "sim / tá / tá bom / certo / claro / ok / entendi / exato / isso / isso mesmo / pois / pois é / bem"
            " / muito bem / está bem / com certeza / perfeito / legal / verdade / percebo / é"
        ),
        stops=_phrases(
            "para / pare / parar / espera / espere / um momento / um segundo / só um momento / só um segundo / basta"
            " / chega / silêncio / pausa / desculpa / desculpe / com licença / cancela / cancelar / calma"
        ),
        discourse_markers=_phrases("por favor / não / mas / ei / olha / podes / pode / você pode"),
    ),
    "nl": Listener(
        acknowledges=_phrases(
            "ja / jaja / precies / klopt / goed / prima / oké / snap ik / ik snap het / begrijp ik / juist / duidelijk"
            " / inderdaad / natuurlijk / zeker / mooi / leuk / jep / oja / o ja"
        ),
        stops=_phrases(
            "stop / wacht / wacht even / wacht eens / moment / een moment / ogenblik / momentje / seconde"
            " / een seconde / pauze / stil / genoeg / sorry / pardon / hou op / houd op / annuleer"
        ),
        discourse_markers=_phrases("alsjeblieft / alstublieft / nee / maar / even / kun je / kunt u / hé"),
    ),
}
"""By primary language subtag (BCP-47)."""

_UNKNOWN: Final = Listener(acknowledges=frozenset(), stops=frozenset())


def meaning(text: str, language: str | None = None, *, agent: str = "") -> Meaning:
    """Return the meaning of `text`, said by the user while the agent says the words of `agent`.

    `language`: BCP-47; None is taken for English. In a language without a list only the phrases common to all languages
    are backchannels.
    """
    words = _words(text)
    lists = LISTENERS.get((language or "en").lower().partition("-")[0], _UNKNOWN)
    acknowledges = lists.acknowledges | SOUNDS
    if not words:
        return "nothing"
    if not _without(words, acknowledges):
        return "acknowledgement"
    if _echoes(words, _words(agent)):
        return "echo"
    request = _without(words, acknowledges | lists.discourse_markers, leading=True)
    return "stop_word" if _begins(words, lists.stops) or _begins(request, lists.stops) else "words"


def is_sound(text: str) -> bool:
    """Return whether the text has no words, or only sounds that are alike in all languages ("mhm", "uh")."""
    return not _without(_words(text), SOUNDS)


def _words(text: str) -> list[str]:
    return [token.replace(_APOSTROPHE, "'") for token in _TOKEN.findall(text.lower())]


def _without(words: list[str], phrases: frozenset[str], *, leading: bool = False) -> list[str]:
    """Return the words that belong to none of the phrases; `leading`: drop phrases only at the start."""
    left: list[str] = []
    place = 0
    while place < len(words):
        length = _phrase_at(words, place, phrases)
        if not length and leading:
            return words[place:]
        left += [] if length else [words[place]]
        place += length or 1
    return left


def _begins(words: list[str], phrases: frozenset[str]) -> bool:
    return bool(words) and _phrase_at(words, 0, phrases) > 0


def _phrase_at(words: list[str], place: int, phrases: frozenset[str]) -> int:
    """Return how many words from `place` on are a phrase; the longest phrase counts."""
    lengths = range(min(_MAX_PHRASE, len(words) - place), 0, -1)
    return next((n for n in lengths if " ".join(words[place : place + n]) in phrases), 0)


def _echoes(words: list[str], agent: list[str]) -> bool:
    """Return whether most of the words are the agent's, in the agent's order."""
    return _common(words, agent) >= _ECHO_SHARE * len(words)


def _common(some: list[str], others: list[str]) -> int:
    """Return the length of the longest common subsequence."""
    best = [0] * (len(others) + 1)
    for word in some:
        before = 0
        for i, other in enumerate(others, start=1):
            before, best[i] = best[i], before + 1 if word == other else max(best[i], best[i - 1])
    return best[-1]
