"""How many image-caption pairs a second UC2 and M3P train on, packed beside padded.

A step samples pairs on the CPU, masks tokens or regions, encodes all pairs packed, computes the
losses and updates the weights. In the padded variant every caption is as long as the longest.
UC2 is timed by objective; its mixture weighs them as pre-training samples them, 9 : 12 : 9 : 3.
M3P computes MC-MLM, MC-MRM and MC-VLM in one step; "padded, eager" has dropout on materialised
attention weights, as the published code. Variants are interleaved in one process.

    python -m benchmarks.speed.cross_encoder_step uc2           # an accelerator
    python -m benchmarks.speed.cross_encoder_step m3p
    python -m benchmarks.speed.cross_encoder_step m3p --tiny    # any machine, to try it

Writes results/uc2_step.json or results/m3p_step.json.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.results_io import write_results
from polyglance.batches.regions import RegionTable
from polyglance.data.captions import CaptionTable
from polyglance.models.m3p import M3P, M3PConfig
from polyglance.models.uc2 import UC2, UC2Config
from polyglance.nn.encoder import EncoderConfig
from polyglance.objectives.masked_language import TokenMasking
from polyglance.recipes.cross_encoder.captions import LanguageBalancedSampler, PlainCaptions
from polyglance.recipes.m3p.tasks import MCTObjective, MCTTask
from polyglance.recipes.uc2.aligned_captions import AlignedCaptions
from polyglance.recipes.uc2.config import ObjectiveWeights
from polyglance.recipes.uc2.labels import LabelTokens
from polyglance.recipes.uc2.tasks import (
    ImageTextCorpus,
    ITMTask,
    MLMTask,
    MRTMTask,
    VTLMTask,
)
from polyglance.training.mixture import Mixture, Task
from polyglance.training.prefetch import Prefetcher

REGIONS, NUM_LABELS = 36, 1600
LANGUAGES = ("en", "de", "fr", "cs", "ja", "zh")
STEPS_PER_TIMING = 4
"""Consecutive steps, as in training: the next batch is sampled while one is computed."""


@dataclass(frozen=True)
class Sizes:
    """The sizes of a benchmark; those of XLM-R base by default."""

    encoder: EncoderConfig
    region_width: int = 2048
    images: int = 2000

    @classmethod
    def tiny(cls) -> Sizes:
        """Sizes for any machine."""
        encoder = EncoderConfig(
            vocab_size=1000, hidden_size=32, num_layers=2, num_heads=2, intermediate_size=64
        )
        return cls(encoder, region_width=16, images=20)


@dataclass(frozen=True)
class Variant:
    """Tasks that are timed, and the optimiser of their model."""

    tasks: Mapping[str, Task]
    optimiser: torch.optim.Optimizer


def build_uc2(sizes: Sizes, batch: int, device: str) -> tuple[dict[str, Variant], float]:
    """Build UC2's four objectives on packed and on padded captions.

    Returns:
        The variants by name, and the mean number of tokens per caption.
    """
    model = UC2(UC2Config(sizes.encoder, sizes.region_width)).to(device)
    optimiser = _optimiser(model, device)
    regions = random_regions(sizes, device)
    vocab_size = sizes.encoder.vocab_size
    names = LabelTokens(dict.fromkeys(LANGUAGES, [""] * NUM_LABELS), RandomTokenizer(vocab_size))
    lengths = caption_lengths(sizes.images * len(LANGUAGES))

    def variant(lengths: NDArray[np.int64]) -> Variant:
        table = random_captions(lengths, vocab_size, LANGUAGES)
        masking = TokenMasking(vocab_size - 1, (4, vocab_size - 1))
        corpus = ImageTextCorpus(regions, LanguageBalancedSampler(table))
        tasks = {
            "itm": ITMTask(model, corpus, batch=batch),
            "mlm": MLMTask(model, corpus, masking, batch=batch),
            "mrtm": MRTMTask(model, corpus, names, batch=batch),
            "vtlm": VTLMTask(model, regions, align_half(table), masking, batch=batch),
        }
        return Variant(tasks, optimiser)

    variants = {"packed": variant(lengths), "padded": variant(padded(lengths))}
    return variants, float(lengths.mean())


def build_m3p(sizes: Sizes, batch: int, device: str) -> tuple[dict[str, Variant], float]:
    """Build M3P's step on packed captions, on padded ones, and with eager attention.

    Returns:
        The variants by name, and the mean number of tokens per caption.
    """
    eager = replace(sizes.encoder, attention_dropout=0.1)
    flash_model, eager_model = (
        M3P(M3PConfig(config, visual_width=sizes.region_width, num_labels=NUM_LABELS)).to(device)
        for config in (sizes.encoder, eager)
    )
    regions = random_regions(sizes, device)
    vocab_size = sizes.encoder.vocab_size
    objective = MCTObjective(TokenMasking(vocab_size - 1, (4, vocab_size - 1)))
    lengths = caption_lengths(sizes.images)

    def variant(model: M3P, lengths: NDArray[np.int64]) -> Variant:
        captions = PlainCaptions(random_captions(lengths, vocab_size, ("en",)))
        tasks = {"all": MCTTask(model, regions, captions, objective, batch=batch)}
        return Variant(tasks, _optimiser(model, device))

    variants = {
        "packed": variant(flash_model, lengths),
        "padded": variant(flash_model, padded(lengths)),
        "padded, eager": variant(eager_model, padded(lengths)),
    }
    return variants, float(lengths.mean())


def uc2_rates(seconds: Mapping[str, float], pairs: int) -> dict[str, int]:
    """Return pairs a second by objective, in the mixture of pre-training, and on average."""
    weights = asdict(ObjectiveWeights())
    mixture = sum(weights[name] * seconds[name] for name in seconds) / sum(weights.values())
    rates = {name: round(pairs / spent) for name, spent in seconds.items()}
    mean = round(float(np.mean(list(rates.values()))))
    return {**rates, "mixture": round(pairs / mixture), "mean": mean}


def m3p_rates(seconds: Mapping[str, float], pairs: int) -> int:
    """Return pairs a second."""
    return round(pairs / seconds["all"])


@dataclass(frozen=True)
class System:
    """How a system is benchmarked."""

    build: Callable[[Sizes, int, str], tuple[dict[str, Variant], float]]
    rates: Callable[[Mapping[str, float], int], Any]
    batch: int
    repeats: int
    pairs_per_item: int
    """Pairs that a step encodes for each item of its batch."""


SYSTEMS = {
    "uc2": System(build_uc2, uc2_rates, batch=1024, repeats=6, pairs_per_item=1),
    # MC-MLM, MC-MRM, and MC-VLM with its negatives
    "m3p": System(build_m3p, m3p_rates, batch=256, repeats=8, pairs_per_item=4),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("system", choices=SYSTEMS)
    parser.add_argument("--tiny", action="store_true", help="tiny sizes; writes no results")
    parser.add_argument("--batch", type=int, help="items of each task in a step")
    parser.add_argument("--repeats", type=int, help="timings of each task")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    system = SYSTEMS[options.system]
    sizes, batch, repeats = Sizes(EncoderConfig()), system.batch, system.repeats
    if options.tiny:
        sizes, batch, repeats = Sizes.tiny(), 4, 2
    batch, repeats = options.batch or batch, options.repeats or repeats
    pairs = system.pairs_per_item * batch
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    variants, mean_tokens = system.build(sizes, batch, device)
    seconds = time_variants(variants, repeats, device)
    rates = {name: system.rates(by_task, pairs) for name, by_task in seconds.items()}
    for name, rate in rates.items():
        print(f"{name:14} {rate} pairs/s ({pairs} pairs a step)")
    if not options.tiny:
        figures = {
            "pairs": pairs,
            "mean_tokens": round(mean_tokens, 2),
            "regions": REGIONS,
            "pairs_per_second": rates,
            "torch": torch.__version__,
        }
        write_results(f"{options.system}_step", figures, options.out)


def time_variants(
    variants: Mapping[str, Variant], repeats: int, device: str
) -> dict[str, dict[str, float]]:
    """Return the median seconds of a step by variant and task, after a warm-up."""
    times: dict[str, dict[str, list[float]]] = {name: {} for name in variants}
    for turn in range(-1, repeats):  # the first turn is the warm-up
        for name, variant in variants.items():
            for task_name, task in variant.tasks.items():
                spent = time_steps(task, variant.optimiser, max(0, turn), device)
                if turn >= 0:
                    times[name].setdefault(task_name, []).append(spent)
    return {
        name: {task: float(np.median(spent)) for task, spent in by_task.items()}
        for name, by_task in times.items()
    }


def time_steps(task: Task, optimiser: torch.optim.Optimizer, turn: int, device: str) -> float:
    """Return the mean seconds of some training steps."""
    _synchronise()
    begin = time.perf_counter()
    first = turn * STEPS_PER_TIMING
    steps = range(first, first + STEPS_PER_TIMING)
    with Prefetcher(Mixture({"task": task}), steps, seed=0, device=device) as batches:
        for prepared in batches:
            # The back end applies where flash attention does not: materialised attention weights.
            with (
                torch.autocast(device, torch.bfloat16, enabled=device == "cuda"),
                sdpa_kernel(SDPBackend.MATH),
            ):
                losses = task.losses(prepared.batch)
            torch.stack(list(losses.values())).sum().backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
    _synchronise()
    return (time.perf_counter() - begin) / STEPS_PER_TIMING


class RandomTokenizer:
    """A tokenizer that gives every text two random tokens."""

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size

    def encode_batch(self, texts: Sequence[str], *, add_special_tokens: bool) -> list[list[int]]:
        """Return two random token ids per text."""
        ids = np.random.default_rng(2).integers(4, self.vocab_size - 1, (len(texts), 2))
        return ids.tolist()  # type: ignore[no-any-return]


def caption_lengths(count: int) -> NDArray[np.int64]:
    """Sample numbers of tokens of captions, 18 on average."""
    lengths = np.random.default_rng(0).normal(18, 6, count).clip(5, 60).round()
    return lengths.astype(np.int64)


def padded(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the longest length for all."""
    return np.full_like(lengths, lengths.max())


def random_captions(
    lengths: NDArray[np.int64], vocab_size: int, languages: tuple[str, ...]
) -> CaptionTable:
    """Build captions of random tokens, one per image and language."""
    ids = np.random.default_rng(1).integers(4, vocab_size - 1, int(lengths.sum()))
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    images = len(lengths) // len(languages)
    image_ids = np.repeat(np.arange(images), len(languages))
    language_ids = np.tile(np.arange(len(languages)), images)
    return CaptionTable(ids.astype(np.int32), offsets, image_ids, language_ids, languages, images)


def align_half(table: CaptionTable) -> AlignedCaptions:
    """Pair every caption with the English one, with every second word aligned."""
    second = np.flatnonzero(table.language_ids > 0)
    first = second - table.language_ids[second]
    lengths = np.diff(table.offsets)
    shorter = np.minimum(lengths[first], lengths[second]) - 2
    links = [[(i, i) for i in range(1, count, 2)] for count in shorter.tolist()]
    return AlignedCaptions(table, first, second, links)


def random_regions(sizes: Sizes, device: str) -> RegionTable:
    """Build random features, boxes and labels of regions."""
    count = sizes.images * REGIONS
    return RegionTable(
        torch.randn(count, sizes.region_width).half(),
        torch.rand(count, 4).sort(1).values,
        torch.randint(NUM_LABELS, (count,)),
        np.full(sizes.images, REGIONS),
        device,
    )


def _optimiser(model: torch.nn.Module, device: str) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-5, fused=device == "cuda")


def _synchronise() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
