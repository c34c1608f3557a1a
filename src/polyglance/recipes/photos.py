"""Train MMP's image variant on captioned pictures: the recipe behind the default model.

Pictures with captions in many languages, sentences with translations, a
multilingual text encoder and a picture network that may be trained along.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyglance import weights
from polyglance.config import dump, load
from polyglance.data.captions import CaptionTable
from polyglance.data.readers import ReadOptions, read
from polyglance.errors import PolyglanceError, Problems
from polyglance.evaluation.retrieval import RetrievalResult, evaluate_retrieval
from polyglance.models.mmp import MMP, MMPConfig, MMPObjective
from polyglance.nn.pretrained import load_encoder
from polyglance.records import Record, read_manifest, replacing
from polyglance.text import Tokenizer, open_tokenizer
from polyglance.training.distribution import rank
from polyglance.training.loop import LoopConfig, Run, train
from polyglance.training.mixture import Mixture, Task
from polyglance.training.pairing import CaptionedVisuals, ParallelSentences, Together, packed
from polyglance.training.visuals import PixelTable, Visuals
from polyglance.vision.efficientnet import EfficientNetLite
from polyglance.vision.pictures import read_square


@dataclass(frozen=True)
class PictureCorpus:
    """Captioned pictures to train on."""

    manifest: str
    languages: tuple[str, ...] | None = None
    """None for all that it has."""
    batch: int = 512
    captions_each: int = 2
    weight: float = 1.0
    hold_out: int = 0
    """So many of its last pictures are kept from training, to measure on."""


@dataclass(frozen=True)
class TextCorpus:
    """Sentences with translations to train on."""

    manifest: str
    format: str = "jsonl"
    """The format of the file, as ``polyglance data formats`` lists them."""
    batch: int = 512
    weight: float = 1.0
    temperature: float = 0.1


@dataclass(frozen=True)
class PhotoRecipe:
    """Everything that makes a run; a file of these names is all that is needed to repeat it."""

    encoder: str = "e5-small"
    backbone: str = "efficientnet-lite2"
    size: int = 224
    width: int = 384
    pooling_layers: int = 2
    pooling_heads: int = 6
    dropout: float = 0.1
    text_layer: int | None = None
    frozen_layers: int = 0
    longest: int = 40
    encoder_rate: float = 0.3
    backbone_rate: float = 0.1
    smallest_crop: float = 0.5
    pictures: tuple[PictureCorpus, ...] = ()
    texts: tuple[TextCorpus, ...] = ()
    validation: str = "flickr8k/val.jsonl"
    test: str | None = None
    objective: MMPObjective = field(default_factory=MMPObjective)
    loop: LoopConfig = field(default_factory=LoopConfig)


@dataclass(frozen=True, eq=False)
class Measured:
    """Pictures and captions to measure recall on."""

    visuals: Visuals
    captions: CaptionTable


def run(recipe: PhotoRecipe, data: Path, out: Path, *, device: str = "cpu") -> dict[str, Any]:
    """Train by a recipe on the data under a folder; returns and writes what was measured.

    Under `polyglance.training.distribution.joined` all processes call this together.
    """
    torch.set_float32_matmul_precision("high")
    tokenizer = open_tokenizer(recipe.encoder)
    objective = _objective(recipe, tokenizer)
    model, eyes = build_model(recipe, device)
    pictures_of = _PictureLoader(recipe, eyes, device)
    tasks: list[tuple[str, Task, float]] = []
    measured: dict[str, Measured] = {}
    for corpus in recipe.pictures:
        records = _with_pictures(data / corpus.manifest)
        if not 0 <= corpus.hold_out < len(records):
            raise PolyglanceError(
                f"{corpus.manifest} has {len(records)} pictures with captions, too few to train"
                f" on when {corpus.hold_out} are held out: lower hold_out or add pictures"
            )
        kept = records[: len(records) - corpus.hold_out]
        name = _name(corpus.manifest)
        captions = _captions(kept, tokenizer, recipe, corpus.languages)
        task = CaptionedVisuals(
            model,
            pictures_of(kept, data / corpus.manifest),
            captions,
            objective,
            batch=corpus.batch,
            captions_each=corpus.captions_each,
        )
        tasks.append((name, task, corpus.weight))
        if corpus.hold_out:
            held = records[len(kept) :]
            pictures = pictures_of(held, data / corpus.manifest)
            measured[name] = Measured(pictures, _captions(held, tokenizer, recipe, None))
    for text in recipe.texts:
        found = list(read(text.format, data / text.manifest, ReadOptions(), Problems(strict=True)))
        sentences = _captions(found, tokenizer, recipe, None)
        parallel = ParallelSentences(
            model, sentences, batch=text.batch, temperature=text.temperature
        )
        tasks.append((_name(text.manifest), parallel, text.weight))

    def measure(manifest: str) -> Measured:
        records = _with_pictures(data / manifest)
        pictures = pictures_of(records, data / manifest)
        return Measured(pictures, _captions(records, tokenizer, recipe, None))

    validation = measure(recipe.validation)
    groups = [
        {"params": list(model.encoder.parameters()), "rate": recipe.encoder_rate},
        {"params": list(eyes.network.parameters()), "rate": recipe.backbone_rate},
        {"params": [p for n, p in model.named_parameters() if _is_new(n)], "rate": 1.0},
    ]

    def validate() -> dict[str, float]:
        figures = recall_by_language(model, validation)
        for name, held in measured.items():
            found = recall_by_language(model, held)
            figures |= {f"{name}.{language}": value for language, value in found.items()}
        return {**figures, "score": figures["average"]}

    _keep(recipe, out)
    finished = train(
        model, Mixture({"all": Together(tasks)}), recipe.loop, out, validate=validate, groups=groups
    )
    return _report(recipe, model, finished, validate(), measure, out)


def _keep(recipe: PhotoRecipe, out: Path) -> None:
    """Lay the recipe beside what it makes; a run goes on only by the one it began with."""
    path = out / "recipe.yaml"
    if (out / "latest").exists() and path.exists():
        begun = load(PhotoRecipe, path)
        if replace(begun, loop=recipe.loop) != recipe:  # the loop looks at its own settings
            raise PolyglanceError(
                f"{out} holds a run by another recipe ({path}): train into another folder"
            )
    if rank() == 0:
        with replacing(path) as file:
            file.write(dump(recipe))


def _name(manifest: str) -> str:
    """What a corpus is called in the log: its path, since files of many folders are ``train``."""
    path = Path(manifest)
    return str(path.with_name(path.name.split(".")[0]))


def _objective(recipe: PhotoRecipe, tokenizer: Tokenizer) -> MMPObjective:
    """The recipe's objective with the mask of its tokenizer, whichever that is."""
    if not recipe.objective.intra:
        return recipe.objective
    if tokenizer.mask_id is None:
        raise PolyglanceError(
            f"the tokenizer of {recipe.encoder} has no mask, which noise needs:"
            " set objective.intra to false"
        )
    return replace(recipe.objective, mask_id=tokenizer.mask_id)


def _is_new(name: str) -> bool:
    return not name.startswith(("encoder.", "eyes."))


def build_model(recipe: PhotoRecipe, device: str) -> tuple[MMP, EfficientNetLite]:
    """An untrained model on pretrained parts; the picture network is part of it, as ``eyes``."""
    encoder = load_encoder(weights.folder(recipe.encoder), dropout=recipe.dropout)
    eyes = EfficientNetLite(
        weights.folder(recipe.backbone), recipe.backbone, recipe.size, device=device
    )
    config = MMPConfig(
        encoder=encoder.config,
        text_layer=recipe.text_layer,
        frozen_layers=recipe.frozen_layers,
        visual_width=eyes.width,
        width=recipe.width,
        pooling_layers=recipe.pooling_layers,
        pooling_heads=recipe.pooling_heads,
        dropout=recipe.dropout,
    )
    torch.manual_seed(recipe.loop.seed)
    model = MMP(config, encoder)
    network = eyes.network.requires_grad_(recipe.backbone_rate > 0)
    model.add_module("eyes", network)
    return model.to(device), eyes


@torch.no_grad()
def recall_by_language(model: MMP, measured: Measured) -> dict[str, float]:
    """mR of each language and their average, in percent."""
    recalls = {
        language: result.mean_recall
        for language, result in retrieval_by_language(model, measured).items()
    }
    return {**recalls, "average": float(np.mean(list(recalls.values())))}


@torch.no_grad()
def retrieval_by_language(model: MMP, measured: Measured) -> dict[str, RetrievalResult]:
    """Recalls of each language both ways, among all pictures."""
    model.eval()
    images = _in_blocks(
        lambda items: model.encode_visual(*measured.visuals.rows(items, None)),
        np.arange(len(measured.visuals)),
    )
    captions, device = measured.captions, next(model.parameters()).device

    def encode(block: NDArray[np.int64]) -> Tensor:
        text = packed(captions, block, device)
        return model.encode_text(text.ids, text.packing)

    results = {}
    for language in captions.names:
        rows = captions.of_language(language)
        results[language] = evaluate_retrieval(
            images, _in_blocks(encode, rows), captions.owners[rows]
        )
    return results


def _in_blocks(
    encode: Callable[[NDArray[np.int64]], Tensor], items: NDArray[np.int64], block: int = 256
) -> NDArray[np.float32]:
    precision = torch.autocast("cuda", torch.bfloat16, enabled=torch.cuda.is_available())
    with precision:
        parts = [encode(items[i : i + block]).float().cpu() for i in range(0, len(items), block)]
    return torch.cat(parts).numpy()


def _with_pictures(manifest: Path) -> list[Record]:
    return [record for record in read_manifest(manifest) if record.image and record.captions]


def _captions(
    records: Sequence[Record],
    tokenizer: Tokenizer,
    recipe: PhotoRecipe,
    languages: tuple[str, ...] | None,
) -> CaptionTable:
    return CaptionTable.build(records, tokenizer, languages=languages, longest=recipe.longest)


class _PictureLoader:
    """Reads the pictures of records into a table on the device."""

    def __init__(self, recipe: PhotoRecipe, eyes: EfficientNetLite, device: str) -> None:
        self.recipe, self.eyes, self.device = recipe, eyes, device

    def __call__(self, records: Sequence[Record], manifest: Path) -> PixelTable:
        paths = [manifest.parent / str(record.image) for record in records]
        with ThreadPoolExecutor() as pool:
            squares = list(pool.map(lambda path: read_square(path, self.recipe.size).pixels, paths))
        return PixelTable(
            torch.from_numpy(np.stack(squares)),
            self.eyes.network,
            self.eyes.mean,
            self.eyes.std,
            smallest_crop=self.recipe.smallest_crop,
            device=self.device,
        )


def _report(
    recipe: PhotoRecipe,
    model: MMP,
    finished: Run,
    validation: dict[str, float],
    measure: Callable[[str], Measured],
    out: Path,
) -> dict[str, Any]:
    report: dict[str, Any] = {
        "validation": validation,
        "best_step": finished.best_step,
        "seconds": round(finished.seconds),
    }
    if recipe.test is not None:
        report["test"] = recall_by_language(model, measure(recipe.test))
    if rank() == 0:
        (out / "report.json").write_text(json.dumps(report, indent=2), encoding="utf-8")
    return report
