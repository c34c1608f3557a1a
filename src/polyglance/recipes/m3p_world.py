"""What M3P is trained and measured on: regions, captions, texts and dictionaries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from polyglance.data.captions import CaptionTable
from polyglance.data.readers import ReadOptions, read
from polyglance.errors import PolyglanceError, Problems
from polyglance.objectives.masked_language import WordMasking
from polyglance.recipes.common import spoken
from polyglance.records import Record, read_manifest
from polyglance.text import Tokenizer, open_tokenizer
from polyglance.text.code_switching import CodeSwitcher
from polyglance.text.dictionaries import open_dictionary
from polyglance.training.caption_sources import (
    CaptionSource,
    CodeSwitchedCaptions,
    PlainCaptions,
)
from polyglance.training.region_table import RegionTable
from polyglance.vision.store import FeatureStore

if TYPE_CHECKING:
    from polyglance.recipes.m3p import M3PRecipe

ENGLISH = "en"


@dataclass(frozen=True)
class Described:
    """Pictures with captions, and a feature store of their regions, inside the data folder."""

    manifest: str
    features: str


@dataclass(frozen=True)
class Sentences:
    """Text without pictures, for xMLM."""

    manifest: str
    format: str = "jsonl"
    """One of `polyglance.data.readers.FORMATS`."""


@dataclass(frozen=True)
class CodeSwitching:
    """How captions are code-switched (section 3.1)."""

    dictionaries: str = "dictionaries/{source}-{target}.tsv"
    """Files inside the data folder, with {source} and {target} for the codes of languages."""
    languages: tuple[str, ...] = ()
    """Those that English words are switched to."""
    alpha: float = 0.5
    """The share of captions that are switched."""
    beta: float = 0.5
    """The share of words that are, in those."""
    preference: float = 2.0
    """For the first translations of a word; 0 draws evenly among all, as the paper does."""
    one_a_sentence: bool = False
    """One word a sentence instead, as the published code pre-trains."""
    variants: int = 4
    refresh: int = 2000


@dataclass(frozen=True, eq=False)
class Split:
    """Pictures and captions of one part of the data."""

    records: Sequence[Record]
    regions: RegionTable
    captions: CaptionTable


@dataclass(frozen=True, eq=False)
class World:
    """What a model is trained and measured on."""

    recipe: M3PRecipe
    tokenizer: Tokenizer
    train: Split
    validation: Split | None
    test: Split | None
    texts: CaptionTable | None
    switcher: CodeSwitcher | None

    @classmethod
    def open(cls, recipe: M3PRecipe, data: Path, device: str) -> World:
        """Read what a recipe names; what is missing is found out before training."""
        tokenizer = open_tokenizer(recipe.encoder)

        def split(described: Described | None, most: int | None = None) -> Split | None:
            if described is None:
                return None
            # A picture without captions is no query, but a candidate all the same.
            pictures = (r for r in read_manifest(data / described.manifest) if r.image or r.video)
            records = list(islice(pictures, most))
            return _split(
                records, FeatureStore(data / described.features), recipe, tokenizer, device
            )

        train = split(recipe.train)
        assert train is not None
        sentences = [
            record
            for text in recipe.texts
            for record in read(
                text.format, data / text.manifest, ReadOptions(), Problems(strict=True)
            )
        ]
        return cls(
            recipe=recipe,
            tokenizer=tokenizer,
            train=train,
            validation=split(recipe.validation, recipe.validate_on),
            test=split(recipe.test, recipe.test_on),
            texts=(
                CaptionTable.build(sentences, tokenizer, longest=recipe.longest_text)
                if sentences
                else None
            ),
            switcher=_switcher(recipe.switching, data),
        )

    @property
    def languages(self) -> tuple[str, ...]:
        """All that anything is in, English first."""
        tables = [s.captions for s in (self.train, self.validation, self.test) if s is not None]
        names = set().union(*map(spoken, tables), spoken(self.texts) if self.texts else ())
        return (ENGLISH, *sorted(names - {ENGLISH}))

    def captions(self, *, switched: bool, languages: Sequence[str] | None) -> CaptionSource:
        """Captions to train on: in these languages, or English ones code-switched."""
        recipe = self.recipe.switching
        if not switched:
            return PlainCaptions(self.train.captions, languages=languages)
        if self.switcher is None:
            raise PolyglanceError(
                "code-switching needs languages to switch to: name them in switching.languages,"
                " or set switched to false"
            )
        return CodeSwitchedCaptions(
            self.train.records,
            self.switcher,
            self.tokenizer,
            alpha=recipe.alpha,
            variants=recipe.variants,
            refresh=recipe.refresh,
            longest=self.recipe.longest_text,
        )

    @property
    def masking(self) -> WordMasking:
        """BERT's rates, with the mask and the words of the tokenizer."""
        mask, size = self.tokenizer.mask_id, self.tokenizer.vocab_size
        if mask is None:
            raise PolyglanceError(f"the tokenizer of {self.recipe.encoder} has no mask")
        specials = (
            self.tokenizer.bos_id,
            self.tokenizer.eos_id,
            self.tokenizer.pad_id,
            self.tokenizer.unk_id,
        )
        first = 1 + max((number for number in specials if number is not None), default=-1)
        return WordMasking(mask, (first, mask if mask > first else size))


def _split(
    records: Sequence[Record],
    store: FeatureStore,
    recipe: M3PRecipe,
    tokenizer: Tokenizer,
    device: str,
) -> Split:
    keys = [store.find(record) for record in records]
    if missing := [record.key for record, key in zip(records, keys, strict=True) if key is None]:
        raise PolyglanceError(
            f"{store.path} has no regions of {len(missing):,} pictures, such as {missing[0]!r}:"
            " run 'polyglance features extract' on them"
        )
    regions = RegionTable.of_store(
        store,
        [key for key in keys if key is not None],
        longest=recipe.longest_regions,
        whole_first=recipe.whole_first,
        device=device,
    )
    return Split(
        records, regions, CaptionTable.build(records, tokenizer, longest=recipe.longest_text)
    )


def _switcher(settings: CodeSwitching, data: Path) -> CodeSwitcher | None:
    if not settings.languages:
        return None
    dictionaries = {}
    for language in settings.languages:
        name = settings.dictionaries.replace("{source}", ENGLISH).replace("{target}", language)
        dictionaries[language] = open_dictionary(data / name, source=ENGLISH)
    return CodeSwitcher(
        dictionaries,
        beta=settings.beta,
        preference=settings.preference,
        one_a_sentence=settings.one_a_sentence,
    )
