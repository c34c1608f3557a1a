"""How many image-caption pairs a second UC2 and M3P train on, beside two other ways.

A step samples pairs on the CPU, masks tokens or regions, encodes all pairs, computes the losses,
clips the gradient and updates the weights. Three variants take turns in one process:

- packed: as in training, compiled;
- padded, eager: every caption is as long as the longest, and attention weights are materialised
  and have dropout, as in the published code;
- transformers: its XLM-R with scaled dot-product attention on the padded batch, logits in full.

UC2 is timed by objective; its mixture weighs them as pre-training samples them, 9 : 12 : 9 : 3.
M3P computes xMLM, MC-MLM, MC-MRM and MC-VLM in one step; sentences of xMLM are not counted.

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
from benchmarks.speed.transformers_xlmr import PaddedEncoder, TransformersM3P, TransformersUC2
from polyglance.batches.regions import RegionTable
from polyglance.data.captions import CaptionTable
from polyglance.models.cross_encoder import CrossEncoderModel
from polyglance.models.m3p import M3P, M3PConfig
from polyglance.models.mmp import MMP
from polyglance.models.uc2 import UC2, UC2Config
from polyglance.nn.encoder import EncoderConfig
from polyglance.nn.transformer import compile_layers
from polyglance.objectives.masked_language import TokenMasking
from polyglance.recipes.cross_encoder.captions import LanguageBalancedSampler, PlainCaptions
from polyglance.recipes.m3p.tasks import MCTObjective, MCTTask, XMLMTask
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
from polyglance.training.mixture import Mixture, MultiTask, Task
from polyglance.training.prefetch import Prefetcher

REGIONS, NUM_LABELS = 36, 1600
LANGUAGES = ("en", "de", "fr", "cs", "ja", "zh")
STEPS_PER_TIMING = 4
"""Consecutive steps, as in training: the next batch is sampled while one is computed."""
_ALL_BACK_ENDS = [
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.CUDNN_ATTENTION,
    SDPBackend.MATH,
]


@dataclass(frozen=True)
class Sizes:
    """The sizes of a benchmark; those of XLM-R base by default."""

    encoder: EncoderConfig
    region_width: int = 2048
    images: int = 2000
    mean_tokens: int = 18
    """Of captions."""

    @classmethod
    def tiny(cls) -> Sizes:
        """Sizes for any machine."""
        encoder = EncoderConfig(
            vocab_size=1000, hidden_size=32, num_layers=2, num_heads=2, intermediate_size=64
        )
        return cls(encoder, region_width=16, images=20)


@dataclass(frozen=True, eq=False)
class Variant:
    """Tasks that are timed, with their model."""

    model: CrossEncoderModel | MMP
    tasks: Mapping[str, Task]


Builder = Callable[[], Variant]


def build_uc2(sizes: Sizes, batch: int, device: str) -> dict[str, Builder]:
    """Return what builds UC2's four objectives in each variant."""
    vocab_size = sizes.encoder.vocab_size
    names = LabelTokens(dict.fromkeys(LANGUAGES, [""] * NUM_LABELS), RandomTokenizer(vocab_size))
    masking = TokenMasking(vocab_size - 1, (4, vocab_size - 1))
    lengths = caption_lengths(sizes.images * len(LANGUAGES), sizes.mean_tokens)
    regions = random_regions(sizes, device)

    def build(model: UC2, lengths: NDArray[np.int64]) -> Variant:
        table = random_captions(lengths, vocab_size, LANGUAGES)
        corpus = ImageTextCorpus(regions, LanguageBalancedSampler(table))
        tasks = {
            "itm": ITMTask(model, corpus, batch=batch),
            "mlm": MLMTask(model, corpus, masking, batch=batch),
            "mrtm": MRTMTask(model, corpus, names, batch=batch),
            "vtlm": VTLMTask(model, regions, align_half(table), masking, batch=batch),
        }
        return Variant(model, tasks)

    def packed() -> Variant:
        model = UC2(UC2Config(sizes.encoder, sizes.region_width)).to(device)
        compile_layers(model, enabled=device == "cuda")
        return build(model, lengths)

    def eager() -> Variant:
        config = replace(sizes.encoder, attention_dropout=0.1)
        return build(UC2(UC2Config(config, sizes.region_width)).to(device), padded(lengths))

    def transformers() -> Variant:
        config = UC2Config(sizes.encoder, sizes.region_width)
        model = TransformersUC2(config, PaddedEncoder(sizes.encoder)).to(device)
        return build(model, lengths)

    return {"packed": packed, "padded, eager": eager, "transformers": transformers}


def build_m3p(sizes: Sizes, batch: int, device: str) -> dict[str, Builder]:
    """Return what builds M3P's step in each variant."""
    vocab_size = sizes.encoder.vocab_size
    masking = TokenMasking(vocab_size - 1, (4, vocab_size - 1))
    lengths = caption_lengths(sizes.images, sizes.mean_tokens)
    regions = random_regions(sizes, device)

    def config(encoder: EncoderConfig) -> M3PConfig:
        width = sizes.region_width
        return M3PConfig(encoder, LANGUAGES, visual_width=width, num_labels=NUM_LABELS)

    def build(model: M3P, lengths: NDArray[np.int64]) -> Variant:
        captions = PlainCaptions(random_captions(lengths, vocab_size, ("en",)))
        texts = random_captions(np.tile(lengths, len(LANGUAGES)), vocab_size, LANGUAGES)
        images = MCTTask(model, regions, captions, MCTObjective(masking), batch=batch)
        sentences = XMLMTask(model, texts, masking, batch=batch)
        return Variant(model, {"all": MultiTask([("mct", images, 1.0), ("xmlm", sentences, 1.0)])})

    def packed() -> Variant:
        model = M3P(config(sizes.encoder)).to(device)
        compile_layers(model, enabled=device == "cuda")
        return build(model, lengths)

    def eager() -> Variant:
        encoder = replace(sizes.encoder, attention_dropout=0.1)
        return build(M3P(config(encoder)).to(device), padded(lengths))

    def transformers() -> Variant:
        model = TransformersM3P(config(sizes.encoder), PaddedEncoder(sizes.encoder))
        return build(model.to(device), lengths)

    return {"packed": packed, "padded, eager": eager, "transformers": transformers}


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

    build: Callable[[Sizes, int, str], dict[str, Builder]]
    rates: Callable[[Mapping[str, float], int], Any]
    batch: int
    pairs_per_item: int
    """Pairs that a step encodes for each item of its batch."""


SYSTEMS = {
    "uc2": System(build_uc2, uc2_rates, batch=1024, pairs_per_item=1),
    # MC-MLM, MC-MRM, and MC-VLM with its negatives
    "m3p": System(build_m3p, m3p_rates, batch=256, pairs_per_item=4),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("system", choices=SYSTEMS)
    parser.add_argument("--tiny", action="store_true", help="tiny sizes; writes no results")
    parser.add_argument("--batch", type=int, help="items of each task in a step")
    parser.add_argument("--repeats", type=int, default=6, help="timings of each task")
    parser.add_argument("--variants", nargs="*", help="those to time; all by default")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    system = SYSTEMS[options.system]
    sizes, batch = Sizes(EncoderConfig()), options.batch or system.batch
    if options.tiny:
        sizes, batch = Sizes.tiny(), options.batch or 4
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    builders = system.build(sizes, batch, device)
    steppers, memory = {}, {}
    for name in options.variants or builders:
        steppers[name] = Stepper(builders[name](), device)
        memory[name] = steppers[name].peak_memory()
    seconds = time_in_turns(steppers, options.repeats)
    pairs = system.pairs_per_item * batch
    rates = {name: system.rates(by_task, pairs) for name, by_task in seconds.items()}
    for name, rate in rates.items():
        print(f"{name:14} {rate} pairs/s ({pairs} pairs a step), peak GiB {memory[name]}")
    if not options.tiny:
        figures = {
            "pairs": pairs,
            "mean_tokens": sizes.mean_tokens,
            "regions": REGIONS,
            "pairs_per_second": rates,
            "peak_gib": memory,
            "torch": torch.__version__,
        }
        write_results(f"{options.system}_step", figures, options.out)


class Stepper:
    """Makes training steps of a variant's tasks, each with batches sampled ahead."""

    def __init__(self, variant: Variant, device: str) -> None:
        self.variant, self.device = variant, device
        self.parameters = list(variant.model.parameters())
        fused = device == "cuda"
        self.optimiser = torch.optim.AdamW(self.parameters, lr=1e-5, fused=fused)
        self.batches = {
            name: Prefetcher(Mixture({name: task}), range(1_000_000), seed=0, device=device)
            for name, task in variant.tasks.items()
        }

    def seconds(self, name: str, steps: int = STEPS_PER_TIMING) -> float:
        """Return the mean seconds of some training steps of a task."""
        _synchronise()
        begin = time.perf_counter()
        for _ in range(steps):
            prepared = next(self.batches[name])
            # The back end is for the padded variant: materialised attention weights.
            back_ends = [SDPBackend.MATH] if self._materialises else _ALL_BACK_ENDS
            with (
                torch.autocast(self.device, torch.bfloat16, enabled=self.device == "cuda"),
                sdpa_kernel(back_ends),
            ):
                losses = prepared.task.losses(prepared.batch)
            torch.stack([loss.float() for loss in losses.values()]).sum().backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(self.parameters, 5.0)
            self.optimiser.step()
            self.optimiser.zero_grad(set_to_none=True)
        _synchronise()
        return (time.perf_counter() - begin) / steps

    @property
    def _materialises(self) -> bool:
        return self.variant.model.config.encoder.attention_dropout > 0

    def peak_memory(self) -> dict[str, float]:
        """Return the peak of allocated memory in GiB by task, without other variants' models."""
        peaks = {}
        others = _allocated() - self._model_bytes()
        for name in self.batches:
            self.seconds(name, 3)  # the optimiser's state and compiled code are made
            if torch.cuda.is_available():
                torch.cuda.reset_peak_memory_stats()
                self.seconds(name, 2)
                peaks[name] = round((torch.cuda.max_memory_allocated() - others) / 2**30, 1)
        return peaks

    def _model_bytes(self) -> int:
        return sum(p.numel() * p.element_size() for p in self.parameters)


def time_in_turns(steppers: Mapping[str, Stepper], repeats: int) -> dict[str, dict[str, float]]:
    """Return the median seconds of a step by variant and task."""
    times: dict[str, dict[str, list[float]]] = {name: {} for name in steppers}
    for _ in range(repeats):
        for name, stepper in steppers.items():
            for task in stepper.batches:
                times[name].setdefault(task, []).append(stepper.seconds(task))
    return {
        name: {task: float(np.median(spent)) for task, spent in by_task.items()}
        for name, by_task in times.items()
    }


class RandomTokenizer:
    """A tokenizer that gives every text two random tokens."""

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size

    def encode_batch(self, texts: Sequence[str], *, add_special_tokens: bool) -> list[list[int]]:
        """Return two random token ids per text."""
        ids = np.random.default_rng(2).integers(4, self.vocab_size - 1, (len(texts), 2))
        return ids.tolist()  # type: ignore[no-any-return]


def caption_lengths(count: int, mean: int = 18) -> NDArray[np.int64]:
    """Sample numbers of tokens of captions."""
    lengths = np.random.default_rng(0).normal(mean, mean / 3, count).clip(5, 3.4 * mean).round()
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


def _allocated() -> int:
    return torch.cuda.memory_allocated() if torch.cuda.is_available() else 0


def _synchronise() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
