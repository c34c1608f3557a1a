"""What all runs of M3P or UC2 on Flickr8k share, made once into a cache where the data has none.

Names in the cache tell what a thing was made from, so that both systems find the same.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.reports.cross_encoder_tables import ENGLISH

if TYPE_CHECKING:
    from polyglance.records import Record

Changes = tuple[str, ...]
"""In a recipe, ``key=value`` each."""
SPLITS = ("train", "validation", "test")
GRID, LABELS_BY = 5, "efficientnet-lite2"
"""Of features: cells a side, and what names them."""


@dataclass(frozen=True)
class Prepared:
    """What was made for all runs, as changes in the recipe."""

    changes: Changes = ()
    """Where it is."""
    dictionaries: str = "{source}-{target}.tsv"
    test_of: Mapping[str, str] = field(default_factory=dict)
    """Manifests of the test in one language alone, for runs of which no other is told."""


def manifests(recipe: Any, data: Path) -> dict[str, Path]:
    """Where the splits of a recipe are."""
    return {split: data / getattr(recipe, split).manifest for split in SPLITS}


def features(recipe: Any, data: Path, cache: Path, device: str) -> Changes:
    """Where features are, unless the data has them or pictures are looked at themselves.

    They are those of the default model's picture network, with ImageNet's labels.
    """
    from polyglance.encoders.model_folder import find
    from polyglance.export.split_model import unpack
    from polyglance.recipes.keys import fingerprint
    from polyglance.vision.extraction import ExtractionSettings, extract
    from polyglance.weights.cache import make_once

    if recipe.eyes or (data / recipe.train.features).exists():
        return ()

    def make(partial: Path) -> None:
        with tempfile.TemporaryDirectory() as towers:
            shutil.copytree(unpack(None, Path(towers)).pictures, partial, dirs_exist_ok=True)

    network = make_once(cache / f"pictures-{fingerprint(find(None))}", Path.is_dir, make)
    settings = ExtractionSettings(str(network), grid=GRID, labels_by=LABELS_BY)
    files = manifests(recipe, data)
    folder = cache / f"features-{fingerprint(settings, *files.values())}"
    extract(files["train"].parent, folder, settings, device=device)
    return tuple(f"{split}.features={folder}" for split in SPLITS)


def dictionaries(
    pattern: str,
    languages: Sequence[str],
    train: Path,
    texts: Sequence[Any],
    data: Path,
    cache: Path,
    *,
    both_ways: bool = False,
) -> str | None:
    """The pattern of those learned into the cache; None where the data has all of them.

    Needed are those from English to each language, with ``both_ways`` also back.
    """
    from polyglance.recipes.dictionaries import learned_dictionaries

    ways = [(ENGLISH, code) for code in languages]
    ways += [(code, ENGLISH) for code in languages if both_ways]
    if all((data / pattern.format(source=a, target=b)).is_file() for a, b in ways):
        return None
    parallel = [data / text.manifest for text in texts if text.format == "jsonl"]
    found = learned_dictionaries(train, next(iter(parallel), None), languages, cache=cache)
    print(f"dictionaries: {found}", flush=True)
    return found


def tests_by_language(
    test: Path, languages: Sequence[str], cache: Path, *, absolute: bool
) -> dict[str, str]:
    """The test with the captions of one language alone, a manifest for each.

    ``absolute`` names pictures by their whole paths, for recipes that open them.
    """
    from polyglance.recipes.keys import fingerprint
    from polyglance.records import write_manifest

    found = {}
    for language in languages:
        path = cache / f"test-{fingerprint(test)}-{language}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_manifest(path, _in_language(test, language, absolute=absolute))
        found[language] = str(path)
    return found


def _in_language(manifest: Path, language: str, *, absolute: bool) -> Iterator[Record]:
    """A manifest with the captions of one language; others' pictures stay candidates."""
    from polyglance.records import read_manifest

    for record in read_manifest(manifest):
        image = str(manifest.parent / str(record.image)) if absolute else record.image
        yield replace(record, image=image, captions={language: record.captions.get(language, ())})


def embedded(manifest: Path, cache: Path, model: str | None = None) -> Path:
    """A manifest's pictures and captions as a dual encoder sees them, the default, made once."""
    from polyglance.encoders.model_folder import find
    from polyglance.recipes.keys import fingerprint
    from polyglance.weights.cache import make_once

    def make(partial: Path) -> None:
        script = Path(__file__).with_name("dual_embeddings.py")
        named = () if model is None else ("--model", model)
        subprocess.run([sys.executable, script, manifest, "--out", partial, *named], check=True)

    folder = cache / f"dual-{fingerprint(manifest, find(model))}"
    return make_once(folder, lambda path: path.is_dir(), make)
