"""Add a language to a trained SMALR model, with everything that it has learned frozen.

The frequent words of the new language get vectors of their own and a projection into the
universal embedding; the others share latent tokens, which the pre-trained layer assigns
(section 3.1). Only these vectors and the projection are trained, on captions of the new language
beside those of the languages that the model knows: with the paper's sizes 26,112 parameters and 50
for each frequent word.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from polyglance.config import load
from polyglance.errors import DataError, PolyglanceError
from polyglance.evaluation.retrieval import RetrievalResult
from polyglance.models.smalr_folder import load_smalr, save_smalr
from polyglance.recipes.retrieval_report import retrieval_report, validation_scores
from polyglance.recipes.run_folder import write_report
from polyglance.recipes.smalr.config import FeatureSplit, SMALRRecipe
from polyglance.recipes.smalr.data import (
    data_files,
    open_captions,
    read_images,
    word_vector_source,
)
from polyglance.recipes.smalr.evaluation import evaluate
from polyglance.recipes.smalr.lexicon_captions import SPLITS, caption_table
from polyglance.recipes.smalr.tasks import CaptionGridSampler, SMALRTask
from polyglance.recipes.smalr.train import model_variant
from polyglance.recipes.smalr.translation import CaptionTranslator
from polyglance.records import read_manifest
from polyglance.text.lexicon import Lexicon, texts_by_language
from polyglance.training.loop import LoopConfig, train_loop
from polyglance.training.mixture import Mixture
from polyglance.training.word_vectors import SKIPGRAM, vectors_for
from polyglance.utils.yaml12 import parse
from polyglance.weights import cache_folder

_SAMPLE = 4000
"""Words from which the axes of reduced vectors are found again."""


@dataclass(frozen=True)
class AddLanguageConfig:
    """How a language is added."""

    language: str
    train: FeatureSplit
    """Images with captions in the new language, and in some that the model knows."""
    validation: FeatureSplit
    test: FeatureSplit
    batch: int = 256
    loop: LoopConfig = field(
        default_factory=lambda: LoopConfig(
            steps=500, learning_rate=4e-3, schedule="cosine", validate_every=100, save_every=0
        )
    )


def add_language(
    run: Path, config: AddLanguageConfig, data: Path, out: Path, *, device: str = "cpu"
) -> dict[str, Any]:
    """Train a new language, and write a model that has it to ``out/words``.

    Args:
        run: Run folder of the trained model.
        config: The language, its captions, and the training.
        data: Folder that the manifests and features are in.
        out: Run folder of the new model.
        device: Where to train.

    Returns:
        The report, as in ``out/report.json``: recalls in all languages, new and old.
    """
    recipe, folder = read_recipe(run), load_smalr(run / "words")
    if config.language in folder.languages:
        raise PolyglanceError(f"{run} knows {config.language} already: add another language")
    if out.resolve() == run.resolve():
        raise PolyglanceError(f"{out} is the run of the old model: write the new one elsewhere")
    records = {
        split: list(read_manifest(data / getattr(config, split).manifest)) for split in SPLITS
    }
    texts = texts_by_language(records["train"], [config.language])
    if not texts[config.language]:
        raise DataError(
            f"{data / config.train.manifest} has no captions in {config.language}: translate some"
            " with 'polyglance data translate', or give another manifest"
        )
    lexicon = folder.lexicon.with_language(config.language, texts[config.language])
    words = Lexicon({config.language: lexicon.counts[config.language]})
    vectors = new_vectors(recipe, words, texts, data, device=device)

    torch.manual_seed(config.loop.seed)
    model = folder.to_trainable()
    model.add_language(torch.from_numpy(vectors))
    model.to(device)
    captions, visuals = {}, {}
    for split in SPLITS:
        numbers, _, visuals[split], _ = read_images(
            data / getattr(config, split).manifest, data / getattr(config, split).features, device
        )
        present = [records[split][number] for number in numbers]
        captions[split] = caption_table(present, lexicon, keep_empty=split != "train")
    objective = replace(model_variant(recipe, visuals["train"].features.shape[1]).objective,
                        mask_weight=0.0, adversary_weight=0.0)  # fmt: skip
    sampler = CaptionGridSampler(
        captions["train"],
        captions_per_language=recipe.captions_per_language,
        languages_per_step=recipe.languages_per_step,
    )
    task = SMALRTask(model, visuals["train"], sampler, objective, batch=config.batch)

    def results(split: str) -> dict[str, RetrievalResult]:
        return evaluate(model, captions[split], visuals[split])

    def validate() -> dict[str, float]:
        scores = validation_scores(results("validation"))
        return {**scores, "score": scores.get(config.language, scores["score"])}

    result = train_loop(model, Mixture({"images": task}), config.loop, out, validate=validate)
    for checkpoint in ("latest", "best"):
        shutil.rmtree(out / checkpoint, ignore_errors=True)
    model.cpu()
    save_smalr(
        model,
        lexicon,
        out / "words",
        feature_info=folder.feature_info,
        consistency=folder.consistency,
    )
    model.to(device)
    report = {
        "added": config.language,
        "words": len(words) - 2,
        "trainable_parameters": model.num_trainable_parameters(),
        "best_step": result.best_step,
        "seconds": round(result.seconds, 1),
        **{split: retrieval_report(results(split)) for split in ("validation", "test")},
    }
    write_report(report, out)
    return report


def read_recipe(run: Path) -> SMALRRecipe:
    """Return the recipe of a SMALR run."""
    path = run / "recipe.yaml"
    if not path.is_file():
        raise DataError(f"{run} is not a run of SMALR: give the --out of 'polyglance train'")
    plain = parse(path.read_text(encoding="utf-8"), str(path))
    if plain.pop("system", None) != "smalr":
        raise DataError(f"{path} is not a recipe of SMALR: give a run of a smalr recipe")
    return load(SMALRRecipe, plain)


def own_manifests(recipe: SMALRRecipe, language: str, data: Path, *, device: str) -> dict[str, str]:
    """Return the recipe's manifest of each split, with captions in a new language where it can.

    Of published datasets (``corpus``) captions in the new language are read where there are any,
    else translated by the recipe's translators as those of its other languages are.

    Args:
        recipe: Of the trained model.
        language: The new one.
        data: The data folder.
        device: Where translators run.
    """
    languages = tuple(dict.fromkeys((*recipe.languages, language)))
    cache_dir, translator = _translator(recipe, data, device)
    files = data_files(replace(recipe, languages=languages), data, translator, cache_dir)
    return {split: str(manifest.absolute()) for split, (manifest, _) in files.items()}


def _translator(
    recipe: SMALRRecipe, data: Path, device: str
) -> tuple[Path, CaptionTranslator | None]:
    """Return the cache folder of a recipe, and its translators."""
    cache_dir = cache_folder() if recipe.cache_dir is None else Path(recipe.cache_dir)
    if not recipe.translators:
        return cache_dir, None
    return cache_dir, CaptionTranslator(recipe.translators, data, cache_dir, device=device)


def new_vectors(
    recipe: SMALRRecipe,
    words: Lexicon,
    texts: dict[str, list[str]],
    data: Path,
    *,
    device: str,
) -> NDArray[np.float32]:
    """Return vectors of new words in the space of the model's, the most frequent word first.

    Vectors of an encoder were reduced to principal components of the model's own words: the same
    linear map is found from some of these and applied to the new ones.

    Args:
        recipe: Of the trained model.
        words: Of the new language alone.
        texts: Its captions, for skip-gram.
        data: The data folder.
        device: Where an encoder runs.

    Returns:
        ``(words, width)``.
    """
    source, width = word_vector_source(recipe, data), recipe.word_vector_dim
    if source == SKIPGRAM or "{language}" in source:
        return vectors_for(words, source, texts=texts, width=width, device=device)[2:]
    cache_dir, translator = _translator(recipe, data, device)
    splits = data_files(recipe, data, translator, cache_dir)
    known = open_captions(recipe, data, splits, cache_dir, device)
    frequent = np.argsort(known.lexicon.frequency_ranks, kind="stable")
    sample = frequent[known.lexicon.language_ids[frequent] >= 0][:_SAMPLE]
    counts: dict[str, dict[str, int]] = {code: {} for code in known.lexicon.languages}
    for number in np.sort(sample):
        code = known.lexicon.languages[known.lexicon.language_ids[number]]
        counts[code][known.lexicon.words[number]] = 1
    full_width = _encoder_width(source)
    whole = vectors_for(Lexicon(counts), source, width=full_width, device=device)[2:]
    with_one = np.concatenate([whole, np.ones((len(whole), 1), np.float32)], axis=1)
    axes, *_ = np.linalg.lstsq(with_one, known.vectors[np.sort(sample)], rcond=None)
    new = vectors_for(words, source, width=full_width, device=device)[2:]
    projected: NDArray[np.float32] = (
        np.concatenate([new, np.ones((len(new), 1), np.float32)], axis=1) @ axes
    ).astype(np.float32)
    return projected


def _encoder_width(source: str) -> int:
    from polyglance import weights
    from polyglance.nn.pretrained import load_encoder

    return load_encoder(weights.folder(source)).config.hidden_size
