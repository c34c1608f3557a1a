"""How many pairs a second UC2's MLM step takes, by caption length, batch and number of languages.

One of the three varies at a time, around captions of 18 sub-words, 1,024 pairs a step and six
languages. The packed step, as in training, takes turns with transformers' XLM-R on the padded
batch, in one process; a batch that does not fit into memory has no figure.

    python -m benchmarks.speed.step_sweep           # an accelerator
    python -m benchmarks.speed.step_sweep --tiny    # any machine, to try it

Writes results/uc2_sweep.json.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from benchmarks.results_io import write_results
from benchmarks.speed.cross_encoder_step import (
    REGIONS,
    Sizes,
    Stepper,
    Variant,
    caption_lengths,
    random_captions,
    random_regions,
)
from benchmarks.speed.transformers_xlmr import PaddedEncoder, TransformersUC2
from polyglance.batches.regions import RegionTable
from polyglance.models.uc2 import UC2, UC2Config
from polyglance.nn.encoder import EncoderConfig
from polyglance.nn.transformer import compile_layers
from polyglance.objectives.masked_language import TokenMasking
from polyglance.recipes.cross_encoder.captions import LanguageBalancedSampler
from polyglance.recipes.uc2.tasks import ImageTextCorpus, MLMTask

VARIANTS = ("packed", "transformers")


@dataclass(frozen=True)
class Setting:
    """What a step is timed with."""

    length: int = 18
    """Mean sub-words of a caption."""
    batch: int = 1024
    languages: int = 6


@dataclass(frozen=True)
class Sweep:
    """The values of each of the three, and what the other two are meanwhile."""

    base: Setting
    values: Mapping[str, Sequence[int]]

    @classmethod
    def full(cls) -> Sweep:
        """Return the sweep of an accelerator."""
        values = {
            "length": (8, 18, 32, 64),
            "batch": (128, 256, 512, 1024, 2048),
            "languages": (1, 6, 25, 100),
        }
        return cls(Setting(), values)

    @classmethod
    def tiny(cls) -> Sweep:
        """Return a sweep for any machine."""
        values = {"length": (8, 18), "batch": (2, 4), "languages": (1, 6)}
        return cls(Setting(batch=4), values)

    def settings(self) -> Iterator[tuple[str, int, Setting]]:
        """Yield what varies, its value, and the setting."""
        for axis, values in self.values.items():
            for value in values:
                yield axis, value, replace(self.base, **{axis: value})


Rates = dict[str, dict[str, dict[str, float | None]]]
"""Figures by variant, by what varies, and by its value."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tiny", action="store_true", help="tiny sizes; writes no results")
    parser.add_argument("--repeats", type=int, default=4, help="timings of each setting")
    parser.add_argument("--variants", nargs="*", default=VARIANTS, choices=VARIANTS)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    sizes, sweep = Sizes(EncoderConfig()), Sweep.full()
    if options.tiny:
        sizes, sweep = Sizes.tiny(), Sweep.tiny()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    rates, memory = run_sweep(sweep, sizes, options.variants, options.repeats, device)
    for variant, by_axis in rates.items():
        for axis, by_value in by_axis.items():
            print(f"{variant:14} {axis:10} {by_value} pairs/s, peak GiB {memory[variant][axis]}")
    if not options.tiny:
        base = sweep.base
        figures = {
            "base": {"length": base.length, "batch": base.batch, "languages": base.languages},
            "regions": REGIONS,
            "pairs_per_second": rates,
            "peak_gib": memory,
            "torch": torch.__version__,
        }
        write_results("uc2_sweep", figures, options.out)


def run_sweep(
    sweep: Sweep, sizes: Sizes, variants: Sequence[str], repeats: int, device: str
) -> tuple[Rates, Rates]:
    """Time all settings, the variants in turns; return pairs a second and peak memory in GiB.

    Args:
        sweep: the settings.
        sizes: of model and corpus.
        variants: some of `VARIANTS`.
        repeats: timings, of which the median counts.
        device: of torch.
    """
    regions = random_regions(sizes, device)
    models = {name: build_model(name, sizes, device) for name in variants}
    rates: Rates = {name: {} for name in variants}
    memory: Rates = {name: {} for name in variants}
    for axis, value, setting in sweep.settings():
        steppers = {
            name: Stepper(Variant(model, {"mlm": mlm_task(model, regions, sizes, setting)}), device)
            for name, model in models.items()
        }
        times: dict[str, list[float]] = {name: [] for name in variants}
        for name, stepper in steppers.items():
            peak = _unless_too_large(stepper, lambda s=stepper: s.peak_memory().get("mlm"))
            memory[name].setdefault(axis, {})[str(value)] = peak
        for _ in range(repeats):
            for name, stepper in steppers.items():
                spent = _unless_too_large(stepper, lambda s=stepper: s.seconds("mlm"))
                times[name] += [] if spent is None else [spent]
        for name, stepper in steppers.items():
            complete = len(times[name]) == repeats
            rate = round(setting.batch / float(np.median(times[name]))) if complete else None
            rates[name].setdefault(axis, {})[str(value)] = rate
            stepper.batches["mlm"].close()
    return rates, memory


def build_model(variant: str, sizes: Sizes, device: str) -> UC2:
    """Build UC2 with random weights, packed and compiled or on transformers' encoder."""
    config = UC2Config(sizes.encoder, sizes.region_width)
    if variant == "transformers":
        return TransformersUC2(config, PaddedEncoder(sizes.encoder)).to(device)
    model = UC2(config).to(device)
    compile_layers(model, enabled=device == "cuda")
    return model


def mlm_task(model: UC2, regions: RegionTable, sizes: Sizes, setting: Setting) -> MLMTask:
    """Build the MLM task on captions of a setting's length and languages."""
    vocab_size = sizes.encoder.vocab_size
    languages = tuple(f"language {number}" for number in range(setting.languages))
    lengths = caption_lengths(sizes.images * len(languages), setting.length)
    table = random_captions(lengths, vocab_size, languages)
    corpus = ImageTextCorpus(regions, LanguageBalancedSampler(table))
    masking = TokenMasking(vocab_size - 1, (4, vocab_size - 1))
    return MLMTask(model, corpus, masking, batch=setting.batch)


def _unless_too_large(stepper: Stepper, measure: Callable[[], float | None]) -> float | None:
    """Return what is measured; None if the device's memory does not suffice."""
    try:
        return measure()
    except torch.OutOfMemoryError:
        stepper.optimiser.zero_grad(set_to_none=True)
    torch.cuda.empty_cache()  # once the error's frames are gone, and their tensors with them
    return None


if __name__ == "__main__":
    main()
