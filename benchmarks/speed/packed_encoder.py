"""How fast a training step is on packed sequences, beside padded ones.

One step of an encoder of UC2's size: captions of about 18 tokens and 36 regions per image, masked
language modelling at masked positions only, forward and backward in bfloat16. Variants are
interleaved in one process on the same captions.

    python -m benchmarks.speed.packed_encoder                       # an accelerator
    python -m benchmarks.speed.packed_encoder --tiny                # any machine, to try it

Writes results/packed_encoder.json.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.results_io import write_results
from polyglance.nn.encoder import Encoder, EncoderConfig
from polyglance.nn.packing import Packing, concat_packings

REGIONS, REGION_WIDTH = 36, 2048


@dataclass
class Batch:
    """Captions with the regions of images, packed: the input of one step."""

    ids: Tensor
    sentences: Packing
    regions: Tensor
    pictures: Packing
    joint: Packing
    index: Tensor
    masked: Tensor
    targets: Tensor


class Step(nn.Module):
    """A cross-encoder with a masked-language head tied to the token embeddings."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.encoder = Encoder(config)
        self.region_input = nn.Linear(REGION_WIDTH, config.hidden_size)

    def forward(self, batch: Batch) -> Tensor:  # noqa: D102
        words = self.encoder.embed(batch.ids, batch.sentences)
        regions = self.region_input(batch.regions)
        rows = torch.cat([words, regions])[batch.index]
        rows = self.encoder.contextualise(rows, batch.joint)
        logits = F.linear(rows[batch.masked], self.encoder.words.weight)
        return F.cross_entropy(logits, batch.targets)


def make_batch(lengths: Tensor, config: EncoderConfig, device: str, dtype: torch.dtype) -> Batch:
    sentences = Packing.of(lengths, device)
    pictures = Packing.of([REGIONS] * len(lengths), device)
    joint, index = concat_packings(sentences, pictures)
    generator = torch.Generator().manual_seed(0)
    words = joint.positions < sentences.lengths[joint.sequence_ids]
    chosen = words & (torch.rand(joint.num_tokens, generator=generator).to(device) < 0.15)
    masked = chosen.nonzero().flatten()
    # compute cached properties that the layers use before timing
    for packing in (sentences, pictures, joint):
        _ = packing.positions, packing.mask
    return Batch(
        ids=torch.randint(4, config.vocab_size, (sentences.num_tokens,), generator=generator).to(
            device
        ),
        sentences=sentences,
        regions=torch.randn(pictures.num_tokens, REGION_WIDTH, generator=generator).to(
            device, dtype
        ),
        pictures=pictures,
        joint=joint,
        index=index,
        masked=masked,
        targets=torch.randint(4, config.vocab_size, (len(masked),), generator=generator).to(device),
    )


def seconds(step: nn.Module, batch: Batch, repeats: int) -> list[float]:
    times = []
    for _ in range(repeats):
        _synchronise()
        begin = time.perf_counter()
        step(batch).backward()
        _synchronise()
        times.append(time.perf_counter() - begin)
        step.zero_grad(set_to_none=True)
    return times


def _synchronise() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--pairs", type=int, default=1024)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    config = EncoderConfig(dropout=0.0)
    if options.tiny:
        options.pairs, options.repeats = 8, 2
        config = EncoderConfig(
            vocab_size=1000,
            hidden_size=32,
            num_layers=2,
            num_heads=2,
            intermediate_size=64,
            dropout=0.0,
        )
    torch.manual_seed(0)
    step = Step(config).to(device, dtype)
    generator = torch.Generator().manual_seed(1)
    lengths = torch.normal(18.0, 6.0, (options.pairs,), generator=generator).clamp(5, 60).int()

    packed = make_batch(lengths, config, device, dtype)
    padded = make_batch(torch.full_like(lengths, int(lengths.max())), config, device, dtype)
    variants = {"padded, eager": (step, padded), "packed, eager": (step, packed)}
    if device == "cuda":
        layers = step.encoder.layers
        compiled = Step(config).to(device, dtype)
        compiled.load_state_dict(step.state_dict())
        for number in range(len(layers)):
            compiled.encoder.layers[number] = torch.compile(compiled.encoder.layers[number])  # type: ignore[assignment]
        variants["packed, compiled"] = (compiled, packed)

    # Flash attention on packed rows must say what plain attention says in full precision.
    exact = make_batch(lengths[:16], config, device, torch.float32)
    short = make_batch(lengths[:16], config, device, dtype)
    with torch.no_grad():
        reference = step.float()(exact).item()
        agreement = abs(step.to(dtype)(short).item() - reference) / reference

    times: dict[str, list[float]] = {name: [] for name in variants}
    for model, batch in variants.values():
        seconds(model, batch, 3)
    for _ in range(options.repeats):
        for name, (model, batch) in variants.items():
            times[name] += seconds(model, batch, 1)
    rates = {name: options.pairs / sorted(t)[len(t) // 2] for name, t in times.items()}
    print(f"{'variant':20} pairs/s   ({options.pairs} pairs, {packed.joint.num_tokens} rows packed,"
          f" {padded.joint.num_tokens} padded)")  # fmt: skip
    for name, rate in rates.items():
        print(f"{name:20} {rate:8,.0f}")
    print(f"loss in {dtype} against float32: {agreement:.2e} apart")
    figures = {
        "pairs": options.pairs,
        "rows": {"packed": packed.joint.num_tokens, "padded": padded.joint.num_tokens},
        "pairs_per_second": {name: round(rate) for name, rate in rates.items()},
        "relative_loss_difference": agreement,
        "torch": torch.__version__,
    }
    if not options.tiny:
        write_results("packed_encoder", figures, options.out)


if __name__ == "__main__":
    main()
