"""Captioned images as published: Karpathy's splits, STAIR, YJ Captions, COCO-CN, Conceptual
Captions with UC2's translations; and the texts and dictionaries that M3P reads beside them."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

from helpers.published import multi30k
from helpers.published.sentences import all_sentences, sentence

JAPANESE = ["赤い", "緑の", "青い", "犬が", "猫が", "球が", "走る", "跳ぶ", "眠る", "速い"]
COCO = {
    "train": ("train2014", (9, 25, 30, 34)),
    "restval": ("val2014", (42, 73, 74, 133)),
    "val": ("val2014", (136, 139, 143)),
    "test": ("val2014", (164, 192, 196, 208)),
}
"""Images of MSCOCO by Karpathy's split, with the folder that they are in."""
COCO_CN = {"train": (9, 42, 73), "val": (25, 136), "test": (30, 164, 196)}
"""COCO-CN's own split, which cuts across Karpathy's."""
COCO_CN_TWICE = (42, 30)
"""Images with two human captions: 22,218 of 20,341 images in all."""
CC = {"Train": 6, "Validation": 4}
UC2_LANGUAGES = ("de", "fr", "cs", "ja", "zh")
OBJECTS = ("red", "green", "blue", "dog", "cat", "ball")


def say(language: str, number: int) -> str:
    """Return a sentence; equal numbers give translations of each other."""
    if language != "ja":
        return sentence(language, number)
    places = (number % 3, 3 + number // 3 % 3, 6 + number // 9 % 4)
    return "".join(JAPANESE[place] for place in places)


def all_texts() -> list[str]:
    """Return sentences with all words of all languages, to train a tokenizer on."""
    return [*all_sentences(), *(say("ja", number) for number in range(36))]


def coco_name(number: int) -> str:
    """Return the file name of an image of MSCOCO."""
    folders = {image: folder for folder, images in COCO.values() for image in images}
    return f"COCO_{folders[number]}_{number:012d}.jpg"


def write_flickr30k(folder: Path) -> Path:
    """Write ``dataset_flickr30k.json``, Karpathy's splits of the images of Multi30K."""
    entries = []
    for split, images in multi30k.IMAGES.items():
        for number, image in enumerate(images):
            entries.append(_karpathy_entry(len(entries), image, split, number))
    return _write_json(
        folder / "dataset_flickr30k.json", {"images": entries, "dataset": "flickr30k"}
    )


def write_mscoco(folder: Path) -> Path:
    """Write ``dataset_coco.json``, whose entries have a folder and MSCOCO's id."""
    entries: list[dict[str, Any]] = []
    for split, (place, images) in COCO.items():
        for image in images:
            entry = _karpathy_entry(len(entries), coco_name(image), split, image)
            entries.append({"filepath": place, "cocoid": image, **entry})
    return _write_json(folder / "dataset_coco.json", {"images": entries, "dataset": "coco"})


def write_stair(folder: Path) -> Path:
    """Write both files of STAIR Captions 1.2, in MSCOCO's format."""
    for split in ("train", "val"):
        images = [i for place, some in COCO.values() if place == f"{split}2014" for i in some]
        _write_json(folder / f"stair_captions_v1.2_{split}.json", _coco_captions(images, 5))
    return folder


def write_yjcaptions(folder: Path) -> Path:
    """Write ``yjcaptions26k_clean.json``: images of train2014."""
    return _write_json(
        folder / "yjcaptions26k_clean.json", _coco_captions(list(COCO["train"][1]), 2)
    )


def write_coco_cn(folder: Path) -> Path:
    """Write COCO-CN's human captions and split lists, and captions that are not to be read."""
    folder.mkdir(parents=True)
    images = [image for some in COCO_CN.values() for image in some]
    names = {image: coco_name(image).removesuffix(".jpg") for image in images}
    lines = [
        f"{names[image]}#{number}\t{say('zh', image + number)}"
        for image in images
        for number in range(2 if image in COCO_CN_TWICE else 1)
    ]
    _write_lines(folder / "imageid.human-written-caption.txt", lines)
    _write_lines(folder / "imageid.human-written-caption.bosonseg.txt", lines)
    _write_lines(folder / "imageid.manually-translated-caption.txt", lines)
    for split, some in COCO_CN.items():
        _write_lines(folder / f"coco-cn_{split}.txt", [names[image] for image in some])
    return folder


def cc_url(subset: str, number: int) -> str:
    """Return the address of an image of Conceptual Captions."""
    return f"http://images.example.org/{subset.lower()}/{number}/photo.jpg"


def cc_keys(subset: str) -> list[str]:
    """Return the CRC-32 of all addresses, by which ViLBERT's downloader names images."""
    return [str(zlib.crc32(cc_url(subset, number).encode())) for number in range(CC[subset])]


def write_conceptual_captions(folder: Path) -> Path:
    """Write Google's two files, and UC2's translations of both."""
    names = {"Train": "Train_GCC-training.tsv", "Validation": "Validation_GCC-1.1.0-Validation.tsv"}
    folder.mkdir(parents=True)
    for subset, count in CC.items():
        urls = [cc_url(subset, number) for number in range(count)]
        english = [f"{say('en', number)}\t{url}" for number, url in enumerate(urls)]
        _write_lines(folder / names[subset], english)
        split = {"Train": "train", "Validation": "val"}[subset]
        for language in ("", *UC2_LANGUAGES):
            lines = [
                f"{number:07d}\t{url}\t{say(language or 'en', number)}\tsuccess"
                for number, url in enumerate(urls)
            ]
            if language == "cs":  # a caption that could not be translated
                lines[-1] = f"{count - 1:07d}\t{urls[-1]}\t\tfail"
            suffix = f"_{language}" if language else ""
            _write_lines(folder / f"{split}_imageId2Ann{suffix}.tsv", lines)
    return folder


def write_object_labels(folder: Path) -> Path:
    """Write names of detected classes as UC2's repository has them, without a last line feed."""
    folder.mkdir(parents=True)
    for language in ("", *UC2_LANGUAGES):
        words = JAPANESE if language == "ja" else _words(language or "en")
        name = f"img_label_objects_{language}.txt" if language else "img_label_objects.txt"
        text = "\n".join(words[: len(OBJECTS)])
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def write_wikipedia(folder: Path) -> Path:
    """Write what WikiExtractor makes of dumps in three languages."""
    for language in ("en", "de", "fr"):
        lines = [f'<doc id="1" url="https://{language}.wikipedia.org/wiki?curid=1" title="Tier">']
        lines += ["Tier", "", *(say(language, number) for number in range(8)), "</doc>"]
        _write_lines(folder / language / "AA" / "wiki_00", lines)
    return folder


def write_panlex(folder: Path) -> Path:
    """Write bilingual dictionaries from English, a word and a translation a line."""
    for language in ("de", "fr", "cs"):
        pairs = zip(_words("en"), _words(language), strict=True)
        _write_lines(folder / f"en-{language}.tsv", [f"{a}\t{b}" for a, b in pairs])
    return folder


def _words(language: str) -> list[str]:
    from helpers.published.sentences import WORDS

    return list(WORDS[language])


def _karpathy_entry(imgid: int, image: str, split: str, number: int) -> dict[str, Any]:
    sentences = [
        {
            "tokens": say("en", number + caption).split(),
            "raw": say("en", number + caption),
            "imgid": imgid,
            "sentid": 5 * imgid + caption,
        }
        for caption in range(5)
    ]
    return {
        "sentids": [entry["sentid"] for entry in sentences],
        "imgid": imgid,
        "sentences": sentences,
        "split": split,
        "filename": image,
    }


def _coco_captions(images: list[int], captions: int) -> dict[str, Any]:
    return {
        "info": {"year": 2017},
        "licenses": [{"id": 1}],
        "images": [
            {"id": image, "file_name": coco_name(image), "height": 480, "width": 640}
            for image in images
        ],
        "annotations": [
            {
                "id": 10 * image + number,
                "image_id": image,
                "caption": say("ja", image + number),
                "tokenized_caption": " ".join(say("ja", image + number)),
            }
            for image in images
            for number in range(captions)
        ],
    }


def _write_json(path: Path, document: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")
    return path


def _write_lines(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
