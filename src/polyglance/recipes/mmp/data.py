"""Read the corpora of `MMPRecipe`: extracted features with captions or subtitles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from polyglance.data.captions import CaptionTable
from polyglance.errors import PolyglanceError
from polyglance.models.mmp import MMPObjective
from polyglance.recipes.mmp.config import FeatureSplit, MMPRecipe, TrainingCorpus
from polyglance.recipes.mmp.evaluation import RetrievalSplit
from polyglance.recipes.mmp.feature_sources import FeatureSource, feature_table, open_features
from polyglance.recipes.mmp.lazy_records import select_records
from polyglance.records import Record, read_manifest
from polyglance.text import Tokenizer, open_tokenizer


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
    )


class _Reader:
    """Reads splits of a recipe onto the device; each feature source is opened once."""

    def __init__(self, recipe: MMPRecipe, data: Path, device: str) -> None:
        self.recipe, self.data, self.device = recipe, data, device
        self.tokenizer: Tokenizer = open_tokenizer(recipe.encoder)
        self._sources: dict[str | tuple[str, ...], FeatureSource] = {}

    def source(self, split: FeatureSplit) -> FeatureSource:
        names = split.features
        if names not in self._sources:
            paths = [self.data / name for name in ([names] if isinstance(names, str) else names)]
            self._sources[names] = open_features(paths, prepend_global=self.recipe.prepend_global)
        return self._sources[names]

    def feature_width(self) -> int:
        """Return the width of all features of the recipe, which must be one."""
        splits = [*self.recipe.corpora, self.recipe.validation, self.recipe.test]
        widths = {s.manifest: self.source(s).width for s in splits if s is not None}
        if len(set(widths.values())) > 1:
            raise PolyglanceError(f"features must all have one width, not {widths}")
        return next(iter(widths.values()))

    def read(self, split: FeatureSplit, languages: Sequence[str] | None = None) -> RetrievalSplit:
        """Return the records with features and captions, in some or all languages."""
        records, features = feature_table(
            [record for record in self._records(split) if record.captions],
            self.source(split),
            max_tokens=self.recipe.max_visual_tokens,
            device=self.device,
        )
        captions = CaptionTable.build(
            records, self.tokenizer, languages=languages, max_tokens=self.recipe.max_text_tokens
        )
        return RetrievalSplit(features, captions)

    def read_subtitles(self, corpus: TrainingCorpus) -> tuple[SubtitledVideos, set[str]]:
        """Return the videos with features and subtitles, and the languages of these."""
        source, wanted = self.source(corpus), self.recipe.languages
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
        records = [
            record
            for record in read_manifest(self.data / split.manifest)
            if split.split in (None, record.split)
        ]
        if split.translations is not None:
            translations = list(read_manifest(self.data / split.translations))
            records = with_translations(records, translations, split.translation_languages)
        return records


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
        raise PolyglanceError(
            "no translation matches a record: both manifests must name clips in the same way"
        )
    extended = []
    for record in records:
        captions = dict(record.captions)
        for language, texts in captions_of.get(record.key, {}).items():
            if languages is None or language in languages:
                captions[language] = captions.get(language, ()) + texts
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
