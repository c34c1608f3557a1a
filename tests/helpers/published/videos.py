"""MSR-VTT, VATEX, HowTo100M and MSVD as published, with features as extractors write them."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from helpers.published.sentences import WORDS, rows, sentence

NETWORKS = ("r2plus1d", "s3d")
WIDTH = 6
VTT_SPLITS = {"train": range(5), "validate": range(6513, 6516), "test": range(7010, 7017)}
VTT_TEST_1K = (7010, 7012, 7015, 7016)
"""Clips of the official test set that Yu et al. 2018 chose."""
VATEX_TRAIN = (
    "Ptf_2VRj-V0_000122_000132",
    "-07tXotfeP0_000158_000168",
    "n8drRt3YPsM_000000_000010",
    "PlR6TwS6x0U_000020_000030",
)
VATEX_VAL = tuple(f"G9zN5TTuGO{number}_000179_000189" for number in range(7))
HOWTO = ("nVbIUDjzWY4", "CAa-9oXV0W4", "iyIQRmA77Jg", "ErlM_vBHrA4")
MSVD = {"train": ("mv89psg6zh4_33_46", "-4wsuPCjDBc_5_15"), "test": ("k06Ge9ANKM8_5_16",
        "klteYv1Uv9A_27_33", "WPG-BIWOrG4_5_16")}  # fmt: skip


def write_msrvtt(folder: Path) -> Path:
    """Write the annotations, and JSFusion's test list, into ``folder/MSRVTT``."""
    place = folder / "MSRVTT"
    place.mkdir(parents=True)
    for name, splits in {
        "train_val_videodatainfo.json": ("train", "validate"),
        "test_videodatainfo.json": ("test",),
    }.items():
        clips = [(number, split) for split in splits for number in VTT_SPLITS[split]]
        videos = [
            {
                "category": 9,
                "url": f"https://www.youtube.com/watch?v=9lZi22q{number:04}",
                "video_id": f"video{number}",
                "start time": 137.72,
                "end time": 149.44,
                "split": split,
                "id": number,
            }
            for number, split in clips
        ]
        sentences = [
            {
                "caption": sentence("en", number + caption),
                "video_id": f"video{number}",
                "sen_id": 20 * number + caption,
            }
            for number, _ in clips
            for caption in range(20)
        ]
        document = {"info": {"year": "2016"}, "videos": videos, "sentences": sentences}
        (place / name).write_text(json.dumps(document))
    with (place / "MSRVTT_JSFUSION_test.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("key", "vid_key", "video_id", "sentence"))
        for key, number in enumerate(VTT_TEST_1K):
            query = sentence("en", number + 7)
            writer.writerow((f"ret{key}", f"msr{number}", f"video{number}", query))
    names = (f"video{number}" for numbers in VTT_SPLITS.values() for number in numbers)
    write_clip_features(folder / "msrvtt-features", names)
    return place


def write_vatex(folder: Path) -> Path:
    """Write the annotations into ``folder/VATEX``, with HGR's halves of the validation set."""
    place = folder / "VATEX"
    place.mkdir(parents=True)
    for name, clips in {"training": VATEX_TRAIN, "validation": VATEX_VAL}.items():
        document = [
            {
                "videoID": clip,
                "enCap": [sentence("en", number + caption) for caption in range(10)],
                "chCap": [sentence("zh", number + caption) for caption in range(10)],
            }
            for number, clip in enumerate(clips)
        ]
        (place / f"vatex_{name}_v1.0.json").write_text(json.dumps(document, ensure_ascii=False))
    private = [{"videoID": "zzzzzzzzzzz_000001_000011"}]
    (place / "vatex_private_test_without_annotations.json").write_text(json.dumps(private))
    (place / "public_split").mkdir()
    np.save(place / "public_split" / "val_names.npy", np.array(VATEX_VAL[:3]))
    np.save(place / "public_split" / "tst_names.npy", np.array(VATEX_VAL[3:]))
    write_clip_features(folder / "vatex-features", (*VATEX_TRAIN, *VATEX_VAL))
    return place


def write_howto100m(folder: Path, languages: Iterable[str] = WORDS) -> Path:
    """Write subtitles by language, ``how2_en.json`` and so on, into ``folder/HowTo100M``."""
    place = folder / "HowTo100M"
    place.mkdir(parents=True)
    for language in languages:
        document = {
            video: {
                "start": [0.0, 2.5, 5.0],
                "end": [2.0, 5.0, 8.0],
                "text": [sentence(language, number + cue) for cue in range(3)],
            }
            for number, video in enumerate(HOWTO)
            if language != "sw" or number  # as in the dataset, a video may lack a language
        }
        text = json.dumps(document, ensure_ascii=False)
        (place / f"how2_{language}.json").write_text(text, encoding="utf-8")
    write_clip_features(folder / "howto100m-features", HOWTO, seconds=9)
    return place


def write_msvd(folder: Path) -> Path:
    """Write ``video_corpus.csv`` and the split lists into ``folder/MSVD``."""
    place = folder / "MSVD"
    place.mkdir(parents=True)
    with (place / "video_corpus.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        header = "VideoID,Start,End,WorkerID,Source,AnnotationTime,Language,Description"
        writer.writerow(header.split(","))
        for number, clip in enumerate(clip for clips in MSVD.values() for clip in clips):
            upload, start, end = clip.rsplit("_", 2)
            for code, language in (("en", "English"), ("en", "English"), ("zh", "Chinese")):
                text = sentence(code, number)
                writer.writerow((upload, start, end, "362812", "clean", "33", language, text))
    for split, clips in MSVD.items():
        (place / f"{split}_list.txt").write_text("".join(f"{clip}\n" for clip in clips))
    write_clip_features(folder / "msvd-features", (c for clips in MSVD.values() for c in clips))
    return place


def write_clip_features(folder: Path, names: Iterable[str], *, seconds: int = 3) -> None:
    """Write a folder of ``VIDEO.npy`` for each network, one vector a second."""
    for network in NETWORKS:
        (folder / network).mkdir(parents=True)
    for name in names:
        for network in NETWORKS:
            np.save(folder / network / f"{name}.npy", rows(network + name, seconds, WIDTH))
