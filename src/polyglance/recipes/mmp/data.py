"""Read the corpora of `MMPRecipe`: extracted features with captions or subtitles."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from polyglance.data.captions import CaptionTable
from polyglance.data.lazy_records import select_records
from polyglance.data.name_lists import read_name_list
from polyglance.errors import PolyglanceError
from polyglance.models.mmp import MMPObjective
from polyglance.recipes.mmp.config import FeatureSplit, MMPRecipe, TrainingCorpus
from polyglance.recipes.mmp.evaluation import RetrievalSplit
from polyglance.recipes.mmp.feature_sources import FeatureSource, feature_table, open_features
from polyglance.records import Record, read_manifest
from polyglance.text import Tokenizer, open_tokenizer
from polyglance.vision.feature_sources import made_by


@dataclass(frozen=True, eq=False)
class SubtitledVideos:
    """Videos with subtitles; records and features are read from disk when they are drawn."""

    records: Sequence[Record]
    features: FeatureSource


@dataclass(frozen=True, eq=False)
class MMPData:
    """Everything that a run on features trains and evaluates on."""

    tokenizer: Tokenizer
    feature_width: int
    corpora: tuple[tuple[TrainingCorpus, RetrievalSplit | SubtitledVideos], ...]
    languages: frozenset[str]
    """Languages trained on."""
    validation: RetrievalSplit | None
    test: RetrievalSplit | None
    extra_tests: dict[str, RetrievalSplit]
    made_by: tuple[dict[str, Any], ...]
    """How the features of the first corpus were made."""
    pictures: bool
    """Whether all records are pictures, none a clip."""


def load_data(recipe: MMPRecipe, data: Path, device: str) -> MMPData:
    """Read all that a recipe names, so that missing data fails before training starts."""
    if not recipe.corpora:
        raise PolyglanceError("the recipe has no corpora: name a manifest and its features")
    reader = _Reader(recipe, data, device)
    feature_width = reader.feature_width()
    corpora: list[tuple[TrainingCorpus, RetrievalSplit | SubtitledVideos]] = []
    languages: set[str] = set()
    for corpus in recipe.corpora:
        if corpus.subtitles is None:
            split = reader.read(corpus, recipe.languages)
            corpora.append((corpus, split))
            languages |= split.captions.present_languages
        else:
            videos, subtitle_languages = reader.read_subtitles(corpus)
            corpora.append((corpus, videos))
            languages |= subtitle_languages
    if missing := set(recipe.languages or ()) - languages:
        reader.refuse_languages(missing)
    return MMPData(
        reader.tokenizer,
        feature_width,
        tuple(corpora),
        frozenset(languages),
        None if recipe.validation is None else reader.read(recipe.validation),
        None if recipe.test is None else reader.read(recipe.test),
        {name: reader.read(split) for name, split in recipe.extra_tests.items()},
        made_by(reader.source(recipe.corpora[0])),
        not reader.has_clips,
    )


class _Reader:
    """Reads splits of a recipe onto the device; each feature source is opened once."""

    def __init__(self, recipe: MMPRecipe, data: Path, device: str) -> None:
        self.recipe, self.data, self.device = recipe, data, device
        self.tokenizer: Tokenizer = open_tokenizer(recipe.encoder)
        self._sources: dict[str | tuple[str, ...], FeatureSource] = {}
        self.has_clips = False

    def source(self, split: FeatureSplit) -> FeatureSource:
        names = split.features
        if names not in self._sources:
            paths = [self.data / name for name in ([names] if isinstance(names, str) else names)]
            self._sources[names] = open_features(paths, prepend_global=self.recipe.prepend_global)
        return self._sources[names]

    def feature_width(self) -> int:
        """Return the width of all features of the recipe, which must be one."""
        tests = (self.recipe.test, *self.recipe.extra_tests.values())
        splits = [*self.recipe.corpora, self.recipe.validation, *tests]
        widths = {s.manifest: self.source(s).width for s in splits if s is not None}
        if len(set(widths.values())) > 1:
            raise PolyglanceError(f"features must all have one width, not {widths}")
        return next(iter(widths.values()))

    def read(self, split: FeatureSplit, languages: Sequence[str] | None = None) -> RetrievalSplit:
        """Return the records with features and captions, in some or all languages."""
        described = [record for record in self._records(split) if record.captions]
        if isinstance(split, TrainingCorpus) and split.max_records is not None:
            source = self.source(split)
            usable = [
                record
                for record in described
                if (languages is None or not record.captions.keys().isdisjoint(languages))
                and source.find(record) is not None
            ]
            described = draw_records(usable, split.max_records)
        records, features = feature_table(
            described,
            self.source(split),
            max_tokens=self.recipe.max_visual_tokens,
            device=self.device,
        )
        self.has_clips = self.has_clips or any(record.image is None for record in records)
        captions = CaptionTable.build(
            records, self.tokenizer, languages=languages, max_tokens=self.recipe.max_text_tokens
        )
        return RetrievalSplit(features, captions)

    def read_subtitles(self, corpus: TrainingCorpus) -> tuple[SubtitledVideos, set[str]]:
        """Return the videos with features and subtitles, and the languages of these."""
        source, wanted = self.source(corpus), self.recipe.languages
        self.has_clips = True
        languages: set[str] = set()

        def usable(record: Record) -> bool:
            own = {
                language
                for language, cues in record.subtitles.items()
                if cues and (wanted is None or language in wanted)
            }
            has_features = corpus.split in (None, record.split) and source.find(record) is not None
            languages.update(own if has_features else ())
            return has_features and bool(own)

        records = select_records(self.data / corpus.manifest, usable)
        return SubtitledVideos(records, source), languages

    def refuse_languages(self, missing: set[str]) -> None:
        """Raise an error for requested languages that no corpus has, which are likely typos."""
        present = {code for corpus in self.recipe.corpora for code in self._languages(corpus)}
        manifests = ", ".join(corpus.manifest for corpus in self.recipe.corpora)
        raise PolyglanceError(
            f"{manifests} has nothing to train on in {', '.join(sorted(missing))}, only in"
            f" {', '.join(sorted(present - missing))}: set languages to some of these, or to null"
            " for all"
        )

    def _languages(self, corpus: TrainingCorpus) -> set[str]:
        texts = "captions" if corpus.subtitles is None else "subtitles"
        return {code for record in self._records(corpus) for code in getattr(record, texts)}

    def _records(self, split: FeatureSplit) -> list[Record]:
        manifest = self.data / split.manifest
        all_records = list(read_manifest(manifest))
        records = [record for record in all_records if split.split in (None, record.split)]
        if not records:
            present = sorted({record.split for record in all_records if record.split})
            raise PolyglanceError(
                f"{manifest} has no record"
                + f" of the split {split.split!r}" * bool(split.split)
                + (f", only of {', '.join(present)}: set split to one of these" if present else "")
            )
        if split.names is not None:
            records = select_names(records, self.data / split.names)
        if split.all_captions is not None:
            captions = list(read_manifest(self.data / split.all_captions))
            records = with_all_captions(records, captions)
        if split.translations is not None:
            translations = list(read_manifest(self.data / split.translations))
            records = with_translations(records, translations, split.translation_languages)
        return records


def select_names(records: Sequence[Record], path: Path) -> list[Record]:
    """Return the records on a list; standard error says how many of the list are missing."""
    names = read_name_list(path)
    selected = [record for record in records if record in names]
    if not selected:
        raise PolyglanceError(
            f"no record is on the list {path}, such as {min(names.names)!r}; the manifest has"
            f" {records[0].key!r}: give a list of the same dataset"
        )
    if len(selected) < len(names):
        missing = len(names) - len(selected)
        print(f"{path}: {missing:,} of {len(names):,} names have no record", file=sys.stderr)
    return selected


def draw_records(records: Sequence[Record], count: int) -> list[Record]:
    """Return so many records, drawn at random; a smaller count gives some of a larger one's."""
    drawn = np.random.default_rng(0).permutation(len(records))[:count]
    return [records[number] for number in sorted(drawn)]


def with_all_captions(records: Sequence[Record], captions: Sequence[Record]) -> list[Record]:
    """Return the records with the captions that others of the same keys have."""
    captions_of = {record.key: record.captions for record in captions}
    for record in records:
        if record.key not in captions_of:
            raise PolyglanceError(
                f"all_captions has no captions of {record.key!r}: give a manifest of the same"
                " clips, named in the same way"
            )
    return [replace(record, captions=captions_of[record.key]) for record in records]


def with_translations(
    records: Sequence[Record], translations: Sequence[Record], languages: Sequence[str] | None
) -> list[Record]:
    """Add captions from translations of the same records.

    Args:
        records: The records to extend.
        translations: Records with the same keys and captions in other languages.
        languages: Languages to add; None for all.
    """
    captions_of = {record.key: record.captions for record in translations if record.key}
    if not any(record.key in captions_of for record in records):
        example = f", not {records[0].key!r} here" if records else ""
        other = f" and {next(iter(captions_of))!r} there" if records and captions_of else ""
        raise PolyglanceError(
            "no translation matches a record: both manifests must name clips in the same way"
            f"{example}{other}"
        )
    extended = []
    for record in records:
        captions = dict(record.captions)
        for language, texts in captions_of.get(record.key, {}).items():
            if languages is None or language in languages:
                # `data translate` repeats the captions that it translates.
                present = captions.get(language, ())
                captions[language] = present + tuple(text for text in texts if text not in present)
        extended.append(replace(record, captions=captions))
    return extended


def with_mask_id(objective: MMPObjective, tokenizer: Tokenizer, name: str) -> MMPObjective:
    """Return the objective with the mask token of a tokenizer, which is called ``name``."""
    if not objective.intra:
        return objective
    if tokenizer.mask_id is None:
        raise PolyglanceError(
            f"the tokenizer of {name} has no mask token, which noise needs: set objective.intra to"
            " false"
        )
    return replace(objective, mask_id=tokenizer.mask_id)


def corpus_name(manifest: str) -> str:
    """Return a corpus's name in logs: its path, since many manifests are called ``train``."""
    path = Path(manifest)
    return str(path.with_name(path.name.split(".")[0]))
