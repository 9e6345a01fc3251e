"""Hold every name to the glossary: files, identifiers, settings, metrics, log events, record fields and headings.

`BANNED` has the words that once stood for another concept than the field's, each with the term to use.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]

BANNED: Final = {
    word: term
    for term, words in {
        "segmenter (VAD) or transcriber (STT)": "ear ears hearer hearers hearing",
        "handle, receive, observe, transcribe": "hear hears",
        "played, received, turn_latency": "heard",
        "notify, send, report, log, publish": "tell tells telling told",
        "request, query, prompt": "ask asks asked asking asker askers",
        "store, cache, buffer, hold, retain": "kept keeper keepers",
        "requested": "wanted",
        "retrieved, displayed": "shown",
        "redact": "veil veiled",
        "hidden_from_llm (item), out_of_band (reply), unreported (utterance), is_filler, slow": "aside asides",
        "concurrency, connection thread": "lane lanes",
        "detached": "outlasting",
        "unsent": "untaken unsaid",
        "wasted": "vain",
        "likely_unfinished": "leaning",
        "posterior (probability), reliable": "belief believe believes",
        "stats": "outlook",
        "STALL_BACKLOG": "aftermath",
        "read, reread": "salvage salvaged",
        "differences": "parted parting partings",
        "affinity": "loyalty",
        "warms_cache": "invest invests",
        "reasons": "whys",
        "execute": "obey",
        "record_failure": "blame blamed",
        "active, cancelling, running": "living lingering",
        "evict": "crowded",
        "background_work": "upkeep",
        "most_expensive": "dearest",
        "shortfall": "emptiness",
        "settings_warnings": "dangers",
        "reliably": "surely",
        "subscribers": "takers",
        "above_noise": "stir stirs",
        "min_level": "grain",
        "recent": "lately",
        "segment, window": "stretch stretches",
        "checks_every_event": "restless",
        "move_cut": "recut",
        "make_irrevocable": "seal",
        "refuse": "waive waived",
        "close_early": "hurry hurried",
        "too_short": "scant",
        "top_tokens": "likeliest",
        "unplayed, inaudible": "unheard",
        "cue_points": "course",
        "faulty (store)": "rig",
        "jitter_buffer": "cushion",
        "sources": "witness witnesses",
        "wide": "roomy",
        "create": "offered",
        "delete": "forget forgotten",
        "prompt, model": "mind minds",
        "output, synthesizer": "mouth mouths tongue tongues",
        "authenticate, sign_in": "door doors doorway",
        "capacity": "lobby",
        "token_issuer, script": "desk",
        "context (turn), layer (package)": "floor floors",
        "package, server": "house",
        "continuation": "heir heirs seam succession",
        "cost": "purse",
        "hedging": "thrift",
        "nonlexical": "hum hums",
        "live_updates": "lookout spotlight",
        "resumption": "comeback",
        "canned": "recital",
        "frame, message": "parcel",
        "pseudonym": "disguise",
        "delivery": "courier",
        "threshold, reference": "yardstick",
        "normalizer": "aloud",
        "ring_buffer": "tape",
        "near_field": "nearness",
        "transitions, rules": "law laws",
        "option": "wish wishes wished",
        "scenario": "story playbook",
        "simulation": "rehearsal",
        "pool": "shelf",
        "order": "lineup",
        "check": "forewarned",
        "outlive: name what goes on": "outliving",
        "maintenance": "tidy tidying tidied",
        "principal": "visitor visitors",
        "the actor: client, user, operator, provider": "nobody somebody everybody anybody whoever stranger strangers",
        "timeout, timers": "patience",
        "apology, recovery": "rescue",
        "record_builder, hedge_budget": "ledger",
        "transcript": "dictation",
        "user": "caller callers",
        "failure, error, problem, kind; of a circuit breaker: tripped": "trouble troubles troubled",
        "count, totals": "tally tallies",
        "queued or restored (reply), unwritten (count), wait_us (of a token bucket)": "owe owed owes",
        "final, provisional": "tentative",
        "ellipsis, lag": "trail trails",
        "status": "vital vitals",
        "secondary (style)": "faint",
        "expired": "worn",
        "applies_rules": "ruled",
        "cause, breach_stage": "culprit deed deeds",
        "charge, wait_until_written, start_due_replies, fixed (state)": "settle settled settles settling",
    }.items()
    for word in words.split()
}
"""Word -> what to say instead."""

EXEMPT: Final = {
    ("voicepipe/telemetry/journal/plain.py", "believes_short"): "the stored name of a field",
    ("voicepipe/audio/encode_stream.py", "tell"): "the method of Python's files",
    **{
        ("web/docs/desk.md", name): "an appointment desk, as a clinic has one: the guide's example"
        for name in ("web/docs/desk", "An appointment desk, from nothing to a page")
    },
    ("voicepipe/evals/scenario.py", "say"): "the key of a step in the file of a scenario",
    ("voicepipe/turn/commands.py", "SayFiller"): "the stored name of a command",
    ("voicepipe/bench/load/concurrent_users.py", "stray"): "a field of the rows that the load bench stores",
    **{
        (file, "allowed_callers"): "a published field of tools of MCP servers"
        for file in (
            "voicepipe/protocol/mcp.py",
            "voicepipe/protocol/published_fields.py",
            "tests/agents/test_session_mcp.py",
        )
    },
    **{
        ("voicepipe/telemetry/store/renamed.py", name): "a field of records that an older version stored"
        for name in ("heard_by", "caller_text", "heard_text", "ear_connect_hidden_ms", "hearing_usd", "filler_heard")
    },
}
"""(file, name) -> why it has a banned word."""

BANNED_IN: Final = {
    ("voicepipe",): {
        "say": "push (a clause), speak, send, report",
        "says": "speaks, yields",
        "said": "spoken, sent, reported, words",
        "room": "capacity, space, noise (of a room); evict",
        "ours": "voicepipe, own",
        "yours": "self_hosted (vendor), your settings",
        "polite": "discourse_markers",
        "struck": "redacted",
        "picture": "image, emoji",
        "stray": "unexpected, outside_turns",
        "pulse": "check (for changes)",
        "book": "cache (of phrases), stats",
        "believed": "reliable, clamped",
        "doubt": "VAD_CONFIRMS, unconfirmed",
        "promise": "check (of conformance)",
        "promises": "checks (of conformance)",
        "doubtful": "only_stt_reports, unconfirmed",
    },
    ("voicepipe/server", "voicepipe/cluster", "tests/server", "tests/cluster"): {
        "place": "slot (of a session or a request)",
        "places": "slots (of sessions or requests)",
    },
    ("voicepipe/cluster", "tests/cluster"): {
        "texts": "snapshots (of sessions)",
    },
    tuple(
        f"voicepipe/{package}"
        for package in (
            "client",
            "evals",
            "knowledge",
            "phone",
            "pii",
            "router",
            "server",
            "session",
            "telemetry",
            "turn",
        )
    ): {
        "follow": "handle, update, track",
        "note": "record, count, add, log",
        "noted": "recorded, counted",
        "news": "events",
        "gist": "basic figures",
    },
    ("voicepipe/providers", "tests/providers"): {
        "touch": "preconnect",
        "touched": "preconnected",
        "touching": "preconnecting",
        "news": "events, changes",
    },
    ("web",): {"ours": "page, own"},
    ("voicepipe/testing/fakes",): {"talk": "context (of a TTS)", "talks": "contexts (of a TTS)"},
    tuple(
        f"voicepipe/{path.name}" for path in (ROOT / "voicepipe").iterdir() if path.is_dir() and path.name != "testing"
    ): {
        "its": "the noun (checks of conformance have sentences as names)",
    },
    ("voicepipe/turn", "tests/turn"): {
        "leg": "stage_marks",
        "legs": "stages",
        "weigh": "add_words, judge_words",
    },
    ("voicepipe/telemetry", "voicepipe/wiring", "tests/telemetry", "tests/wiring"): {
        "sink": "record_writer",
    },
    ("voicepipe/session", "tests/session"): {
        "calm": "writable",
        "crowd": "active (clients)",
        "pace": "read_limit",
        "orders": "requests",
    },
}
"""Folders -> word -> what to say instead in the names of their files. Elsewhere the word has its usual meaning."""

TEXT_NAME: Final = re.compile(r"[a-z][a-z0-9]*(?:[_.][a-z0-9]+)+")
"""A string that is a name: a metric, a log event, a field of a record, a dotted setting."""

NAMING: Final = frozenset({"log_event", "Family", "Sample", "add_argument", "add_parser"})
"""Functions whose first text is a name, also one without an underscore: a log event, a metric, an option, a command."""

SCRIPT_NAMES: Final = (
    re.compile(r"(?:const|let|var|function|class|async|get|set)\s+([A-Za-z_$][\w$]*)"),
    re.compile(r"^\s*([A-Za-z_$][\w$]*)\(.*\)\s*\{"),
    re.compile(r"@(?:property|param)\s+\{.*\}\s+\[?([A-Za-z_$][\w$]*)"),
    re.compile(r"^\s*(?:readonly\s+)?([A-Za-z_$][\w$]*)\??:\s"),
)
"""What a line of a script defines: a variable, a function, a member of a type or of an object."""

STYLE_NAME: Final = re.compile(r"\.([A-Za-z][\w-]*)(?=[^;]*[{,]\s*$)")
ALERT_NAME: Final = re.compile(r"^\s*- (?:alert|record): (\S+)")


TERMS: Final = re.compile(r"head_room|HeadRoom")
"""Terms of the glossary with a word that is banned alone."""


def words(name: str) -> list[str]:
    """Return the words of a name in snake_case, CamelCase, kebab-case or with dots, in lower case."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", TERMS.sub("", name))]


LIMIT: Final = re.compile(
    r"_?(?:(?:MOST|LEAST|LONGEST|SHORTEST|LARGEST|SMALLEST|FEWEST)(?:_[A-Z0-9_]+)?|[A-Z0-9_]+_(?:MOST|LEAST|MAX|MIN)(?:_[A-Z]+)?)"
)
"""A constant that is a limit, with another word than the prefix `MAX_` or `MIN_`."""

PRONOUNS: Final = frozenset({"it", "its", "them"})
"""Names that are a pronoun alone: the noun says what the value is."""

NOT_LIMITS: Final = {
    "_MERGED_BY_MAX": "names the function that merges metrics",
    "SHORTEST_DRAWN": "the shortest of a page's time windows",
}
"""Name -> why it matches `LIMIT`."""


@cache
def banned(name: str) -> tuple[str, ...]:
    """Return the banned words of a name, each with the term to use. Stored: most names stand in many places."""
    found = tuple(f"{word} (say {BANNED[word]})" for word in words(name) if word in BANNED)
    if name in PRONOUNS:
        return (*found, "a pronoun (say the noun)")
    is_limit = LIMIT.fullmatch(name) and name not in NOT_LIMITS
    return (*found, "a limit (say MAX_X or MIN_X)") if is_limit else found


@cache
def banned_in(folder: str, name: str) -> tuple[str, ...]:
    """Return the words of a name that are banned in the files of a folder alone, each with the term to use."""
    terms = {
        word: term for roots, banned in BANNED_IN.items() if folder.startswith(roots) for word, term in banned.items()
    }
    return tuple(f"{word} (say {terms[word]})" for word in words(name) if word in terms)


def defined(source: str) -> Iterator[tuple[int, str]]:
    """Yield (line, name) of all that a Python module defines, and of its strings that are names."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.FunctionDef(name) | ast.AsyncFunctionDef(name) | ast.ClassDef(name):
                yield node.lineno, name
            case ast.arg(name):
                yield node.lineno, name
            case ast.Name(name, ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield node.lineno, name
            case ast.ImportFrom(names=aliases) | ast.Import(names=aliases):
                yield from ((node.lineno, alias.asname) for alias in aliases if alias.asname)
            case ast.keyword(arg=str(name)):
                yield node.value.lineno, name
            case ast.Constant(str(text)) if TEXT_NAME.fullmatch(text):
                yield node.lineno, text
            case ast.Call(ast.Name(id=called) | ast.Attribute(attr=called), [ast.Constant(str(text)), *_]):
                if called in NAMING:
                    yield node.lineno, text


def scripted(source: str) -> Iterator[tuple[int, str]]:
    """Yield (line, name) of what a script of the pages defines."""
    for number, line in enumerate(source.splitlines(), 1):
        yield from ((number, name) for pattern in SCRIPT_NAMES for name in pattern.findall(line))


def matched(pattern: re.Pattern[str], source: str) -> Iterator[tuple[int, str]]:
    """Yield (line, name) of what the pattern finds."""
    for number, line in enumerate(source.splitlines(), 1):
        yield from ((number, name) for name in pattern.findall(line))


def headings(text: str) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of the headings of a page; code blocks have none."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        fenced ^= line.startswith("```")
        if not fenced and re.match(r"#+ ", line):
            yield number, line.lstrip("# ")


def example_names(page: str) -> Iterator[tuple[int, str]]:
    """Yield (line, name) of what the examples of a package define: the code blocks marked `python package`."""
    for block in re.finditer(r"^```python package\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        first = page[: block.start(1)].count("\n")
        yield from ((first + line, name) for line, name in defined(block[1]))


def names(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line, name) of a file: line 0 is the name of the file itself and of its folders."""
    yield 0, str(path.relative_to(ROOT).with_suffix(""))
    match path.suffix:
        case ".py":
            yield from defined(path.read_text(encoding="utf-8"))
        case ".js" | ".mjs" | ".ts":
            yield from scripted(path.read_text(encoding="utf-8"))
        case ".css":
            yield from matched(STYLE_NAME, path.read_text(encoding="utf-8"))
        case ".yml":
            yield from matched(ALERT_NAME, path.read_text(encoding="utf-8"))
        case ".md":
            yield from headings(path.read_text(encoding="utf-8"))


def tracked() -> list[Path]:
    """Return the project's own files; those of others (vendored scripts) keep their names."""
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
    return [ROOT / name for name in listing.split("\0") if name and not name.startswith("web/vendor/")]


def test_no_name_has_a_banned_word() -> None:
    found = [
        f"{place}:{line} {name}: {', '.join(wrong)}"
        for path in tracked()
        if path.is_file() and not path.is_symlink() and path != Path(__file__)
        for place, folder in [(str(path.relative_to(ROOT)), str(path.relative_to(ROOT).parent))]
        for line, name in names(path)
        if (wrong := banned(name) + banned_in(folder, name)) and (place, name) not in EXEMPT
    ]
    assert not found, "\n".join([f"{len(found)} names", *found])


PLANTED: Final = {
    "file": ("voicepipe/server/lobby.py", "", ""),
    "folder": ("voicepipe/ears/silero.py", "", ""),
    "tentative": ("a.py", "self._tentative = {}", "self._not_final = {}"),
    "style of a text": ("a.css", ".tile .faint {", ".tile .secondary {"),
    "function": ("a.py", "def hear(sound): ...", "def receive(sound): ..."),
    "class": ("a.py", "class MouthPiece: ...", "class OutputPiece: ..."),
    "event": ("a.py", "class ReplyOwed: ...", "class ReplyRestored: ..."),
    "argument": ("a.py", "def play(ear): ...", "def play(vad): ..."),
    "variable": ("a.py", "told_ms = 3", "sent_ms = 3"),
    "pronoun": ("a.py", "its = running()", "turn = running()"),
    "pronoun as an argument": ("a.py", "def play(its): ...", "def play(reply): ..."),
    "attribute": ("a.py", "self.kept = []", "self.cached = []"),
    "import": ("a.py", "from voicepipe import turn as lobby", "from voicepipe import turn as core"),
    "limit": ("a.py", "MOST_BYTES = 3", "MAX_BYTES = 3"),
    "limit at least": ("a.py", "_SHORTEST_WAIT_S = 3", "_MIN_WAIT_S = 3"),
    "limit with a suffix": ("a.py", "PAGE_MAX: Final = 3", "MAX_PAGE: Final = 3"),
    "limit of a script": ("a.js", "const LONGEST_MS = 3;", "const MAX_MS = 3;"),
    "setting": ("a.py", "class Limits:\n    patience_ms: int = 3", "class Limits:\n    timeout_ms: int = 3"),
    "setting that is set": ("a.py", "Limits(patience_ms=3)", "Limits(timeout_ms=3)"),
    "dotted setting": ("a.py", "read('router.shelf')", "read('router.pool')"),
    "option": ("a.py", "parser.add_argument('--tell-browsers')", "parser.add_argument('--log-browsers')"),
    "metric": ("a.py", "Family('told_total', 'counter', (), '')", "Family('sent_total', 'counter', (), '')"),
    "metric of one word": ("a.py", "Family('heard', 'gauge', (), '')", "Family('sessions', 'gauge', (), '')"),
    "log event": ("a.py", "log_event('provider_told')", "log_event('provider_failed')"),
    "log event of one word": ("a.py", "telemetry.log_event('told')", "telemetry.log_event('ready')"),
    "record field": ("a.py", "record['heard_by']", "record['latency_source']"),
    "script": ("a.js", "export function tellServer() {", "export function notifyServer() {"),
    "variable of a script": ("a.js", "  const heardMs = 3;", "  const playedMs = 3;"),
    "member of a type": ("a.d.ts", '  readonly heard: "user";', '  readonly role: "user";'),
    "member in a comment": ("a.js", " * @property {string | null} heard", " * @property {string | null} played"),
    "style": ("a.css", ".mouth > .open {", ".output > .open {"),
    "alert": ("a.yml", "  - alert: VoicepipeEarDown", "  - alert: VoicepipeSttDown"),
    "heading": ("a.md", "# The lobby", "# Capacity\n```\n# told\n```"),
}
"""What is named -> a file's path, a text with a banned word, and the same in the glossary's terms."""


@pytest.mark.parametrize("kind", PLANTED)
def test_a_banned_word_is_found(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever a name may stand; and what is named well is not."""
    monkeypatch.setattr("tests.test_names.ROOT", tmp_path)
    name, planted, plain = PLANTED[kind]
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    found = []
    for text in (planted, plain):
        path.write_text(text, encoding="utf-8")
        found.append([each for _, each in names(path) if banned(each)])
    assert found[0]
    assert found[1] == (found[0] if not planted else [])


def test_a_word_is_banned_in_some_folders() -> None:
    assert banned_in("voicepipe/server/sessions", "free_places")
    assert banned_in("voicepipe/cluster", "Place")
    assert banned_in("voicepipe/cluster", "SessionTexts")
    assert banned_in("voicepipe/server", "placed") == ()
    assert banned_in("voicepipe/server", "slot") == ()
    assert banned_in("voicepipe/session", "phrase_book")
    assert banned_in("tests/agents", "book") == ()
    assert banned_in("voicepipe/evals", "places") == ()
    assert banned_in("voicepipe/router", "has_room")
    assert banned_in("voicepipe/providers/catalog", "yours")
    assert banned_in("voicepipe/turn", "polite")
    assert banned_in("voicepipe/providers", "_n_said")
    assert banned_in("voicepipe/ports", "Said")
    assert banned_in("voicepipe/providers/local/engine", "_news")
    assert banned_in("web", "ours")
    assert banned_in("voicepipe/turn", "_hold_on_its_word")
    assert banned_in("voicepipe/testing/conformance", "a_counter_stops_at_its_limit") == ()
    assert banned_in("voicepipe/server", "has_head_room") == ()
    assert banned_in("voicepipe/server", "NoHeadRoom") == ()


OWNERS: Final = {
    "Answer": "voicepipe/client/turn_result.py",
    "Connection": "voicepipe/client/connection.py",
    "Conversation": "voicepipe/turn/conversation.py",
    "Event": "voicepipe/turn/events.py",
    "Line": None,
    "Progress": None,
    "Recording": None,
    "Reply": "voicepipe/turn/reply.py",
    "Turns": "voicepipe/turn/context.py",
    "Usage": "voicepipe/ports/model.py",
    "Utterance": "voicepipe/turn/turn.py",
    "tokens_of": None,
}
"""A name that once stood for several things -> the one module that may define it. Vendors' adapters may share one."""


def owned(source: str) -> Iterator[tuple[int, str]]:
    """Yield (line, name) of the names of `OWNERS` that a module defines: classes, types and functions."""
    for node in ast.parse(source).body:
        match node:
            case ast.ClassDef(name) | ast.FunctionDef(name) | ast.Assign([ast.Name(name)]) if name in OWNERS:
                yield node.lineno, name


def test_a_name_stands_for_one_thing() -> None:
    found = [
        f"{place}:{line} {name}: a second meaning"
        for path in sorted((ROOT / "voicepipe").rglob("*.py"))
        if (place := str(path.relative_to(ROOT))).split("/")[1] != "providers"
        for line, name in owned(path.read_text(encoding="utf-8"))
        if OWNERS[name] != place
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("planted", ["class Answer: ...", "Reply = int | str", "def tokens_of(text): ..."])
def test_a_second_meaning_is_found(planted: str) -> None:
    assert [line for line, _ in owned(planted)] == [1]
    assert [*owned("class _Answer: ...")] == []


def test_an_example_of_the_docs_has_no_banned_word() -> None:
    """The packages that the docs build are held to what holds in `voicepipe`."""
    examples = [
        (page, each) for page in sorted((ROOT / "web/docs").glob("*.md")) for each in example_names(page.read_text())
    ]
    assert examples
    found = [
        f"{page.name}:{line} {name}: {', '.join(wrong)}"
        for page, (line, name) in examples
        if (wrong := banned(name) + banned_in("voicepipe", name))
    ]
    assert not found, "\n".join(found)


def test_a_banned_word_of_an_example_is_found() -> None:
    page = "# Parrot\n\n```python package\nimport json\n\nasked = json.dumps(1)\n```\n\n```python\ntold = 3\n```\n"
    assert [*example_names(page)] == [(6, "asked")]


SHARED_NAMES: Final = {
    name: reason
    for reason, shared in {
        "the same event, to the client as a notification and in the client": (
            "AgentDucked AgentInterrupted AgentUnducked ItemAdded ItemDeleted SpeechStarted"
        ),
        "the same event, of a port and of the core": (
            "ModelConnected ModelJoined SynthesizerConnected TranscriberConnected"
        ),
        "the same part of an item, on the wire and in the core": "FunctionCall InputImage InputText OutputText",
        "the same part of a request, in two APIs of OpenAI": "NamedFunction",
        "the wire's function, and the Python function that an agent offers as one": "FunctionTool",
        "the wire's call, and its figures in a turn's record": "ToolCall",
        "a function call of the LLM, in a port and in the client": "Called",
        "journals and snapshots store the core's name; the client and the port have the field's": "ServerTool Tool",
        "what was played of one item, in the client and in the phone gateway": "Played",
        "the client's event, and the core's account of the same audio": "ReplyAudio",
        "the rule of the loop, and its figures, of two benches": "Admission",
        "a script of refused handshakes, of the fakes of two stages": "Refusals",
        "a run of events with what is expected: of an eval, and of the core's tests": "Scenario",
    }.items()
    for name in shared.split()
}
"""A public class's name that several modules define -> why."""


def public_classes() -> dict[str, list[str]]:
    """Return the modules that define each public class; those of the vendors' adapters may share one."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "voicepipe").rglob("*.py")):
        if (place := str(path.relative_to(ROOT))).startswith("voicepipe/providers/"):
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append(place)
    return found


def test_public_classes_that_differ_in_kind_have_different_names() -> None:
    several = {name: places for name, places in public_classes().items() if len(places) > 1}
    assert several.keys() - SHARED_NAMES.keys() == set(), "rename one, or say why it is the same thing"
    assert SHARED_NAMES.keys() - several.keys() == set(), "only one module defines these"


def test_words_are_whole() -> None:
    assert banned("early_clear_word") == ()
    assert words("VadEarly_start-msHTTP") == ["vad", "early", "start", "ms", "http"]
