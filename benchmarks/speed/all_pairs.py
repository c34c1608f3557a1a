"""How long a cross-encoder takes to score every caption with every image.

The test of the papers: 1,000 images with 36 regions, 5,000 captions of about 18 sub-words, a UC2
of XLM-R base's size with random weights. Images are embedded once; captions of similar length
share a batch. Beside it, on a sample of the pairs and in turns: the same pairs padded to the
longest caption, through transformers' XLM-R in half precision.

    python -m benchmarks.speed.all_pairs             # an accelerator
    python -m benchmarks.speed.all_pairs --tiny      # any machine, to try it

Writes results/all_pairs.json.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from benchmarks.results_io import write_results
from benchmarks.speed.cross_encoder_step import (
    REGIONS,
    Sizes,
    caption_lengths,
    random_captions,
    random_regions,
)
from benchmarks.speed.transformers_xlmr import xlmr
from polyglance.evaluation.pair_scores import pair_scores
from polyglance.models.uc2 import UC2, UC2Config
from polyglance.nn.encoder import EncoderConfig

TURNS, SAMPLE = 3, 250_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tiny", action="store_true", help="tiny sizes; writes no results")
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--captions", type=int, default=5000)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    sizes, images, captions, sample = (
        Sizes(EncoderConfig()),
        options.images,
        options.captions,
        SAMPLE,
    )
    if options.tiny:
        sizes, images, captions, sample = Sizes.tiny(), 6, 10, 30
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    sizes = replace(sizes, images=images)
    model = UC2(UC2Config(sizes.encoder, sizes.region_width)).to(device).eval()
    lengths = caption_lengths(captions)
    table = random_captions(lengths, sizes.encoder.vocab_size, ("en",))
    pairs = pair_scores(model, random_regions(sizes, device), table, language_ids=None)

    generator = np.random.default_rng(0)
    some = generator.integers(captions, size=sample), generator.integers(images, size=sample)
    padded = xlmr(sizes.encoder, device, half=device == "cuda").eval()
    shape = int(lengths.max()) + REGIONS, sizes.encoder.hidden_size
    rates: dict[str, list[float]] = {"packed": [], "transformers, padded": []}
    for turn in range(-1, TURNS):  # the first turn compiles
        packed_rate = sample / time_call(lambda: pairs.score(*some))
        padded_rate = time_padded(padded, shape, sample // 10, device)
        if turn >= 0:
            rates["packed"].append(packed_rate)
            rates["transformers, padded"].append(padded_rate)
    seconds = time_call(lambda: pairs.table(np.arange(captions)))
    medians = {name: round(float(np.median(some_rates))) for name, some_rates in rates.items()}
    for name, rate in medians.items():
        print(f"{name:22} {rate:8,} pairs/s")
    print(f"{images} images x {captions} captions: {seconds:.1f} s")
    if not options.tiny:
        figures = {
            "images": images,
            "captions": captions,
            "mean_tokens": round(float(lengths.mean()), 2),
            "regions": REGIONS,
            "seconds": round(seconds, 1),
            "pairs_per_second": medians,
            "torch": torch.__version__,
        }
        write_results("all_pairs", figures, options.out)


def time_call(function: object) -> float:
    """Return the seconds that a call takes; its result is read back from the device."""
    assert callable(function)
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin


@torch.no_grad()
def time_padded(model: torch.nn.Module, shape: tuple[int, int], pairs: int, device: str) -> float:
    """Return pairs a second of a padded encoder on embedded inputs ``(length, hidden_size)``."""
    batch = max(1, 65_536 // shape[0]) if device == "cuda" else 4
    dtype = next(model.parameters()).dtype
    rows = torch.randn(batch, *shape, device=device, dtype=dtype)
    count = -(-pairs // batch)
    begin = time.perf_counter()
    for _ in range(count):
        hidden = model(inputs_embeds=rows).last_hidden_state[:, 0]
    float(hidden.sum())
    return count * batch / (time.perf_counter() - begin)


if __name__ == "__main__":
    main()
