"""A dual encoder for M3P or UC2 to learn from before fine-tuning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from polyglance.config import check
from polyglance.data.captions import CaptionTable
from polyglance.data.readers import read_all
from polyglance.encoders.folder import ModelFolder
from polyglance.errors import PolyglanceError
from polyglance.export.reading import load_torch
from polyglance.models.m3p import M3P
from polyglance.models.mmp import MMP
from polyglance.models.uc2 import UC2
from polyglance.nn.packing import Packing
from polyglance.nn.sending import sent
from polyglance.recipes.pairs.measuring import language_numbers
from polyglance.recipes.pairs.region_splits import Sentences, Split, SplitReader
from polyglance.recipes.stages import run_stage, stage_loop
from polyglance.text import Tokenizer
from polyglance.training.loop import LoopConfig
from polyglance.training.mixture import Mixture
from polyglance.training.pair_imitation import Likeness, PairImitation
from polyglance.training.visuals import PixelTable, read_pixels

_TEXTS, _PICTURES = 2048, 256
"""The most that the dual encoder is given at once."""


@dataclass(frozen=True)
class Imitation:
    """A stage before fine-tuning: pairs are scored as a dual encoder does.

    See `polyglance.training.pair_imitation`.
    """

    model: str | None = None
    """A model folder of MMP, or its name; None for the default model."""
    texts: tuple[Sentences, ...] = ()
    """Sentences besides the training captions; nobody needs to have said them of a picture."""
    batch: int = 512
    near: float = 0.7
    """The share of pairs that the dual encoder finds alike."""
    nearest: int = 3000
    """Sentences of each picture that count as alike; the nearer, the oftener they are drawn."""
    steps: int = 2000
    learning_rate: float = 1e-4
    warmup: int = 0

    def __post_init__(self) -> None:
        check(self, lambda value: value >= 1, "1 or more", "batch", "nearest", "steps")
        check(self, lambda value: 0 <= value <= 1, "a share from 0 to 1", "near")
        check(self, lambda value: value > 0, "a number above 0", "learning_rate")

    def run(
        self,
        model: M3P | UC2,
        split: Split,
        reader: SplitReader,
        after: LoopConfig,
        folder: Path,
        groups: list[dict[str, Any]],
    ) -> dict[str, Any]:
        """Train the stage on the training part; returns what to report."""
        tasks = Mixture({"imitation": self.task(model, split, reader)})
        return run_stage(model, tasks, stage_loop(after, self), folder, groups=groups)

    def task(self, model: M3P | UC2, split: Split, reader: SplitReader) -> PairImitation:
        """What is learned from the training part and from sentences beside it.

        The dual encoder looks at pictures as large as one's own eyes do, if there are any.
        """
        data, tokenizer = reader.data, reader.tokenizer
        more = [
            record for text in self.texts for record in read_all(text.format, data / text.manifest)
        ]
        table = CaptionTable.build([*split.records, *more], tokenizer, longest=reader.longest_text)
        device = split.regions.features.device
        return PairImitation(
            model,
            split.regions,
            table,
            dual_likeness(
                self.model,
                split.files,
                table,
                tokenizer,
                size=None if reader.eyes is None else reader.eyes.size,
                device=device,
            ),
            batch=self.batch,
            near=self.near,
            nearest=self.nearest,
            languages=language_numbers(model, table),
        )


def dual_likeness(
    name: str | None,
    files: Sequence[Path],
    texts: CaptionTable,
    tokenizer: Tokenizer,
    *,
    size: int | None = None,
    device: torch.device | str = "cpu",
) -> Likeness:
    """What a dual encoder makes of pictures and of captions."""
    folder = ModelFolder.open(name)
    dual = load_torch(folder.path).to(device).eval()
    if dual.config.encoder.vocabulary != tokenizer.vocab_size:
        raise PolyglanceError(
            f"{folder.path.name} reads other sub-words than the encoder: begin with the encoder of"
            " 'polyglance weights unpack', or set imitation to null"
        )
    settings = folder.description.pictures
    pixels = PixelTable(
        read_pixels(files, settings.size if size is None else size),
        dual.eyes,  # type: ignore[arg-type]
        torch.tensor(settings.mean),
        torch.tensor(settings.std),
        device=device,
    )
    return Likeness(_seen(dual, pixels), _read(dual, texts, device))


@torch.no_grad()
def _seen(dual: MMP, pixels: PixelTable) -> Tensor:
    blocks = np.array_split(np.arange(len(pixels)), -(-len(pixels) // _PICTURES))
    return torch.cat([dual.encode_visual(*pixels.rows(block, None)).half() for block in blocks])


@torch.no_grad()
def _read(dual: MMP, texts: CaptionTable, device: torch.device | str) -> Tensor:
    """In half precision where flash attention needs it; blocks are of similar length."""
    cuda = torch.device(device).type == "cuda"
    order = np.argsort(np.diff(texts.offsets), kind="stable")
    found = []
    with torch.autocast("cuda" if cuda else "cpu", torch.bfloat16, enabled=cuda):
        for rows in np.array_split(order, -(-len(order) // _TEXTS)):
            ids, lengths = texts.gather(rows)
            packed = sent(torch.from_numpy(ids.astype(np.int64)), device)
            found.append(dual.encode_text(packed, Packing.of(lengths, device)).half())
    vectors = torch.cat(found)
    vectors[torch.from_numpy(order).to(device)] = vectors.clone()
    return vectors
