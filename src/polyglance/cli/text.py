"""``polyglance text``: words."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from polyglance.cli.telling import Quiet, names

app = typer.Typer(no_args_is_help=True, help="Words: tokenize, and vectors of them.")
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
