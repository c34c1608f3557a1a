"""What recipes of every kind do: keep themselves beside their run, and measure retrieval."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyglance.batches.inputs import VisualTable, pack_captions
from polyglance.config import dump, load
from polyglance.data.captions import CaptionTable
from polyglance.errors import DataError, PolyglanceError
from polyglance.evaluation.retrieval import RetrievalResult, evaluate_retrieval
from polyglance.models.mmp import MMP, MMPObjective
from polyglance.records import atomic_write
from polyglance.text import Tokenizer
from polyglance.training.distributed import rank
from polyglance.utils.yaml12 import parse

BLOCK = 512
"""Pictures, clips or captions encoded at a time."""


@dataclass(frozen=True, eq=False)
class Measured:
    """Pictures or clips and their captions, to measure retrieval on."""

    visuals: VisualTable
    captions: CaptionTable


@torch.no_grad()
def retrieval_by_language(
    model: MMP, measured: Measured, languages: Iterable[str] | None = None
) -> dict[str, RetrievalResult]:
    """Recalls both ways among all pictures or clips, of each language (or of some).

    Never in bfloat16, whose eight bits would make close answers tie.
    """
    model.eval()
    captions, device = measured.captions, next(model.parameters()).device
    visuals = _in_blocks(
        lambda items: model.encode_visual(*measured.visuals.rows(items, None)),
        np.arange(len(measured.visuals)),
    )

    def encode(rows: NDArray[np.int64]) -> Tensor:
        text = pack_captions(captions, rows, device)
        return model.encode_text(text.ids, text.packing)

    results = {}
    for language in captions.language_codes if languages is None else languages:
        rows = captions.rows_in_language(language)
        results[language] = evaluate_retrieval(
            visuals, _in_blocks(encode, rows), captions.record_ids[rows]
        )
    return results


def _in_blocks(
    encode: Callable[[NDArray[np.int64]], Tensor], items: NDArray[np.int64]
) -> NDArray[np.float32]:
    blocks = [encode(items[i : i + BLOCK]).float().cpu() for i in range(0, len(items), BLOCK)]
    return torch.cat(blocks).numpy()


def spoken(captions: CaptionTable) -> set[str]:
    """The languages that a table has captions in, which may be fewer than were asked for."""
    return {captions.language_codes[number] for number in set(captions.language_ids.tolist())}


def corpus_name(manifest: str) -> str:
    """What a corpus is called in the log: its path, since files of many folders are ``train``."""
    path = Path(manifest)
    return str(path.with_name(path.name.split(".")[0]))


def with_mask(objective: MMPObjective, tokenizer: Tokenizer, name: str) -> MMPObjective:
    """The objective with the mask of its tokenizer, whichever that is."""
    if not objective.intra:
        return objective
    if tokenizer.mask_id is None:
        raise PolyglanceError(
            f"the tokenizer of {name} has no mask, which noise needs: set objective.intra to false"
        )
    return replace(objective, mask_id=tokenizer.mask_id)


def check_there(data: Path, *files: str) -> None:
    """Refuse data without these files before anything is made that takes time and room."""
    if missing := files_missing(data, files):
        raise DataError("; ".join(missing))


def files_missing(data: Path, files: Iterable[str]) -> list[str]:
    """Those that are not there, in one sentence with the way out; nothing where all are."""
    return not_there(
        [data / name for name in files if not (data / name).exists()],
        "there is no such file: name the folder that the recipe's files are in as --data, or"
        " other files in the recipe",
    )


def not_there(places: Iterable[Path], said: str) -> list[str]:
    """Say one thing of all these places; nothing where there are none."""
    named = ", ".join(map(str, dict.fromkeys(places)))
    return [f"{named}: {said}"] if named else []


def keep(recipe: Any, kind: str, out: Path) -> None:
    """Lay the recipe beside what it makes; a run goes on only by the one it began with."""
    path = out / "recipe.yaml"
    if path.exists() and has_begun(out):
        plain = parse(path.read_text(encoding="utf-8"), str(path))
        begun = load(type(recipe), {key: plain[key] for key in plain if key != "kind"})
        if replace(begun, loop=recipe.loop) != recipe:  # the loop looks at its own settings
            raise PolyglanceError(
                f"{out} holds a run by another recipe ({path}): train into another folder"
            )
    if rank() == 0:
        with atomic_write(path) as file:
            file.write(f"kind: {kind}\n{dump(recipe)}")


def has_begun(run: Path) -> bool:
    """Whether a run has a checkpoint; of one in stages each has a folder of its own."""
    return any((place / "latest").exists() for place in (run, *run.glob("*/")))


def write_report(report: dict[str, Any], out: Path) -> None:
    """Write ``report.json``, by the first process alone."""
    if rank() == 0:
        with atomic_write(out / "report.json") as file:
            file.write(json.dumps(report, indent=2) + "\n")
