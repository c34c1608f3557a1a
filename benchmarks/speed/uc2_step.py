"""How many pairs a second does UC2 learn from, a whole step of each objective, beside padding?

A step draws pairs on the processor, hides words or regions, reads all packed, computes the
loss of one objective, and updates. The padded way has every caption as long as the longest.
Both run interleaved in one process. What counts is the mixture: so many steps of each
objective as it draws, 9 : 12 : 9 : 3.

    python -m benchmarks.speed.uc2_step                             # an accelerator
    python -m benchmarks.speed.uc2_step --tiny                      # any machine, to try it
"""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.results_io import write_results
from polyglance.batches.regions import RegionTable
from polyglance.data.captions import CaptionTable
from polyglance.models.uc2 import UC2, UC2Config
from polyglance.nn.encoder import EncoderConfig
from polyglance.objectives.masked_language import TokenMasking
from polyglance.recipes.cross_encoder.language_balanced_sampler import LanguageBalancedSampler
from polyglance.recipes.uc2.aligned_captions import AlignedCaptions
from polyglance.recipes.uc2.config import ObjectiveWeights
from polyglance.recipes.uc2.label_tokens import LabelTokens
from polyglance.recipes.uc2.tasks import (
    ImageTextCorpus,
    ITMTask,
    MLMTask,
    MRTMTask,
    VTLMTask,
)
from polyglance.training.mixture import Task, seed_step

REGIONS, REGION_WIDTH, LABELS, PICTURES = 36, 2048, 1600, 2000
LANGUAGES = ("en", "de", "fr", "cs", "ja", "zh")
IN_A_ROW = 4
"""Steps at a time, as training takes them: the next is drawn while one is computed."""


class RandomNames:
    """Names of labels, two random sub-words each."""

    def __init__(self, vocabulary: int) -> None:
        self.vocabulary = vocabulary

    def encode_batch(self, texts: list[str], *, specials: bool) -> list[list[int]]:
        """Whatever the texts are."""
        drawn = np.random.default_rng(2).integers(4, self.vocabulary - 1, (len(texts), 2))
        return drawn.tolist()  # type: ignore[no-any-return]


def caption_table(lengths: NDArray[np.int64], vocabulary: int) -> CaptionTable:
    """Captions of random words, one for each picture in each language."""
    ids = np.random.default_rng(1).integers(4, vocabulary - 1, int(lengths.sum()))
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    pictures = len(lengths) // len(LANGUAGES)
    owners = np.repeat(np.arange(pictures), len(LANGUAGES))
    languages = np.tile(np.arange(len(LANGUAGES)), pictures)
    return CaptionTable(ids.astype(np.int32), offsets, owners, languages, LANGUAGES, pictures)


def caption_pairs(table: CaptionTable) -> AlignedCaptions:
    """Every caption beside the English one, half of their words linked."""
    second = np.flatnonzero(table.language_ids > 0)
    first = second - table.language_ids[second]
    lengths = np.diff(table.offsets)
    shorter = np.minimum(lengths[first], lengths[second]) - 2
    links = [[(place, place) for place in range(1, count, 2)] for count in shorter.tolist()]
    return AlignedCaptions(table, first, second, links)


def objectives(
    model: UC2, regions: RegionTable, table: CaptionTable, names: LabelTokens, batch: int
) -> dict[str, Task]:
    vocabulary = model.config.encoder.vocab_size
    masking = TokenMasking(vocabulary - 1, (4, vocabulary - 1))
    corpus = ImageTextCorpus(regions, LanguageBalancedSampler(table))
    return {
        "itm": ITMTask(model, corpus, batch=batch),
        "mlm": MLMTask(model, corpus, masking, batch=batch),
        "mrtm": MRTMTask(model, corpus, names, batch=batch),
        "vtlm": VTLMTask(model, regions, caption_pairs(table), masking, batch=batch),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--batch", type=int, default=1024, help="pairs a step")
    parser.add_argument("--repeats", type=int, default=6, help="turns of each objective")
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
    model = UC2(UC2Config(encoder, width)).to(device)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=device == "cuda")
    regions = RegionTable(
        torch.randn(pictures * REGIONS, width).half(),
        torch.rand(pictures * REGIONS, 4).sort(1).values,
        torch.randint(LABELS, (pictures * REGIONS,)),
        np.full(pictures, REGIONS),
        device,
    )
    names = LabelTokens(dict.fromkeys(LANGUAGES, [""] * LABELS), RandomNames(encoder.vocab_size))
    count = pictures * len(LANGUAGES)
    lengths = np.random.default_rng(0).normal(18, 6, count).clip(5, 60).round().astype(np.int64)
    ways = {
        way: objectives(
            model, regions, caption_table(long, encoder.vocab_size), names, options.batch
        )
        for way, long in (("packed", lengths), ("padded", np.full_like(lengths, lengths.max())))
    }

    def seconds(task: Task, turn: int) -> float:
        _synchronise()
        begin = time.perf_counter()
        for number in range(IN_A_ROW):
            with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
                losses = task.losses(seed_step(0, turn * IN_A_ROW + number, 0))
            torch.stack(list(losses.values())).sum().backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
        _synchronise()
        return (time.perf_counter() - begin) / IN_A_ROW

    times: dict[str, dict[str, list[float]]] = {way: {} for way in ways}
    for turn in range(-1, options.repeats):  # the first is to warm up
        for way, tasks in ways.items():
            for name, task in tasks.items():
                spent = seconds(task, max(0, turn))
                if turn >= 0:
                    times[way].setdefault(name, []).append(spent)
    shares = asdict(ObjectiveWeights())
    rates: dict[str, dict[str, int]] = {}
    for way, found in times.items():
        median = {name: float(np.median(some)) for name, some in found.items()}
        mixed = sum(shares[name] * median[name] for name in median) / sum(shares.values())
        rates[way] = {name: round(options.batch / spent) for name, spent in median.items()}
        rates[way]["mixture"] = round(options.batch / mixed)
        rates[way]["mean"] = round(float(np.mean([rates[way][name] for name in median])))
        shown = "  ".join(f"{name} {rate:,}" for name, rate in rates[way].items())
        print(f"{way:8} {shown}  pairs/s ({options.batch} pairs a step)")
    if not options.tiny:
        figures = {
            "pairs": options.batch,
            "sub_words": round(float(lengths.mean()), 2),
            "regions": REGIONS,
            "pairs_per_second": rates,
            "torch": torch.__version__,
        }
        write_results("uc2_step", figures, options.out)


def _synchronise() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
