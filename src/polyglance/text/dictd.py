"""Read dictionaries in dictd's format, such as FreeDict's Debian packages.

A dictionary is two files, for example ``/usr/share/dictd/freedict-eng-deu.index``, with
lines of ``headword<TAB>offset<TAB>length`` (numbers in base 64), and the articles beside
it, gzipped (``.dict.dz``) or not (``.dict``). An article is a line with the headword, its
pronunciation and grammar, one or more lines of translations, and then examples, notes
and synonyms, indented:

    bicycle /bˈaɪsɪkəl/
    Fahrrad <neut>, Rad <neut>, Velo <neut> [Schw.]
          "man's bicycle"  - Herrenrad
       Synonyms: {cycle}, {bike}

Dictionaries made by WikDict have a line after each sense that defines it, in the
language of the headword:

    dog //dɒɡ// <n>
    1. anjing, asu
    animal
    2. anjing jantan
    male canine
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from pathlib import Path

from polyglance.errors import DataError, error_reason
from polyglance.utils.bounded import read_gzip

_DIGITS = {
    character: value
    for value, character in enumerate(
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    )
}
_SOUND = re.compile(r"(?:^|(?<=\s))//?[^/]*//?(?=\s|$)")
_ASIDES = re.compile(r"<[^<>]*>|\[[^\[\]]*\]|\([^()]*\)|\{[^{}]*\}")
"""Grammar, domains and regions, remarks, references."""

_REST = re.compile(r"^(?:   | see: |$)", re.MULTILINE)
"""Where the translations of an article end."""

_NUMBERING = re.compile(r"^\s*(?:\d+|[IVX]+)\.\s+")
_NO_WORD = re.compile(r"…|^\s*-|/")
_END = re.compile(r" \d+\.$|(?<=\w\w\w\w) ?\.$")
_METADATA_PREFIX = "00database"
"""Prefix, without hyphens, of the headwords that describe the dictionary itself."""

_HEADER_BYTES = 4000
"""Bytes at the beginning that name the dictionary's publisher."""


def read_dictd(path: str | Path) -> Iterator[tuple[str, str]]:
    """Yield each headword with each of its translations, in the order of the index."""
    path = Path(path)
    index, articles = _files(path)
    has_definitions = b"WikDict" in articles[:_HEADER_BYTES]
    offsets = set()
    for number, line in enumerate(index, start=1):
        columns = line.split("\t")
        try:
            headword, (start, length) = columns[0], map(_base64, columns[1:3])
        except (ValueError, KeyError):
            raise DataError(
                f"{path}: line {number} of the index is not a headword, an offset and a length"
            ) from None
        # Spelling variants of a headword share one article.
        if headword.replace("-", "").startswith(_METADATA_PREFIX) or start in offsets:
            continue
        offsets.add(start)
        if start + length > len(articles):
            raise DataError(f"{path}: the index and the articles do not belong together")
        article = articles[start : start + length].decode(errors="replace")
        yield from parse_article(article, has_definitions=has_definitions)


def parse_article(article: str, *, has_definitions: bool = False) -> Iterator[tuple[str, str]]:
    """Yield the headword of an article with each of its translations.

    ``has_definitions``: each sense is followed by a line that defines it, as in WikDict.
    """
    first, _, rest = article.partition("\n")
    headword = _clean(_ASIDES.sub(" ", _SOUND.sub(" ", first)))
    # One space indents a domain, two a sense; lines indented more are not translations.
    lines = _REST.split(rest.lstrip("\n"), maxsplit=1)[0].split("\n")
    if has_definitions:
        lines = [line for line in lines if _NUMBERING.match(line)] or lines[:1]
    for line in lines if headword else ():
        # A sense number may stand before the grammar or after it.
        bare = _NUMBERING.sub("", _ASIDES.sub(" ", _SOUND.sub(" ", _NUMBERING.sub("", line))))
        for part in bare.split(","):
            if translation := _clean(part):
                yield headword, translation


def _clean(text: str) -> str:
    """Return words with single spaces, without numbering and full stops.

    Parts of words (``Haus…``), explanations (``- to be wet``) and alternatives within
    phrases (``make/pass water``) give an empty text.
    """
    return "" if _NO_WORD.search(text) else _END.sub("", " ".join(text.replace("~", " ").split()))


def dictd_files(path: Path) -> tuple[Path, Path, Path]:
    """Return the paths of the index, the gzipped and the plain articles, given any of them."""
    stem = path.with_name(re.sub(r"\.(index|dict|dict\.dz)$", "", path.name))
    index, zipped, plain = (
        stem.with_name(stem.name + ending) for ending in (".index", ".dict.dz", ".dict")
    )
    return index, zipped, plain


def _files(path: Path) -> tuple[list[str], bytes]:
    """Return the lines of the index and all articles, given any of the files."""
    index, zipped, plain = dictd_files(path)
    try:
        lines = index.read_text(encoding="utf-8").split("\n")
        articles = read_gzip(zipped) if zipped.exists() else plain.read_bytes()
    except OSError as error:
        name = error.filename or zipped
        raise DataError(
            f"{name}: cannot be read ({error_reason(error)}); a dictionary is a .index beside a"
            " .dict.dz"
        ) from error
    except (ValueError, EOFError, zlib.error) as error:
        raise DataError(
            f"{index.with_suffix('')}: the dictionary is damaged ({error_reason(error)})"
        ) from error
    return lines[:-1] if lines and not lines[-1] else lines, articles


def _base64(digits: str) -> int:
    if not digits:
        raise ValueError("no number")
    value = 0
    for digit in digits:
        value = value * 64 + _DIGITS[digit]
    return value
