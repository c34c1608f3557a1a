"""The language tags of multilingual translation models."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from polyglance.errors import PolyglanceError
from polyglance.languages import get_language, is_language_code, normalise_language

_TAG = re.compile(
    r">>([a-z]{2,3})(?:_[A-Za-z]+)?<<|__([a-z]{2,3})__|([a-z]{2,3})_[A-Z][A-Za-z]{1,3}"
)
"""``>>deu<<`` of Marian, ``__de__`` of M2M100, ``deu_Latn`` of NLLB and ``de_DE`` of mBART."""


def language_tags(tokens: Iterable[str]) -> dict[str, str]:
    """Return the tags in a vocabulary by language; of several scripts the first by name."""
    tags: dict[str, str] = {}
    for token in sorted(tokens):
        if (match := _TAG.fullmatch(token)) is None:
            continue
        code = next(group for group in match.groups() if group)
        # A code that the table of languages lacks is kept as it is.
        tags.setdefault(normalise_language(code) if is_language_code(code) else code, token)
    return tags


def tag_of(language: str, tags: Mapping[str, str], folder: Path) -> str:
    """Return the tag of a language; raise if the model lacks it."""
    if language not in tags:
        raise PolyglanceError(
            f"{folder} does not support {get_language(language).english_name}, only "
            f"{_list_languages(tags)}"
        )
    return tags[language]


def _list_languages(tags: Mapping[str, str], max_listed: int = 12) -> str:
    more = f" and {len(tags) - max_listed:,} more" if len(tags) > max_listed else ""
    return ", ".join(sorted(tags)[:max_listed]) + more
