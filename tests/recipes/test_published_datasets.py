"""The papers' recipes of UC2, M3P and question answering, on datasets laid out as published."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from helpers.published import captions, multi30k, questions, regions
from helpers.published.uc2_checkpoint import uc2_vqa_parameters
from helpers.text_encoder import save_text_encoder
from polyglance.cross_encoders.vqa import VQA
from polyglance.errors import DataError, PolyglanceError
from polyglance.recipes import open_recipe
from polyglance.recipes.cross_encoder.corpora import read_corpus
from polyglance.recipes.cross_encoder.data import SplitReader
from polyglance.recipes.uc2.config import UC2Recipe
from polyglance.recipes.vqa.data import load_data
from polyglance.reproduce.target import paper
from polyglance.text import open_tokenizer
from polyglance.vision.region_import import import_regions

STEPS = ("loop.steps=2", "loop.precision=float32", "loop.validate_every=0", "loop.warmup=1")
FINE_TUNING = ("fine_tuning.batch=4", "loop.grad_accumulation_steps=1")
PRETRAINING = ("pretraining.batch=4", "pretraining.steps=2", "pretraining.warmup=1")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All datasets of both papers as they are published, with imported regions."""
    folder, raw = tmp_path_factory.mktemp("data"), tmp_path_factory.mktemp("regions")
    captions.write_flickr30k(folder / "flickr30k")
    multi30k.write_multi30k(folder / "multi30k")
    captions.write_mscoco(folder / "mscoco")
    captions.write_stair(folder / "stair")
    captions.write_yjcaptions(folder / "yjcaptions")
    captions.write_coco_cn(folder / "coco-cn")
    captions.write_conceptual_captions(folder / "conceptual-captions")
    captions.write_object_labels(folder / "uc2" / "object_labels")
    captions.write_wikipedia(folder / "wikipedia")
    captions.write_panlex(folder / "panlex")
    questions.write_vqa_v2(folder / "vqa-v2")
    questions.write_visual_genome(folder / "visual-genome", "en")
    questions.write_visual_genome(folder / "visual-genome-ja", "ja")
    questions.write_answer_lists(folder / "uc2" / "misc")

    flickr = [name.removesuffix(".jpg") for some in multi30k.IMAGES.values() for name in some]
    coco = [str(image) for _, images in captions.COCO.values() for image in images]
    test2015 = [str(image) for image in questions.SUBSETS["test-dev2015"]]
    genome = [str(image) for image in questions.VISUAL_GENOME]
    for keys, store in (
        (flickr, "flickr30k/regions"),
        (coco, "mscoco/regions"),
        (test2015, "mscoco/regions-test2015"),
        (genome, "visual-genome/regions"),
    ):
        source = regions.write_region_tsv(raw / f"{store}.tsv", keys)
        import_regions(source, folder / store, quiet=True)
    classes = len(captions.OBJECTS)
    for subset, store in (("Train", "regions"), ("Validation", "regions-val")):
        keys = captions.cc_keys(subset)[1:]  # the first link is dead
        npz = regions.write_region_npz(raw / f"gcc-{subset}", keys, classes)
        import_regions(npz, folder / "conceptual-captions" / store, labels=3, quiet=True)

    texts = [*captions.all_texts(), *captions.OBJECTS, "Is How many Why? What colour dogs it?"]
    save_text_encoder(folder / "xlm-roberta-base", texts, layers=2)
    return folder


def train(name: str, data: Path, run: Path, *changes: str) -> dict[str, Any]:
    """Train a recipe for two steps, all else as it is published, and return its report."""
    return open_recipe(name, small(name, data, *changes)).train(data, run)


def small(name: str, data: Path, *changes: str) -> list[str]:
    own = [f"encoder={data / 'xlm-roberta-base'}", *STEPS, *changes]
    settings = type(open_recipe(name).settings)
    if "word_head" in {field.name for field in fields(settings)}:
        own.append("word_head=null")  # the published encoder has a head for words
    return own


def recalls(report: dict[str, Any]) -> dict[str, float]:
    figures = report["test"]["all_pairs"]
    return {language: figures[language]["mR"] for language in figures if language != "average"}


def compared(report: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """Return by language how many captions are queries, and how many images each is compared to."""
    figures = report["test"]["all_pairs"]
    found = {language: figures[language]["text_to_image"] for language in recalls(report)}
    return {code: (some["queries"], some["candidates"]) for code, some in found.items()}


@pytest.fixture(scope="module")
def uc2_pretrained(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("uc2")
    changes = ("early_adaptation.steps=2", "early_adaptation.batch=4", *PRETRAINING)
    report = train("uc2-conceptual-captions", data, run, *changes)
    assert set(recalls(report)) == {"en", *captions.UC2_LANGUAGES}
    assert report["labels"]["named"] == dict.fromkeys(("en", *captions.UC2_LANGUAGES), 1.0)
    assert report["pretraining"]["steps"] == report["early_adaptation"]["steps"] == 2
    return run


def test_uc2_is_fine_tuned_on_multi30k(data: Path, uc2_pretrained: Path, tmp_path: Path) -> None:
    initial = f"initialise_from={uc2_pretrained / 'pretraining'}"
    report = train("uc2-multi30k", data, tmp_path, initial, *FINE_TUNING)
    assert set(recalls(report)) == {"en", "de", "fr", "cs"}
    assert compared(report) == {"en": (20, 4), "de": (20, 4), "fr": (4, 4), "cs": (4, 4)}


def test_uc2_is_fine_tuned_on_mscoco_in_folds(
    data: Path, uc2_pretrained: Path, tmp_path: Path
) -> None:
    initial = f"initialise_from={uc2_pretrained / 'pretraining'}"
    changes = (initial, *FINE_TUNING, "test.fold_images=2")
    report = train("uc2-mscoco", data, tmp_path, *changes)
    # Two folds of two images; COCO-CN's three images at once, one of which has two captions.
    assert compared(report) == {"en": (20, 2), "ja": (20, 2), "zh": (4, 3)}


def test_m3p_is_pretrained_and_fine_tuned(data: Path, tmp_path: Path) -> None:
    changes = (*PRETRAINING, "pretraining.text_batch=4")
    report = train("m3p-conceptual-captions", data, tmp_path / "pretrained", *changes)
    assert set(recalls(report)) == {"en"}
    assert set(report["languages"]) == {"en", "de", "fr"}  # of Wikipedia
    initial = f"initialise_from={tmp_path / 'pretrained' / 'pretraining'}"
    report = train("m3p-multi30k", data, tmp_path / "multi30k", initial, *FINE_TUNING)
    assert set(recalls(report)) == {"en", "de", "fr", "cs"}
    report = train("m3p-mscoco", data, tmp_path / "mscoco", initial, *FINE_TUNING)
    assert set(recalls(report)) == {"en", "ja", "zh"}


def test_m3p_is_fine_tuned_on_code_switched_english(data: Path, tmp_path: Path) -> None:
    changes = (*FINE_TUNING, "fine_tuning.code_switched=true", "code_switching.languages=null")
    report = train("m3p-multi30k", data, tmp_path, *changes)
    assert set(recalls(report)) == {"en", "de", "fr", "cs"}


def settings(name: str, *changes: str) -> Any:
    return open_recipe(name, changes).settings


def test_multi30k_has_the_published_captions_of_each_image(data: Path) -> None:
    recipe: UC2Recipe = settings("uc2-multi30k")
    for corpus, split in ((recipe.train, "train"), (recipe.test, "test")):
        assert corpus is not None
        records = read_corpus(corpus, data)
        assert [record.image for record in records] == list(multi30k.IMAGES[split])
        for record in records:
            counts = {language: len(texts) for language, texts in record.captions.items()}
            assert counts == {"en": 5, "de": 5, "fr": 1, "cs": 1}


def test_mscoco_has_karpathys_images_and_coco_cns_own_split(data: Path) -> None:
    recipe: UC2Recipe = settings("uc2-mscoco")
    records = read_corpus(recipe.train, data)
    assert len(records) == 8  # train and restval
    assert {len(record.captions["ja"]) for record in records} == {5}
    chinese = read_corpus(recipe.extra_test[0], data)
    assert [record.image for record in chinese] == [
        f"{captions.coco_name(image)[5:].split('_')[0]}/{captions.coco_name(image)}"
        for image in captions.COCO_CN["test"]
    ]
    for record, image in zip(chinese, captions.COCO_CN["test"], strict=True):
        count = 2 if image in captions.COCO_CN_TWICE else 1
        texts = tuple(captions.say("zh", image + number) for number in range(count))
        assert record.captions == {"zh": texts}
    # As in the published code: Japanese captions of images of train2014 alone.
    changed = settings("uc2-mscoco", "train.merge.0.manifest=stair/stair_captions_v1.2_train.json")
    assert sum("ja" in r.captions for r in read_corpus(changed.train, data)) == 4
    yj = ("train.merge.0.manifest=yjcaptions", "train.merge.0.format=yjcaptions")
    counts = [
        len(r.captions.get("ja", ())) for r in read_corpus(settings("m3p-mscoco", *yj).train, data)
    ]
    assert sorted(counts) == [0, 0, 0, 0, 2, 2, 2, 2]


def test_translations_of_conceptual_captions_join_their_images(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe: UC2Recipe = settings("uc2-conceptual-captions")
    tokenizer = open_tokenizer(data / "xlm-roberta-base")
    reader = SplitReader.from_recipe(recipe, data, tokenizer, "cpu")
    records = reader.read_records(recipe.train)
    assert "1 of 6 images have no regions and are left out" in capsys.readouterr().err
    assert [record.id for record in records] == captions.cc_keys("Train")[1:]
    for number, record in enumerate(records, start=1):
        expected = {"en", *captions.UC2_LANGUAGES} - ({"cs"} if number == 5 else set())
        assert record.captions == {code: (captions.say(code, number),) for code in expected}


def test_vqa_v2_writes_what_the_challenge_takes(
    data: Path, uc2_pretrained: Path, tmp_path: Path
) -> None:
    initial = f"initialise_from={uc2_pretrained / 'pretraining'}"
    report = train("vqa-v2", data, tmp_path, initial, "batch=8")
    assert report["answers"] == {"en": len(questions.ANSWERS)}
    assert report["test"] == {"en": {"unscored_questions": 9}}
    path = tmp_path / "vqa_OpenEnded_mscoco_test-dev2015_polyglance_results.json"
    results = json.loads(path.read_text())
    ids = [1000 * image + n for image in questions.SUBSETS["test-dev2015"] for n in range(3)]
    assert [result["question_id"] for result in results] == ids
    assert all(set(result) == {"question_id", "answer"} for result in results)
    assert {result["answer"] for result in results} <= set(questions.ANSWERS)
    lines = (tmp_path / "answers.jsonl").read_text().splitlines()
    assert [json.loads(line)["question_id"] for line in lines] == list(map(str, ids))
    with pytest.raises(DataError, match="trained on regions of an external detector"):
        VQA.open(tmp_path)


def test_vqa_v2_trains_on_both_splits_and_visual_genome(data: Path) -> None:
    recipe = open_recipe("vqa-v2", small("vqa-v2", data)).settings
    vqa_data = load_data(recipe, data, "cpu")
    asked = 3 * len(questions.SUBSETS["train2014"] + questions.SUBSETS["val2014"])
    genome = 2 * len(questions.VISUAL_GENOME)
    assert len(vqa_data.train.questions) == asked + genome
    # Questions whose answer is no class ("because it can") are trained on in VQA v2 alone.
    assert int(vqa_data.train_unmatched.sum()) == asked
    regions_of = vqa_data.train.regions
    for row in (0, len(vqa_data.train.questions) - 1):
        image = int(vqa_data.train.table.record_ids[row])
        features, _ = regions_of.take(np.array([image]))
        assert features.features.shape == (regions.REGIONS, regions.WIDTH)


def test_japanese_visual_genome_is_split_by_image_and_scored(data: Path, tmp_path: Path) -> None:
    report = train("vqa-vg-ja", data, tmp_path, "batch=8", "held_out=0")
    assert report["answers"] == {"ja": len(questions.JAPANESE_ANSWERS)}
    japanese = report["test"]["ja"]
    test_questions = japanese["questions"]
    assert report["questions"] + test_questions == 2 * len(questions.VISUAL_GENOME)
    assert 0 < test_questions < report["questions"]
    # What people said ("１つ" is the class "1つ") against the answers that were written.
    said = {"何色ですか?": "赤", "犬は何匹いますか?": "1つ"}
    lines = (tmp_path / "answers.jsonl").read_text(encoding="utf-8").splitlines()
    answers = [json.loads(line) for line in lines]
    assert len(answers) == test_questions
    right = [answer["answer"] == said[answer["question"]] for answer in answers]
    assert japanese["model"]["accuracy"] == pytest.approx(100 * np.mean(right))
    recipe = open_recipe("vqa-vg-ja", small("vqa-vg-ja", data)).settings
    vqa_data = load_data(recipe, data, "cpu")
    assert {question.id for question in vqa_data.train.questions}.isdisjoint(
        question.id for question in vqa_data.tests[0].questions
    )


def test_japanese_questions_are_translated_for_an_english_model(data: Path, tmp_path: Path) -> None:
    """Translate-test: English classes, in which the Japanese ones are translated."""
    (data / "panlex" / "ja-en.tsv").write_text("犬\tdog\n何色\twhat colour\n", encoding="utf-8")
    # As uc2/table2 of `polyglance reproduce` has it.
    spec = paper("uc2").runs["English only > vqa-vg-ja translated"]
    own = [change for change in spec.changes if "{" not in change or "manifest" in change]
    changes = ["batch=8", *own]
    translate = "translate_test=panlex/{source}-{target}.tsv"
    report = train(spec.recipe, data, tmp_path / "run", *changes, translate)
    assert report["questions"] == 3 * len(
        questions.SUBSETS["train2014"] + questions.SUBSETS["val2014"]
    )
    assert set(report["test"]) == {"ja"}
    assert "baseline" not in report["test"]["ja"]
    lines = (tmp_path / "run" / "answers.jsonl").read_text(encoding="utf-8").splitlines()
    answers = [json.loads(line) for line in lines]
    assert {answer["answer"] for answer in answers} <= set(questions.JAPANESE_ANSWERS)
    assert {answer["question"] for answer in answers} == {"何色ですか?", "犬は何匹いますか?"}
    with pytest.raises(PolyglanceError, match="set translate_test and answers"):
        train("vqa-v2", data, tmp_path / "other", *changes)


def test_a_published_vqa_checkpoint_answers_without_training(data: Path, tmp_path: Path) -> None:
    words = open_tokenizer(data / "xlm-roberta-base").vocab_size
    published = uc2_vqa_parameters(
        words=words,
        positions=80,
        visual_width=regions.WIDTH,
        answers=len(questions.ANSWERS),
        head_width=48,  # UC2's has twice the hidden size, VOLTA's copy of it once that
    )
    published["vqa_output.3.weight"] *= 0
    published["vqa_output.3.bias"] = torch.tensor([0.0, 0.0, 9.0, 0.0])
    torch.save(published, tmp_path / "vqa.pt")
    changes = [f"initialise_from={tmp_path / 'vqa.pt'}", "variant=reference", "loop.steps=0"]
    train("vqa-v2", data, tmp_path / "run", *changes)
    path = tmp_path / "run" / "vqa_OpenEnded_mscoco_test-dev2015_polyglance_results.json"
    assert {result["answer"] for result in json.loads(path.read_text())} == {questions.ANSWERS[2]}
    assert json.loads((tmp_path / "run/model/config.json").read_text())["head_width"] == 48
    with pytest.raises(PolyglanceError, match="set variant to reference"):
        train("vqa-v2", data, tmp_path / "other", changes[0])
    listed = {answer: number for number, answer in enumerate(questions.ANSWERS[:3])}
    (data / "uc2" / "misc" / "short.json").write_text(json.dumps(listed))
    changes.append("answers.classes=uc2/misc/short.json")
    with pytest.raises(PolyglanceError, match=r"has 4 answers and uc2/misc/short\.json 3"):
        train("vqa-v2", data, tmp_path / "short", *changes)
