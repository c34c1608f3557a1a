"""VQA v2 and Visual Genome's questions as published, and UC2's lists of answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from helpers.published.captions import COCO

SUBSETS = {
    "train2014": [image for place, some in COCO.values() if place == "train2014" for image in some],
    "val2014": [image for place, some in COCO.values() if place == "val2014" for image in some],
    "test-dev2015": [1, 14, 16],
}
"""Images of VQA v2 by subset."""
VISUAL_GENOME = tuple(range(2, 14))
ANSWERS = ("yes", "no", "red", "2")
JAPANESE_ANSWERS = ("赤", "1つ", "１つ", "犬")
TRANSLATED_ANSWERS = ("red", "1", "1+", "dog")
"""Two of them differ in form alone, as in UC2's own list."""


def write_vqa_v2(folder: Path) -> Path:
    """Write questions of three subsets and annotations of two."""
    folder.mkdir(parents=True)
    for subset, images in SUBSETS.items():
        questions = [
            {"image_id": image, "question": text, "question_id": 1000 * image + number}
            for image in images
            for number, text in enumerate(("Is the dog red?", "How many dogs?", "Why?"))
        ]
        info = {"description": "VQA v2.0", "data_type": "mscoco", "task_type": "Open-Ended"}
        document = {"info": info, **info, "data_subtype": subset, "questions": questions}
        _write(folder / f"v2_OpenEnded_mscoco_{subset}_questions.json", document)
        if "test" not in subset:
            annotations = [_annotation(number, q) for number, q in enumerate(questions)]
            document = {"info": info, "data_subtype": subset, "annotations": annotations}
            _write(folder / f"v2_mscoco_{subset}_annotations.json", document)
    return folder


def _annotation(number: int, question: dict[str, Any]) -> dict[str, Any]:
    kind = question["question_id"] % 1000
    given = (["yes", "no"][number % 2], "2", "because it can")[kind]
    people = [given] * 7 + ["other"] * 3
    return {
        "question_type": "none of the above",
        "multiple_choice_answer": given,
        "answers": [
            {"answer": answer, "answer_confidence": "yes", "answer_id": place + 1}
            for place, answer in enumerate(people)
        ],
        "image_id": question["image_id"],
        "answer_type": ("yes/no", "number", "other")[kind],
        "question_id": question["question_id"],
    }


def write_visual_genome(folder: Path, language: str) -> Path:
    """Write ``question_answers.json``, Visual Genome's own with its images or the Japanese one."""
    texts = {
        "en": (("What colour is it?", "Red."), ("How many dogs?", "2")),
        "ja": (("何色ですか?", "赤"), ("犬は何匹いますか?", "１つ")),
    }[language]
    folder.mkdir(parents=True, exist_ok=True)
    document = [
        {
            "id": image,
            "qas": [
                {
                    "a_objects": [],
                    "question": question,
                    "image_id": image,
                    "qa_id": 100 * image + number,
                    "answer": answer,
                    "q_objects": [],
                }
                for number, (question, answer) in enumerate(texts)
            ],
        }
        for image in VISUAL_GENOME
    ]
    _write(folder / "question_answers.json", document)
    if language == "en":
        write_image_data(folder)
    return folder


def write_image_data(folder: Path) -> Path:
    """Write Visual Genome's ``image_data.json``: two thirds of the images are in VG_100K."""
    address = "https://cs.stanford.edu/people/rak248"
    document = [
        {
            "width": 800, "url": f"{address}/{'VG_100K' if image % 3 else 'VG_100K_2'}/{image}.jpg",
            "height": 600, "image_id": image, "coco_id": None, "flickr_id": None,
        }
        for image in VISUAL_GENOME
    ]  # fmt: skip
    _write(folder / "image_data.json", document)
    return folder


def write_answer_lists(folder: Path) -> Path:
    """Write UC2's lists: English answers, Japanese ones, and these in English."""
    folder.mkdir(parents=True)
    for name, answers in (
        ("ans2label", ANSWERS),
        ("ans2label_ja", JAPANESE_ANSWERS),
        ("ans2label_ja_trans2_en", TRANSLATED_ANSWERS),
    ):
        _write(folder / f"{name}.json", {answer: number for number, answer in enumerate(answers)})
    return folder


def _write(path: Path, document: object) -> None:
    path.write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")
