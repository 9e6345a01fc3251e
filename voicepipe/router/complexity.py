"""Guess from its words how hard a question is, in microseconds, for cascades.

Replaceable: an installed package may add a heuristic under the entry point group `ENTRY_POINT_GROUP`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Final

from voicepipe.errors import ConfigError
from voicepipe.router.policies import Complexity, RoutingQuery

ENTRY_POINT_GROUP: Final = "voicepipe.complexity"
"""Name, and `module:function` that takes an `RoutingQuery` and returns its class, or whether a small model suffices
(a bool: easy or hard)."""

WORDS: Final = "words"

MAX_WORDS: Final = 12
"""Longer questions usually have parts."""

HARD: Final = re.compile(
    r"\b(why|how come|explain|compar\w+|difference|better|best|worst|should|if|and|or|than|calculate|prove|deriv\w+|"
    r"analy[sz]\w+|summari[sz]\w+|translat\w+|plan|write|compose|draft|imagine|describe|recommend|advice|opinion|think|"
    r"feel|believe|mean(s|ing)?|rhym\w+|stor(y|ies)|poem|joke|ideas?|code|program|percent|divided|plus|minus|"
    r"warum|weshalb|wieso|und|oder|erklär\w*|vergleich\w*|berechne|bedeutet|sinn|"
    r"pourquoi|et|ou|expliqu\w+|sens|por qué|y|o|explic\w+|calcul\w+|signific\w+)\b",
    re.IGNORECASE,
)
"""Words of reasons, composition, judgement, conditions or a second part, whatever else was said."""

ABSTRACT: Final = re.compile(
    r"\b(life|lives|live forever|humans?|humanity|war|peace|freedom|liberty|happiness|love|death|society|"
    r"civili[sz]ation|future|god|soul|truth|justice|economy|morality|consciousness|universe|risks?|chances?|"
    r"probability|theory|argument|proof|paradox|flaw|mistake|meaning|purpose|limits?|worth|evolution|privacy|conscience|"
    r"ethic(s|al)|moral|fame|success|beauty|art|markets?|inflation|colonize|really|ever|"
    r"too (far|late|old|long|much|big|deep|high|tall)|overvalued|undervalued|(in)?action|died|dead|ill|krank|gestorben|"
    r"(my|our|your) (house|home|car|flat|business)|"
    r"in (\w+) languages|leben|menschen?|krieg|frieden|freiheit|glück|liebe|tod|gott|wahrheit|beweis|fehler|kind|"
    r"vie|guerre|paix|liberté|bonheur|amour|mort|dieu|vérité|faute|erreur|"
    r"vida|guerra|paz|libertad|felicidad|amor|muerte|dios|verdad|límites?|mi (casa|coche|piso))\b",
    re.IGNORECASE,
)
"""What no fact answers, also in a question that is worded like one for a fact: "How much is a human life?\""""

NUMBERS: Final = re.compile(r"\d+([.,]\d+)?\s*[-+*/x^%]")
CLAUSES: Final = re.compile(r"[,;:]\s*([\w']+\s+){3,}")
"""A second clause of more than a few words."""

_FACT = (
    r"(time|date|day|weather|temperature|price|cost|fee|number|address|name|capital|password|e-?mail|status|menu|"
    r"special|hours|wi-?fi|phone|room|gate|total|balance|score|currency|population|(post|zip|area|dial+ing) code|flag|"
    r"anthem|height|length)"
)
_WHEN = r"( (please|again|now|today|tonight|tomorrow|there|here|like|yet|like today|(on|at|until) [\w']+))*"
_NOUN = (
    r"(tables?|rooms?|seats?|tickets?|appointments?|reservations?|refund|receipt|menu|bill|check|key|taxi|cab|copy|"
    r"coffees?|teas?|beers?|pizzas?|salads?|person|human|agent|someone|somebody)"
)
_WORDS_4 = r"( [\w'-]+){1,4}"
_SMALL_TALK = (
    r"(?:i|me|my|you|your|it|its|he|she|we|us|they|them|him|her|that|this|these|there|here|one|all|everything|everyone|"
    r"anyone|nothing|both|the|a|an|some|any|(?:i|you|it|he|she|we|they|that|there|here|who|what)'(?:m|s|re|ve|ll|d)|is|"
    r"are|was|were|be|am|been|do|does|did|have|has|had|can|could|will|would|(?:do|does|did|is|was|are|have|ca|wo)n't|"
    r"please|thanks?|very|so|too|much|many|lots?|again|now|then|today|tonight|tomorrow|later|soon|yet|still|morning|"
    r"afternoon|evening|day|night|week|weekend|moment|minute|second|just|really|quite|also|not|no|yes|yeah|yep|ok|okay|"
    r"sure|right|fine|good|great|well|nice|perfect|enough|sorry|bye|hello|hi|hey|go|going|ahead|on|in|out|of|for|to|at|"
    r"from|with|by|works?|sounds?|hear|see|know|want|need|got|said|understand|understood|problem|worries|course|exactly|"
    r"correct|wrong|true|done|ready|help|helpful|say|bon|calling|talking|welcome|next|last|first|same|other|another|more|else|what|who|"
    r"how|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|\d+|(?:mon|tues|wednes|thurs|fri|satur|sun)day|"
    r"name|name's|sir|madam|(?-i:[A-Z])\w*|"
    r"ich|sie|es|das|ist|bin|gut|gerne?|schön|vielen|dank|danke|bitte|sehr|nicht|mehr|noch|jetzt|heute|morgen|genau|alles|"
    r"klar|passt|mich|mir|ihnen|stimmt|richtig|weiß|nein|ja|"
    r"je|vous|tu|ça|va|bien|très|beaucoup|merci|oui|non|pas|plus|tout|est|c'est|demain|bientôt|bonne|journée|soirée|madame|"
    r"monsieur|à|"
    r"muchas|muy|que|está|eso|por|favor|días|buen[oa]s|tardes|noches|todo|gracias|de|nada|hasta|luego|mañana|acuerdo|sí|señora?)"
)
"""Words that may follow a greeting or a short answer, and names. Any other one may be the task itself: "Okay, teach me
chess."
"""

_EASY_FORMS = (
    # English: small talk, short answers, and facts of the user
    r"(hi|hello|hey|good (morning|evening|afternoon|night)|ye(s|ah|p)|no(pe)?|ok(ay)?|sure|right|exactly|correct|great|"
    r"fine|perfect|thanks?( you)?|sorry|(good)?bye|never ?mind|that('s| is| was)|um+|uh+|hm+|just|see you)\b"
    r"(\W+" + _SMALL_TALK + r"){0,3}",
    r"(morning|evening|afternoon|not (today|now|yet)|i'm (fine|good|well|okay|back|here|ready|done))\b"
    r"(\W+" + _SMALL_TALK + r"){0,2}",
    r"(i (don't|do not) know|let me (think|see|check)|how are (you|things)( doing)?)",
    r"it's \d+[\w ]{0,25}",
    r"my ([\w]+ )?(name|number|address|birthday|e-?mail|phone)( number| address)? is [\w@. -]{1,30}",
    # Requests for one action of the call or of the business
    r"(please )?(stop|wait|hold on|hang on|pause|resume)( a (second|moment|minute)| please)?",
    r"(please )?(remind me to( [\w']+){1,6}|add (\w+ ){1,3}to (my|the) (\w+ )?(list|cart|basket)|"
    r"(put|connect|transfer) me through to (the )?\w+|(skip|mute|repeat) (this|that|the) \w+|"
    r"play (some|something) \w+|play (jazz|rock|pop|blues|classical|techno|the news))" + _WHEN,
    r"(one|two|three|four|five|a|an) (\w+ )?" + _NOUN + r"( please)?",
    r"(please )?((repeat|cancel) (it|that|my \w+)|(speak|talk) (a (bit|little) )?(louder|slower|up)|"
    r"(connect|transfer|put) me( (to|through)( \w+)?)?|remind me (at|in|on) [\w ]{1,15}|"
    r"set an? (timer|alarm) for [\w ]{1,15}|turn (on|off|up|down) (the|my) [\w ]{1,25}|"
    r"turn (the|my) \w+ (on|off|up|down)|play (some |the )?(\w+ )?(music|radio|song)|"
    r"call (me|my \w+|a taxi)( back)?|book (it|me)( in)?( for [\w ]{1,15})?)" + _WHEN,
    r"i('d like| would like|'ll have| want| need)"
    r"( to (book|order|cancel|talk to|speak to|pay for|reserve|change|make))? "
    r"(a|an|the|my|one|two|three|some|to)? ?(\w+ )?" + _NOUN + r"( (for|to) \w+)?" + _WHEN,
    r"(can|could|may|would) (you|i|we) (please )?(repeat (it|that)|say (it|that) again|"
    r"hear me( okay| ok| well)?|repeat the last \w+|"
    r"speak (up|louder|slower)|hold( on)?|wait|(speak|talk) to (a |the )?\w+|pay (by|with|in) \w+|park|call (me )?back|"
    r"(get|book|have|order) (a|an|the|my) " + _NOUN + r")" + _WHEN,
    # Questions for one fact
    r"what('s| is| are| was) (the |your |my |today's )?(\w+ )?"
    + _FACT
    + r"( number)?( (of|in|for) (the )?\w+)?"
    + _WHEN,
    r"what (colou?r (is|are)|languages? do (they|people) speak in)( [\w'-]+){1,3}",
    r"(what|which) year (did|was|were)( [\w'-]+){2,4}",
    r"which (floor|gate|platform|room|aisle|terminal|day|month) (is|are)( [\w'-]+){1,4}",
    r"how many (seconds|minutes|hours|days|weeks|months|legs|letters|players|stars|states) "
    r"((are|is) (there )?in (a|an|one|the)( [\w'-]+){1,3}|(do|does) (a|an|the)( [\w'-]+){1,3})",
    r"how do (you|i) (spell|pronounce) [\w'-]+",
    r"what (does|do) (it|that|this|(a |the )?[\w'-]+) cost",
    r"who won the( [\w'-]+){1,2} (cup|match|game|final|race|election|title)( last night| yesterday)?",
    r"what (time|day|date) (is it|(is|do|does|did|will)" + _WORDS_4 + r")",
    r"tell me (the|your|my) (\w+ )?" + _FACT + _WHEN,
    r"where('s| is| are) ((the|your|my)( [\w'-]+){1,3}|you( located)?|it)",
    r"when ((is|was|will|does) it( \w+)?|(do|does|did|is|was|will) (you|the|your|my|we)( [\w'-]+){1,3})",
    r"who('s| is| was) the (president|king|queen|manager|owner|ceo|boss|mayor|chancellor|prime minister|chef|captain)"
    r"( (of|at|in) (the )?\w+)?" + _WHEN,
    r"who (wrote|painted|invented|discovered|directed|sang|founded)" + _WORDS_4,
    r"how (old|tall|far|high|late|long|deep|big) (is|are|was)" + _WORDS_4,
    r"how much (is|are|does|do) (it|that|this|they|the( \w+){1,2}|a( \w+){1,2}|shipping|delivery|parking)( cost)?",
    r"do(es)? (you|they|it|the \w+|breakfast|lunch|dinner) "
    r"(have|deliver|accept|take|speak|open|close|come|include|sell|offer|serve|start|end)( [\w'-]+){0,3}",
    r"(is|are) [\w ]{1,25} (open|closed|ready|available|allowed|in|free|here|included|busy|full)" + _WHEN,
    r"is there (a |an )?[\w'-]+ (nearby|close by|around here|near here)",
    r"when's (my|the|your)( [\w'-]+){1,2}",
    r"(is|are) there (wi-?fi|parking|a (bathroom|restroom|toilet|lift|gym|pool|bar))" + _WHEN,
    # German, French, Spanish
    r"(ja|nein|hallo|guten? (tag|morgen|abend)|danke|bitte|tschüss|auf wieder\w+|genau|(einen )?moment)\b"
    r"(\W+" + _SMALL_TALK + r"){0,3}",
    r"(wer hat( \w+){1,3} (geschrieben|gemalt|erfunden|komponiert|entdeckt)|wie (heißt|ist) (die|der|das) "
    r"(hauptstadt|wetter|währung|adresse|nummer|uhrzeit)( \w+){0,3}|"
    r"(mach|mache|schalte?|stelle?) (bitte )?(das|die|den) \w+ (bitte )?(an|aus|lauter|leiser))",
    r"(wie spät ist es|wie viel uhr ist es|wann (öffne|schließ)\w*( \w+){0,2}|wo (ist|sind)( \w+){1,3}|"
    r"was kostet( \w+){1,3}|haben sie( \w+){0,2} (geöffnet|offen|auf))",
    r"(bonjour|bonsoir|salut|merci|oui|non|au revoir|d'accord|s'il vous plaît)\b"
    r"(\W+" + _SMALL_TALK + r"){0,3}",
    r"(quel temps fait-il( à \w+)?|qui a (écrit|peint|inventé|découvert|composé)( [\w']+){1,3}|"
    r"quelle est la capitale (de |du |des )?(l'|la )?\w+|(vous )?(ouvrez|fermez) à quelle heure|"
    r"à quelle heure (ouvre|ferme|part|arrive)( \w+){1,3})",
    r"(quelle heure est-il|à quelle heure (ouvrez|fermez)-vous|quel(le)? est votre (adresse|numéro|nom)|"
    r"où (est|sont|se trouve)( [\w']+){1,3}|combien (ça )?co[uû]te( [\w']+){0,3})",
    r"(hola|buen[oa]s|gracias|sí|adiós|vale|claro)(?!\w)(\W+" + _SMALL_TALK + r"){0,2}",
    r"(quién (escribió|pintó|inventó|descubrió|compuso)( \w+){1,3}|cuál es la capital de( \w+){1,2}|"
    r"qué tiempo hace( en \w+)?)",
    r"(qué hora es|a qué hora (abren|cierran)|dónde (está|queda)( \w+){1,3}|cuánto (cuesta|vale)( \w+){0,3})",
)
EASY: Final = re.compile(r"[\W_]*(" + "|".join(f"(?:{form})" for form in _EASY_FORMS) + r")[\W_]*", re.IGNORECASE)
"""Small talk, short answers, requests for one action, and questions for one fact; nothing may follow. What is none of
these is hard: a large model answers an easy question as well, a small one answers a hard question badly."""


def looks_easy(query: RoutingQuery) -> bool:
    """Return whether this is small talk, a request for one action, or a question for one fact, without functions to
    choose from."""
    text = query.text.replace("\u2019", "'").strip()
    if query.n_functions or len(text.split()) > MAX_WORDS:
        return False
    if any(each.search(text) for each in (HARD, ABSTRACT, NUMBERS, CLAUSES)):
        return False
    return EASY.fullmatch(text.replace(",", "")) is not None


MEDIUM_WORDS: Final = 14
"""Longer questions have constraints or several parts."""

TASKS: Final = re.compile(
    r"\b(plan (a|an|my|our|the)|itinerary|(re)?schedule|(re)?write|compose|draft|design|create|outline|prove|deriv\w+|"
    r"calculate|work out|analy[sz]\w+|evaluate|debug|negotiate|step by step|strategy|pros and cons|poem|story|speech|"
    r"essay|letter|python|javascript|sql|code|function|suppose|assum\w+|given that|consequences|legal\w*|contract|"
    r"decide|options|erstelle\w*|schreib\w*|entw[iu]rf\w*|berechne\w*|écri\w+|rédige\w*|planifi\w+|"
    r"calcul\w+|escrib\w+|redacta\w*)\b",
    re.IGNORECASE,
)
"""Planning, composition, code, proof, and judgement with consequences."""

NUMBER: Final = re.compile(
    r"\b(\d+|two|three|four|five|six|seven|eight|nine|ten|twelve|twenty|thirty|hundred)\b", re.IGNORECASE
)
SEVERAL_NUMBERS: Final = 3
"""A question with at least 3 numbers has several steps."""


def words(query: RoutingQuery) -> Complexity:
    """Return the class of a question: easy (`looks_easy`); hard with functions to choose from, or a task of several
    steps; else medium."""
    if looks_easy(query):
        return "easy"
    text = query.text
    if query.n_functions or len(text.split()) > MEDIUM_WORDS:
        return "hard"
    if TASKS.search(text) or len(NUMBER.findall(text)) >= SEVERAL_NUMBERS:
        return "hard"
    return "medium"


Judge = Callable[[RoutingQuery], Complexity]


def judge(name: str, *, key: str) -> Judge:
    """Return the heuristic of that name.

    Raises:
        ConfigError: naming `key`, when none is built in or installed under that name.
    """
    if name == WORDS:
        return words
    for entry in entry_points(group=ENTRY_POINT_GROUP, name=name):
        loaded: Callable[[RoutingQuery], Complexity | bool] = entry.load()
        return lambda query: _class_of(loaded(query))
    raise ConfigError(f"{key}: expected {WORDS!r} or the name of an installed one, got {name!r}")


def _class_of(verdict: Complexity | bool) -> Complexity:
    if isinstance(verdict, bool):
        return "easy" if verdict else "hard"
    return verdict
