"""Train MMP on features extracted beforehand, of clips or of pictures: the paper's settings.

One recipe covers them all (section 5.3): English only, several languages,
translate-train, pre-training on subtitled video, fine-tuning from it, and the
image variant that starts from a video model (section 5.6).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from polyglance import weights
from polyglance.config import check
from polyglance.data.captions import CaptionTable
from polyglance.errors import PolyglanceError
from polyglance.evaluation.retrieval import DirectionResult, RetrievalResult
from polyglance.models.mmp import MMP, MMPConfig, MMPObjective
from polyglance.nn.pretrained import load_encoder
from polyglance.recipes.common import (
    Measured,
    corpus_name,
    keep,
    retrieval_by_language,
    spoken,
    with_mask,
    write_report,
)
from polyglance.recipes.mmp.feature_sources import FeatureSource, feature_table, open_features
from polyglance.recipes.mmp.initialising import initialise_from
from polyglance.recipes.mmp.on_disk import some_records
from polyglance.records import Record, read_manifest
from polyglance.text import Tokenizer, open_tokenizer
from polyglance.training.loop import LoopConfig, Validate, train
from polyglance.training.mixture import Mixture, Task
from polyglance.training.pairing import CaptionedVisuals, Together
from polyglance.training.subtitles import ClipSampling, SubtitledVideos


@dataclass(frozen=True)
class Described:
    """Clips or pictures with captions, and their features; paths are inside the data folder."""

    manifest: str
    features: str | tuple[str, ...]
    """A feature store or a ``.npz``; several are put side by side, vector by vector."""
    split: str | None = None
    """Only records of this split, where a manifest holds several."""
    translations: str | None = None
    """A manifest with captions of the same records in further languages (translate-train)."""
    translated_into: tuple[str, ...] | None = None
    """Which languages of the translations are taken; None for all."""


@dataclass(frozen=True)
class Corpus(Described):
    """What to train on."""

    batch: int = 128
    weight: float = 1.0
    """What its losses count beside those of other corpora in the same step."""
    subtitles: ClipSampling | None = None
    """Pre-training (section 5.3): cut clips out of videos, with subtitles in place of captions."""

    def __post_init__(self) -> None:
        check(self, lambda value: value >= 1, "1 or more", "batch")
        check(self, lambda value: value > 0, "a number above 0, or take the corpus out", "weight")


@dataclass(frozen=True)
class FeatureRecipe:
    """Everything that makes a run. Shape and lengths are the paper's (section 5.2, appendix C)."""

    encoder: str = "e5-small"
    """Known weights, or a folder as transformers saves XLM-R or mBERT."""
    text_layer: int | None = 12
    frozen_layers: int = 9
    width: int = 1024
    pooling_layers: int = 2
    pooling_heads: int = 4
    share_pooling: bool = False
    dropout: float = 0.3
    encoder_dropout: float | None = None
    """None for what the encoder was pre-trained with."""
    encoder_rate: float = 1.0
    """By what the learning rate is multiplied for the text encoder."""
    visual_rate: float = 1.0
    """The same for the linear layer on features; 2 in the image variant (section 5.6)."""
    initialise_from: str | None = None
    """A run's folder or a checkpoint to start from, such as a pre-trained one."""
    longest_text: int = 96
    longest_visual: int = 36
    """Sub-words of a caption, and seconds of a clip or regions of a picture, at most."""
    whole_first: bool = False
    """Put the vector of the whole picture, which a feature store has, before the others."""
    languages: tuple[str, ...] | None = None
    """Those to train on; None for all there are, ``[en]`` for English only."""
    captions_each: int = 1
    """2 draws captions in two languages for each clip: equations 4 to 6."""
    corpora: tuple[Corpus, ...] = ()
    validation: Described | None = None
    """Chooses the checkpoint; without it the last one is kept."""
    test: Described | None = None
    objective: MMPObjective = field(default_factory=MMPObjective)
    loop: LoopConfig = field(default_factory=LoopConfig)

    def __post_init__(self) -> None:
        check(self, lambda value: value >= 1, "1 or more", "captions_each", "longest_visual")
        check(self, lambda value: value >= 3, "3 or more", "longest_text")
        check(self, lambda value: value >= 0, "0 or more", "encoder_rate", "visual_rate")
        shares = ("dropout", "encoder_dropout")
        check(self, lambda value: 0 <= value < 1, "a share from 0 to less than 1", *shares)


def run(recipe: FeatureRecipe, data: Path, out: Path, *, device: str = "cpu") -> dict[str, Any]:
    """Train by a recipe on the data under a folder; returns and writes what was measured.

    Under `polyglance.training.distribution.joined` all processes call this together.
    """
    torch.set_float32_matmul_precision("high")
    if not recipe.corpora:
        raise PolyglanceError("the recipe has no corpora: name a manifest and its features")
    loader = _Loader(recipe, data, device)
    objective = with_mask(recipe.objective, loader.tokenizer, recipe.encoder)
    model = build_model(recipe, loader.width(), device)
    if recipe.initialise_from is not None:
        initialise_from(model, Path(recipe.initialise_from))
    tasks: list[tuple[str, Task, float]] = []
    trained: set[str] = set()
    for corpus in recipe.corpora:
        learn = _captioned if corpus.subtitles is None else _subtitled
        task, languages = learn(model, objective, corpus, loader)
        tasks.append((corpus_name(corpus.manifest), task, corpus.weight))
        trained |= languages
    _expect_languages(recipe, trained, loader)
    # Before training, so that what is missing is not found out at its end.
    validation = None if recipe.validation is None else loader.load(recipe.validation)
    test = None if recipe.test is None else loader.load(recipe.test)
    keep(recipe, "features", out)
    finished = train(
        model,
        Mixture({"all": Together(tasks)}),
        recipe.loop,
        out,
        validate=None if validation is None else _validation(model, validation, trained),
        groups=parameter_groups(model, recipe),
    )
    report: dict[str, Any] = {
        "trained_on": sorted(trained),
        "best_step": finished.best_step,
        "best_score": finished.best,
        "seconds": round(finished.seconds, 1),
    }
    if validation is not None:
        report["validation"] = _figures(retrieval_by_language(model, validation))
    if test is not None:
        report["test"] = _figures(retrieval_by_language(model, test))
    write_report(report, out)
    return report


def _captioned(
    model: MMP, objective: MMPObjective, corpus: Corpus, loader: _Loader
) -> tuple[Task, set[str]]:
    """The task of a corpus with captions, and its languages."""
    found = loader.load(corpus, loader.recipe.languages)
    task = CaptionedVisuals(
        model,
        found.visuals,
        found.captions,
        objective,
        batch=corpus.batch,
        captions_each=loader.recipe.captions_each,
    )
    return task, spoken(found.captions)


def _subtitled(
    model: MMP, objective: MMPObjective, corpus: Corpus, loader: _Loader
) -> tuple[Task, set[str]]:
    """The task of a corpus with subtitles, and its languages."""
    source, languages = loader.source(corpus), loader.recipe.languages
    found: set[str] = set()

    def usable(record: Record) -> bool:
        here = {
            language
            for language, cues in record.subtitles.items()
            if cues and (languages is None or language in languages)
        }
        known = corpus.split in (None, record.split) and source.find(record) is not None
        found.update(here if known else ())
        return known and bool(here)

    task = SubtitledVideos(
        model,
        some_records(loader.data / corpus.manifest, usable),
        lambda record: source.rows(source.find(record) or ""),
        loader.tokenizer,
        objective,
        batch=corpus.batch,
        clips=corpus.subtitles,
        languages=languages,
        longest_text=loader.recipe.longest_text,
    )
    return task, found


def _expect_languages(recipe: FeatureRecipe, trained: set[str], loader: _Loader) -> None:
    """A language that was asked for and that no corpus has is a mistake, most likely a slip."""
    missing = set(recipe.languages or ()) - trained
    if missing:
        there = {language for corpus in recipe.corpora for language in loader.languages(corpus)}
        manifests = ", ".join(corpus.manifest for corpus in recipe.corpora)
        raise PolyglanceError(
            f"{manifests} has nothing to train on in {', '.join(sorted(missing))}, only in"
            f" {', '.join(sorted(there - missing))}: set languages to some of these, or to null"
            " for all"
        )


def _validation(model: MMP, measured: Measured, trained: set[str]) -> Validate:
    """What chooses the checkpoint, on the languages trained on alone."""
    languages = sorted(trained & spoken(measured.captions))
    if not languages:
        raise PolyglanceError(
            "the validation has captions in none of the languages trained on"
            f" ({', '.join(sorted(trained))}): validate on other data or set validation to null"
        )
    return lambda: checkpoint_score(retrieval_by_language(model, measured, languages))


def checkpoint_score(results: dict[str, RetrievalResult]) -> dict[str, float]:
    """R@1 + R@5 + R@10 of text to video (appendix C), each language's and their sum, ``score``."""
    sums = {
        language: sum(result.text_to_image.recalls.values()) for language, result in results.items()
    }
    return {**sums, "score": sum(sums.values())}


def build_model(recipe: FeatureRecipe, visual_width: int, device: str = "cpu") -> MMP:
    """An untrained model on a pretrained text encoder, for features of a width."""
    encoder = load_encoder(weights.folder(recipe.encoder), dropout=recipe.encoder_dropout)
    config = MMPConfig(
        encoder=encoder.config,
        text_layer=recipe.text_layer,
        frozen_layers=recipe.frozen_layers,
        visual_width=visual_width,
        width=recipe.width,
        pooling_layers=recipe.pooling_layers,
        pooling_heads=recipe.pooling_heads,
        dropout=recipe.dropout,
        share_pooling=recipe.share_pooling,
    )
    torch.manual_seed(recipe.loop.seed)
    return MMP(config, encoder).to(device)


def parameter_groups(model: MMP, recipe: FeatureRecipe) -> list[dict[str, Any]]:
    """The parameters by how fast they learn: the encoder, the layer on features, all else."""
    encoder, visual = set(model.encoder.parameters()), set(model.visual_input.parameters())
    others = [p for p in model.parameters() if p not in encoder and p not in visual]
    return [
        {"params": list(model.encoder.parameters()), "rate": recipe.encoder_rate},
        {"params": list(model.visual_input.parameters()), "rate": recipe.visual_rate},
        {"params": others, "rate": 1.0},
    ]


def with_translations(
    records: Sequence[Record], translations: Sequence[Record], languages: Sequence[str] | None
) -> list[Record]:
    """The records with the captions that translations of the same key add to theirs."""
    added = {record.key: record.captions for record in translations if record.key}
    if not any(record.key in added for record in records):
        raise PolyglanceError(
            "no translation belongs to a record: both manifests must name clips in the same way"
        )
    joined = []
    for record in records:
        captions = dict(record.captions)
        for language, texts in added.get(record.key, {}).items():
            if languages is None or language in languages:
                captions[language] = captions.get(language, ()) + texts
        joined.append(replace(record, captions=captions))
    return joined


class _Loader:
    """Reads what a recipe names, features and captions, onto the device."""

    def __init__(self, recipe: FeatureRecipe, data: Path, device: str) -> None:
        self.recipe, self.data, self.device = recipe, data, device
        self.tokenizer: Tokenizer = open_tokenizer(recipe.encoder)
        self._sources: dict[str | tuple[str, ...], FeatureSource] = {}

    def source(self, described: Described) -> FeatureSource:
        """Opened once, though several splits may lie in one."""
        named = described.features
        if named not in self._sources:
            paths = [self.data / name for name in ([named] if isinstance(named, str) else named)]
            self._sources[named] = open_features(paths, whole_first=self.recipe.whole_first)
        return self._sources[named]

    def width(self) -> int:
        """Of all features that the recipe names."""
        named = [*self.recipe.corpora, self.recipe.validation, self.recipe.test]
        widths = {d.manifest: self.source(d).width for d in named if d is not None}
        if len(set(widths.values())) > 1:
            raise PolyglanceError(f"features must all have one width, not {widths}")
        return next(iter(widths.values()))

    def languages(self, corpus: Corpus) -> set[str]:
        """All that its captions, or its subtitles, are in."""
        texts = "captions" if corpus.subtitles is None else "subtitles"
        return {name for record in self.records(corpus) for name in getattr(record, texts)}

    def records(self, described: Described) -> list[Record]:
        """Those of a manifest and a split, with their translations."""
        records = [
            record
            for record in read_manifest(self.data / described.manifest)
            if described.split in (None, record.split)
        ]
        if described.translations is not None:
            translations = list(read_manifest(self.data / described.translations))
            records = with_translations(records, translations, described.translated_into)
        return records

    def load(self, described: Described, languages: Sequence[str] | None = None) -> Measured:
        """Those with features and captions; in all languages, or in some."""
        records, features = feature_table(
            [record for record in self.records(described) if record.captions],
            self.source(described),
            longest=self.recipe.longest_visual,
            device=self.device,
        )
        captions = CaptionTable.build(
            records, self.tokenizer, languages=languages, longest=self.recipe.longest_text
        )
        return Measured(features, captions)


def _figures(results: dict[str, RetrievalResult]) -> dict[str, Any]:
    """Results by language and direction, as ``report.json`` has them."""

    def direction(result: DirectionResult) -> dict[str, float]:
        recalls = {f"R@{k}": float(recall) for k, recall in result.recalls.items()}
        return {
            **recalls,
            "median_rank": result.median_rank,
            "queries": result.queries,
            "candidates": result.candidates,
        }

    return {
        language: {
            "text_to_visual": direction(result.text_to_image),
            "visual_to_text": direction(result.image_to_text),
        }
        for language, result in results.items()
    }
