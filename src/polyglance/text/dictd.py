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

Dictionaries that WikDict made explain each sense in a line of its own, in the
language of the headword:

    dog //dɒɡ// <n>
    1. anjing, asu
    animal
    2. anjing jantan
    male canine
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

from polyglance.errors import DataError, error_reason

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
_ABOUT = "00database"
"""How headwords begin that tell of the dictionary itself, hyphens left out."""

_TELLS = 4000
"""In so many bytes a dictionary has told who made it."""


def read_dictd(path: str | Path) -> Iterator[tuple[str, str]]:
    """Each headword with each of its translations, in the order of the index."""
    path = Path(path)
    index, articles = _files(path)
    # The dictionary tells of itself before its first article.
    explained = b"WikDict" in articles[:_TELLS]
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
        article = articles[start : start + length].decode(errors="replace")
        yield from parse_article(article, explained=explained)


def parse_article(article: str, *, explained: bool = False) -> Iterator[tuple[str, str]]:
    """The headword of an article with each of its translations.

    ``explained``: each sense has a line that explains it, as WikDict's have.
    """
    first, _, rest = article.partition("\n")
    headword = _plain(_ASIDES.sub(" ", _SOUND.sub(" ", first)))
    # One space goes before a domain, two before a sense; what is indented more, or
    # refers, is not a translation.
    lines = _REST.split(rest.lstrip("\n"), maxsplit=1)[0].split("\n")
    if explained:
        lines = [line for line in lines if _NUMBERING.match(line)] or lines[:1]
    for line in lines if headword else ():
        # A number may stand before the grammar and after it.
        bare = _NUMBERING.sub("", _ASIDES.sub(" ", _SOUND.sub(" ", _NUMBERING.sub("", line))))
        for part in bare.split(","):
            if translation := _plain(part):
                yield headword, translation


def _plain(text: str) -> str:
    """Words with single spaces, nothing left of numbering and sentences' ends.

    Parts of words (``Haus…``), explanations (``- to be wet``) and choices within
    phrases (``make/pass water``) are none.
    """
    return "" if _NO_WORD.search(text) else _END.sub("", " ".join(text.replace("~", " ").split()))


def dictd_files(path: Path) -> tuple[Path, Path, Path]:
    """The index, the articles and the articles not zipped, whichever of them was named."""
    stem = path.with_name(re.sub(r"\.(index|dict|dict\.dz)$", "", path.name))
    index, zipped, plain = (
        stem.with_name(stem.name + ending) for ending in (".index", ".dict.dz", ".dict")
    )
    return index, zipped, plain


def _files(path: Path) -> tuple[list[str], bytes]:
    """The lines of the index and all articles, whichever of the files was named."""
    index, zipped, plain = dictd_files(path)
    try:
        lines = index.read_text(encoding="utf-8").split("\n")
        articles = gzip.decompress(zipped.read_bytes()) if zipped.exists() else plain.read_bytes()
    except OSError as error:
        name = error.filename or zipped
        raise DataError(
            f"{name}: cannot be read ({error_reason(error)}); a dictionary is a .index beside a .dict.dz"
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
