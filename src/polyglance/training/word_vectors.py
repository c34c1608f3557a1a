"""Vectors for the words of a lexicon, from several sources.

SMALR starts from fastText's published vectors. Where these are missing, vectors are learned
from the captions themselves (``skipgram``) or computed by a multilingual sentence encoder
(``e5-small``), whose words share one space in all languages.
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
"""Width of fastText's published vectors."""


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
    """Return a vector for each word of a lexicon, ``(words, width)``; padding and mask are zero.

    Args:
        lexicon: The words.
        source: ``skipgram`` learns vectors language by language from ``texts``. A path with
            ``{language}``, such as ``cc.{language}.300.bin``, names files of word vectors;
            words that a file lacks stay zero. Anything else is an encoder, by name or folder.
        texts: By language, for ``skipgram``.
        width: Wider vectors are reduced to their principal components.
        reduction: Whether these are of all languages ``jointly``, which keeps a shared space,
            or ``by language``.
        settings: Of ``skipgram``.
        device: Where an encoder runs.
        quiet: Show no progress.
    """
    if source == SKIPGRAM:
        if texts is None:
            raise PolyglanceError("skip-gram learns from texts: give texts by language")
        skipgram = replace(settings or SkipGramSettings(), width=width)
        return _by_language(
            lexicon, width, lambda code, words: _learn(lexicon, code, words, texts, skipgram, quiet)
        )
    if "{language}" in str(source):
        vectors = _by_language(
            lexicon, None, lambda code, words: _from_file(str(source), code, words)
        )
    else:
        vectors = _from_encoder(lexicon, source, device, quiet)
    return _reduce(lexicon, vectors, width, reduction)


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
    """Return the words of the captions in manifests with their vectors.

    Args:
        manifests: Their captions are the texts.
        source: Of the vectors, as `vectors_for` takes it.
        languages: Languages to keep; None for all.
        min_count: Words with fewer occurrences are dropped.
        width: Of the vectors.
        device: Where an encoder runs.
        quiet: Show no progress.
    """
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
    """Return the mean of an encoder's output over each single word, ``(words, width)``.

    Args:
        encoder: The text encoder.
        tokenizer: Its tokenizer.
        words: The words.
        prefix: Put before each word, as e5 was trained with one; without it words take a third
            of the time and are somewhat less accurate.
        batch: Words encoded at a time.
        quiet: Show no progress.
    """
    device = next(encoder.parameters()).device
    ids = tokenizer.encode_batch([prefix + word for word in words])
    lengths = np.array([len(one) for one in ids], np.int64)
    order = np.argsort(lengths, kind="stable")  # words of similar length share a batch
    vectors = np.zeros((len(words), encoder.config.hidden_size), np.float32)
    with progress("encoding words", len(words), quiet=quiet) as advance, torch.inference_mode():
        for start in range(0, len(words), batch):
            rows = order[start : start + batch]
            packing = Packing.of(lengths[rows], device)
            flat = torch.tensor([number for row in rows for number in ids[row]], device=device)
            vectors[rows] = packing.mean(encoder(flat, packing)).float().cpu().numpy()
            advance(len(rows))
    return vectors


class _ByLanguage(Protocol):
    def __call__(self, language: str, words: Sequence[str]) -> Vectors: ...


def _by_language(lexicon: Lexicon, width: int | None, make: _ByLanguage) -> Vectors:
    """Concatenate the vectors of each language's words, after zeros for padding and mask."""
    blocks = [make(code, list(counts)) for code, counts in lexicon.counts.items()]
    width = blocks[0].shape[1] if blocks and width is None else width or WIDTH
    widths = {block.shape[1] for block in blocks}
    if widths - {width}:
        raise PolyglanceError(
            f"vectors of widths {' and '.join(map(str, sorted(widths)))} cannot be combined:"
            " use files of one width for all languages"
        )
    specials = np.zeros((len(lexicon) - sum(map(len, blocks)), width), np.float32)
    return np.concatenate([specials, *blocks])


def _learn(
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
    """Look up words, also capitalised or in capitals, as names and German nouns are."""
    path = pattern.replace("{language}", language)
    spellings = [list(words), [word.capitalize() for word in words], [w.upper() for w in words]]
    file = open_word_vectors(path, words={word for spelled in spellings for word in spelled})
    vectors, known = file.vectors(spellings[0])
    for spelled in spellings[1:]:
        missing = np.flatnonzero(~known)
        vectors[missing], known[missing] = file.vectors([spelled[row] for row in missing])
    return vectors


def _from_encoder(lexicon: Lexicon, source: str | Path, device: str, quiet: bool) -> Vectors:
    folder = weights.folder(source)
    encoder, tokenizer = load_encoder(folder).to(device), open_tokenizer(folder)
    specials = int((lexicon.language_ids < 0).sum())
    # A spelling that languages share is encoded once.
    spellings = list(dict.fromkeys(lexicon.words[specials:]))
    encoded = encode_words(encoder, tokenizer, spellings, quiet=quiet)
    row_of = {word: row for row, word in enumerate(spellings)}
    vectors = np.zeros((len(lexicon), encoded.shape[1]), np.float32)
    vectors[specials:] = encoded[[row_of[word] for word in lexicon.words[specials:]]]
    return vectors


def _reduce(lexicon: Lexicon, vectors: Vectors, width: int, reduction: Reduction) -> Vectors:
    if vectors.shape[1] == width:
        return vectors
    if vectors.shape[1] < width:
        raise PolyglanceError(
            f"the vectors have width {vectors.shape[1]}, less than {width}: ask for that width"
        )
    reduced = np.zeros((len(vectors), width), np.float32)
    language_of = (
        np.minimum(lexicon.language_ids, 0) if reduction == "jointly" else (lexicon.language_ids)
    )
    for language in range(int(language_of.max(initial=-1)) + 1):
        rows = language_of == language
        reduced[rows] = principal_components(vectors[rows], width)
    return reduced
