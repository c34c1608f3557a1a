"""Dictionaries between English and other languages, from whatever is at hand.

What sentences teach comes first, since it knows what words mean in captions: from
translations where there are any, else from what was written of the same
pictures. FreeDict's dictionaries, where they are installed, add what
sentences do not know.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from polyglance.languages import normalise_language
from polyglance.records import Record
from polyglance.text.dictionaries import Dictionary, open_dictionary
from polyglance.text.word_alignment import Words, learn_dictionaries
from polyglance.text.words import WordTokenizer

PIVOT = "en"
FREEDICT = Path("/usr/share/dictd")
"""Where Debian's packages ``dict-freedict-eng-*`` lie."""
_LEAST_TRANSLATED, _LEAST_DESCRIBED = 0.02, 0.002
"""How likely a translation must be; far less where sentences only tell of the same picture."""


def make_dictionaries(
    described: Sequence[Record],
    parallel: Sequence[Record],
    languages: Sequence[str],
    pattern: str,
    *,
    freedict: Path | None = FREEDICT,
) -> None:
    """Write dictionaries from each language to English and back, where there are none yet.

    ``described`` are training captions, ``parallel`` sentences with translations;
    ``pattern`` names files by ``{source}`` and ``{target}``.
    """
    for language in languages:
        paths = {
            way: Path(pattern.replace("{source}", way[0]).replace("{target}", way[1]))
            for way in ((PIVOT, language), (language, PIVOT))
        }
        if language == PIVOT or all(path.is_file() for path in paths.values()):
            continue
        translated = [record for record in parallel if {PIVOT, language} <= set(record.captions)]
        least = _LEAST_TRANSLATED if translated else _LEAST_DESCRIBED
        pairs = _sentences(translated or described, language)
        learned = learn_dictionaries(pairs, PIVOT, language, least=least)
        published = _published(language, freedict, described)
        for (path, ours), theirs in zip(
            zip(paths.values(), learned, strict=True), published, strict=True
        ):
            path.parent.mkdir(parents=True, exist_ok=True)
            (ours | theirs).save(path)


def _sentences(records: Sequence[Record], language: str) -> Iterator[tuple[Words, Words]]:
    """The words of each English sentence with those of each other one in the same record."""
    cut = {code: cache(WordTokenizer((), code).words) for code in (PIVOT, language)}
    for record in records:
        for english in record.captions.get(PIVOT, ()):
            for other in record.captions.get(language, ()):
                yield cut[PIVOT](english), cut[language](other)


def _published(
    language: str, folder: Path | None, described: Sequence[Record]
) -> tuple[Dictionary, Dictionary]:
    """FreeDict's English dictionary of a language and the same turned round, if installed.

    Only words that are said of pictures are taken, translations by how often they are.
    """
    installed = {} if folder is None else {
        normalise_language(path.stem.rpartition("-")[2]): path
        for path in sorted(folder.glob("freedict-eng-*.index"))
    }  # fmt: skip
    if language not in installed:
        return Dictionary((), source=PIVOT), Dictionary((), source=language)
    english, other = _counts(described, PIVOT), _counts(described, language)
    there = Dictionary(
        (
            (word, translation)
            for word, translation in open_dictionary(installed[language], source=PIVOT).pairs()
            if word in english and translation.lower() in other
        ),
        source=PIVOT,
    )
    return there.ranked(other), there.reversed(source=language).ranked(english)


def _counts(records: Sequence[Record], language: str) -> Mapping[str, int]:
    texts = (text for record in records for text in record.captions.get(language, ()))
    return WordTokenizer.from_texts(texts, language).counts
