"""Read the data of `SMALRRecipe`: captions as words of a lexicon, word vectors and images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from polyglance.batches.inputs import FeatureTable
from polyglance.data.captions import CaptionTable
from polyglance.errors import PolyglanceError
from polyglance.models.smalr_folder import FeatureInfo
from polyglance.recipes.dictionaries import learned_dictionaries
from polyglance.recipes.mmp.feature_sources import StoreFeatures, feature_table
from polyglance.recipes.smalr.config import SMALRRecipe
from polyglance.recipes.smalr.corpus import corpus_manifests
from polyglance.recipes.smalr.features import open_image_features
from polyglance.recipes.smalr.lexicon_captions import (
    SPLITS,
    DictionaryFiles,
    Indices,
    LexiconCaptions,
    NeverEmpty,
    prepare_captions,
    remap_words,
    select_records,
)
from polyglance.recipes.smalr.translation import CaptionTranslator
from polyglance.records import Record, read_manifest
from polyglance.text.lexicon import Lexicon
from polyglance.weights import cache_folder

LEARNED = "learned"
"""Dictionaries that are learned from captions and translations."""


@dataclass(frozen=True, eq=False)
class SMALRData:
    """Everything that a word model is trained and evaluated on."""

    texts: LexiconCaptions
    """Captions in all words of the training captions."""
    lexicon: Lexicon
    """The model's words, a subset of those."""
    captions: Mapping[str, CaptionTable]
    """By split, as word and language ids of ``lexicon``."""
    vectors: Tensor
    """Initial word vectors, ``(words, width)``."""
    visuals: Mapping[str, FeatureTable]
    """By split, one vector an image."""
    feature_info: FeatureInfo
    """How the images' features were made."""
    word_counts: Mapping[str, int]
    """Number of words in the test captions of each language, known or not."""
    dictionaries: DictionaryFiles | None
    cache_dir: Path
    records: Mapping[str, Sequence[Record]] = field(default_factory=dict)
    """Of validation and test, in the order of ``visuals``: their captions as texts."""
    translator: CaptionTranslator | None = None

    @property
    def feature_width(self) -> int:
        """Return the width of the images' features."""
        return int(self.visuals["train"].features.shape[1])

    @property
    def device(self) -> torch.device:
        """Return the device of the images."""
        return self.visuals["train"].features.device

    def in_language(self, language: str) -> SMALRData:
        """Return the data of one language alone."""
        return self.with_lexicon(Lexicon({language: self.lexicon.counts[language]}))

    def translated_to(self, target: str) -> SMALRData:
        """Return training data of one language, and evaluation captions translated into it.

        By machine where the recipe has translators, else word by word. Caption tables keep the
        numbers of their original languages.
        """
        alone = self.in_language(target)
        captions = {"train": alone.captions["train"]}
        for split in ("validation", "test"):
            if self.translator is not None:
                captions[split] = self._machine_translated(split, target, alone.lexicon)
            else:
                captions[split] = self._word_by_word(split, target, alone.lexicon)
        return replace(alone, captions=captions)

    def _machine_translated(self, split: str, target: str, lexicon: Lexicon) -> CaptionTable:
        assert self.translator is not None
        languages = self.texts.lexicon.languages
        translations = [
            self.translator.translate_records(self.records[split], source, target)
            for source in languages
        ]
        records = [
            Record(
                captions={c: one.captions[target] for c, one in zip(languages, row, strict=True)}
            )
            for row in zip(*translations, strict=True)
        ]
        tokenizer = NeverEmpty(lexicon.tokenizer(target))
        return CaptionTable.build(records, tokenizer, languages=languages)

    def _word_by_word(self, split: str, target: str, lexicon: Lexicon) -> CaptionTable:
        assert self.dictionaries is not None
        to_target = self.texts.mapping_to(lexicon)
        mapping = np.zeros(len(self.texts.lexicon), np.int64)
        for number, source in enumerate(self.texts.lexicon.languages):
            words = self.texts.lexicon.language_ids == number
            translation = self.dictionaries.mapping(self.texts, source, target)
            mapping[words] = to_target[translation[words]]
        return remap_words(self.texts.captions[split], mapping)

    def with_lexicon(self, lexicon: Lexicon) -> SMALRData:
        """Return the same data in the words of a smaller lexicon."""
        texts = self.texts
        if lexicon is not texts.lexicon:
            texts = texts.with_lexicon(lexicon)
        return replace(
            self, lexicon=lexicon, captions=texts.captions, vectors=torch.from_numpy(texts.vectors)
        )


def load_data(recipe: SMALRRecipe, data: Path, device: str) -> SMALRData:
    """Read all that a recipe names, in the words of the lexicon that it asks for.

    Args:
        recipe: The settings.
        data: Folder that the recipe's paths are in.
        device: Where images will lie.
    """
    cache_dir = cache_folder() if recipe.cache_dir is None else Path(recipe.cache_dir)
    translator = None
    if recipe.translators:
        translator = CaptionTranslator(recipe.translators, data, cache_dir, device=device)
    splits = data_files(recipe, data, translator, cache_dir)
    texts = open_captions(recipe, data, splits, cache_dir, device)
    visuals, captions, kept = {}, {}, {}
    for name, (manifest, features) in splits.items():
        records, present, visuals[name], feature_info = read_images(manifest, features, device)
        captions[name] = select_records(texts.captions[name], records)
        if name != "train":
            kept[name] = present
    test_counts = texts.word_counts[records].sum(0).tolist()  # the last split is the test
    texts = replace(texts, captions=captions)
    dictionaries = None
    if recipe.needs_dictionaries or recipe.dictionaries != LEARNED:  # learning takes minutes
        dictionaries = open_dictionaries(recipe, data, cache_dir, splits["train"][0])
    everything = SMALRData(
        texts=texts,
        lexicon=texts.lexicon,
        captions=captions,
        vectors=torch.from_numpy(texts.vectors),
        visuals=visuals,
        feature_info=feature_info,
        word_counts=dict(zip(texts.lexicon.languages, test_counts, strict=True)),
        dictionaries=dictionaries,
        cache_dir=cache_dir,
        records=kept,
        translator=translator,
    )
    return everything.with_lexicon(_model_lexicon(recipe, texts, dictionaries))


def open_captions(
    recipe: SMALRRecipe,
    data: Path,
    splits: Mapping[str, tuple[Path, Path]],
    cache_dir: Path,
    device: str,
) -> LexiconCaptions:
    """Tokenise a recipe's captions and make word vectors, or open them from the cache.

    Args:
        recipe: The settings.
        data: Folder that the recipe's paths are in.
        splits: Of `data_files`.
        cache_dir: Keeps them.
        device: Where an encoder runs.
    """
    return prepare_captions(
        {name: manifest for name, (manifest, _) in splits.items()},
        recipe.languages,
        word_vector_source(recipe, data),
        recipe.word_vector_dim,
        cache_dir=cache_dir,
        device=device,
    )


def data_files(
    recipe: SMALRRecipe, data: Path, translator: CaptionTranslator | None, cache_dir: Path
) -> dict[str, tuple[Path, Path]]:
    """Return the manifest and the features of each split.

    Args:
        recipe: The settings.
        data: Folder that the recipe's paths are in.
        translator: Completes a published corpus.
        cache_dir: Keeps the manifests of a published corpus.
    """
    if recipe.corpus is None:
        splits = {split: getattr(recipe, split) for split in SPLITS}
        return {s: (data / one.manifest, data / one.features) for s, one in splits.items()}
    manifests = corpus_manifests(
        recipe.corpus, recipe.languages, data, translator=translator, cache_dir=cache_dir
    )
    return {split: (path, data / recipe.corpus.features) for split, path in manifests.items()}


def word_vector_source(recipe: SMALRRecipe, data: Path) -> str:
    """Return the recipe's source of word vectors; files may be inside the data folder."""
    inside = data / recipe.word_vectors
    is_inside = "{language}" in recipe.word_vectors and inside.parent.is_dir()
    return str(inside) if is_inside else recipe.word_vectors


def open_dictionaries(
    recipe: SMALRRecipe, data: Path, cache_dir: Path, captions: Path | None = None
) -> DictionaryFiles | None:
    """Open the dictionaries that a recipe names, or learn them from captions and translations.

    Args:
        recipe: The settings.
        data: Folder that the recipe's paths are in.
        cache_dir: Keeps learned dictionaries.
        captions: Manifest of training captions; None for the recipe's.
    """
    if recipe.dictionaries is None:
        return None
    if recipe.dictionaries != LEARNED:
        return DictionaryFiles(str(data / recipe.dictionaries))
    parallel = None if recipe.parallel_text is None else data / recipe.parallel_text
    if parallel is not None and not parallel.is_file():
        raise PolyglanceError(f"{parallel}: no such file; correct parallel_text or set it to null")
    return DictionaryFiles(
        learned_dictionaries(
            captions or data / recipe.train.manifest,
            parallel,
            recipe.languages,
            cache_dir=cache_dir,
        )
    )


@lru_cache(maxsize=8)
def read_images(
    manifest: Path, features: Path, device: str
) -> tuple[Indices, Sequence[Record], FeatureTable, FeatureInfo]:
    """Return a manifest's records that have features, by number, and one vector for each."""
    source = open_image_features(features)
    records = list(read_manifest(manifest))
    numbers = {id(record): number for number, record in enumerate(records)}
    max_tokens, feature_info = None, FeatureInfo()
    if isinstance(source, StoreFeatures):  # its first vector is the global one
        max_tokens, feature_info = 1, FeatureInfo.from_store(source.store.info.made_by)
    present, table = feature_table(records, source, max_tokens=max_tokens, device=device)
    ids = np.array([numbers[id(record)] for record in present], np.int64)
    return ids, present, table, feature_info


def _model_lexicon(
    recipe: SMALRRecipe, texts: LexiconCaptions, dictionaries: DictionaryFiles | None
) -> Lexicon:
    """Return the lexicon of a recipe's models, without rare words."""
    lexicon = texts.lexicon
    if recipe.min_count > 1:
        lexicon = lexicon.without_rare(recipe.min_count)
    if recipe.dictionary_min_count > 0 and dictionaries is not None:
        others = [code for code in lexicon.languages if code != dictionaries.pivot]
        opened = {code: dictionaries.open(code, dictionaries.pivot) for code in others}
        lexicon = lexicon.with_dictionaries(
            opened, recipe.dictionary_min_count, pivot=dictionaries.pivot
        )
    return lexicon
