"""What SMALR reads: Multi30K, MSCOCO in three languages, image features, fastText's vectors."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from helpers.fasttext import write_bin
from helpers.published import captions, multi30k
from helpers.published.sentences import rows

TRAIN, VAL = tuple(range(9, 33)), (42, 73, 74, 133)
CHINESE, JAPANESE = (*range(12, 30), 42, 73), tuple(range(9, 27))
"""Images of train2014 and val2014, and which of them COCO-CN and YJ Captions describe."""
WIDTH = 6
LANGUAGES = ("en", "de", "fr", "cs", "zh", "ja", "ar", "af", "ko", "ru")


def write_multi30k(data: Path) -> None:
    """Write ``multi30k/data``, with ``task1`` and ``task2``, and features of all images."""
    multi30k.write_multi30k(data / "multi30k")
    images = [image for some in multi30k.IMAGES.values() for image in some]
    _write_features(data / "multi30k" / "resnet-152.npz", images)


def write_mscoco(data: Path) -> None:
    """Write MSCOCO's annotations and features of its images to ``coco``, COCO-CN, YJ Captions."""
    folder = data / "coco"
    names = {n: f"COCO_{'train' if n in TRAIN else 'val'}2014_{n:012d}.jpg" for n in (*TRAIN, *VAL)}
    for split, images in (("train", TRAIN), ("val", VAL)):
        some = {n: names[n] for n in images}
        _write_json(folder / "annotations" / f"captions_{split}2014.json", _coco(some, "en", 5))
        (folder / "annotations" / f"instances_{split}2014.json").write_text("{}")
    japanese = {n: names[n] for n in JAPANESE}
    _write_json(data / "yjcaptions" / "yjcaptions26k_clean.json", _coco(japanese, "ja", 5))
    chinese = [f"{names[n].removesuffix('.jpg')}#0\t{captions.say('zh', n)}" for n in CHINESE]
    (data / "coco-cn").mkdir()
    path = data / "coco-cn" / "imageid.human-written-caption.txt"
    path.write_text("".join(f"{line}\n" for line in chinese), encoding="utf-8")
    _write_features(folder / "resnet-152.npz", list(names.values()))


def write_fasttext(data: Path) -> None:
    """Write ``fasttext/cc.LANGUAGE.300.bin``, of width 8; n-grams give any word a vector."""
    for number, language in enumerate(LANGUAGES):
        write_word_vectors(data, language, number)


def write_word_vectors(data: Path, language: str, seed: int) -> None:
    """Write the file of one language."""
    (data / "fasttext").mkdir(parents=True, exist_ok=True)
    table = np.random.default_rng(seed).normal(size=(41, 8)).astype(np.float32)
    write_bin(data / "fasttext" / f"cc.{language}.300.bin", ["word"], table, buckets=40)


def _coco(images: dict[int, str], language: str, count: int) -> dict[str, object]:
    annotations = [
        {"id": 10 * n + c, "image_id": n, "caption": captions.say(language, n + c)}
        for n in images
        for c in range(count)
    ]
    entries = [{"id": n, "file_name": name} for n, name in images.items()]
    return {"images": entries, "annotations": annotations}


def _write_json(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")


def _write_features(path: Path, images: list[str]) -> None:
    features = np.stack([rows(image, 10, WIDTH) for image in images])  # ten crops
    np.savez(path, ids=np.array(images), features=features.astype(np.float16))
