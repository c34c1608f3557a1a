"""How models that know many languages are told which one is meant."""

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
    """The tags in a vocabulary by their language; of several scripts the first by name."""
    tags: dict[str, str] = {}
    for token in sorted(tokens):
        if (found := _TAG.fullmatch(token)) is None:
            continue
        code = next(group for group in found.groups() if group)
        # Names of variants that the table lacks are their own language; words are none.
        tags.setdefault(normalise_language(code) if is_language_code(code) else code, token)
    return tags


def tag_of(language: str, tags: Mapping[str, str], folder: Path) -> str:
    """The tag of a language; one sentence where the model lacks it."""
    if language not in tags:
        raise PolyglanceError(
            f"{folder} does not know {get_language(language).english_name}, only {_listed(tags)}"
        )
    return tags[language]


def _listed(tags: Mapping[str, str], most: int = 12) -> str:
    more = f" and {len(tags) - most:,} more" if len(tags) > most else ""
    return ", ".join(sorted(tags)[:most]) + more
