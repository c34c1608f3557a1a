"""The toy world's questions: about regions that a detector finds, and about pictures on disk."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from PIL import Image
from safetensors.torch import save_file

from polyglance.data.toy import Picture, ToyWorld
from polyglance.records import Question
from small_models import WIDTH, eyes_state
from toy_corpus import make_encoder

LANGUAGES = ("en", "de")


def asked_of(picture: Picture, kinds: Sequence[str] = ()) -> list[Question]:
    """The questions about a picture, all or those of some kinds."""
    return [
        question
        for question in picture.questions
        if not kinds or any(f"-{kind}-" in str(question.id) for kind in kinds)
    ]


def make_question_data(folder: Path, counts: Mapping[str, int], *, size: int = 64) -> None:
    """``train.jsonl`` and the like, a line a question; pictures, an ``encoder`` and ``eyes``."""
    world = ToyWorld(seed=0, languages=LANGUAGES, captions=1)
    (folder / "images").mkdir(parents=True)
    texts = []
    for split, count in counts.items():
        lines = []
        for picture in world.pictures(count, split):  # type: ignore[arg-type]
            name = f"images/{picture.key}.png".replace(":", "-")
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(picture.pixels(size)).save(path)
            for question in asked_of(picture):
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
    make_encoder(folder / "encoder", texts, layers=2)
    save_eyes(folder / "eyes", size)


def save_eyes(folder: Path, size: int) -> None:
    """A narrow network with random weights, as a backbone's folder."""
    folder.mkdir()
    save_file(eyes_state(), folder / "model.safetensors")
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
