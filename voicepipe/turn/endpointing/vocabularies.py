"""Word lists that show how complete an utterance is, per language, as data: a new language is a new entry.

A word that may well end a sentence is in no list: waiting for more words that do not come delays every such user.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct


class Vocabulary(Struct, frozen=True, kw_only=True):
    """The lists of one language. All in lower case."""

    opening: frozenset[str]
    """Words that need more after them: articles, conjunctions, possessives, and hesitations."""

    likely_unfinished: frozenset[str]
    """More follows these as a rule, but "what for" is a sentence."""

    answers: frozenset[str]
    """Words that alone answer a question."""

    digits: frozenset[str]
    """Digits that users say one by one when they dictate a number. A digit that is an article too counts as an article
    when it is alone.
    """


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


ENGLISH: Final = Vocabulary(
    opening=_words(
        "a an the my your our their and but or nor because if unless whether although while than "
        "i i'm i've i'd i'll we're you're they're he's she's there's let's gonna wanna um uh er erm uhm hmm"
    ),
    likely_unfinished=_words("to of from with into onto at by for about between through its his very really"),
    answers=_words("yes yeah yep no nope sure okay ok right correct exactly never maybe please thanks"),
    digits=_words("zero oh one two three four five six seven eight nine double triple"),
)

GERMAN: Final = Vocabulary(
    # Many prepositions are the end of a verb ("ich komme mit"), and articles are pronouns too ("ich nehme das").
    opening=_words(
        "und oder sondern weil dass ob obwohl damit mein meine meinen meinem dein deine unser unsere euer eure "
        "zum zur im am beim vom ins ans äh ähm öh hm"
    ),
    likely_unfinished=_words(
        "der die den dem des ein eine einen einem einer für von in durch ohne gegen über sehr wenn"
    ),
    answers=_words("ja nein doch jo nee klar gut okay ok genau richtig stimmt nie vielleicht bitte danke gerne"),
    digits=_words("null eins zwei zwo drei vier fünf sechs sieben acht neun doppel"),
)

FRENCH: Final = Vocabulary(
    opening=_words(
        "le la les un une des du au aux mon ma mes ton ta tes son sa ses notre votre nos vos leurs et ou mais car ni "
        "que de à euh heu"
    ),
    likely_unfinished=_words("pour avec sans dans sur chez par entre vers très leur ce cette ces en"),
    answers=_words("oui ouais non si d'accord ok okay bien sûr exactement jamais peut être merci"),
    digits=_words("zéro un deux trois quatre cinq six sept huit neuf double triple"),
)

SPANISH: Final = Vocabulary(
    opening=_words(
        "el la los las un unos unas mi tu su mis tus sus y e o u pero ni porque aunque mientras del al de en a que em"
    ),
    likely_unfinished=_words("una con para por sin sobre entre hasta desde muy"),
    answers=_words("sí si no vale claro bueno ok okay exacto correcto nunca quizás gracias"),
    digits=_words("cero uno un dos tres cuatro cinco seis siete ocho nueve doble"),
)

ITALIAN: Final = Vocabulary(
    opening=_words(
        "il lo la i gli le un e ed o ma né se di a da in con su per tra fra del dello della dei degli delle al allo "
        "alla ai agli alle dal dallo dalla dai dalle nel nello nella nei nelle sul sullo sulla sui sulle ehm eh uhm"
    ),
    likely_unfinished=_words("uno una che molto"),
    answers=_words("sì si no certo va bene ok okay esatto giusto mai forse grazie"),
    digits=_words("zero uno due tre quattro cinque sei sette otto nove doppio"),
)

PORTUGUESE: Final = Vocabulary(
    opening=_words(
        "o a os as um e ou mas nem porque se de do da dos das no na nos nas ao aos à às pelo pela em com por num numa "
        "que eh hum"
    ),
    likely_unfinished=_words("uma para sem sobre entre até desde muito"),
    answers=_words("sim não claro certo tá ok okay exato isso nunca talvez obrigado obrigada"),
    digits=_words("zero um uma dois duas três quatro cinco seis meia sete oito nove duplo"),
)

DUTCH: Final = Vocabulary(
    # As in German: "ik ga mee", "ik doe het".
    opening=_words("de mijn jouw onze uw hun en of maar want omdat terwijl hoewel eh uh uhm"),
    likely_unfinished=_words("het een van voor met naar bij door zonder tegen over heel erg als"),
    answers=_words("ja jawel nee goed prima oké ok okay klopt precies nooit misschien graag dank"),
    digits=_words("nul een één twee drie vier vijf zes zeven acht negen dubbel"),
)

VOCABULARIES: Final = {
    "en": ENGLISH,
    "de": GERMAN,
    "fr": FRENCH,
    "es": SPANISH,
    "it": ITALIAN,
    "pt": PORTUGUESE,
    "nl": DUTCH,
}
"""By primary language subtag (BCP-47)."""

PUNCTUATION_ONLY: Final = Vocabulary(
    opening=frozenset(), likely_unfinished=frozenset(), answers=frozenset(), digits=frozenset()
)
"""The lists of a language that has none."""
