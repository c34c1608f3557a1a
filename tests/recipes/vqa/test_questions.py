"""Which questions are read, and which answers are classes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from helpers.published import questions as published
from polyglance.encoders.answers import AnswerVocabulary
from polyglance.errors import DataError, PolyglanceError
from polyglance.recipes.vqa.config import QuestionFile, VQARecipe
from polyglance.recipes.vqa.questions import (
    answer_targets,
    build_answer_vocabulary,
    read_answer_classes,
    read_questions,
)
from polyglance.records import Question

FORMAT = "visual-genome-vqa-ja"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("questions")
    published.write_visual_genome(folder, "ja")
    published.write_answer_lists(folder / "misc")
    (folder / "train.txt").write_text("3\n5.jpg\n")
    return folder


def names(data: Path, **settings: object) -> list[str]:
    file = QuestionFile("question_answers.json", FORMAT, **settings)  # type: ignore[arg-type]
    return [image.name for image in read_questions([file], data)]


def test_images_are_kept_by_list_or_by_part(data: Path) -> None:
    assert names(data, image_list="train.txt") == ["3.jpg", "5.jpg"]
    first, second = names(data, part=(0, 0.67)), names(data, part=(0.67, 1))
    assert sorted(first + second) == sorted(names(data))
    assert len(first) > len(second) > 0
    with pytest.raises(PolyglanceError, match="part must be two rising shares"):
        QuestionFile("x.json", part=(0.5, 0.5))
    (data / "empty.txt").write_text("\n")
    with pytest.raises(DataError, match=r"empty\.txt: expected the ids of images"):
        names(data, image_list="empty.txt")


def test_images_of_visual_genome_are_kept_by_folder(data: Path) -> None:
    published.write_image_data(data)
    train, test = (
        names(data, image_list="image_data.json", image_folder=folder)
        for folder in ("VG_100K", "VG_100K_2")
    )
    assert test == [f"{image}.jpg" for image in published.VISUAL_GENOME if image % 3 == 0]
    assert sorted(train + test) == sorted(names(data))
    with pytest.raises(DataError, match=r"image_data\.json: no image is in the folder 'VG'"):
        names(data, image_list="image_data.json", image_folder="VG")
    with pytest.raises(PolyglanceError, match=r"name Visual Genome's image_data\.json"):
        QuestionFile("x.json", image_folder="VG_100K")


def test_classes_by_majority_count_the_most_frequent_answer_alone() -> None:
    questions = [
        Question("q", "en", ("red",) * 6 + ("blue",) * 4),
        Question("q", "en", ("red",) * 6 + ("blue",) * 4),
        Question("q", "en", ("green",) * 10),
    ]
    by_score = build_answer_vocabulary(questions, min_score=1.5).by_language["en"]
    by_majority = build_answer_vocabulary(questions, min_score=1.5, rank_by="majority")
    assert by_score == ("blue", "red")  # four of ten are enough for a full score
    assert by_majority.by_language["en"] == ("red",)


def test_published_classes_keep_their_order_and_absorb_other_forms(data: Path) -> None:
    vocabulary = read_answer_classes(data / "misc" / "ans2label_ja.json", "ja")
    assert vocabulary == AnswerVocabulary({"ja": published.JAPANESE_ANSWERS})
    questions = [Question("q", "ja", ("１つ",)), Question("q", "ja", ("犬",))]
    targets = answer_targets(vocabulary, questions).gather(np.arange(2)).tolist()
    assert targets == [[0, 1, 0, 0], [0, 0, 0, 1]]
    (data / "bad.json").write_text(json.dumps({"yes": 0, "no": 2}))
    with pytest.raises(DataError, match=r"bad\.json: expected .* as in ans2label\.json"):
        read_answer_classes(data / "bad.json", "en")


def test_stored_regions_exclude_what_needs_pixels(data: Path) -> None:
    with pytest.raises(PolyglanceError, match="init_from_dual_encoder needs pixels"):
        VQARecipe(image_backbone=None, init_from_dual_encoder="polyglance-small")
    recipe = VQARecipe(image_backbone=None, train=(QuestionFile("question_answers.json", FORMAT),))
    (missing,) = recipe.missing_files(data)
    assert "there is no feature store; import a detector's regions" in missing
