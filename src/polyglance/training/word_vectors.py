"""Vectors for the words of a lexicon, wherever they come from.

SMALR starts from fastText's published vectors. Where nobody has those, they are
learned from the captions themselves (``skipgram``) or drawn from a multilingual
sentence encoder (``e5-small``), whose words share one space in all languages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from polyglance import weights
from polyglance.errors import PolyglanceError
from polyglance.nn.encoder import Encoder
from polyglance.nn.packing import Packing
from polyglance.nn.pretrained import load_encoder
from polyglance.records import read_manifest
from polyglance.text import Tokenizer, open_tokenizer
from polyglance.text.lexicon import Lexicon, texts_by_language
from polyglance.text.vector_space import WordSpace, principal_components
from polyglance.text.word_vectors import open_word_vectors
from polyglance.training.skipgram import SkipGramSettings, learn_word_vectors
from polyglance.utils.progress import progress

Vectors = NDArray[np.float32]
Reduction = Literal["jointly", "by language"]

SKIPGRAM = "skipgram"
WIDTH = 300
"""Of fastText's published vectors."""


def vectors_for(
    lexicon: Lexicon,
    source: str | Path = SKIPGRAM,
    *,
    texts: Mapping[str, Iterable[str]] | None = None,
    width: int = WIDTH,
    reduction: Reduction = "jointly",
    settings: SkipGramSettings | None = None,
    device: str = "cpu",
    quiet: bool = True,
) -> Vectors:
    """A vector for each word of a lexicon, (len(lexicon), width); padding and mask are zeros.

    ``source`` is one of
    - ``skipgram``: learned language by language from ``texts``, by ``settings``;
    - files of word vectors, with ``{language}`` in their name:
      ``cc.{language}.300.bin``. Words that a file lacks stay zero;
    - an encoder by its name or folder: ``e5-small``.

    Vectors that are wider are reduced to their principal components, of all
    languages together, which keeps one space one, or of each for itself.
    """
    if source == SKIPGRAM:
        if texts is None:
            raise PolyglanceError("skip-gram learns from texts: give them by language")
        chosen = _with_width(settings, width)
        return _by_language(
            lexicon, width, lambda code, words: _learned(lexicon, code, words, texts, chosen, quiet)
        )
    if "{language}" in str(source):
        found = _by_language(
            lexicon, None, lambda code, words: _from_file(str(source), code, words)
        )
    else:
        found = _from_encoder(lexicon, source, device, quiet)
    return _reduced(lexicon, found, width, reduction)


def make_word_space(
    manifests: Sequence[str | Path],
    source: str | Path = SKIPGRAM,
    *,
    languages: Sequence[str] | None = None,
    min_count: int = 1,
    width: int = WIDTH,
    device: str = "cpu",
    quiet: bool = True,
) -> WordSpace:
    """The words of the captions in manifests and their vectors, as `vectors_for` makes them."""
    records = (record for path in manifests for record in read_manifest(path))
    texts = texts_by_language(records, languages)
    lexicon = Lexicon.from_texts(texts, min_count=min_count)
    if not any(lexicon.counts.values()):
        raise PolyglanceError(
            f"{', '.join(map(str, manifests))}: no captions with words in these languages"
        )
    vectors = vectors_for(lexicon, source, texts=texts, width=width, device=device, quiet=quiet)
    return WordSpace(lexicon, vectors)


def encode_words(
    encoder: Encoder,
    tokenizer: Tokenizer,
    words: Sequence[str],
    *,
    prefix: str = "query: ",
    batch: int = 512,
    quiet: bool = True,
) -> Vectors:
    """The mean of an encoder's output over each word standing alone, (n, width).

    ``prefix`` goes before each, as e5 was trained with it; without it words take a
    third of the time and find somewhat less.
    """
    device = next(encoder.parameters()).device
    ids = tokenizer.encode_batch([prefix + word for word in words])
    lengths = np.array([len(one) for one in ids], np.int64)
    order = np.argsort(lengths, kind="stable")  # alike in length, none waits for another
    found = np.zeros((len(words), encoder.config.hidden_size), np.float32)
    with progress("encoding words", len(words), quiet=quiet) as advance, torch.inference_mode():
        for start in range(0, len(words), batch):
            rows = order[start : start + batch]
            packing = Packing.of(lengths[rows], device)
            flat = torch.tensor([number for row in rows for number in ids[row]], device=device)
            found[rows] = packing.mean(encoder(flat, packing)).float().cpu().numpy()
            advance(len(rows))
    return found


class _ByLanguage(Protocol):
    def __call__(self, language: str, words: Sequence[str]) -> Vectors: ...


def _by_language(lexicon: Lexicon, width: int | None, make: _ByLanguage) -> Vectors:
    """Put together what is made of each language's words."""
    blocks = [make(code, list(known)) for code, known in lexicon.counts.items()]
    width = blocks[0].shape[1] if blocks and width is None else width or WIDTH
    widths = {block.shape[1] for block in blocks}
    if widths - {width}:
        raise PolyglanceError(
            f"vectors of {' and '.join(map(str, sorted(widths)))} numbers do not go together:"
            " take files of one width for all languages"
        )
    specials = np.zeros((len(lexicon) - sum(map(len, blocks)), width), np.float32)
    return np.concatenate([specials, *blocks])


def _learned(
    lexicon: Lexicon,
    language: str,
    words: Sequence[str],
    texts: Mapping[str, Iterable[str]],
    settings: SkipGramSettings,
    quiet: bool,
) -> Vectors:
    tokenizer = lexicon.tokenizer(language)
    place = {tokenizer.word_ids[word]: row for row, word in enumerate(words)}
    sentences = tokenizer.encode_batch(list(texts.get(language, ())))
    own = [[place[number] for number in one if number in place] for one in sentences]
    return learn_word_vectors(own, words, settings, quiet=quiet)


def _from_file(pattern: str, language: str, words: Sequence[str]) -> Vectors:
    """A word's vector, or that of its spelling with a capital, as names and German nouns have."""
    path = pattern.replace("{language}", language)
    spellings = [list(words), [word.capitalize() for word in words], [w.upper() for w in words]]
    opened = open_word_vectors(path, words={word for spelled in spellings for word in spelled})
    found, known = opened.vectors(spellings[0])
    for spelled in spellings[1:]:
        missing = np.flatnonzero(~known)
        found[missing], known[missing] = opened.vectors([spelled[row] for row in missing])
    return found


def _from_encoder(lexicon: Lexicon, source: str | Path, device: str, quiet: bool) -> Vectors:
    folder = weights.folder(source)
    encoder, tokenizer = load_encoder(folder).to(device), open_tokenizer(folder)
    specials = int((lexicon.language_ids < 0).sum())
    # A spelling that languages share is encoded once.
    different = list(dict.fromkeys(lexicon.words[specials:]))
    vectors = encode_words(encoder, tokenizer, different, quiet=quiet)
    row_of = {word: row for row, word in enumerate(different)}
    found = np.zeros((len(lexicon), vectors.shape[1]), np.float32)
    found[specials:] = vectors[[row_of[word] for word in lexicon.words[specials:]]]
    return found


def _reduced(lexicon: Lexicon, vectors: Vectors, width: int, reduction: Reduction) -> Vectors:
    if vectors.shape[1] == width:
        return vectors
    if vectors.shape[1] < width:
        raise PolyglanceError(
            f"the vectors have {vectors.shape[1]} numbers, fewer than {width}: ask for as many"
        )
    reduced = np.zeros((len(vectors), width), np.float32)
    language_of = (
        np.minimum(lexicon.language_ids, 0) if reduction == "jointly" else (lexicon.language_ids)
    )
    for language in range(int(language_of.max(initial=-1)) + 1):
        rows = language_of == language
        reduced[rows] = principal_components(vectors[rows], width)
    return reduced


def _with_width(settings: SkipGramSettings | None, width: int) -> SkipGramSettings:
    return replace(settings or SkipGramSettings(), width=width)
