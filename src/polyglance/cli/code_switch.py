"""What `polyglance text code-switch` takes and gives: sentences, files, manifests, a preview."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from polyglance.data.machine_captions import ByMachine, machine_file, read_with_machine
from polyglance.errors import DataError, PolyglanceError, Problems, printable
from polyglance.languages import describe
from polyglance.records import Record, decoded_lines, read_lines, read_manifest, rebase_paths
from polyglance.text.code_switching import Switched
from polyglance.text.dictionaries import Dictionary
from polyglance.text.segment import cut_words, normalise_word

_COLOURS = ("green", "magenta", "yellow", "cyan", "red", "blue")
_MEANINGS = 3
_MANIFESTS = (".jsonl", ".jsonl.gz")
_FILES = (".jsonl", ".json", ".txt", ".tsv", ".gz")
"""How names of files end that nobody means as a sentence."""


def read_texts(
    arguments: Sequence[str], source: str, problems: Problems, out: Path | None = None
) -> tuple[list[str], list[Record] | None]:
    """The sentences that are given, or the lines of files or of standard input, or the
    captions of manifests in the source language, and then their records as well.

    Malformed lines go to ``problems``; where they are all there is, that is an error.
    Paths in records lead from the folder of ``out``, where they will be written.
    """
    if not arguments:
        if sys.stdin.isatty():
            raise PolyglanceError("give a sentence, a text file or a manifest")
        lines = decoded_lines(sys.stdin.buffer, "standard input", problems)
        return _some([line for _, line in lines], "standard input", problems), None
    files = [argument for argument in arguments if _is_file(Path(argument))]
    for argument in arguments:
        if argument not in files and _looks_like_a_file(argument):
            raise PolyglanceError(
                f"there is no file {printable(argument)}: name one that there is; "
                "a sentence that looks like a file goes through standard input"
            )
    manifests = [name for name in files if name.endswith(_MANIFESTS)]
    if not manifests:
        texts: list[str] = []
        for argument in arguments:
            is_file = argument in files
            texts += (line for _, line in read_lines(argument, problems)) if is_file else [argument]
        return _some(texts, ", ".join(files), problems), None
    if len(manifests) < len(arguments):
        raise PolyglanceError("give manifests, or text files and sentences, not both at once")
    records = list(_records(manifests, out, problems))
    texts = [text for record in records for text in record.captions.get(source, ())]
    if not texts:
        raise PolyglanceError(f"{', '.join(manifests)}: no record has a caption in {source}")
    return texts, records


def switched_records(
    records: Sequence[Record], source: str, switched: Sequence[Switched], variants: int
) -> Iterator[Record]:
    """The records with their captions of the source language switched; others stay.

    Switched captions stay under the source language, whose embedding M3P gives
    them too.
    """
    texts = iter(switched)
    for record in records:
        count = variants * len(record.captions.get(source, ()))
        if count:
            ours = {source: tuple(next(texts).text for _ in range(count))}
            record = replace(record, captions={**record.captions, **ours})
        yield record


def machine_marks(arguments: Sequence[str], source: str, variants: int) -> list[ByMachine] | None:
    """What of each record of manifests a machine made, once switched; None for nothing."""
    if not any(machine_file(name).exists() for name in arguments):
        return None
    return [
        {
            code: tuple(number for number in of for _ in range(variants))
            if code == source
            else tuple(variants * number for number in of)
            for code, of in machine.items()
        }
        for name in arguments
        for _, machine in read_with_machine(name, Problems())
    ]


def ranked_by_captions(
    dictionaries: Mapping[str, Dictionary], manifest: Path, problems: Problems | None = None
) -> dict[str, Dictionary]:
    """The dictionaries with translations first that captions have, the commonest first.

    Malformed lines go to ``problems``; without it the first one is an error.
    """
    counts: dict[str, Counter[str]] = {language: Counter() for language in dictionaries}
    for record in read_manifest(manifest, problems):
        for language in counts.keys() & record.captions.keys():
            for text in record.captions[language]:
                counts[language].update(
                    normalise_word(text[start:end], language)
                    for start, end in cut_words(text, language)
                )
    return {language: found.ranked(counts[language]) for language, found in dictionaries.items()}


def show(
    originals: Sequence[str], switched: Sequence[Switched], dictionaries: Mapping[str, Dictionary]
) -> None:
    """Print texts, one a line; in a terminal in tables, as M3P's Figure 2 has them.

    A table is the original, the code-switched text with its languages in
    colours, and what each of its foreign words means, by the dictionary.
    """
    if not sys.stdout.isatty():
        for found in switched:
            print(found.text)
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    colours = {name: _COLOURS[at % len(_COLOURS)] for at, name in enumerate(dictionaries)}
    meanings = meanings_of(switched, dictionaries)
    for original, found in zip(originals, switched, strict=True):
        text, meant = Text(found.text), Text()
        for span in found.spans:
            text.stylize(f"bold {colours[span.language]}", span.start, span.end)
            word = found.text[span.start : span.end]
            senses = meanings.get((span.language, word.lower()), [])
            others = [sense for sense in senses if sense != span.original.lower()]
            said = ", ".join([span.original.lower(), *others][:_MEANINGS])
            meant.append(f"{word} ", f"bold {colours[span.language]}")
            meant.append(f"{describe(span.language).english}: {said}\n")
        meant.rstrip()
        table = Table(show_header=False, show_lines=True)
        for row in (Text(original), text, meant):
            table.add_row(row)
        console.print(table)


def meanings_of(
    switched: Sequence[Switched], dictionaries: Mapping[str, Dictionary]
) -> dict[tuple[str, str], list[str]]:
    """The words that have a switched word among their translations, by language and that word."""
    asked: dict[str, dict[str, list[str]]] = {name: {} for name in dictionaries}
    for found in switched:
        for span in found.spans:
            asked[span.language].setdefault(found.text[span.start : span.end].lower(), [])
    for language, words in asked.items():
        for word, translation in dictionaries[language].pairs() if words else ():
            if (senses := words.get(translation.lower())) is not None and word not in senses:
                senses.append(word)
    return {(name, word): senses for name, words in asked.items() for word, senses in words.items()}


def _some(texts: list[str], names: str, problems: Problems) -> list[str]:
    """The texts; none where lines were malformed is an error."""
    if not texts and problems.items:
        raise DataError(f"{printable(names)}: no line can be read; give text in UTF-8")
    return texts


def _records(manifests: Sequence[str], out: Path | None, problems: Problems) -> Iterator[Record]:
    for name in manifests:
        here = Path(name).parent.resolve()
        there = here if out is None else out.parent.resolve()
        for record in read_manifest(name, problems):
            yield rebase_paths(record, here, there)


def _looks_like_a_file(argument: str) -> bool:
    return " " not in argument and ("/" in argument or argument.endswith(_FILES))


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a sentence too long to be a name
        return False
