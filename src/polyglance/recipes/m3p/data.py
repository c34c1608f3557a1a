"""The data of an M3P run, read before training starts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from polyglance.data.captions import CaptionTable
from polyglance.data.readers import ReadOptions, read_dataset
from polyglance.errors import PolyglanceError, Problems
from polyglance.recipes.cross_encoder.captions import (
    CaptionSource,
    CodeSwitchedCaptions,
    PlainCaptions,
)
from polyglance.recipes.cross_encoder.data import ENGLISH, Split, SplitReader
from polyglance.recipes.cross_encoder.streaming import LARGE_MANIFEST, cached_captions
from polyglance.recipes.m3p.config import CodeSwitching, M3PRecipe
from polyglance.records import Record
from polyglance.text import Tokenizer, open_tokenizer
from polyglance.text.code_switching import CodeSwitcher
from polyglance.text.dictionaries import open_dictionary
from polyglance.utils.fingerprint import file_stats, fingerprint


@dataclass(frozen=True, eq=False)
class M3PData:
    """Everything that M3P is trained and evaluated on."""

    reader: SplitReader
    tokenizer: Tokenizer
    train: Split
    validation: Split | None
    test: Split | None
    texts: CaptionTable | None
    """The corpus of xMLM: in memory, or memory-mapped if its files are large."""
    switcher: CodeSwitcher | None
    """Replaces English words by translations, if a stage is code-switched."""
    more_validation: tuple[Split, ...] = ()
    """Further validation sets and folds."""
    more_test: tuple[Split, ...] = ()
    """Further test sets and folds."""

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages of all captions and texts, English first."""
        splits = (self.train, self.validation, self.test, *self.more_validation, *self.more_test)
        tables = [split.captions for split in splits if split is not None]
        if self.texts is not None:
            tables.append(self.texts)
        codes = set().union(*(table.present_languages for table in tables))
        return (ENGLISH, *sorted(codes - {ENGLISH}))

    def plain_captions(
        self, languages: Sequence[str] | None, *, language_alpha: float = 0.0
    ) -> CaptionSource:
        """Return training captions as they are.

        Args:
            languages: those to sample from; None for all.
            language_alpha: a language's probability is proportional to the number of its
                captions to this power.

        Returns:
            The captions, sampled by image.
        """
        table = self.train.captions
        counts = np.bincount(table.language_ids, minlength=len(table.language_codes)).astype(float)
        weights = (counts**language_alpha).tolist()
        by_language = dict(zip(table.language_codes, weights, strict=True))
        return PlainCaptions(table, languages=languages, weights=by_language)

    def code_switched_captions(self, config: CodeSwitching, seed: int) -> CaptionSource:
        """Return English training captions, some of them code-switched."""
        if self.switcher is None:
            raise PolyglanceError(
                "code-switching needs languages to switch to: name them in"
                " code_switching.languages, or set code_switched to false"
            )
        return CodeSwitchedCaptions(
            self.train.records,
            self.switcher,
            self.tokenizer,
            alpha=config.alpha,
            variants=config.variants,
            refresh=config.refresh,
            max_tokens=self.reader.max_text_tokens,
            seed=seed,
        )


def load_data(recipe: M3PRecipe, data: Path, device: str) -> M3PData:
    """Read everything that the recipe's stages need.

    Args:
        recipe: names splits, texts and dictionaries.
        data: the data folder.
        device: where regions shall lie.

    Returns:
        The data; what is missing is an error before training.
    """
    tokenizer = open_tokenizer(recipe.encoder)
    reader = SplitReader.from_recipe(recipe, data, tokenizer, device)
    validation, test = reader.read_validation(recipe), reader.read_test(recipe)
    return M3PData(
        reader,
        tokenizer,
        train=reader.read_train(recipe.train, *recipe.extra_train),
        validation=next(iter(validation), None),
        test=next(iter(test), None),
        texts=_read_texts(recipe, data, tokenizer),
        switcher=_open_switcher(recipe.code_switching, data)
        if recipe.uses_code_switching
        else None,
        more_validation=validation[1:],
        more_test=test[1:],
    )


def _read_texts(recipe: M3PRecipe, data: Path, tokenizer: Tokenizer) -> CaptionTable | None:
    """Tokenise the corpus of xMLM; that of large files into the cache folder, record by record."""
    paths = [data / text.manifest for text in recipe.texts]
    files = [file_stats(path) for path in paths if path.exists()]  # the reader names missing ones
    if sum(size for some in files for _, size, _ in some) <= LARGE_MANIFEST:
        sentences = list(_sentences(recipe, data))
        if not sentences:
            return None
        return CaptionTable.build(sentences, tokenizer, max_tokens=recipe.max_text_tokens)
    key = fingerprint(
        files,
        recipe.texts,
        [recipe.encoder, tokenizer.vocab_size, recipe.max_text_tokens],
    )
    return cached_captions(
        _sentences(recipe, data),
        tokenizer,
        data / recipe.streaming.cache_dir / f"texts-{key}",
        key,
        max_tokens=recipe.max_text_tokens,
    )


def _sentences(recipe: M3PRecipe, data: Path) -> Iterator[Record]:
    for text in recipe.texts:
        problems = Problems(strict=True)
        yield from read_dataset(text.format, data / text.manifest, ReadOptions(), problems)


def _open_switcher(config: CodeSwitching, data: Path) -> CodeSwitcher | None:
    dictionaries = {
        language: open_dictionary(data / config.file(language), source=ENGLISH)
        for language in config.languages_in(data)
    }
    if not dictionaries:
        return None
    return CodeSwitcher(
        dictionaries,
        beta=config.beta,
        rank_exponent=config.rank_exponent,
        one_per_sentence=config.one_word_per_sentence,
    )
