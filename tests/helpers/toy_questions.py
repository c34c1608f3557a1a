"""The toy dataset's questions on disk, with its images, a text encoder and an image backbone."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from PIL import Image
from safetensors.torch import save_file

from helpers.small_mmp import WIDTH, image_backbone_state
from helpers.text_encoder import save_text_encoder
from polyglance.data.toy import Picture, ToyDataset
from polyglance.records import Question

LANGUAGES = ("en", "de")


def picture_questions(picture: Picture, kinds: Sequence[str] = ()) -> list[Question]:
    """Return the questions about a picture, or only those of the given kinds."""
    return [
        question
        for question in picture.questions
        if not kinds or any(f"-{kind}-" in str(question.id) for kind in kinds)
    ]


def write_question_data(folder: Path, counts: Mapping[str, int], *, size: int = 64) -> None:
    """Write a manifest per split, one question a line, and the models to learn it with.

    ``folder`` gets ``images/``, ``{split}.jsonl``, ``encoder/`` and ``image_backbone/``.
    """
    dataset = ToyDataset(seed=0, languages=LANGUAGES, captions_per_language=1)
    (folder / "images").mkdir(parents=True)
    texts = []
    for split, count in counts.items():
        lines = []
        for picture in dataset.pictures(count, split):  # type: ignore[arg-type]
            name = f"images/{picture.key}.png".replace(":", "-")
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(picture.pixels(size)).save(path)
            for question in picture_questions(picture):
                texts.append(question.text)
                line = {
                    "image": name,
                    "question": question.text,
                    "answers": list(question.answers),
                    "answer_type": question.answer_type,
                    "language": question.language,
                }
                lines.append(json.dumps(line, ensure_ascii=False))
        (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    save_text_encoder(folder / "encoder", texts, layers=2)
    save_image_backbone(folder / "image_backbone", size)


def save_image_backbone(folder: Path, size: int) -> None:
    """Save a narrow EfficientNet-Lite with random weights as a backbone folder."""
    folder.mkdir()
    save_file(image_backbone_state(), folder / "model.safetensors")
    config = {
        "model_type": "efficientnet-lite",
        "variant": 0,
        "image_size": size,
        "mean": [0.5, 0.5, 0.5],
        "std": [0.5, 0.5, 0.5],
        "num_features": WIDTH,
        "num_classes": 7,
    }
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
