"""``polyglance text``: tokenize, align and code-switch texts, and make word vectors."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from polyglance.cli.output import Quiet, Strict, parse_language, print_skipped, split_names
from polyglance.errors import PolyglanceError, Problems

app = typer.Typer(
    no_args_is_help=True, help="Text tools: tokenize, align, code-switch, word vectors."
)
vectors_app = typer.Typer(no_args_is_help=True, help="Word vectors in many languages.")
app.add_typer(vectors_app, name="vectors")


@app.command("tokenize")
def text_tokenize(
    sentences: Annotated[list[str], typer.Argument(help="Sentences to tokenize.")],
    tokenizer: Annotated[
        str, typer.Option(help="Name of weights, a folder, or a SentencePiece .model file.")
    ] = "e5-small",
) -> None:
    """Print the tokens of sentences and their ids."""
    from polyglance.text import open_tokenizer

    opened = open_tokenizer(tokenizer)
    for sentence in sentences:
        encoding = opened.encode_with_spans(sentence)
        print(" ".join(encoding.tokens))
        print(" ".join(map(str, encoding.ids)))


@app.command("align")
def text_align(
    sources: Annotated[
        list[Path],
        typer.Argument(
            help="Two parallel text files, one file with ||| between the sides, or a dataset."
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(help="Write the links to this file instead of the terminal.")
    ] = None,
    languages: Annotated[
        str | None,
        typer.Option(help="en,de: segment words by their rules; default: split at spaces."),
    ] = None,
    segment: Annotated[
        bool,
        typer.Option("--segment", help="Segment Chinese and Japanese words with dictionaries."),
    ] = False,
    dictionary: Annotated[
        Path | None, typer.Option(help="Write the linked words as a dictionary.")
    ] = None,
    tokens: Annotated[
        Path | None,
        typer.Option(help="Write the words that the links refer to, as source ||| target."),
    ] = None,
    links: Annotated[
        Path | None,
        typer.Option(
            help="Use links of another aligner, such as eflomal, instead of learning them."
        ),
    ] = None,
    symmetry: Annotated[
        str | None,
        typer.Option(help="Symmetrisation: intersection, union or grow-diag-final-and (default)."),
    ] = None,
    fast_align: Annotated[
        bool, typer.Option("--fast-align", help="Use the plain fast_align model.")
    ] = False,
    format: Annotated[
        str | None,
        typer.Option(help="Format of the dataset (`polyglance data formats`); default: jsonl."),
    ] = None,
    strict: Strict = False,
) -> None:
    """Align the words of translations; print links such as 0-0 1-2, one line per pair.

    Files with ||| are in the format of fast_align. A dataset is a manifest, JSON lines of
    sentences by language, or anything that `polyglance data import` takes; the k-th caption of
    the first language is a translation of the k-th of the second.
    """
    from polyglance.data.parallel import read_parallel
    from polyglance.text.alignment import AlignerSettings, align
    from polyglance.text.alignment.links import (
        format_pharaoh,
        parse_symmetry,
        read_links,
        write_pharaoh,
    )
    from polyglance.text.learned_dictionary import dictionary_from_links

    if links and (fast_align or symmetry is not None):
        unused = "--fast-align" if fast_align else "--symmetry"
        raise PolyglanceError(
            f"--links uses existing links, so {unused} has no effect: leave one of the two out"
        )
    with _reporting(Problems(strict=strict)) as problems:
        text = read_parallel(
            sources, _codes(languages), format=format, segment=segment, problems=problems
        )
    if links:
        alignments = read_links(links, text.pairs)
    else:
        settings = AlignerSettings.fast_align() if fast_align else AlignerSettings()
        method = parse_symmetry("grow-diag-final-and" if symmetry is None else symmetry)
        alignments = align(text.lowercased(), settings, symmetry=method).links
    if dictionary:
        learned = dictionary_from_links(
            text.pairs, alignments, source=text.source, target=text.target
        )
        learned.save(dictionary)
        print(f"{dictionary}: {len(learned):,} words", file=sys.stderr)
    if tokens:
        print(f"{tokens}: {text.write(tokens):,} lines", file=sys.stderr)
    if out:
        print(f"{out}: {write_pharaoh(out, alignments):,} lines", file=sys.stderr)
    elif not dictionary:
        for line in alignments:
            print(format_pharaoh(line))


@app.command("code-switch")
def text_code_switch(
    texts: Annotated[
        list[str] | None,
        typer.Argument(help="Sentences, text files or manifests; else standard input."),
    ] = None,
    languages: Annotated[
        str | None,
        typer.Option(help="Target languages: de,fr,...; default: all in the dictionaries."),
    ] = None,
    beta: Annotated[float, typer.Option(help="Probability of replacing a word.")] = 0.5,
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 0,
    source: Annotated[str, typer.Option(help="Language of the text.")] = "en",
    dictionaries: Annotated[
        list[str] | None,
        typer.Option(
            help="Folders, files or patterns, dir/en-*.txt; default: Debian's FreeDict; repeatable."
        ),
    ] = None,
    ranked_by: Annotated[
        Path | None,
        typer.Option(help="Manifest whose captions rank the translations."),
    ] = None,
    preference: Annotated[
        float,
        typer.Option(
            help="Preference for high-ranked translations; 0 draws uniformly, as M3P does."
        ),
    ] = 2.0,
    max_phrase_words: Annotated[
        int, typer.Option(min=1, help="Replace known phrases of up to so many words as a whole.")
    ] = 1,
    variants: Annotated[int, typer.Option(min=1, help="Number of variants of each text.")] = 1,
    out: Annotated[
        Path | None, typer.Option(help="File to write; a manifest for manifests.")
    ] = None,
    strict: Strict = False,
    quiet: Quiet = False,
) -> None:
    """Replace words with translations in other languages, as M3P does for training."""
    import numpy as np

    from polyglance.cli.code_switch import (
        code_switch_machine_captions,
        code_switch_records,
        print_texts,
        rank_by_captions,
        read_texts,
    )
    from polyglance.data.machine_captions import update_machine_captions
    from polyglance.records import atomic_write, write_manifest
    from polyglance.text.code_switching import CodeSwitcher
    from polyglance.text.dictionary_files import FREEDICT_FOLDER, open_dictionaries

    source = parse_language(source)
    with _reporting(Problems(strict=strict)) as problems:
        originals, records = read_texts(texts or (), source, problems, out)
        opened = open_dictionaries(
            dictionaries or (FREEDICT_FOLDER,),
            source=source,
            languages=_codes(languages),
            problems=problems,
            quiet=quiet,
        )
        if ranked_by:
            # Problems of a manifest that is also an input are reported once.
            is_input = ranked_by in map(Path, texts or ())
            opened = rank_by_captions(opened, ranked_by, Problems() if is_input else problems)
    switcher = CodeSwitcher(
        opened,
        beta=beta,
        source=source,
        rank_exponent=preference,
        max_phrase_words=max_phrase_words,
    )
    prepared, rng = switcher.prepare(originals), np.random.default_rng(seed)
    rows = np.repeat(np.arange(len(originals)), variants)
    switched = prepared.draw(rng, rows)
    if out is None:
        print_texts([originals[row] for row in rows], switched, opened)
    elif records is None:
        with atomic_write(out) as file:
            file.writelines(f"{text.text}\n" for text in switched)
    else:
        new_records = list(code_switch_records(records, source, switched, variants))
        machine = code_switch_machine_captions(texts or (), source, variants)
        write_manifest(out, new_records)
        update_machine_captions(out, new_records, machine)
    if out:
        print(
            f"{out}: {len(switched):,} texts, {prepared.coverage:.0%} of words in the dictionaries"
        )


@vectors_app.command("make")
def text_vectors_make(
    manifests: Annotated[
        list[Path], typer.Argument(help="Manifests whose captions' words get vectors.")
    ],
    out: Annotated[Path, typer.Option(help="Folder for the words and their vectors.")],
    source: Annotated[
        str,
        typer.Option(help="Files such as cc.{language}.300.bin, an encoder's name, or skipgram."),
    ] = "skipgram",
    languages: Annotated[str | None, typer.Option(help="Only these languages: en,de,...")] = None,
    min_count: Annotated[int, typer.Option(help="Minimum number of occurrences of a word.")] = 1,
    width: Annotated[int, typer.Option(help="Vector dimensions.")] = 300,
    device: Annotated[str, typer.Option(help="Device: cpu, cuda, ...")] = "cpu",
    quiet: Quiet = False,
) -> None:
    """Make vectors for the words of captions: learned, from an encoder, or from files."""
    from polyglance.training.word_vectors import make_word_space

    space = make_word_space(
        manifests,
        source,
        languages=split_names(languages),
        min_count=min_count,
        width=width,
        device=device,
        quiet=quiet,
    )
    space.save(out)
    print(f"{out}: {len(space.lexicon):,} words of {', '.join(space.lexicon.languages)}")


@vectors_app.command("neighbors")
def text_vectors_neighbors(
    folder: Annotated[Path, typer.Argument(help="Folder of `text vectors make`.")],
    word: Annotated[str, typer.Argument(help="A word.")],
    language: Annotated[str, typer.Option(help="The word's language.")] = "en",
    among: Annotated[
        str | None,
        typer.Option(help="Search these languages: en,de,...; their vectors must share a space."),
    ] = None,
    count: Annotated[int, typer.Option(min=1, help="Number of neighbours (top-k).")] = 10,
) -> None:
    """Print the words with the most similar vectors."""
    from polyglance.text.vector_space import WordSpace

    for neighbour in WordSpace.open(folder).neighbours(
        word, language, count, languages=split_names(among)
    ):
        print(f"{neighbour.cosine:.3f}  {neighbour.language}  {neighbour.word}")


@contextmanager
def _reporting(problems: Problems) -> Iterator[Problems]:
    """Print what was skipped, also before an error, which it may explain."""
    try:
        yield problems
    finally:
        print_skipped(problems)


def _codes(text: str | None) -> list[str] | None:
    names = split_names(text)
    return None if names is None else [parse_language(name) for name in names]
