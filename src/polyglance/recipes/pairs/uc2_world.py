"""What UC2 is trained and measured on: regions and their labels, captions beside captions."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from polyglance.data.captions import CaptionTable
from polyglance.data.readers import read_all
from polyglance.errors import PolyglanceError
from polyglance.objectives.masked_language import WordMasking
from polyglance.progress import progress
from polyglance.recipes.common import spoken
from polyglance.recipes.pairs.label_names import NamedLabels, named_labels
from polyglance.recipes.pairs.region_splits import (
    ENGLISH,
    Split,
    pictures_of,
    store_keys,
    word_masking,
)
from polyglance.recipes.pairs.uc2_recipe import Pretraining, UC2Recipe
from polyglance.records import Record
from polyglance.text import Tokenizer, open_tokenizer
from polyglance.text.dictionaries import open_dictionary
from polyglance.text.translation.batches import translate_all
from polyglance.text.translation.cache import TranslationCache
from polyglance.text.translation.opening import open_translator
from polyglance.text.translators import KnownTranslator, WordByWord
from polyglance.training.caption_pairs import CaptionPairs
from polyglance.training.distribution import rank, wait_for_all
from polyglance.training.early_adaptation import BelievedLabels
from polyglance.training.even_captions import EvenCaptions
from polyglance.training.label_words import LabelWords
from polyglance.training.linked_captions import (
    LinkedPair,
    Pairing,
    link_captions,
    read_linked,
    write_linked,
)
from polyglance.training.uc2_tasks import Corpus
from polyglance.vision.store import FeatureStore


@dataclass(frozen=True, eq=False)
class World:
    """What a model is trained and measured on."""

    recipe: UC2Recipe
    data: Path
    tokenizer: Tokenizer
    train: Split
    validation: Split | None
    test: Split | None

    @classmethod
    def open(cls, recipe: UC2Recipe, data: Path, device: str) -> World:
        """Read what a recipe names; what is missing is found out before training."""
        tokenizer = open_tokenizer(recipe.encoder)
        reader = recipe.reader(data, tokenizer, device)
        return cls(
            recipe,
            data,
            tokenizer,
            train=reader.training(recipe.train, *recipe.more),
            validation=reader.measured(recipe.validation, recipe.validate_on),
            test=reader.measured(recipe.test, recipe.test_on),
        )

    @property
    def languages(self) -> tuple[str, ...]:
        """All that training captions are in, English first."""
        return (ENGLISH, *sorted(spoken(self.train.captions) - {ENGLISH}))

    def corpus(self, languages: Sequence[str] | None = None, *, smoothing: float = 0.0) -> Corpus:
        """Pictures and captions to train on, in these languages or in all."""
        captions = EvenCaptions(self.train.captions, languages=languages, smoothing=smoothing)
        return Corpus(self.train.regions, captions)

    def masking(self, stage: Pretraining) -> WordMasking:
        """How words are hidden."""
        bert = word_masking(self.tokenizer, self.recipe.encoder)
        return replace(bert, masked=stage.masked, random=stage.random)

    @cached_property
    def labels(self) -> NamedLabels:
        """What regions are called."""
        found = named_labels(self.recipe.labels, self.train.captions.names, self.data)
        if int(self.train.regions.labels.max()) >= len(found.names[ENGLISH]):
            raise PolyglanceError(
                f"the store of regions has more labels than the {len(found.names[ENGLISH])} that"
                " have names: give a table of their own in labels.names"
            )
        return found

    @cached_property
    def label_words(self) -> LabelWords:
        """The same in sub-words."""
        return LabelWords(self.labels.names, self.tokenizer)

    def believed(self) -> BelievedLabels:
        """What was behind the labels of the training regions."""
        stores = []
        for part in (self.recipe.train, *self.recipe.more):
            store = FeatureStore(self.data / part.features)
            stores.append((store, store_keys(store, pictures_of(self.data / part.manifest))))
        return BelievedLabels.of_stores(stores, self.train.regions)

    def pairs(self, seen: Sequence[str] | None = None) -> CaptionPairs:
        """Training captions beside English ones, their words linked.

        ``seen`` are the languages that may be seen at all; None for all.
        """
        settings, records = self.recipe.translations, self.train.records
        chosen = settings.languages or self.languages[1:]
        languages = [one for one in chosen if seen is None or one in seen]
        if not languages:
            raise PolyglanceError(
                "VTLM needs captions in another language than English: name one in"
                " pretraining.languages, or set pretraining.mixture.vtlm to 0"
            )
        texts = [
            record
            for text in settings.texts
            for record in read_all(text.format, self.data / text.manifest)
        ]
        linked = {}
        with progress("Linking words", len(languages), quiet=rank() > 0) as advance:
            for language in languages:
                linked[ENGLISH, language] = self._linked(language, texts)
                advance(1)
        return CaptionPairs.of(records, self.train.captions, self.tokenizer, linked)

    def _linked(self, language: str, texts: Sequence[Record]) -> list[LinkedPair]:
        settings, records = self.recipe.translations, self.train.records

        def find() -> list[LinkedPair]:
            return link_captions(records, ENGLISH, language, pairing=settings.pairing, texts=texts)

        if settings.keep is None:
            return find()
        path = self.data / settings.keep / f"{ENGLISH}-{language}.tsv"
        key = _key(settings.pairing, language, [*records, *texts])
        if rank() == 0 and read_linked(path, key) is None:
            write_linked(path, find(), key)
        wait_for_all()
        kept = read_linked(path, key)
        assert kept is not None
        return kept

    def translated(self, split: Split, by: str) -> Split:
        """The same with every caption in English, as the recipe's ``translate_test`` has it.

        What no translator has an answer to stays as it was said.
        """
        records = list(split.records)
        for language in sorted(spoken(split.captions) - {ENGLISH}):
            texts = [text for record in records for text in record.captions.get(language, ())]
            with TranslationCache.open() as cache:
                done = translate_all(self._to_english(by, language), texts, cache, quiet=rank() > 0)
            for number, record in enumerate(records):
                if said := record.captions.get(language):
                    heard = tuple(done.texts.get(text) or text for text in said)
                    records[number] = replace(record, captions={**record.captions, language: heard})
        captions = CaptionTable.build(records, self.tokenizer, longest=self.recipe.longest_text)
        return replace(split, records=records, captions=captions)

    def _to_english(self, by: str, language: str) -> KnownTranslator:
        """A translator by its name or folder, or word by word by a dictionary's file."""
        if by == "apertium":
            return open_translator(by, language, ENGLISH)
        place = self.data / by.replace("{source}", language).replace("{target}", ENGLISH)
        if place.is_dir() or place.suffix == ".argosmodel":
            device = str(self.train.regions.features.device)
            return open_translator(str(place), language, ENGLISH, device=device)
        dictionary = open_dictionary(place, source=language)
        return WordByWord(dictionary, language, ENGLISH, keep_unknown=True)


def _key(pairing: Pairing, language: str, records: Sequence[Record]) -> str:
    """Changes with whatever the links of words hang on."""
    digest = hashlib.sha256(f"{pairing} {language}\n".encode())
    for record in records:
        for code in (ENGLISH, language):
            digest.update("\t".join(record.captions.get(code, ())).encode(errors="replace"))
            digest.update(b"\n")
    return digest.hexdigest()
