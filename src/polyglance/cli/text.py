"""``polyglance text``: words."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from polyglance.cli.output import Quiet, Strict, language_code, names, tell
from polyglance.errors import PolyglanceError, Problems

app = typer.Typer(
    no_args_is_help=True, help="Words: tokenize, align, code-switch, and vectors of them."
)
vectors_app = typer.Typer(no_args_is_help=True, help="Vectors of the words of many languages.")
app.add_typer(vectors_app, name="vectors")


@app.command("tokenize")
def text_tokenize(
    sentences: Annotated[list[str], typer.Argument(help="What to cut up.")],
    tokenizer: Annotated[
        str, typer.Option(help="Known weights, a folder, or a SentencePiece .model file.")
    ] = "e5-small",
) -> None:
    """Show the tokens of sentences and their ids."""
    from polyglance.text import open_tokenizer

    opened = open_tokenizer(tokenizer)
    for sentence in sentences:
        encoding = opened.analyse(sentence)
        print(" ".join(encoding.tokens))
        print(" ".join(map(str, encoding.ids)))


@app.command("align")
def text_align(
    sources: Annotated[
        list[Path],
        typer.Argument(
            help="Two files, line by line translations; one of them, with ||| between; a dataset."
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(help="Write the links here, not to the screen.")
    ] = None,
    languages: Annotated[
        str | None,
        typer.Option(help="en,de: cut words by their rules. Else words have spaces between them."),
    ] = None,
    segment: Annotated[
        bool, typer.Option("--segment", help="Words of Chinese and Japanese by their dictionaries.")
    ] = False,
    dictionary: Annotated[
        Path | None, typer.Option(help="Write what words are linked to as a dictionary.")
    ] = None,
    tokens: Annotated[
        Path | None, typer.Option(help="Write the words that the links count: some ||| others.")
    ] = None,
    links: Annotated[
        Path | None, typer.Option(help="Take links that eflomal, say, wrote, and learn none.")
    ] = None,
    symmetry: Annotated[
        str | None,
        typer.Option(help="intersection, union or grow-diag-final-and, as without it."),
    ] = None,
    fast_align: Annotated[
        bool, typer.Option("--fast-align", help="fast_align's model alone.")
    ] = False,
    format: Annotated[
        str | None,
        typer.Option(help="The dataset's, one of `polyglance data formats`; jsonl without it."),
    ] = None,
    strict: Strict = False,
) -> None:
    """Find which words of translations mean the same: 0-0 1-2 a line, from source to target.

    Words, ||| and their translation a line are what fast_align reads. A dataset is a
    manifest, JSON lines of sentences by language, or anything that `polyglance data
    import` takes. The k-th caption of the first language is a translation of the
    k-th of the second.
    """
    from polyglance.data.parallel import read_parallel
    from polyglance.text.alignment import AlignerSettings, align
    from polyglance.text.alignment.links import as_symmetry, pharaoh, read_links, write_pharaoh
    from polyglance.text.learned_dictionary import learned_dictionary

    if links and (fast_align or symmetry is not None):
        unused = "--fast-align" if fast_align else "--symmetry"
        raise PolyglanceError(
            f"--links takes links as they are and learns none, so that {unused} would do nothing:"
            " give one of the two"
        )
    with _told(Problems(strict=strict)) as problems:
        text = read_parallel(
            sources, _codes(languages), format=format, segment=segment, problems=problems
        )
    if links:
        found = read_links(links, text.pairs)
    else:
        settings = AlignerSettings.fast_align() if fast_align else AlignerSettings()
        joining = as_symmetry("grow-diag-final-and" if symmetry is None else symmetry)
        found = align(text.plain(), settings, symmetry=joining).links
    if dictionary:
        learned = learned_dictionary(text.pairs, found, source=text.source, target=text.target)
        learned.save(dictionary)
        print(f"{dictionary}: {len(learned):,} words", file=sys.stderr)
    if tokens:
        print(f"{tokens}: {text.write(tokens):,} lines", file=sys.stderr)
    if out:
        print(f"{out}: {write_pharaoh(out, found):,} lines", file=sys.stderr)
    elif not dictionary:
        for line in found:
            print(pharaoh(line))


@app.command("code-switch")
def text_code_switch(
    texts: Annotated[
        list[str] | None,
        typer.Argument(help="Sentences, text files or manifests; else standard input."),
    ] = None,
    languages: Annotated[
        str | None, typer.Option(help="Into these: de,fr,... By default all that there are.")
    ] = None,
    beta: Annotated[float, typer.Option(help="How often a word is replaced.")] = 0.5,
    seed: Annotated[int, typer.Option(min=0, help="The same seed makes the same text.")] = 0,
    source: Annotated[str, typer.Option(help="The language of the text.")] = "en",
    dictionaries: Annotated[
        list[str] | None,
        typer.Option(
            help="Folders, files or patterns: dir/en-*.txt. Debian's FreeDict by default."
        ),
    ] = None,
    ranked_by: Annotated[
        Path | None,
        typer.Option(help="A manifest: translations that its captions have come first."),
    ] = None,
    preference: Annotated[
        float, typer.Option(help="For first translations; 0 draws evenly, as M3P does.")
    ] = 2.0,
    longest: Annotated[
        int, typer.Option(min=1, help="Replace phrases of so many words, if known, as one.")
    ] = 1,
    variants: Annotated[int, typer.Option(min=1, help="How many of each text.")] = 1,
    out: Annotated[
        Path | None, typer.Option(help="Write here: for a manifest, a manifest.")
    ] = None,
    strict: Strict = False,
    quiet: Quiet = False,
) -> None:
    """Replace words by translations in other languages, as M3P trains on."""
    import numpy as np

    from polyglance.cli.code_switch import (
        machine_marks,
        ranked_by_captions,
        read_texts,
        show,
        switched_records,
    )
    from polyglance.data.machine_captions import mark_fresh
    from polyglance.records import atomic_write, write_manifest
    from polyglance.text.code_switching import CodeSwitcher
    from polyglance.text.dictionary_files import FREEDICT, open_dictionaries

    source = language_code(source)
    with _told(Problems(strict=strict)) as problems:
        originals, records = read_texts(texts or (), source, problems, out)
        found = open_dictionaries(
            dictionaries or (FREEDICT,),
            source=source,
            languages=_codes(languages),
            problems=problems,
            quiet=quiet,
        )
        if ranked_by:
            # Lines of a manifest that is switched as well are told once.
            is_told = ranked_by in map(Path, texts or ())
            found = ranked_by_captions(found, ranked_by, Problems() if is_told else problems)
    switcher = CodeSwitcher(found, beta=beta, source=source, preference=preference, longest=longest)
    prepared, rng = switcher.prepare(originals), np.random.default_rng(seed)
    rows = np.repeat(np.arange(len(originals)), variants)
    switched = prepared.switched(rng, rows)
    if out is None:
        show([originals[row] for row in rows], switched, found)
    elif records is None:
        with atomic_write(out) as file:
            file.writelines(f"{one.text}\n" for one in switched)
    else:
        made = list(switched_records(records, source, switched, variants))
        marks = machine_marks(texts or (), source, variants)
        write_manifest(out, made)
        mark_fresh(out, made, marks)
    if out:
        print(f"{out}: {len(switched):,} texts, {prepared.coverage:.0%} of words known")


@vectors_app.command("make")
def text_vectors_make(
    manifests: Annotated[list[Path], typer.Argument(help="Whose captions' words.")],
    out: Annotated[Path, typer.Option(help="Folder for the words and their vectors.")],
    source: Annotated[
        str, typer.Option(help="skipgram, an encoder's name, or files: cc.{language}.300.bin")
    ] = "skipgram",
    languages: Annotated[str | None, typer.Option(help="Only these: en,de,...")] = None,
    min_count: Annotated[int, typer.Option(help="Leave rarer words out.")] = 1,
    width: Annotated[int, typer.Option(help="Numbers in a vector.")] = 300,
    device: Annotated[str, typer.Option(help="cpu, cuda ...")] = "cpu",
    quiet: Quiet = False,
) -> None:
    """Number the words of captions and give each a vector: learned, an encoder's, or files'."""
    from polyglance.training.word_vectors import make_word_space

    space = make_word_space(
        manifests,
        source,
        languages=names(languages),
        min_count=min_count,
        width=width,
        device=device,
        quiet=quiet,
    )
    space.save(out)
    print(f"{out}: {len(space.lexicon):,} words of {', '.join(space.lexicon.languages)}")


@vectors_app.command("near")
def text_vectors_near(
    folder: Annotated[Path, typer.Argument(help="What `text vectors make` wrote.")],
    word: Annotated[str, typer.Argument(help="A word.")],
    language: Annotated[str, typer.Option(help="The word's language.")] = "en",
    among: Annotated[
        str | None, typer.Option(help="Look in these: en,de,... (of one space, as e5's are).")
    ] = None,
    count: Annotated[int, typer.Option(min=1, help="How many neighbours.")] = 10,
) -> None:
    """Show the words whose vectors are nearest to a word's."""
    from polyglance.text.vector_space import WordSpace

    for found in WordSpace.open(folder).neighbours(word, language, count, among=names(among)):
        print(f"{found.cosine:.3f}  {found.language}  {found.word}")


@contextmanager
def _told(problems: Problems) -> Iterator[Problems]:
    """Tell what was skipped, before an error as well, which it may explain."""
    try:
        yield problems
    finally:
        tell(problems)


def _codes(text: str | None) -> list[str] | None:
    found = names(text)
    return None if found is None else [language_code(name) for name in found]
