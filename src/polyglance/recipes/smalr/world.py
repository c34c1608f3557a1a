"""What a word model is trained and measured on: words, captions and pictures, side by side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from polyglance.data.captions import CaptionTable
from polyglance.errors import PolyglanceError
from polyglance.evaluation.retrieval import RetrievalResult
from polyglance.models.smalr import SMALR
from polyglance.models.word_folder import SeenBy
from polyglance.recipes.dictionaries import learned_dictionaries
from polyglance.recipes.measuring import measure
from polyglance.recipes.mmp.feature_sources import StoreFeatures, feature_table, open_features
from polyglance.recipes.smalr.recipe import WordRecipe
from polyglance.recipes.smalr.texts import (
    SPLITS,
    Dictionaries,
    WordTexts,
    only_records,
    prepare_texts,
    renumbered,
)
from polyglance.records import read_manifest
from polyglance.text.lexicon import Lexicon
from polyglance.training.visuals import FeatureTable
from polyglance.weights import cache_folder

LEARNED = "learned"
"""Dictionaries that are made from captions and translations."""


@dataclass(frozen=True, eq=False)
class World:
    """What a model is trained and measured on."""

    texts: WordTexts
    lexicon: Lexicon
    captions: Mapping[str, CaptionTable]
    """By split, in the numbers of ``lexicon``, whose languages they count by."""
    vectors: Tensor
    visuals: Mapping[str, FeatureTable]
    seen_by: SeenBy
    said: Mapping[str, int]
    """How many words there are in the test captions of each language, known ones or not."""
    dictionaries: Dictionaries | None
    cache: Path

    @property
    def width(self) -> int:
        """Of the pictures' features."""
        return int(self.visuals["train"].features.shape[1])

    @property
    def device(self) -> torch.device:
        """Where everything lies."""
        return self.visuals["train"].features.device

    @classmethod
    def open(cls, recipe: WordRecipe, data: Path, device: str) -> World:
        """Read what a recipe names, and have the lexicon that it asks for."""
        named = {split: getattr(recipe, split) for split in SPLITS}
        cache = cache_folder() if recipe.cache is None else Path(recipe.cache)
        texts = prepare_texts(
            {split: data / pictured.manifest for split, pictured in named.items()},
            recipe.languages,
            recipe.word_vectors,
            recipe.vectors_width,
            cache=cache,
            device=device,
        )
        visuals, captions = {}, {}
        for split, pictured in named.items():
            kept, visuals[split], seen_by = _pictures(
                data / pictured.manifest, data / pictured.features, device
            )
            captions[split] = only_records(texts.captions[split], kept)
        said = dict(zip(texts.lexicon.languages, texts.said[kept].sum(0).tolist(), strict=True))
        texts = replace(texts, captions=captions)
        dictionaries = open_dictionaries(recipe, data, cache)
        world = cls(
            texts, texts.lexicon, captions, torch.from_numpy(texts.vectors), visuals, seen_by,
            said, dictionaries, cache,
        )  # fmt: skip
        return world._among(_lexicon(recipe, texts, dictionaries))

    def measure(self, model: SMALR, split: str) -> dict[str, RetrievalResult]:
        """How well a model does on a split."""
        return measure(model, self.captions[split], self.visuals[split])

    def of_language(self, language: str) -> World:
        """One language alone."""
        return self._among(Lexicon({language: self.lexicon.counts[language]}))

    def translated(self, target: str) -> World:
        """One language alone, and all captions to be measured translated into it.

        The tables of captions go on counting the languages that they were in.
        """
        assert self.dictionaries is not None
        alone = self.of_language(target)
        to_number = self.texts.numbers(alone.lexicon)
        captions = {"train": alone.captions["train"]}
        everything = np.zeros(len(self.texts.lexicon), np.int64)
        for source in self.texts.lexicon.languages:
            here = self.texts.lexicon.language_of == self.texts.lexicon.languages.index(source)
            numbers = self.dictionaries.numbers(self.texts, source, target)
            everything[here] = to_number[numbers[here]]
        for split in ("validation", "test"):
            captions[split] = renumbered(self.texts.captions[split], everything)
        return replace(alone, captions=captions)

    def _among(self, lexicon: Lexicon) -> World:
        texts = self.texts.among(lexicon) if lexicon is not self.texts.lexicon else self.texts
        return replace(
            self, lexicon=lexicon, captions=texts.captions, vectors=torch.from_numpy(texts.vectors)
        )


def open_dictionaries(recipe: WordRecipe, data: Path, cache: Path) -> Dictionaries | None:
    """Those that a recipe names, or has learned from its captions and translations."""
    if recipe.dictionaries is None:
        return None
    if recipe.dictionaries != LEARNED:
        return Dictionaries(str(data / recipe.dictionaries))
    parallel = None if recipe.parallel is None else data / recipe.parallel
    if parallel is not None and not parallel.is_file():
        raise PolyglanceError(f"there are no translations {parallel}: set parallel to null")
    return Dictionaries(
        learned_dictionaries(data / recipe.train.manifest, parallel, recipe.languages, cache=cache)
    )


@lru_cache(maxsize=8)
def _pictures(
    manifest: Path, features: Path, device: str
) -> tuple[np.ndarray[Any, np.dtype[np.int64]], FeatureTable, SeenBy]:
    """Which records of a manifest have features, and these, one vector a picture."""
    source = open_features([features], whole_first=True)
    records = list(read_manifest(manifest))
    place = {id(record): number for number, record in enumerate(records)}
    longest, seen_by = None, SeenBy()
    if isinstance(source, StoreFeatures):  # whose first vector is that of the whole
        longest, seen_by = 1, SeenBy.of(source.store.info.made_by)
    kept, table = feature_table(records, source, longest=longest, device=device)
    return np.array([place[id(record)] for record in kept], np.int64), table, seen_by


def _lexicon(recipe: WordRecipe, texts: WordTexts, dictionaries: Dictionaries | None) -> Lexicon:
    """The words that models of this recipe know."""
    lexicon = texts.lexicon
    if recipe.min_count > 1:
        lexicon = lexicon.without_rare(recipe.min_count)
    if recipe.dictionary_below > 0 and dictionaries is not None:
        others = [code for code in lexicon.languages if code != dictionaries.pivot]
        opened = {code: dictionaries.open(code, dictionaries.pivot) for code in others}
        lexicon = lexicon.with_dictionaries(
            opened, recipe.dictionary_below, pivot=dictionaries.pivot
        )
    return lexicon
