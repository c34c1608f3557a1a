"""Make the data folder that the recipe of the default model reads, before and after translation.

    python -m benchmarks.experiments.default_model_data prepare --data RESEARCH --out DATA
    polyglance data enrich DATA --out DATA/enriched --pictures flickr8k/train.jsonl
        --pictures coco/english.jsonl --parallel text/multi30k.jsonl
        --emoji cldr-annotations-full --device cuda
    polyglance data translate DATA/to-translate/de.jsonl --to de --out DATA/translated/de.jsonl
        --translator RUN/translator --device cuda       (optional, for each file there)
    python -m benchmarks.experiments.default_model_data join --out DATA
    polyglance train polyglance-small --data DATA --out RUN --device cuda

RESEARCH has the folders flickr8k, coco, text and more. The images of DATA/coco are to be put
there as DATA/coco/images. Pictures are held out of training by `polyglance data hold-out`:
500 with Dutch, Persian and Vietnamese captions each, and 2,000 with labels.
"""

from __future__ import annotations

import argparse
import gzip
import lzma
import random
import shutil
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from polyglance.data.hold_out import hold_out_pictures
from polyglance.data.merge import merge_manifests
from polyglance.data.readers import read_all_records
from polyglance.records import Record, read_manifest, write_manifest

LANGUAGES = ("de", "fr", "it", "cs", "pt", "es", "uk", "zh", "ar")
"""Languages that one English caption of each picture is translated into."""
HELD_OUT = {"nl": "coco-nl-mt", "fa": "coco-fa-mt", "vi": "coco-vi-human"}
ENGLISH = ("coco-en-human", "coco-en-model", "coco-en-spatial")
NATURAL = (
    *ENGLISH, "coco-zh-human", "coco-fa-mt", "coco-nl-mt", "coco-vi-human", "coco-vi-explanations",
    "coco-en-statements", "coco-labels",
)  # fmt: skip
FLICKR8K = ("flickr8k-ar-human", "flickr8k-es-uk-mt")
MIN_SENTENCES, MAX_SENTENCES, MAX_RARE = 60, 9000, 1000
"""Bounds of a language's share of Tatoeba's sentences."""
NUM_SENTENCES = 110_000
"""Sentences drawn from these shares."""
RARE = frozenset((
    "avk", "ber", "cor", "dtp", "epo", "ido", "ile", "ina", "jbo", "kab", "lat", "ldn", "lfn",
    "nds", "nov", "ota", "qya", "sjn", "tlh", "tuk", "vol", "yid",
))  # fmt: skip
"""Constructed languages, and others with more sentences than people who search in them."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("step", choices=("prepare", "join"))
    parser.add_argument("--data", type=Path, help="research data")
    parser.add_argument("--out", type=Path, required=True, help="data folder of the recipe")
    options = parser.parse_args()
    if options.step == "join":
        join_translations(options.out)
        join_parallel_captions(options.out)
        return
    copy_manifests(options.data, options.out)
    merge_captions(options.out)
    write_english(options.out)
    sample_tatoeba(options.data / "more" / "tatoeba-more.tsv.xz", options.out / "text")


def copy_manifests(data: Path, out: Path) -> None:
    """Unpack manifests beside the images that they name, where merging needs them."""
    for folder in ("coco/held-out", "flickr8k", "text"):
        (out / folder).mkdir(parents=True, exist_ok=True)
    for name in ("coco/train", "flickr8k/train", "flickr8k/val", "flickr8k/test"):
        shutil.copy(data / f"{name}.jsonl", out / f"{name}.jsonl")
    for name in {*NATURAL, *FLICKR8K}:
        with lzma.open(data / "more" / f"{name}.jsonl.xz") as packed:
            (out / name.partition("-")[0] / f"{name}.jsonl").write_bytes(packed.read())
    captions: dict[str, dict[str, tuple[str, ...]]] = {}
    for path in ("text/multi30k-parallel.jsonl.gz", "more/multi30k-parallel-more.jsonl.xz"):
        for record in read_all_records("jsonl", data / path):
            known = captions.setdefault(record.captions["en"][0], {})
            known.update({code: own for code, own in record.captions.items() if code not in known})
    write_manifest(
        out / "text" / "multi30k.jsonl", (Record(captions=own) for own in captions.values())
    )


def merge_captions(out: Path) -> None:
    """Hold pictures out, and merge all captions and labels of the others."""
    coco, flickr8k = out / "coco", out / "flickr8k"
    train, held_out = coco / "train.jsonl", coco / "held-out"
    for code, name in HELD_OUT.items():
        hold_out_pictures(
            coco / f"{name}.jsonl", held_out / f"{code}.jsonl", pictures=500, language=code,
            not_in=(train,),
        )  # fmt: skip
    hold_out_pictures(
        coco / "coco-labels.jsonl", held_out / "labels.jsonl", pictures=2000, not_in=(train,)
    )
    without = sorted(held_out.glob("*.jsonl"))
    for target, names, languages in (("english", ENGLISH, ["en"]), ("natural", NATURAL, None)):
        manifests = [train, *(coco / f"{name}.jsonl" for name in names)]
        merge_manifests(manifests, coco / f"{target}.jsonl", languages=languages, without=without)
    manifests = [flickr8k / "train.jsonl", *(flickr8k / f"{name}.jsonl" for name in FLICKR8K)]
    merge_manifests(manifests, flickr8k / "train-all.jsonl")


def write_english(out: Path) -> None:
    """Write an English caption of each picture for each language, another one if there are more."""
    described = {record.image: record for record in read_manifest(out / "coco" / "english.jsonl")}
    chosen: dict[str, list[Record]] = {code: [] for code in LANGUAGES}
    generator = random.Random(0)
    for record in read_manifest(out / "coco" / "natural.jsonl"):
        best = described.get(record.image)
        texts = list(best.captions.get("en", ()) if best else ()) or [
            *record.captions.get("en", ())
        ]
        generator.shuffle(texts)
        missing = [code for code in LANGUAGES if code not in record.captions]
        for number, code in enumerate(generator.sample(missing, len(missing)) if texts else ()):
            caption = {"en": (texts[number % len(texts)],)}
            chosen[code].append(Record(image=record.image, captions=caption))
    for code, records in chosen.items():
        write_manifest(out / "to-translate" / f"{code}.jsonl", records)


def sample_tatoeba(source: Path, folder: Path) -> None:
    """Write an even share of each language's sentences, in random order."""
    sentences: dict[str, list[str]] = defaultdict(list)
    with lzma.open(source, "rt", encoding="utf-8") as lines:
        for line in lines:
            code, _, rest = line.partition("\t")
            language = code.partition("_")[0]  # without the script
            if len(language) == 3:
                sentences[code].append(f"{language}\t{rest}")
    generator, chosen = random.Random(0), list[str]()
    for code, own in sentences.items():
        if len(own) >= MIN_SENTENCES:
            limit = MAX_RARE if code.partition("_")[0] in RARE else MAX_SENTENCES
            chosen += generator.sample(own, min(limit, len(own)))
    generator.shuffle(chosen)
    with gzip.open(folder / "tatoeba-sample.tsv.gz", "wt", encoding="utf-8") as file:
        file.writelines(chosen[:NUM_SENTENCES])


def join_translations(out: Path) -> None:
    """Write COCO's captions with their translations; captions by people come first."""
    translated = read_translations(out / "translated")

    def joined() -> Iterator[Record]:
        for record in read_manifest(out / "coco" / "natural.jsonl"):
            more = translated.get(record.image, {})
            yield replace(record, captions={**more, **record.captions})

    write_manifest(out / "coco" / "train-all.jsonl", joined())


def read_translations(folder: Path) -> dict[str | None, dict[str, tuple[str, ...]]]:
    """Return the translations of each picture's captions by language, from ``LANGUAGE.jsonl``."""
    translated: dict[str | None, dict[str, tuple[str, ...]]] = defaultdict(dict)
    for path in sorted(folder.glob("??.jsonl")):
        for record in read_manifest(path):
            if path.stem in record.captions:
                translated[record.image][path.stem] = record.captions[path.stem]
    return translated


def join_parallel_captions(out: Path) -> None:
    """Put the enriched parallel captions where the recipe reads them."""
    shutil.copy(out / "enriched" / "text" / "multi30k.jsonl", out / "text" / "captions.jsonl")


if __name__ == "__main__":
    main()
