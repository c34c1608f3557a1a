"""Paired comparisons of models, against loops and against `compare_queries`."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from polyglance.errors import PolyglanceError
from polyglance.evaluation.comparison import (
    MEAN,
    ModelRanks,
    compare_models,
    most_different_queries,
)
from polyglance.evaluation.comparison_data import open_test_set
from polyglance.evaluation.comparison_models import ModelSpec, parse_specs
from polyglance.evaluation.comparison_page import comparison_page
from polyglance.evaluation.retrieval import Ranks
from polyglance.evaluation.statistics import compare_queries, holm, image_scores
from polyglance.records import Record, write_manifest

IMAGES = 60


def random_model(name: str, seed: int, spread: int, captions: dict[str, list[int]]) -> ModelRanks:
    rng = np.random.default_rng(seed)
    ranks, top = {}, {}
    for code, counts in captions.items():
        ids = np.repeat(np.arange(IMAGES), counts)
        queries = np.count_nonzero(counts)
        ranks[code] = Ranks(
            rng.integers(1, spread, queries), rng.integers(1, spread, len(ids)), IMAGES, ids
        )
        top[code] = rng.integers(0, IMAGES, (len(ids), 3))
    return ModelRanks(name, name, "cosine", ranks, top)


def test_differences_equal_compare_queries_and_are_corrected_together() -> None:
    captions = {"en": [2] * IMAGES, "de": [1] * IMAGES}
    models = [
        random_model("a", 1, 30, captions),
        random_model("b", 2, 18, captions),
        random_model("c", 3, 30, captions),
    ]
    compared = compare_models(models)
    expected = []
    for model in models[1:]:
        scores = {
            code: [
                image_scores(r.image_to_text, r.text_to_image, r.image_ids, IMAGES)
                for r in (model.ranks[code], models[0].ranks[code])
            ]
            for code in captions
        }
        scores[MEAN] = [np.mean([scores[c][side] for c in captions], 0) for side in (0, 1)]
        expected += [compare_queries([own], [base]) for own, base in scores.values()]
    expected = holm(expected)
    found = [d for model in compared[1:] for d in model.differences.values()]
    assert [list(model.differences) for model in compared] == [[], *[["en", "de", MEAN]] * 2]
    for mine, theirs in zip(found, expected, strict=True):
        assert mine[:3] == pytest.approx(theirs[:3], abs=1e-9)
        assert mine.p == pytest.approx(theirs.p)
        assert mine.verdict == theirs.verdict
    assert compared[1].differences[MEAN].verdict == "yes"
    assert compared[2].differences[MEAN].verdict == "not decided"


def test_intervals_equal_a_loop_over_resamples_where_images_have_different_captions() -> None:
    rng = np.random.default_rng(4)
    counts = rng.integers(0, 6, IMAGES).tolist()  # some have none
    models = [random_model(n, s, 15, {"en": counts}) for n, s in (("a", 5), ("b", 6))]
    figures = compare_models(models)
    starts = np.cumsum([0, *counts]).tolist()

    def recall(ranks: Ranks, drawn: list[int]) -> float:
        """Recall@5 of captions over the drawn images, with their own captions as queries."""
        hits = queries = 0
        for image in drawn:
            for number in range(starts[image], starts[image + 1]):
                hits, queries = hits + int(ranks.text_to_image[number] <= 5), queries + 1
        return 100 * hits / queries

    drawn = [rng.integers(0, IMAGES, IMAGES).tolist() for _ in range(300)]
    loops = [[recall(model.ranks["en"], one) for one in drawn] for model in models]
    found = figures[1].recall_differences["en"]["t→i R@5"]
    differences = np.subtract(loops[1], loops[0])
    everything = list(range(IMAGES))
    assert found.mean == pytest.approx(
        recall(models[1].ranks["en"], everything) - recall(models[0].ranks["en"], everything)
    )
    assert found.low is not None
    assert found.high is not None
    spread = (found.high - found.low) / 2
    assert spread == pytest.approx(1.96 * differences.std(), rel=0.15)
    assert (found.high + found.low) / 2 == pytest.approx(differences.mean(), abs=0.25 * spread)
    # mR of the model alone has an interval that contains it.
    own = figures[1].mean_recalls["en"]
    assert own.low < own.value < own.high


def test_models_must_have_ranked_the_same_queries() -> None:
    captions = {"en": [1] * IMAGES}
    one, other = random_model("a", 1, 9, captions), random_model("b", 1, 9, {"en": [2] * IMAGES})
    with pytest.raises(PolyglanceError, match="a and b ranked different queries"):
        compare_models([one, other])
    with pytest.raises(PolyglanceError, match="needs two models or more"):
        compare_models([one])


def test_the_most_different_queries_are_found_once_per_image() -> None:
    ids = np.array([0, 0, 1, 2])
    base, better = np.array([50, 40, 1, 3]), np.array([1, 1, 30, 3])
    models = [
        ModelRanks("a", "a", "cosine", {"en": Ranks(np.ones(3, int), ranks, 60, ids)}, {})
        for ranks in (base, better)
    ]
    queries = most_different_queries(models, 5)
    # Image 0 once, by the caption that lay further down; image 2 makes no difference.
    assert [(q.number, q.ranks) for q in queries] == [(0, (50, 1)), (2, (1, 30))]
    assert queries[0].gain == pytest.approx(1 - 1 / 50)
    assert [q.number for q in most_different_queries(models, 0)] == []


def write_pictures(folder: Path, names: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        Image.new("RGB", (20, 16), (len(name) * 40 % 255, 90, 120)).save(folder / name)


def test_layouts_of_captioned_folders(tmp_path: Path) -> None:
    beside = tmp_path / "beside"
    write_pictures(beside, ["cat.png", "dog.JPG", "tree.png"])
    write_pictures(beside / "inner", ["bird.png"])
    (beside / "cat.txt").write_text("a cat\n\none more cat\n")
    (beside / "dog.de.txt").write_text("ein Hund\n")
    (beside / "dog.txt").write_text("a dog")
    (beside / "inner" / "bird.de.txt").write_text("ein Vogel")
    (beside / "notes.txt").write_text("of no picture")
    read = open_test_set(beside)
    assert read.layout.captions == {
        "en": ("a cat", "one more cat", "a dog"), "de": ("ein Hund", "ein Vogel"),
    }  # fmt: skip
    assert [file.name for file in read.files] == ["cat.png", "dog.JPG", "tree.png", "bird.png"]
    assert read.layout.image_ids["de"].tolist() == [1, 3]
    assert open_test_set(beside, language="fr", languages=["fr"]).languages == ["fr"]

    table = tmp_path / "table"
    write_pictures(table, ["cat.png", "dog.png"])
    (table / "metadata.jsonl").write_text(
        '{"file_name": "cat.png", "text": "a cat"}\n{"file_name": "dog.png", "text": "a dog"}\n'
    )
    for source in (table, table / "metadata.jsonl"):
        read = open_test_set(source, language="en")
        assert read.layout.captions == {"en": ("a cat", "a dog")}
        assert [file.name for file in read.files] == ["cat.png", "dog.png"]

    # The same as a manifest, alone in its folder, with a caption that is empty and a damaged file.
    records = [
        Record(image="../beside/cat.png", captions={"en": ("a cat", " ")}),
        Record(image="../beside/dog.JPG", captions={"en": ("a dog",)}, split="test"),
        Record(image="../beside/tree.png", captions={"en": ("a tree",)}, split="test"),
        Record(image="bad.png", captions={"en": ("nothing",)}, split="test"),
    ]
    folder = tmp_path / "manifest"
    folder.mkdir()
    write_manifest(folder / "all.jsonl", records)
    (folder / "bad.png").write_bytes(b"no picture")
    read = open_test_set(folder)
    assert read.layout.captions == {"en": ("a cat", "a dog", "a tree")}
    assert [Path(name).name for name in read.skipped] == ["bad.png"]
    assert open_test_set(folder, split="test").layout.captions["en"] == ("a dog", "a tree")


def test_folders_without_captions_are_refused_in_a_sentence(tmp_path: Path) -> None:
    def refusal(source: Path, **options: str) -> str:
        with pytest.raises(PolyglanceError) as caught:
            open_test_set(source, **options)  # type: ignore[arg-type]
        return str(caught.value)

    assert "no such file or folder" in refusal(tmp_path / "nowhere")
    write_pictures(tmp_path / "plain", ["a.png", "b.png"])
    assert "has no captions: put them in a manifest" in refusal(tmp_path / "plain")
    assert "is no manifest" in refusal(tmp_path / "plain" / "a.png")
    (tmp_path / "plain" / "a.txt").write_text("a picture")
    assert "no captions in de, only in en" in refusal(tmp_path / "plain", languages=["de"])  # type: ignore[arg-type]
    for name in ("train.jsonl", "test.jsonl"):
        write_manifest(tmp_path / name, [Record(image="x.png", captions={"en": ("x",)})])
    assert "several manifests (test.jsonl, train.jsonl)" in refusal(tmp_path)
    sentence = refusal(tmp_path / "test.jsonl")
    assert "none of the captioned pictures can be read" in sentence
    assert "--pictures names" in sentence


def test_models_have_different_names(tmp_path: Path) -> None:
    for name in ("one/model", "two/model"):
        (tmp_path / name).mkdir(parents=True)
    one, two = (str(tmp_path / name) for name in ("one/model", "two/model"))
    assert [s.name for s in parse_specs([one, two])] == ["one/model", "two/model"]
    assert parse_specs(["mine=" + one]) == [
        ModelSpec("polyglance-small", "polyglance-small"), ModelSpec(one, "mine"),
    ]  # fmt: skip
    with pytest.raises(PolyglanceError, match="named twice"):
        parse_specs([one, one])
    with pytest.raises(PolyglanceError, match="polyglance-small alone has nothing to differ from"):
        parse_specs(["polyglance-small"])


def test_the_page_is_one_file_without_scripts(tmp_path: Path) -> None:
    write_pictures(tmp_path, ["a & b.png", "cd.png"])
    records = [
        Record(image="a & b.png", captions={"en": ("<script>alert(1)</script>",)}),
        Record(image="cd.png", captions={"ar": ("كلب <b>",)}),
    ]
    write_manifest(tmp_path / "m.jsonl", records)
    test_set = open_test_set(tmp_path / "m.jsonl")
    top = np.array([[0, 1]])
    models = [
        ModelRanks(
            name, name, "cosine",
            {code: Ranks(np.array([1]), np.array([found]), 2, np.array([image]))
             for image, code in enumerate(("en", "ar"))},
            {"en": top, "ar": top},
        )
        for name, found in (("base", 2), ("<i>mine", 1))
    ]  # fmt: skip
    figures = compare_models(models)
    page = comparison_page(test_set, figures, models, most_different_queries(models))
    assert not re.search(r"<script|<link|src=\"(?!data:image/webp)|https?://|<i>mine|<b>\"", page)
    assert page.count("data:image/webp;base64,") >= 3
    assert "&lt;script&gt;alert(1)" in page
    assert 'lang="ar" dir="rtl"' in page
    assert page.count("<svg role=") == 3  # two languages and their mean
    assert "base <b>2nd</b>" in page
    assert "color-scheme: light dark" in page
