"""Prepare what the runs of a target share, where the data lacks it, into OUT/cache."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyglance.recipes import open_recipe
from polyglance.reproduce import shared_data
from polyglance.reproduce.runs import PARENT, Run
from polyglance.reproduce.shared_data import Changes
from polyglance.reproduce.target import Paper, RunSpec, Target

if TYPE_CHECKING:
    from polyglance.reproduce.run import Options

DICTIONARIES = "{dictionaries}"
"""In the changes of a run: the pattern of the dictionaries that were prepared."""


def prepare(paper: Paper, target: Target, options: Options) -> tuple[Changes, str | None]:
    """Make what is missing.

    Args:
        paper: the file of the target.
        target: names what to prepare.
        options: the data folder, and OUT for the cache.

    Returns:
        Changes for all runs that name what was made, and the pattern of dictionaries, if any.
    """
    assert options.data is not None
    data, cache = options.data.resolve(), options.out.resolve() / "cache"
    run = paper.runs[target.runs()[0]]
    settings = _settings(run, options)
    changes: Changes = ()
    pattern: str | None = None
    for step in target.prepare:
        if step == "cross_encoder_data":
            found, pattern = _cross_encoder_data(settings, data, cache, options.device)
            changes += found
            if hasattr(settings, "translations"):
                changes += shared_data.align_captions(
                    run.recipe, (*changes, *options.changes), data, cache, options.jobs
                )
        elif step == "dictionaries":
            first = settings if run.parent is None else _settings(paper.runs[run.parent], options)
            found, pattern = _dictionaries(first, settings, data, cache)
            changes += found
        elif step == "dual_embeddings":
            changes += _dual_embeddings(settings, data, cache)
        elif step == "smalr_data":
            changes += _smalr_data(settings, data, cache, options.device)
    return changes, pattern


def with_dictionaries(run: Run, pattern: str | None) -> Run:
    """Fill in the prepared dictionaries."""
    if pattern is None:
        return run
    return replace(run, changes=tuple(c.replace(DICTIONARIES, pattern) for c in run.changes))


def _settings(run: RunSpec, options: Options) -> Any:
    own = [c.replace(PARENT, "parent").replace(DICTIONARIES, "x") for c in run.changes]
    return open_recipe(run.recipe, (*options.changes, *own)).settings


def _dictionaries(
    pretraining: Any, fine_tuning: Any, data: Path, cache: Path
) -> tuple[Changes, str | None]:
    """Learn dictionaries for MCT and translate-test, in the languages to fine-tune on."""
    train = data / fine_tuning.train.manifest
    switching = getattr(pretraining, "code_switching", None)
    pattern = "dictionaries/{source}-{target}.tsv" if switching is None else switching.dictionaries
    corpora = pretraining.translations.texts if switching is None else pretraining.texts
    languages = shared_data.caption_languages(train)
    learned = shared_data.learn_dictionaries(
        pattern, languages, train, corpora, data, cache, to_english=switching is None
    )
    if learned is None:
        return (), pattern
    return (() if switching is None else (f"code_switching.dictionaries={learned}",)), learned


def _cross_encoder_data(
    settings: Any, data: Path, cache: Path, device: str
) -> tuple[Changes, str | None]:
    """Extract features and learn dictionaries, for label names, MCT and translate-test."""
    changes = shared_data.extract_features(settings, data, cache, device)
    train = shared_data.manifests(settings, data)["train"]
    switching = getattr(settings, "code_switching", None)
    if switching is not None:
        key, pattern, corpora = "code_switching", switching.dictionaries, settings.texts
        languages = switching.languages or shared_data.caption_languages(train)
    else:
        key, pattern, corpora = "labels", settings.labels.dictionaries, settings.translations.texts
        languages = shared_data.caption_languages(train)
    if pattern is None:
        return changes, None
    learned = shared_data.learn_dictionaries(
        pattern, languages, train, corpora, data, cache, to_english=switching is None
    )
    if learned is None:
        return changes, pattern
    return (*changes, f"{key}.dictionaries={learned}"), learned


def _dual_embeddings(settings: Any, data: Path, cache: Path) -> Changes:
    """Embed the pictures and captions of validation and test; learn dictionaries for MCT."""
    manifests = shared_data.manifests(settings, data)
    changes: Changes = ()
    for setting, split in (("dual_embeddings", "test"), ("validation_embeddings", "validation")):
        if not (data / getattr(settings.reranking, setting)).is_dir():
            model = settings.init_from_dual_encoder
            folder = shared_data.embed_manifest(manifests[split], cache, model)
            changes += (f"reranking.{setting}={folder}",)
    if getattr(settings.pretraining, "code_switched", False):
        switching = settings.code_switching
        learned = shared_data.learn_dictionaries(
            switching.dictionaries, switching.languages, manifests["train"], settings.texts, data,
            cache,
        )  # fmt: skip
        if learned is not None:
            changes += (f"code_switching.dictionaries={learned}",)
    return changes


def _smalr_data(settings: Any, data: Path, cache: Path, device: str) -> Changes:
    """Extract features, learn dictionaries, and keep captions and word vectors in the cache."""
    from polyglance.recipes.smalr.data import open_dictionaries
    from polyglance.recipes.smalr.lexicon_captions import SPLITS, prepare_captions
    from polyglance.utils.fingerprint import fingerprint
    from polyglance.vision.extraction import extract
    from polyglance.vision.shard_encoding import ExtractionSettings

    changes = [f"cache_dir={cache}"]
    manifests = {split: data / getattr(settings, split).manifest for split in SPLITS}
    if not (data / settings.train.features).exists():
        extraction = ExtractionSettings(
            backbone="resnet-50", views="ten", grid=1, labels=0, dtype="float16"
        )
        features = cache / f"features-{fingerprint(extraction, *manifests.values())}"
        extract(manifests["train"].parent, features, extraction, device=device)
        changes += [f"{split}.features={features}" for split in SPLITS]
    dictionaries = open_dictionaries(settings, data, cache)
    if dictionaries is not None:
        changes.append(f"dictionaries={dictionaries.pattern}")
    prepare_captions(
        manifests, settings.languages, settings.word_vectors, settings.word_vector_dim,
        cache_dir=cache, device=device,
    )  # fmt: skip
    return tuple(changes)
