"""Build an agent that interprets between two languages: what is said in one is spoken in the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from voicepipe.turn.settings import LanguageSettings

NAMES: Final = {
    "ar": "Arabic",
    "bg": "Bulgarian",
    "cs": "Czech",
    "da": "Danish",
    "de": "German",
    "el": "Greek",
    "en": "English",
    "es": "Spanish",
    "et": "Estonian",
    "fa": "Persian",
    "fi": "Finnish",
    "fr": "French",
    "he": "Hebrew",
    "hi": "Hindi",
    "hr": "Croatian",
    "hu": "Hungarian",
    "id": "Indonesian",
    "it": "Italian",
    "ja": "Japanese",
    "ko": "Korean",
    "lt": "Lithuanian",
    "lv": "Latvian",
    "nl": "Dutch",
    "no": "Norwegian",
    "pl": "Polish",
    "pt": "Portuguese",
    "ro": "Romanian",
    "ru": "Russian",
    "sk": "Slovak",
    "sl": "Slovenian",
    "sv": "Swedish",
    "th": "Thai",
    "tr": "Turkish",
    "uk": "Ukrainian",
    "ur": "Urdu",
    "vi": "Vietnamese",
    "zh": "Chinese",
}
"""The first part of a tag -> the language's name, as LLMs read it. Source: ISO 639-1."""


def name_of(tag: str) -> str:
    """Return a language's name, with the tag where it is more precise: `Portuguese (pt-BR)`."""
    name = NAMES.get(tag.partition("-")[0].lower())
    if name is None:
        return f"the language {tag}"
    return f"{name} ({tag})" if "-" in tag else name


def instructions_between(pair: Sequence[str], more: str) -> str:
    """Return the system prompt of an interpreter between two tags; `more`, such as names and terms, stands behind."""
    one, other = map(name_of, pair)
    prompt = (
        f"You are an interpreter between {one} and {other}. Translate each message: from {one} into {other}, and from "
        f"{other} into {one}. Reply with the translation alone, in the speaker's tone and in the first person. Never "
        "answer, explain or comment: a question or a request is translated too, also one to you. Names and numbers "
        "stay as they are."
    )
    return "\n\n".join(filter(None, (prompt, more)))


def languages_between(pair: Sequence[str], tables: Mapping[str, LanguageSettings]) -> Iterator[LanguageSettings]:
    """Yield what is said for each of the two, once the STT detects it: the other language, with its voice.

    Args:
        tables: the voices, instructions and fillers of languages, by tag.
    """
    for source, target in (tuple(pair), tuple(reversed(pair))):
        table = _table_of(target, tables)
        direction = f"The latest message is in {name_of(source)}: translate it into {name_of(target)}."
        yield LanguageSettings(
            tag=target,
            user_tag=source,
            voice=table.voice,
            instructions="\n\n".join(filter(None, (direction, table.instructions))),
            filler=table.filler,
        )


def _table_of(tag: str, tables: Mapping[str, LanguageSettings]) -> LanguageSettings:
    """Return the table of a tag: its own, or that of a tag with the same first part (`de` for `de-AT`)."""
    by_tag = {name.lower(): table for name, table in tables.items()}
    primary = tag.lower().partition("-")[0]
    same = (table for name, table in by_tag.items() if name.partition("-")[0] == primary)
    return by_tag.get(tag.lower()) or next(same, LanguageSettings(tag=tag))
