"""Which captions the control runs for languages without captions keep."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.experiments import left_out_languages as experiment
from polyglance.recipes import open_recipe
from polyglance.recipes.mmp.config import MMPPhotoRecipe
from polyglance.records import Record, read_manifest, write_manifest


@pytest.fixture
def recipe(tmp_path: Path) -> MMPPhotoRecipe:
    """Return the default recipe with three images of each corpus in ``tmp_path``."""
    settings = open_recipe("polyglance-small", []).settings
    assert isinstance(settings, MMPPhotoRecipe)
    flickr8k, coco = settings.image_corpora
    write_manifest(tmp_path / flickr8k.manifest, [Record(image="a", captions={"de": ("Hund",)})])
    write_manifest(
        tmp_path / coco.manifest,
        [
            Record(image="b", captions={"en": ("cat",), "nl": ("kat",), "fa": ("گربه",)}),
            Record(image="c", captions={"nl": ("hond",)}),
            Record(image="d", captions={"vi": ("chó",)}, labels=("dog",)),
        ],
    )
    for corpus, image in ((flickr8k, "a"), (coco, "b")):
        extra = [
            Record(image=image, captions={"mul": ("a Hund",)}),
            Record(image="elsewhere", captions={"tlh": ("qa",)}),
        ]
        write_manifest(tmp_path / str(corpus.extra_captions), extra)
    return experiment.small_batches(settings)


def test_a_language_is_left_out_and_all_others_stay(recipe: MMPPhotoRecipe, tmp_path: Path) -> None:
    flickr8k, coco = experiment.without_languages(recipe, tmp_path).image_corpora
    assert flickr8k.languages == ("de", "mul")
    assert coco.languages == ("en", "mul")
    assert coco.batch == experiment.BATCH < 1024


def test_translations_stand_for_the_captions_left_out(
    recipe: MMPPhotoRecipe, tmp_path: Path
) -> None:
    for code, text in (("nl", "een kat"), ("fa", "یک گربه")):
        translated = [Record(image="b", captions={"en": ("cat",), code: (text,)})]
        write_manifest(tmp_path / experiment.TRANSLATED / f"{code}.jsonl", translated)
    flickr8k, coco = experiment.with_translations(recipe, tmp_path).image_corpora
    assert flickr8k == recipe.image_corpora[0]
    first, labelled = read_manifest(tmp_path / coco.manifest)
    assert first.captions == {"en": ("cat",), "nl": ("een kat",), "fa": ("یک گربه",)}
    assert (labelled.image, labelled.captions, labelled.labels) == ("d", {}, ("dog",))
