"""What a target refuses to begin without, on files laid out as they are published."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from helpers.published import captions, questions, smalr, videos
from polyglance.errors import DataError
from polyglance.recipes import find_recipe
from polyglance.reproduce.needs import note_missing_packages
from polyglance.reproduce.run import check_data, needed_runs, with_data
from polyglance.reproduce.target import find_target, target_names

PAPERS = ("smalr", "uc2", "m3p", "mmp")
MEASURED = [
    name for name in target_names()
    if name.partition("/")[0] in PAPERS and find_target(name)[1].measured
]  # fmt: skip
ENCODERS = ("xlm-roberta-base", "xlm-roberta-large", "bert-base-multilingual-cased")


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Datasets of the four papers, as published; stores and models are there in name alone."""
    data, source = tmp_path_factory.mktemp("data"), tmp_path_factory.mktemp("videos")
    smalr.write_multi30k(data)
    smalr.write_mscoco(data)
    smalr.write_fasttext(data)
    captions.write_flickr30k(data / "flickr30k")
    captions.write_mscoco(data / "mscoco")
    captions.write_stair(data / "stair")
    shutil.rmtree(data / "coco-cn")  # SMALR reads one file of it, UC2 all
    captions.write_coco_cn(data / "coco-cn")
    captions.write_conceptual_captions(data / "conceptual-captions")
    captions.write_object_labels(data / "uc2" / "object_labels")
    captions.write_wikipedia(data / "wikipedia")
    for code in ("ja", "zh"):
        _touch(captions.write_panlex(data / "panlex") / f"en-{code}.tsv")
    questions.write_vqa_v2(data / "vqa-v2")
    questions.write_visual_genome(data / "visual-genome", "en")
    questions.write_visual_genome(data / "visual-genome-ja", "ja")
    questions.write_answer_lists(data / "uc2" / "misc")
    for store in (
        "flickr30k/regions", "mscoco/regions", "mscoco/regions-test2015", "visual-genome/regions",
        "conceptual-captions/regions", "conceptual-captions/regions-val",
    ):  # fmt: skip
        _touch(data / store / "store.json")
    for name in ENCODERS:
        _touch(data / "models" / name / "config.json")
    for code in smalr.LANGUAGES:
        for pair in (f"en-{code}", f"{code}-en"):
            _touch(data / "models" / f"opus-mt-{pair}" / "config.json")
            _touch(data / "dictionaries" / f"{pair}.txt")
    _touch(data / "models" / "nllb-200-distilled-600M" / "config.json")
    halves = videos.write_vatex(source) / "public_split"
    for half in halves.iterdir():
        _touch(data / "vatex" / half.name)
    for name in ("clips.jsonl", "r2plus1d/store.json", "s3d/store.json"):
        _touch(data / "msvd" / name)
    for recipe in ("msrvtt", "msrvtt-translated", "vatex", "howto100m", "multi30k"):
        text = find_recipe(f"mmp-{recipe}").read_text(encoding="utf-8")
        for made in re.findall(r"--out DATA/(\S+)", text):  # by the commands in its first lines
            _touch(data / made if "." in made else data / made / "store.json")
    return data


def _touch(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()


def check(name: str, data: Path) -> None:
    paper, target = find_target(name)
    plan = [with_data(run, data) for run in paper.plan()]
    assert needed_runs(target, plan)
    check_data(paper, target, plan, data, ())


@pytest.mark.parametrize("name", MEASURED)
def test_published_files_are_enough(name: str, published: Path) -> None:
    check(name, published)


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("uc2/table2", "uc2/misc/ans2label.json"),
        ("uc2/table1", "models/xlm-roberta-base/config.json"),
        ("uc2/table1", "flickr30k/regions/store.json"),
        ("m3p/table2", "panlex"),
        ("mmp/table1", "models/bert-base-multilingual-cased/config.json"),
        ("mmp/table6", "vatex/tst_names.npy"),
        ("smalr/table2", "fasttext/cc.ko.300.bin"),
        ("smalr/table2", "multi30k/resnet-152.npz"),
        ("smalr/figure3", "dictionaries/ru-en.txt"),
    ],
)
def test_what_is_missing_is_named(name: str, file: str, published: Path, tmp_path: Path) -> None:
    away = tmp_path / "away"
    (published / file).rename(away)
    try:
        with pytest.raises(DataError) as refused:
            check(name, published)
    finally:
        away.rename(published / file)
    message = str(refused.value)
    assert file.removesuffix("/store.json") in message
    assert f"polyglance reproduce {name} --data-needed" in message


def test_translators_are_looked_for_by_pair(published: Path, tmp_path: Path) -> None:
    """Without a model for all pairs, those between two others than English are missing."""
    away = tmp_path / "nllb"
    (published / "models" / "nllb-200-distilled-600M").rename(away)
    try:
        with pytest.raises(DataError, match=r"opus-mt-de-fr.*no such translation.*nor .*nllb"):
            check("smalr/table2", published)
    finally:
        away.rename(published / "models" / "nllb-200-distilled-600M")


def test_every_language_of_a_translated_test_needs_its_model(
    published: Path, tmp_path: Path
) -> None:
    models = published / "models"
    for code in ("cs", "ja"):
        (models / f"opus-mt-{code}-en").rename(tmp_path / code)
    try:
        with pytest.raises(DataError) as refused:
            check("uc2/table1", published)
    finally:
        for code in ("cs", "ja"):
            (tmp_path / code).rename(models / f"opus-mt-{code}-en")
    message = str(refused.value)
    assert "there is no such translation model or dictionary" in message
    assert "opus-mt-cs-en" in message
    assert "opus-mt-ja-en" in message
    assert "opus-mt-de-en" not in message  # is there


def test_bleu_that_cannot_be_computed_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    reason = "BLEU needs MeCab: pip install 'sacrebleu[ja]'"
    monkeypatch.setattr(
        "polyglance.recipes.vqa.evaluation.why_without_bleu",
        lambda language: reason if language == "ja" else None,
    )
    noted = note_missing_packages(find_target("uc2/table2")[1])
    assert noted.row("UC2").note.endswith(f"; VG JA BLEU stays empty here: {reason}")
    assert "MeCab" not in noted.row("PCATT").note  # its figures are published ones
