"""How many pairs of a clip and a sentence a second MMP trains on, beside two other ways.

The model is the paper's (section 5.2, appendix C): XLM-R large's first 12 layers, of which 9 are
frozen, and a pooling head of two layers for each tower. A step samples pairs on the CPU, encodes
clips, sentences and their noised copies, computes the losses, clips the gradient and updates the
weights. Weights are random. Four settings are timed:

- fine-tuning: 128 clips of 36 steps with a caption each (equations 1 to 3);
- fine-tuning, 1,024: the same, with a batch that fills an accelerator;
- translated: 128 clips with captions in two languages (equations 4 to 6); pairs are clips;
- pre-training: 64 clips of 1 to 128 seconds with their subtitles (section 5.3).

Three variants take turns in one process:

- packed: as in training, compiled;
- padded, eager: all sentences and clips are as long as the longest, and attention weights are
  materialised and have dropout;
- transformers: its XLM-R with scaled dot-product attention, then pooling heads of PyTorch's
  ``nn.MultiheadAttention``, both on the padded batch.

    python -m benchmarks.speed.mmp_step           # an accelerator
    python -m benchmarks.speed.mmp_step --tiny    # any machine, to try it

Writes results/mmp_step.json.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from benchmarks.results_io import write_results
from benchmarks.speed.cross_encoder_step import (
    Builder,
    Stepper,
    Variant,
    caption_lengths,
    padded,
    random_captions,
    time_in_turns,
)
from benchmarks.speed.transformers_xlmr import PaddedEncoder
from polyglance.batches.inputs import FeatureTable
from polyglance.models.mmp import MMP, MMPConfig, MMPObjective
from polyglance.nn.encoder import EncoderConfig
from polyglance.nn.packing import Packing
from polyglance.nn.pooling import PoolingHead
from polyglance.nn.transformer import compile_layers
from polyglance.recipes.mmp.tasks import MMPTask
from polyglance.training.mixture import Task, step_generator
from polyglance.training.throughput import count_flops, measure_peak

Lengths = NDArray[np.int64]
LANGUAGES = ("en", "de")
STEPS_OF_CLIP, MAX_SECONDS = 36, 128
"""Of a clip in fine-tuning, and in pre-training (appendix C)."""
MEAN_TOKENS, MAX_SUBTITLE_TOKENS, TOKENS_PER_SECOND = 18, 192, 3
"""Mean sub-words of a caption; sub-words of subtitles, at most and a second of speech."""


@dataclass(frozen=True)
class Setting:
    """What one step computes."""

    batch: int
    captions: int = 1
    """Captions of a clip."""
    subtitles: bool = False
    """Clips of all lengths with their subtitles, in place of clips of one length."""


SETTINGS = {
    "fine-tuning": Setting(128),
    "fine-tuning, 1,024": Setting(1024),
    "translated": Setting(128, captions=2),
    "pre-training": Setting(64, subtitles=True),
}
TINY = {
    name: replace(setting, batch=max(2, setting.batch // 64)) for name, setting in SETTINGS.items()
}


def paper_config() -> MMPConfig:
    """Return the paper's model, without the layers of XLM-R large that it does not use."""
    config = MMPConfig()
    assert config.text_layer is not None
    return replace(config, encoder=replace(config.encoder, num_layers=config.text_layer))


def tiny_config() -> MMPConfig:
    """Return a model for any machine."""
    encoder = EncoderConfig(
        vocab_size=1000, hidden_size=32, num_layers=2, num_heads=2, intermediate_size=64
    )
    return MMPConfig(
        encoder, text_layer=2, frozen_layers=1, visual_width=16, width=32, pooling_heads=2
    )


def build(
    config: MMPConfig, settings: Mapping[str, Setting], clips: int, device: str
) -> dict[str, Builder]:
    """Return what builds the tasks of each variant.

    Args:
        config: The model.
        settings: What is timed, by name.
        clips: Clips to draw from.
        device: Where to train.
    """

    def variant(model: MMP, pad: Callable[[Lengths], Lengths]) -> Variant:
        compile_layers(model, enabled=device == "cuda" and pad is _as_they_are)
        return Variant(model, {name: _task(model, s, pad) for name, s in settings.items()})

    def _task(model: MMP, setting: Setting, pad: Callable[[Lengths], Lengths]) -> Task:
        languages = LANGUAGES[: setting.captions]
        if setting.subtitles:
            seconds = np.random.default_rng(3).integers(1, MAX_SECONDS + 1, clips)
            tokens = (TOKENS_PER_SECOND * seconds + 2).clip(max=MAX_SUBTITLE_TOKENS)
        else:
            seconds = np.full(clips, STEPS_OF_CLIP)
            tokens = caption_lengths(clips * len(languages), MEAN_TOKENS)
        lengths = pad(seconds)
        width, vocab_size = config.visual_width, config.encoder.vocab_size
        features = torch.randn(int(lengths.sum()), width, dtype=torch.half, device=device)
        return MMPTask(
            model,
            FeatureTable(features, lengths, device),
            random_captions(pad(tokens), vocab_size, languages),
            MMPObjective(cross=setting.captions == 2, mask_id=vocab_size - 1),
            batch=setting.batch,
            captions_per_image=setting.captions,
        )

    def packed() -> Variant:
        return variant(MMP(config).to(device), _as_they_are)

    def eager() -> Variant:
        dropout = replace(config.encoder, attention_dropout=0.1)
        model = MMP(replace(config, encoder=dropout))
        for head in (model.text_pooling, model.visual_pooling):
            for layer in head.layers:
                layer.attention_dropout = config.dropout
        return variant(model.to(device), padded)

    def transformers() -> Variant:
        return variant(TransformersMMP(config).to(device), _as_they_are)

    return {"packed": packed, "padded, eager": eager, "transformers": transformers}


def _as_they_are(lengths: Lengths) -> Lengths:
    return lengths


class TransformersMMP(MMP):
    """MMP on transformers' XLM-R, with pooling heads on PyTorch's attention."""

    def __init__(self, config: MMPConfig) -> None:
        super().__init__(config, PaddedEncoder(config.encoder))
        xlmr = self.encoder.xlmr
        # Our embeddings take its words; its own table would count as memory and is never read.
        xlmr.embeddings.word_embeddings = nn.Embedding(1, config.encoder.hidden_size)
        xlmr.embeddings.requires_grad_(False)
        xlmr.encoder.layer[: config.frozen_layers].requires_grad_(False)

    def _pooling_head(self, layers: int) -> PoolingHead:
        return PaddedPooling(self.config, layers)


class PaddedPooling(PoolingHead):
    """A pooling head of PyTorch's own attention on a padded batch."""

    def __init__(self, config: MMPConfig, layers: int) -> None:
        super().__init__(config.width, layers=0)
        self.layers = nn.ModuleList(PaddedLayer(config) for _ in range(layers))

    def forward(
        self,
        rows: Tensor,
        packing: Packing,
        context: Tensor | None = None,
        contexts: Packing | None = None,
    ) -> Tensor:
        """Return the first output of each sequence."""
        batch, hidden = packing.pad(rows), ~packing.mask
        extra = None
        if context is not None and contexts is not None:
            extra, hidden = contexts.pad(context), torch.cat([hidden, ~contexts.mask], 1)
        for layer in self.layers:
            keys = batch if extra is None else torch.cat([batch, extra.to(batch.dtype)], 1)
            batch = layer(batch, keys, hidden)
        return batch[:, 0]


class PaddedLayer(nn.Module):
    """A transformer layer on PyTorch's attention."""

    def __init__(self, config: MMPConfig) -> None:
        super().__init__()
        width, dropout = config.width, config.dropout
        self.attention = nn.MultiheadAttention(
            width, config.pooling_heads, dropout=dropout, batch_first=True
        )
        self.feed_forward = nn.Sequential(
            nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.dropout = nn.Dropout(dropout)

    def forward(self, rows: Tensor, keys: Tensor, hidden: Tensor) -> Tensor:
        """Apply the layer to a padded batch; ``hidden`` is true for keys that are padding."""
        attended, _ = self.attention(rows, keys, keys, key_padding_mask=hidden, need_weights=False)
        rows = self.norms[0](rows + self.dropout(attended))
        output: Tensor = self.norms[1](rows + self.dropout(self.feed_forward(rows)))
        return output


def teraflops(stepper: Stepper, name: str) -> float:
    """Return the operations of a step's forward and backward pass, in 1e12."""
    task = stepper.variant.tasks[name]
    batch = task.sample(step_generator(0, 0))

    def step() -> None:
        with torch.autocast(stepper.device, torch.bfloat16, enabled=stepper.device == "cuda"):
            losses = task.losses(batch)
        torch.stack([loss.float() for loss in losses.values()]).sum().backward()  # type: ignore[no-untyped-call]

    operations = count_flops(step)
    stepper.optimiser.zero_grad(set_to_none=True)
    return operations / 1e12


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tiny", action="store_true", help="tiny sizes; writes no results")
    parser.add_argument("--repeats", type=int, default=6, help="timings of each setting")
    parser.add_argument("--variants", nargs="*", help="those to time; all by default")
    parser.add_argument("--settings", nargs="*", help="those to time; all by default")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    settings = TINY if options.tiny else SETTINGS
    settings = {name: settings[name] for name in options.settings or settings}
    config, clips = (tiny_config(), 40) if options.tiny else (paper_config(), 2048)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    builders = build(config, settings, clips, device)
    steppers, memory, operations = {}, {}, {}
    for name in options.variants or builders:
        steppers[name] = Stepper(builders[name](), device)
        memory[name] = steppers[name].peak_memory()
        operations[name] = {task: teraflops(steppers[name], task) for task in settings}
    seconds = time_in_turns(steppers, options.repeats)
    rates = {
        name: {task: round(settings[task].batch / spent) for task, spent in by_task.items()}
        for name, by_task in seconds.items()
    }
    speeds = {
        name: {task: round(operations[name][task] / spent, 1) for task, spent in by_task.items()}
        for name, by_task in seconds.items()
    }
    for name, rate in rates.items():
        print(f"{name:14} pairs/s {rate}, TFLOP/s {speeds[name]}, peak GiB {memory[name]}")
    if not options.tiny:
        figures = {
            "pairs": {name: setting.batch for name, setting in settings.items()},
            "mean_tokens": MEAN_TOKENS,
            "steps_of_clip": STEPS_OF_CLIP,
            "pairs_per_second": rates,
            "tflops": speeds,
            "peak_gib": memory,
            "torch": torch.__version__,
        }
        if device == "cuda":
            figures["peak_tflops"] = round(measure_peak(device) / 1e12)
        write_results("mmp_step", figures, options.out)


if __name__ == "__main__":
    main()
