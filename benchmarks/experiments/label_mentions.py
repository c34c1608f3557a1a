"""How many captions mention a label of their picture, which MRTM learns words by.

    polyglance weights split --out SPLIT
    polyglance features extract DATA/coco/train.jsonl --out STORES/coco --grid 5
        --backbone SPLIT/image_backbone --detector ssdlite-mobilenet-v2
    python -m benchmarks.experiments.label_mentions --data DATA --stores STORES

Labels are the objects that SSDLite finds among COCO's 80 classes, named in the language of the
caption (`polyglance features mentions`). STORES/coco and STORES/flickr8k have regions of some or
all training pictures. Writes results/label_mentions.json.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.results_io import RESULTS, write_results
from polyglance.records import read_manifest
from polyglance.vision.label_mentions import count_mentions
from polyglance.vision.store import FeatureStore

CORPORA = ("coco", "flickr8k")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--stores", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    figures = {}
    for corpus in CORPORA:
        store = FeatureStore(options.stores / corpus)
        counts = count_mentions(read_manifest(options.data / corpus / "train.jsonl"), store)
        figures[corpus] = {
            code: {"captions": found.captions, "mentioning": round(100 * found.share, 1)}
            for code, found in counts.items()
        }
        print(corpus, figures[corpus], flush=True)
    write_results("label_mentions", figures, options.out)


if __name__ == "__main__":
    main()
