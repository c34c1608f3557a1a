"""How many pairs a second does M3P learn from, a whole step long, beside the padded way?

A step draws pairs on the processor, hides words and regions, reads all packed,
computes MC-MLM, MC-MRM and MC-VLM, and updates. The padded way has every caption as
long as the longest and attends eagerly, by a table of weights with dropout on them, as
the published code does; between the two stands padding with flash attention. All run
interleaved in one process.

    python -m benchmarks.speed.m3p_step                             # an accelerator
    python -m benchmarks.speed.m3p_step --tiny                      # any machine, to try it
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.results_io import write_results
from polyglance.batches.regions import RegionTable
from polyglance.data.captions import CaptionTable
from polyglance.models.m3p import M3P, M3PConfig
from polyglance.nn.encoder import EncoderConfig
from polyglance.objectives.masked_language import TokenMasking
from polyglance.recipes.cross_encoder.captions import PlainCaptions
from polyglance.recipes.m3p.tasks import MCTObjective, MCTTask
from polyglance.training.mixture import seed_step

REGIONS, REGION_WIDTH, LABELS, PICTURES = 36, 2048, 1600, 2000
IN_A_ROW = 4
"""Steps at a time, as training takes them: the next is drawn while one is computed."""


@dataclass(frozen=True)
class Way:
    """A way to read pairs, and what updates its model."""

    task: MCTTask
    optimiser: torch.optim.Optimizer


def captions(lengths: NDArray[np.int64], vocabulary: int) -> PlainCaptions:
    """A caption of random words for each picture."""
    ids = np.random.default_rng(1).integers(4, vocabulary - 1, int(lengths.sum()))
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    english = np.zeros(len(lengths), np.int64)
    owners = np.arange(len(lengths))
    table = CaptionTable(ids.astype(np.int32), offsets, owners, english, ("en",), len(lengths))
    return PlainCaptions(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--batch", type=int, default=256, help="pairs of each task a step")
    parser.add_argument("--repeats", type=int, default=8)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    encoder, width, pictures = EncoderConfig(), REGION_WIDTH, PICTURES
    if options.tiny:
        options.batch, options.repeats, width, pictures = 4, 2, 16, 20
        encoder = EncoderConfig(
            vocab_size=1000, hidden_size=32, num_layers=2, num_heads=2, intermediate_size=64
        )
    torch.manual_seed(0)
    eager = replace(encoder, attention_dropout=0.1)
    flash_model, eager_model = (
        M3P(M3PConfig(shape, visual_width=width, num_labels=LABELS)).to(device)
        for shape in (encoder, eager)
    )
    regions = RegionTable(
        torch.randn(pictures * REGIONS, width).half(),
        torch.rand(pictures * REGIONS, 4).sort(1).values,
        torch.randint(LABELS, (pictures * REGIONS,)),
        np.full(pictures, REGIONS),
        device,
    )
    lengths = np.random.default_rng(0).normal(18, 6, pictures).clip(5, 60).round().astype(np.int64)
    masking = TokenMasking(encoder.vocab_size - 1, (4, encoder.vocab_size - 1))
    even = np.full_like(lengths, lengths.max())
    ways = {
        name: Way(
            MCTTask(
                model,
                regions,
                captions(long, encoder.vocab_size),
                MCTObjective(masking),
                batch=options.batch,
            ),
            torch.optim.AdamW(model.parameters(), lr=1e-5, fused=device == "cuda"),
        )
        for name, model, long in (
            ("packed", flash_model, lengths),
            ("padded", flash_model, even),
            ("padded, eager", eager_model, even),
        )
    }

    def seconds(way: Way, turn: int) -> float:
        _synchronise()
        begin = time.perf_counter()
        for number in range(IN_A_ROW):
            # Only what is not flash attention is chosen here: a table of weights.
            with (
                torch.autocast(device, torch.bfloat16, enabled=device == "cuda"),
                sdpa_kernel(SDPBackend.MATH),
            ):
                losses = way.task.losses(seed_step(0, turn * IN_A_ROW + number, 0))
            torch.stack(list(losses.values())).sum().backward()  # type: ignore[no-untyped-call]
            way.optimiser.step()
            way.optimiser.zero_grad(set_to_none=True)
        _synchronise()
        return (time.perf_counter() - begin) / IN_A_ROW

    for way in ways.values():
        seconds(way, 0)
    times: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(options.repeats):
        for name, way in ways.items():
            times[name].append(seconds(way, turn))
    pairs = 4 * options.batch  # words, regions, and matching with its negatives
    rates = {name: round(pairs / float(np.median(found))) for name, found in times.items()}
    for name, rate in rates.items():
        print(f"{name:14} {rate:8,} pairs/s ({pairs} pairs a step)")
    if not options.tiny:
        figures = {
            "pairs": pairs,
            "sub_words": round(float(lengths.mean()), 2),
            "regions": REGIONS,
            "pairs_per_second": rates,
            "torch": torch.__version__,
        }
        write_results("m3p_step", figures, options.out)


def _synchronise() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
