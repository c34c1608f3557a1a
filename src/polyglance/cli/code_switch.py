"""Input and output of `polyglance text code-switch`: sentences, files, manifests, a preview."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from polyglance.data.machine_captions import (
    MachineCaptions,
    machine_captions_path,
    read_with_machine_captions,
)
from polyglance.errors import DataError, PolyglanceError, Problems, printable
from polyglance.languages import get_language
from polyglance.records import Record, decode_lines, read_lines, read_manifest, rebase_paths
from polyglance.text.code_switching import CodeSwitchedText
from polyglance.text.dictionaries import Dictionary
from polyglance.text.segment import normalise_word, word_spans

_COLOURS = ("green", "magenta", "yellow", "cyan", "red", "blue")
_MAX_SENSES = 3
_MANIFESTS = (".jsonl", ".jsonl.gz")
_FILES = (".jsonl", ".json", ".txt", ".tsv", ".gz")
"""Suffixes that mark an argument as a file name, not a sentence."""


def read_texts(
    arguments: Sequence[str], source: str, problems: Problems, out: Path | None = None
) -> tuple[list[str], list[Record] | None]:
    """Read the texts to switch, and their records if the arguments are manifests.

    Args:
        arguments: Sentences, text files or manifests; none for standard input.
        source: Language of the captions to take from manifests.
        problems: Collects malformed lines; it is an error if there are no others.
        out: File that the records will be written to; their paths become relative to its folder.
    """
    if not arguments:
        if sys.stdin.isatty():
            raise PolyglanceError("give a sentence, a text file or a manifest")
        lines = decode_lines(sys.stdin.buffer, "standard input", problems)
        return _require_texts([line for _, line in lines], "standard input", problems), None
    files = [argument for argument in arguments if _is_file(Path(argument))]
    for argument in arguments:
        if argument not in files and _looks_like_file_name(argument):
            raise PolyglanceError(
                f"there is no file {printable(argument)}: name an existing one, "
                "or pass a sentence that looks like a file name through standard input"
            )
    manifests = [name for name in files if name.endswith(_MANIFESTS)]
    if not manifests:
        texts: list[str] = []
        for argument in arguments:
            is_file = argument in files
            texts += (line for _, line in read_lines(argument, problems)) if is_file else [argument]
        return _require_texts(texts, ", ".join(files), problems), None
    if len(manifests) < len(arguments):
        raise PolyglanceError("give manifests, or text files and sentences, not both")
    records = list(_records(manifests, out, problems))
    texts = [text for record in records for text in record.captions.get(source, ())]
    if not texts:
        raise PolyglanceError(f"{', '.join(manifests)}: no record has a caption in {source}")
    return texts, records


def code_switch_records(
    records: Sequence[Record], source: str, switched: Sequence[CodeSwitchedText], variants: int
) -> Iterator[Record]:
    """Yield the records with their source-language captions replaced by switched ones.

    Switched captions keep the source language's code, as M3P gives them its embedding.
    """
    texts = iter(switched)
    for record in records:
        count = variants * len(record.captions.get(source, ()))
        if count:
            captions = {source: tuple(next(texts).text for _ in range(count))}
            record = replace(record, captions={**record.captions, **captions})
        yield record


def code_switch_machine_captions(
    arguments: Sequence[str], source: str, variants: int
) -> list[MachineCaptions] | None:
    """Return the machine captions of each record after switching; None if there are none."""
    if not any(machine_captions_path(name).exists() for name in arguments):
        return None
    return [
        {
            code: tuple(number for number in of for _ in range(variants))
            if code == source
            else tuple(variants * number for number in of)
            for code, of in machine.items()
        }
        for name in arguments
        for _, machine in read_with_machine_captions(name, Problems())
    ]


def rank_by_captions(
    dictionaries: Mapping[str, Dictionary], manifest: Path, problems: Problems | None = None
) -> dict[str, Dictionary]:
    """Return the dictionaries with translations ranked by their frequency in captions.

    Malformed lines go to ``problems``; without it the first one is an error.
    """
    counts: dict[str, Counter[str]] = {language: Counter() for language in dictionaries}
    for record in read_manifest(manifest, problems):
        for language in counts.keys() & record.captions.keys():
            for text in record.captions[language]:
                counts[language].update(
                    normalise_word(text[start:end], language)
                    for start, end in word_spans(text, language)
                )
    return {code: entries.ranked(counts[code]) for code, entries in dictionaries.items()}


def print_texts(
    originals: Sequence[str],
    switched: Sequence[CodeSwitchedText],
    dictionaries: Mapping[str, Dictionary],
) -> None:
    """Print texts, one per line; in a terminal as tables like M3P's Figure 2.

    A table has the original, the code-switched text with its languages in colours, and the
    meanings of its foreign words in the dictionary.
    """
    if not sys.stdout.isatty():
        for result in switched:
            print(result.text)
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    colours = {name: _COLOURS[i % len(_COLOURS)] for i, name in enumerate(dictionaries)}
    meanings = source_words(switched, dictionaries)
    for original, result in zip(originals, switched, strict=True):
        marked, glosses = Text(result.text), Text()
        for span in result.replacements:
            marked.stylize(f"bold {colours[span.language]}", span.start, span.end)
            word = result.text[span.start : span.end]
            senses = meanings.get((span.language, word.lower()), [])
            others = [sense for sense in senses if sense != span.original.lower()]
            meaning = ", ".join([span.original.lower(), *others][:_MAX_SENSES])
            glosses.append(f"{word} ", f"bold {colours[span.language]}")
            glosses.append(f"{get_language(span.language).english_name}: {meaning}\n")
        glosses.rstrip()
        table = Table(show_header=False, show_lines=True)
        for row in (Text(original), marked, glosses):
            table.add_row(row)
        console.print(table)


def source_words(
    switched: Sequence[CodeSwitchedText], dictionaries: Mapping[str, Dictionary]
) -> dict[tuple[str, str], list[str]]:
    """Return the source words of each switched word, by language and switched word."""
    senses_by_language: dict[str, dict[str, list[str]]] = {name: {} for name in dictionaries}
    for result in switched:
        for span in result.replacements:
            senses_by_language[span.language].setdefault(
                result.text[span.start : span.end].lower(), []
            )
    for language, words in senses_by_language.items():
        for word, translation in dictionaries[language].pairs() if words else ():
            if (senses := words.get(translation.lower())) is not None and word not in senses:
                senses.append(word)
    return {
        (name, word): senses
        for name, words in senses_by_language.items()
        for word, senses in words.items()
    }


def _require_texts(texts: list[str], names: str, problems: Problems) -> list[str]:
    """Return the texts; raise an error if there are only malformed lines."""
    if not texts and problems.items:
        raise DataError(f"{printable(names)}: no line can be read: give text in UTF-8")
    return texts


def _records(manifests: Sequence[str], out: Path | None, problems: Problems) -> Iterator[Record]:
    for name in manifests:
        here = Path(name).parent.resolve()
        there = here if out is None else out.parent.resolve()
        for record in read_manifest(name, problems):
            yield rebase_paths(record, here, there)


def _looks_like_file_name(argument: str) -> bool:
    return " " not in argument and ("/" in argument or argument.endswith(_FILES))


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a sentence too long for a file name
        return False
