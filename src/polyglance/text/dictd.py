"""FreeDict's dictionaries as Debian installs them for dictd (``dict-freedict-eng-deu``).

They are read where they lie, for example ``/usr/share/dictd/freedict-eng-deu.index``.

Beside each other lie an index, ``headword<TAB>offset<TAB>length`` a line with
numbers in base 64, and the articles, zipped (``.dict.dz``, which gzip reads) or
not (``.dict``). An article is a line with the headword, its sound and grammar,
a line or more of translations, and then examples, notes and synonyms, indented:

    bicycle /bˈaɪsɪkəl/
    Fahrrad <neut>, Rad <neut>, Velo <neut> [Schw.]
          "man's bicycle"  - Herrenrad
       Synonyms: {cycle}, {bike}
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

from polyglance.errors import DataError, reason

_DIGITS = {
    character: value
    for value, character in enumerate(
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    )
}
_ASIDES = re.compile(r"<[^<>]*>|\[[^\[\]]*\]|\([^()]*\)|\{[^{}]*\}|(?:^|\s)/[^/]*/(?=\s|$)")
"""Grammar, domains and regions, remarks, references and sounds."""

_REST = re.compile(r"^(?:  | see: |$)", re.MULTILINE)
"""Where the translations of an article end."""

_NUMBERING = re.compile(r"^\d+\.\s+")
_ABOUT = "00database"
"""How headwords begin that tell of the dictionary itself, hyphens left out."""


def read_dictd(path: str | Path) -> Iterator[tuple[str, str]]:
    """Each headword with each of its translations, in the order of the index."""
    path = Path(path)
    index, articles = _files(path)
    seen = set()
    for number, line in enumerate(index, start=1):
        columns = line.split("\t")
        try:
            headword, (start, length) = columns[0], map(_base64, columns[1:3])
        except (ValueError, KeyError):
            raise DataError(
                f"{path}: line {number} of the index is not a headword, an offset and a length"
            ) from None
        # Several headwords lead to one article where spellings differ.
        if headword.replace("-", "").startswith(_ABOUT) or start in seen:
            continue
        seen.add(start)
        if start + length > len(articles):
            raise DataError(f"{path}: the index and the articles do not belong together")
        yield from parse_article(articles[start : start + length].decode(errors="replace"))


def parse_article(article: str) -> Iterator[tuple[str, str]]:
    """The headword of an article with each of its translations."""
    first, _, rest = article.partition("\n")
    headword = _plain(_ASIDES.sub(" ", first))
    # One space goes before a domain; what is indented more, or refers, is not a translation.
    translations = _REST.split(rest, maxsplit=1)[0]
    for line in translations.split("\n") if headword else ():
        for part in _NUMBERING.sub("", _ASIDES.sub(" ", line)).split(","):
            if translation := _plain(part):
                yield headword, translation


def _plain(text: str) -> str:
    """Words with single spaces; parts of words (``Haus…``) are none."""
    return "" if "…" in text else " ".join(text.split())


def _files(path: Path) -> tuple[list[str], bytes]:
    """The lines of the index and all articles, whichever of the files was named."""
    stem = path.with_name(re.sub(r"\.(index|dict|dict\.dz)$", "", path.name))
    index, zipped, plain = (
        stem.with_name(stem.name + ending) for ending in (".index", ".dict.dz", ".dict")
    )
    try:
        lines = index.read_text(encoding="utf-8").split("\n")
        articles = gzip.decompress(zipped.read_bytes()) if zipped.exists() else plain.read_bytes()
    except OSError as error:
        name = error.filename or zipped
        raise DataError(
            f"{name}: cannot be read ({reason(error)}); a dictionary is a .index beside a .dict.dz"
        ) from error
    except (ValueError, EOFError, zlib.error) as error:
        raise DataError(f"{stem}: the dictionary is damaged ({reason(error)})") from error
    return lines[:-1] if lines and not lines[-1] else lines, articles


def _base64(digits: str) -> int:
    if not digits:
        raise ValueError("no number")
    value = 0
    for digit in digits:
        value = value * 64 + _DIGITS[digit]
    return value
