"""Calibrate the default model on validation pictures, and measure it on others.

Pictures: flickr8k/val and those of COCO that `polyglance data hold-out` held out of training.
Half of them fit the calibration, libraries of 10 and more of the other half are asked: captions
whose picture is there, captions that share nothing with any picture, names of classes, and queries
that no picture matches: random letters and words, sentences of Tatoeba that say nothing to be
seen, and subjects that no caption mentions.

    python -m benchmarks.experiments.calibration --data DATA --held-out MANIFEST... [--write]

The captions of held-out pictures are DATA/more's. Halves are drawn several times, and their shares
above the fold are kept beside those of the first draw. Writes results/calibration.json; ``--write``
also writes the calibration, fitted on both halves, into the model's folder.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

import polyglance
from benchmarks.results_io import write_results
from polyglance.encoders.model_folder import ModelFolder
from polyglance.encoders.onnx_encoder import OnnxEncoder
from polyglance.encoders.protocol import Vectors
from polyglance.evaluation.calibration_data import (
    LabelledPicture,
    calibrate,
    encode_calibration_data,
    read_labelled_pictures,
)
from polyglance.evaluation.calibration_trials import CalibrationQuery
from polyglance.export.calibration import write_calibration
from polyglance.languages import normalise_language
from polyglance.records import read_manifest

NAMES = Path(__file__).parent / "class_names.json"
MORE = ("coco-en-human", "coco-en-model", "coco-zh-human", "coco-nl-mt", "coco-fa-mt",
        "coco-vi-human")  # fmt: skip
"""Manifests with captions of held-out pictures."""
KINDS = ("match", "nonsense", "absent", "unseen", "label", "label absent")
DRAWS = 5
SENTENCE_LANGUAGES = ("en", "de", "fr", "cs", "pt", "ar", "zh")
ABSTRACT = re.compile(
    r"\b(think|believe|know|want|if|why|how|should|would|could|because|must|never|always|opinion"
    r"|understand|remember|forget|said|told|promise|doubt|idea|problem|question|language|money"
    r"|price|cost|law|government|economy|truth|lie|reason|hope|wish|agree)\b",
    re.IGNORECASE,
)
"""Words of sentences about what cannot be seen."""
VISIBLE = re.compile(
    r"\b(dog|cat|man|woman|boy|girl|car|tree|water|beach|snow|horse|bird|child|children|house"
    r"|mountain|river|bike|ball|boat|train|food|eat|run|play|sit|stand|wear\w*|red|blue|green)\b",
    re.IGNORECASE,
)
"""Words of sentences about what can."""
SUBJECTS = (
    "submarine;sushi;lighthouse;wedding cake;penguin;kangaroo;tiger;dolphin;whale;octopus;crab;"
    "snail;spider;crocodile;dinosaur skeleton;rocket launch;astronaut;volcano;glacier;pyramid;"
    "windmill;castle;mosque;microscope;chess board;trumpet;tank;helicopter;hot air balloon;"
    "knight in armour;pirate;ballet dancer;sumo wrestler;surgeon;passport;credit card;receipt;"
    "tax form;barcode;weather chart;blood test;ultrasound scan;engagement ring;snowman;rainbow;"
    "sunflower;lobster;oyster;beehive;scorpion;peacock;flamingo;squirrel;hedgehog;wolf;koala;"
    "gorilla;jellyfish;shark;seahorse;coral reef;combine harvester;oil platform;satellite dish;"
    "telescope;hammock;chandelier;spiral staircase;totem pole;igloo;yurt;gondola;cable car;tornado"
)
"""Subjects of pictures that few have; those that a caption mentions are left out."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--held-out", type=Path, nargs="+", required=True, help="manifests")
    parser.add_argument("--cache", type=Path, help="vectors of pictures, .npz")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    pictures = held_out_pictures(options.data, options.held_out)
    vectors = encode_pictures(pictures, options.cache)
    names = json.loads(NAMES.read_text())
    data = encode_calibration_data(
        CachedTexts(options.cache),
        pictures,
        vectors,
        names=names,
        captions_per_picture=2,
        others=unrelated_queries(options.data, pictures),
    )
    calibration, report = calibrate(data)
    others = [calibrate(data, seed=seed)[1] for seed in range(1, DRAWS)]
    report["draws"] = {kind: [one[kind]["above"] for one in (report, *others)] for kind in KINDS}
    if options.write:
        write_calibration(polyglance.load().folder.path, calibration)
    write_results("calibration", {"pictures": len(pictures), **report})
    for kind in KINDS:
        print(kind, report[kind]["count"], report["draws"][kind])
    print(report["nonsense"]["source"])


def unrelated_queries(data: Path, pictures: Sequence[LabelledPicture]) -> list[CalibrationQuery]:
    """Return sentences that say nothing to be seen, and subjects that no caption mentions."""
    generator, by_language = random.Random(11), dict[str, list[str]]()
    with gzip.open(data / "text" / "tatoeba.tsv.gz", "rt", encoding="utf-8") as file:
        for line in file:
            code, sentence, english = line.rstrip("\n").split("\t")
            if ABSTRACT.search(english) and not VISIBLE.search(english):
                by_language.setdefault("en", []).append(english)
                by_language.setdefault(normalise_language(code), []).append(sentence)
    queries = [
        CalibrationQuery(text, code, "nonsense", source="sentences")
        for code in SENTENCE_LANGUAGES
        for text in generator.sample(by_language[code], min(40, len(by_language[code])))
    ]
    captions = " ".join(
        text for picture in pictures for text in picture.captions.get("en", ())
    ).lower()
    return queries + [
        CalibrationQuery(f"a {subject}", "en", "nonsense", source="subjects")
        for subject in SUBJECTS.split(";")
        if re.search(rf"\b{subject}s?\b", captions) is None
    ]


class CachedTexts(OnnxEncoder):
    """The default model, with the vectors of texts kept in a file beside those of pictures."""

    def __init__(self, cache: Path | None) -> None:
        super().__init__(ModelFolder.open())
        self._path = None if cache is None else cache.with_suffix(".texts.npz")
        self._known: dict[str, Vectors] = {}

    def encode_texts(self, texts: Sequence[str], *, language: str | None = None) -> Vectors:
        """See `Encoder.encode_texts`."""
        known = self._known
        if not known and self._path is not None and self._path.exists():
            with np.load(self._path) as file:
                known |= dict(zip(file["texts"].tolist(), file["vectors"], strict=True))
        missing = sorted({*texts} - known.keys())
        if missing:
            known |= dict(zip(missing, super().encode_texts(missing), strict=True))
            if self._path is not None:
                content = {"texts": np.array(list(known)), "vectors": np.array([*known.values()])}
                np.savez(self._path, **content)
        return np.array([known[text] for text in texts], np.float32)


def held_out_pictures(data: Path, manifests: Sequence[Path]) -> list[LabelledPicture]:
    """Return the pictures that the model was not trained on, with captions and labels."""
    files = {
        Path(str(record.image)).stem: manifest.parent / str(record.image)
        for manifest in manifests
        for record in read_manifest(manifest)
    }
    more = [data / "more" / f"{name}.jsonl.xz" for name in MORE]
    labels = [data / "more" / "coco-labels.jsonl.xz"]
    captioned = read_labelled_pictures([*manifests, *more], labels)
    own = [replace(one, path=files[one.path.stem]) for one in captioned if one.path.stem in files]
    return [
        *read_labelled_pictures([data / "flickr8k" / "val.jsonl"]),
        *sorted(own, key=lambda one: one.path.stem),  # whatever the order of the manifests
    ]


def encode_pictures(pictures: list[LabelledPicture], cache: Path | None) -> Vectors:
    """Encode pictures, or read their vectors from a cache, ``[n, width]``."""
    known: dict[str, Vectors] = {}
    if cache is not None and cache.exists():
        with np.load(cache) as file:
            known = dict(zip(file["names"].tolist(), file["vectors"], strict=True))
    missing = [picture.path for picture in pictures if picture.path.stem not in known]
    if missing:
        print(f"encoding {len(missing)} pictures", flush=True)
        vectors = polyglance.load().encode_pictures(missing)
        known |= dict(zip((path.stem for path in missing), vectors, strict=True))
        if cache is not None:
            np.savez(cache, names=np.array(list(known)), vectors=np.array(list(known.values())))
    return np.array([known[picture.path.stem] for picture in pictures], np.float32)


if __name__ == "__main__":
    main()
