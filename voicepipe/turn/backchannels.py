"""What a voice over the agent's says: an acknowledgement, a word to stop, the agent's own echo, or a wish to speak?

Lists per language, as data: to add a language is to add an entry to `LISTENERS`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

Meaning = Literal["nothing", "acknowledgement", "echo", "stop_word", "words"]

_APOSTROPHE: Final = "\u2019"
_TOKEN: Final = re.compile(rf"[^\W_]+(?:['{_APOSTROPHE}][^\W_]+)*")

_LONGEST_PHRASE: Final = 3
"""Words in the longest entry of the lists."""

_ECHO_SHARE: Final = 2 / 3
"""So many of the words must be the agent's, in its order: a transcriber mishears some of a weak echo; of a caller's own
sentence, articles and the like may be there too, but not most of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """What people who listen say in one language; phrases in lower case, without punctuation."""

    acknowledges: frozenset[str]
    """Go on, I am with you."""

    stops: frozenset[str]
    """Let me speak."""

    polite: frozenset[str] = frozenset()
    """May stand before a word to stop, and means nothing by itself."""


def _phrases(text: str) -> frozenset[str]:
    return frozenset(phrase.strip() for phrase in text.split("/"))


SOUNDS: Final = _phrases(
    "mhm / mm / mmm / mm hmm / mmhmm / mm hm / hm / hmm / hmmm / m hm / uh huh / uhhuh / uh / um / uhm / er / erm / ah"
    " / aha / oh / ooh / huh / ok / okay / okey"
)
"""Much the same everywhere, as transcribers spell it. Hesitations are no words: who says "um" has not begun."""

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
        polite=_phrases("please / no / but / can you / could you / hey / sorry / just / so / well"),
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
        polite=_phrases("bitte / nein / aber / mal / äh / also / kannst du / können sie"),
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
        polite=_phrases("s'il vous plaît / s'il te plaît / non / mais / alors / peux tu / pouvez vous"),
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
        polite=_phrases("por favor / no / pero / oye / oiga / puedes / puede"),
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
        polite=_phrases("per favore / no / ma / ehi / puoi / può / senti / senta"),
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
        polite=_phrases("por favor / não / mas / ei / olha / podes / pode / você pode"),
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
        polite=_phrases("alsjeblieft / alstublieft / nee / maar / even / kun je / kunt u / hé"),
    ),
}
"""By primary language subtag (BCP-47)."""

_UNKNOWN: Final = Listener(acknowledges=frozenset(), stops=frozenset())


def meaning(text: str, language: str | None = None, *, agent: str = "") -> Meaning:
    """What it means that the caller says `text` while the agent is saying the words of `agent`.

    `language`: BCP-47; None is taken for English, and in one without a list only what is said everywhere is an
    acknowledgement.
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
    wish = _without(words, acknowledges | lists.polite, leading=True)
    return "stop_word" if _begins(words, lists.stops) or _begins(wish, lists.stops) else "words"


def _words(text: str) -> list[str]:
    return [token.replace(_APOSTROPHE, "'") for token in _TOKEN.findall(text.lower())]


def _without(words: list[str], phrases: frozenset[str], *, leading: bool = False) -> list[str]:
    """The words that belong to none of the phrases; `leading`: only those in front are left out."""
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
    """How many words from there on are one of the phrases; the longest counts."""
    lengths = range(min(_LONGEST_PHRASE, len(words) - place), 0, -1)
    return next((n for n in lengths if " ".join(words[place : place + n]) in phrases), 0)


def _echoes(words: list[str], agent: list[str]) -> bool:
    """Are most of the words the agent's, in the order in which it says them?"""
    return _common(words, agent) >= _ECHO_SHARE * len(words)


def _common(some: list[str], others: list[str]) -> int:
    """The length of the longest common subsequence."""
    best = [0] * (len(others) + 1)
    for word in some:
        before = 0
        for i, other in enumerate(others, start=1):
            before, best[i] = best[i], before + 1 if word == other else max(best[i], best[i - 1])
    return best[-1]
