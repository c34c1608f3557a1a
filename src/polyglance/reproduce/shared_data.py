"""Make what all runs of a target share, in a cache, where the data lacks it.

Names in the cache contain fingerprints of their inputs, so that both systems find the same files.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from polyglance.utils.child_processes import SpawnPool

Changes = tuple[str, ...]
"""Changes to a recipe, ``key=value`` each."""
ENGLISH = "en"
SPLITS = ("train", "validation", "test")
GRID, LABELS_BY = 5, "efficientnet-lite2"
"""Features: cells per side, and the network that labels them."""


def manifests(recipe: Any, data: Path) -> dict[str, Path]:
    """Return the manifest of each split of a recipe."""
    return {split: data / getattr(recipe, split).manifest for split in SPLITS}


def extract_features(recipe: Any, data: Path, cache: Path, device: str) -> Changes:
    """Extract features with the default model's image network, and ImageNet's labels.

    Returns:
        Changes that name the features; empty where the data has them or the recipe reads images.
    """
    from polyglance.encoders.model_folder import find_model
    from polyglance.export.split_model import split_model
    from polyglance.utils.fingerprint import fingerprint
    from polyglance.vision.extraction import extract
    from polyglance.vision.shard_encoding import ExtractionSettings
    from polyglance.weights.cache import make_once

    if recipe.image_backbone or (data / recipe.train.features).exists():
        return ()

    def make(partial: Path) -> None:
        with tempfile.TemporaryDirectory() as folder:
            backbone = split_model(None, Path(folder)).image_backbone
            shutil.copytree(backbone, partial, dirs_exist_ok=True)

    network = make_once(cache / f"pictures-{fingerprint(find_model(None))}", Path.is_dir, make)
    settings = ExtractionSettings(str(network), grid=GRID, labels_by=LABELS_BY)
    files = manifests(recipe, data)
    folder = cache / f"features-{fingerprint(settings, *files.values())}"
    extract(files["train"].parent, folder, settings, device=device)
    return tuple(f"{split}.features={folder}" for split in SPLITS)


def learn_dictionaries(
    pattern: str,
    languages: Sequence[str],
    train: Path,
    corpora: Sequence[Any],
    data: Path,
    cache: Path,
    *,
    to_english: bool = False,
) -> str | None:
    """Learn dictionaries from English to each language, where the data lacks one.

    Args:
        pattern: Where the recipe has them below ``data``, with {source} and {target}.
        languages: All but English.
        train: Manifest of training captions.
        corpora: Corpora of text that the recipe reads, some of them parallel.
        data: Folder of the data.
        cache: Folder of what runs share.
        to_english: Whether those to English are needed as well.

    Returns:
        The pattern of the learned dictionaries; None where the data has all of them.
    """
    from polyglance.recipes.dictionaries import learned_dictionaries

    pairs = [(ENGLISH, code) for code in languages]
    pairs += [(code, ENGLISH) for code in languages if to_english]
    if all((data / pattern.format(source=a, target=b)).is_file() for a, b in pairs):
        return None
    parallel = [data / corpus.manifest for corpus in corpora if corpus.format == "jsonl"]
    learned = learned_dictionaries(train, next(iter(parallel), None), languages, cache_dir=cache)
    print(f"dictionaries: {learned}", flush=True)
    return learned


def align_captions(name: str, changes: Changes, data: Path, cache: Path, jobs: int = 1) -> Changes:
    """Align the words of English captions with those of the others once, before runs of UC2.

    Parallel runs would each do so for themselves.

    Args:
        name: Of the recipe.
        changes: Of all runs, with the features and dictionaries that were prepared.
        data: Folder of the data.
        cache: Folder of what runs share.
        jobs: Languages at a time.

    Returns:
        The change that names the alignments; none where the data has them, or where the recipe
        reads images, which would take longer than it saves.
    """
    from polyglance.recipes import open_recipe
    from polyglance.utils.fingerprint import fingerprint

    recipe = open_recipe(name, changes).settings
    if recipe.image_backbone:
        return ()
    settings = recipe.translations
    languages = caption_languages(data / recipe.train.manifest)
    files = [f"{ENGLISH}-{code}.tsv" for code in languages]
    if settings.cache_dir and all((data / settings.cache_dir / file).is_file() for file in files):
        return ()
    inputs = [data / split.manifest for split in (recipe.train, *recipe.extra_train)]
    inputs += [data / corpus.manifest for corpus in settings.texts]
    folder = cache / f"aligned-{fingerprint(settings.pairing, *inputs)}"
    made = (f"translations.cache_dir={folder}",)
    tasks = [(name, (*changes, *made), data, code) for code in languages]
    if jobs == 1:
        for task in tasks:
            _align_language(*task)
        return made
    with SpawnPool(min(jobs, len(tasks))) as pool:
        for future in [pool.submit(_align_language, *task) for task in tasks]:
            future.result()
    return made


def _align_language(recipe: str, changes: Changes, data: Path, language: str) -> None:
    from polyglance.recipes import open_recipe
    from polyglance.recipes.uc2.data import load_data

    alignment_only = (
        f"translations.languages=[{language}]", "validation=null", "test=null", "reranking=null",
        "early_adaptation=null", "pretraining.mixture.mrtm=0", "pretraining.mixture.vtlm=1",
    )  # fmt: skip
    load_data(open_recipe(recipe, (*changes, *alignment_only)).settings, data, "cpu")


def caption_languages(manifest: Path) -> list[str]:
    """Return all languages of a manifest's captions but English, by how many have them."""
    from polyglance.records import read_manifest

    counts = Counter(code for record in read_manifest(manifest) for code in record.captions)
    return [code for code, _ in counts.most_common() if code != ENGLISH]


def embed_manifest(manifest: Path, cache: Path, model: str | None = None) -> Path:
    """Embed a manifest's images and captions with a dual encoder, once; return the folder."""
    from polyglance.encoders.model_folder import find_model
    from polyglance.reproduce.dual_embeddings import embed
    from polyglance.utils.fingerprint import fingerprint
    from polyglance.weights.cache import make_once

    folder = cache / f"dual-{fingerprint(manifest, find_model(model))}"
    return make_once(folder, Path.is_dir, lambda partial: embed(manifest, partial, model))
