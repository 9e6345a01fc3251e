"""Hold the English of docstrings, pages, errors and metrics to the rules of [Contributing](web/docs/contributing.md).

Only what a program can count is here: how a docstring begins, how long a sentence is, and words that hide the subject.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.test_names import headings
from voicepipe.telemetry.metrics.catalog import FAMILIES

ROOT: Final = Path(__file__).parents[1]
SOURCES: Final = sorted((ROOT / "voicepipe").rglob("*.py"))
PAGES: Final = (ROOT / "README.md", *sorted((ROOT / "web" / "docs").glob("*.md")))

NO_BEGINNING: Final = re.compile(
    r"(?:What|How|Who|Whom|Whose|Whoever|Where|When|Why|It|They|Its|Their|That|Those|This|These|So|Of|Likewise)\b"
)
"""A docstring begins with a verb or a noun; these words need one that stands elsewhere."""

NO_SUBJECT: Final = re.compile(
    r"\b(?:nobody|somebody|everybody|anybody|whoever|whatever|told|tells?|heard|hears?|asked|ours|we|us)\b",
    re.IGNORECASE,
)
"""Words that stand for a component or an actor of the glossary, or for what it did."""

PERSONS_VERB: Final = re.compile(r"\b(?:told|tells?|hears|asks?|asked)\b", re.IGNORECASE)
"""What a person does; a component receives, reports, calls and requests."""

PERSONIFIED: Final = re.compile(
    r"(?<!\.)\b(?:told|tells?|hears|asks?|asked|knows?|knew|wants?|wanted|says|lets|speaks\s+to|listens\s+(?:for|to))\b",
    re.IGNORECASE,
)
"""The same, and what a component has, requires or allows instead."""

PERSON: Final = re.compile(
    r"\b(?:you|they|who|agents?|callers?|contributors?|humans?|listeners?|operators?|people|personas?|persons?|speakers?"
    r"|users?)\b[^,]{0,45}$",
    re.IGNORECASE,
)
"""Its subject, right before such a verb: a person may do these things, and so may the agent, who speaks."""

NO_PERSONS: Final = ("audio", "cli", "config", "router", "wiring")
"""Packages whose docstrings are about components alone; those of `config` are shown on Settings and Agents."""

NO_NUMBER: Final = re.compile(r"\b(?:so|that)\s+(?:many|much)\b", re.IGNORECASE)
"""A number, or the name of an argument or a constant, says how many."""

LISTS_ARGUMENTS: Final = re.compile(r"^ *Args:$", re.MULTILINE)
"""Where a docstring lists the arguments of its function."""

MAX_WORDS: Final = 35
"""In a sentence of a page. The rule is 25; code, figures and lists in brackets take the rest."""


def sources(files: Iterable[Path], words: re.Pattern[str]) -> Iterator[tuple[Path, str]]:
    """Yield (path, source) of the modules that have one of these words anywhere: no other needs to be parsed."""
    for path in files:
        if words.search(source := path.read_text(encoding="utf-8")):
            yield path, source


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    """Yield (line, first line) of the docstrings of a module, its public classes and its public functions."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            public = isinstance(node, ast.Module) or not node.name.startswith("_")
            if public and (text := ast.get_docstring(node)):
                yield node.body[0].lineno, text.splitlines()[0]


def explanations(source: str) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of all docstrings of a module, those of constants, fields and private functions too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, " ".join(node.value.value.split())


def unknown_arguments(source: str) -> Iterator[tuple[int, str]]:
    """Yield (line, name) of what a docstring lists below `Args:` and its function does not take."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            taken = {each.arg for each in ast.walk(node.args) if isinstance(each, ast.arg)}
            _, _, listed = (ast.get_docstring(node) or "").partition("\nArgs:\n")
            listed = re.split(r"\n(?=\S)", listed)[0]
            yield from (
                (node.lineno, name) for name in re.findall(r"^ {4}\*{0,2}(\w+):", listed, re.M) if name not in taken
            )


def error_texts(source: str) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of the strings of at least three words that a module raises, or logs as a reason."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Raise(exc=ast.Call() as raised):
                parts: list[ast.expr] = [raised]
            case ast.Assign([ast.Name("why")], value) | ast.keyword("why", value):
                parts = [value]
            case _:
                continue
        for part in parts:
            for each in ast.walk(part):
                if isinstance(each, ast.Constant) and isinstance(each.value, str) and each.value.count(" ") > 1:
                    yield each.lineno, each.value


def sentences(page: str) -> Iterator[tuple[int, str]]:
    """Yield (line, sentence) of a page's text and of its tables' cells; inline code is one word, a code block none.

    A colon and a semicolon end a sentence in a cell alone.
    """
    page = re.sub(r"```.*?```", lambda block: "\n" * block[0].count("\n"), page, flags=re.DOTALL)
    paragraph, first = "", 1
    for number, line in enumerate([*page.splitlines(), ""], 1):
        text = line.strip()
        if not text or re.match(r"#|\||[-*] |\d+\. |    ", line.lstrip() if not line.startswith("    ") else line):
            yield from ((first, each) for each in _split(paragraph))
            paragraph = ""
        if text.startswith("|"):
            yield from ((number, each) for cell in text.split("|") for each in _split(cell, ".!?:;"))
        elif text and not text.startswith("#"):
            first = first if paragraph else number
            paragraph += f" {re.sub(r'^(?:[-*]|[0-9]+[.]) ', '', text)}"


def _split(text: str, ends: str = ".!?") -> list[str]:
    words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", re.sub(r"`[^`]*`", "X", text))
    return re.split(rf"(?<=[{ends}])\s+", words.strip())


def test_a_docstring_begins_with_a_verb_or_a_noun() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line} {text}"
        for path in SOURCES
        for line, text in docstrings(path.read_text(encoding="utf-8"))
        if NO_BEGINNING.match(text)
    ]
    assert not found, "\n".join([f"{len(found)} docstrings", *found])


def test_a_docstring_lists_arguments_that_exist() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line} {name}"
        for path, source in sources(SOURCES, LISTS_ARGUMENTS)
        for line, name in unknown_arguments(source)
    ]
    assert not found, "\n".join(found)


def test_an_unknown_argument_is_found() -> None:
    listed = "Args:\n        n: how\n            many: 3.\n        **told: progress.\n\n    Raises:\n        E: x"
    assert [*unknown_arguments(f'def f(n, *, progress):\n    """Send.\n\n    {listed}\n    """')] == [(1, "told")]


def test_an_error_names_its_subject() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line} {text}"
        for path, source in sources(SOURCES, NO_SUBJECT)
        for line, text in error_texts(source)
        if NO_SUBJECT.search(text)
    ]
    assert not found, "\n".join([f"{len(found)} texts", *found])


def test_a_docstring_names_what_a_component_does() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line} {text}"
        for package in NO_PERSONS
        for path, source in sources(sorted((ROOT / "voicepipe" / package).rglob("*.py")), PERSONS_VERB)
        for line, text in explanations(source)
        if PERSONS_VERB.search(text)
    ]
    assert not found, "\n".join([f"{len(found)} docstrings", *found])


@pytest.mark.parametrize("planted", ["Tell whether it runs.", "What the STT hears.", "The model that was asked first."])
def test_a_component_that_speaks_is_found(planted: str) -> None:
    assert PERSONS_VERB.search(planted)
    assert not PERSONS_VERB.search("Report that the retold text was heard by the user.")


def personified(text: str) -> Iterator[str]:
    """Yield the sentences, or parts of them, in which a component does what only a person does."""
    for part in re.split(r"(?<=[.!?:;])\s+", text):
        if any(not PERSON.search(part[: found.start()]) for found in PERSONIFIED.finditer(part)):
            yield part


def comments(source: str) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of the comments of a module."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def test_docstrings_comments_and_errors_personify_no_component() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line} {part}"
        for path, source in sources(SOURCES, PERSONIFIED)
        for line, text in (*explanations(source), *comments(source), *error_texts(source))
        for part in personified(text)
    ]
    assert not found, "\n".join([f"{len(found)} texts", *found])


def test_pages_personify_no_component() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line} {part}"
        for path in PAGES
        for line, text in sentences(path.read_text(encoding="utf-8"))
        for part in personified(text)
    ]
    assert not found, "\n".join([f"{len(found)} sentences", *found])


@pytest.mark.parametrize(
    "planted",
    [
        "The user speaks. The STT hears it.",
        "Where the user is, the store knows it.",
        "The session wants no more.",
        "# the next read says so",
        "A function that asks the model.",
    ],
)
def test_a_personified_component_is_found(planted: str) -> None:
    assert [*personified(planted)]


@pytest.mark.parametrize(
    "planted",
    ["What the user says.", "A caller who asks again.", "You knew it.", "A known text was heard; it is said."],
)
def test_a_person_may_speak(planted: str) -> None:
    assert not [*personified(planted)]


def test_a_metric_and_a_heading_name_their_subject() -> None:
    helps = [f"{each.name}: {each.help}" for each in FAMILIES if NO_SUBJECT.search(each.help)]
    titles = [
        f"{path.name}:{line} {text}"
        for path in PAGES
        for line, text in headings(path.read_text(encoding="utf-8"))
        if NO_SUBJECT.search(text)
    ]
    assert not [*helps, *titles], "\n".join([*helps, *titles])


def test_sentences_of_the_pages_are_short() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line} {len(text.split())} words: {text}"
        for path in PAGES
        for line, text in sentences(path.read_text(encoding="utf-8"))
        if len(text.split()) > MAX_WORDS
    ]
    assert not found, "\n".join([f"{len(found)} sentences", *found])


def test_docstrings_and_pages_count_in_numbers() -> None:
    texts = [
        *((path, each) for path, source in sources(SOURCES, NO_NUMBER) for each in explanations(source)),
        *((path, each) for path in PAGES for each in sentences(path.read_text(encoding="utf-8"))),
    ]
    found = [f"{path.relative_to(ROOT)}:{line} {text}" for path, (line, text) in texts if NO_NUMBER.search(text)]
    assert not found, "\n".join([f"{len(found)} texts", *found])


@pytest.mark.parametrize(
    "planted",
    ['N = 3\n"""After so many failures no query is sent."""', 'def _f(n):\n    """Wait for that\n    many frames."""'],
)
def test_a_docstring_without_its_number_is_found(planted: str) -> None:
    assert any(NO_NUMBER.search(text) for _, text in explanations(planted))


@pytest.mark.parametrize(
    "planted",
    ['"""What is kept of a turn."""', 'def f():\n    """How long it lasts."""', 'class C:\n    """Of one session."""'],
)
def test_a_docstring_without_verb_or_noun_is_found(planted: str) -> None:
    assert any(NO_BEGINNING.match(text) for _, text in docstrings(planted))


@pytest.mark.parametrize(
    "planted",
    [
        "raise ConfigError('url: nobody answers there')",
        "raise StageError(f'{name} was told to stop', why='')",
        "why = 'whoever signs must name the key'",
        "log_event('lost', why='the store was asked too often')",
    ],
)
def test_an_error_without_a_subject_is_found(planted: str) -> None:
    assert any(NO_SUBJECT.search(text) for _, text in error_texts(planted))


def test_a_long_sentence_is_found() -> None:
    half, long = "word " * 20, "word " * 40
    page = f"# {long}\n\nShort.\n```\n{long}\n```\n{half}\n{half}\n\n| a | {long} |\n| {half}: {half} |\n"
    page += f"\n{half}; {half}\n"
    assert [line for line, text in sentences(page) if len(text.split()) > MAX_WORDS] == [7, 10, 13]
