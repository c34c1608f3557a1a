"""The default model's reader re-ranks more candidates or fewer: all captions, both directions.

    python -m benchmarks.experiments.reader_candidates --data DATA --candidates 20 50 --device cuda

The reader is the one that is shipped, its weights read from reader.onnx into torch, where inputs of
layers are not rounded. For each number of candidates it re-ranks DATA/flickr8k/test.jsonl, with
the weight of the cosine that is shipped and with the one that is best on val.jsonl. Takes a minute
or two on an H200, hours on two cores. Writes results/reader_candidates.json, and with --scores the
scores of the longest lists, for `reader_priors`.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.experiments.reader_sizes import shorten
from benchmarks.results_io import RESULTS, write_results
from polyglance.encoders.model_folder import ModelFolder
from polyglance.encoders.reader_files import read_reader_config
from polyglance.evaluation.pair_scores import pair_scores, read_candidates
from polyglance.models.vqa import VQAModel
from polyglance.nn.packed_pairs import box_location
from polyglance.recipes import open_recipe
from polyglance.recipes.compact_reader.config import ReaderRecipe
from polyglance.recipes.compact_reader.data import ReaderData, load_data
from polyglance.recipes.compact_reader.evaluation import ReaderEvaluation, dual_scores
from polyglance.recipes.compact_reader.pretrained import PretrainedReader
from polyglance.recipes.compact_reader.train import build_model
from polyglance.recipes.retrieval_report import rows_by_language


class StoredLocations(nn.Module):
    """Rows for the boxes of a grid, as reader.onnx has them, in place of their projection."""

    def __init__(self, pretrained: PretrainedReader) -> None:
        super().__init__()
        self.boxes = nn.Buffer(box_location(pretrained.boxes))
        self.rows = nn.Buffer(pretrained.locations)

    def forward(self, boxes: Tensor) -> Tensor:
        """Return the row of each box, given what `box_location` makes of it."""
        return self.rows[torch.cdist(boxes, self.boxes).argmin(-1)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--candidates", type=int, nargs="+", default=[20, 50])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--max-images", type=int, help="of each split, to try this out")
    parser.add_argument("--scores", type=Path, help="folder to keep the longest lists in")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    folder = ModelFolder.open()
    recipe = shorten(open_recipe("polyglance-reader").settings, options.max_images)
    data, model = load_shipped(replace(recipe, question_tests=()), options.data, options.device)
    shipped_weight = read_reader_config(folder).dual_weight
    found = {}
    for candidates in options.candidates:
        found[str(candidates)] = result = evaluate(model, data, candidates, shipped_weight)
        averages = {name: rows["average"] for name, rows in result["shipped_weight"].items()}
        print(candidates, result["validation"], averages, flush=True)
    if options.scores is not None:
        keep_scores(model, data, max(options.candidates), options.scores)
    figures = {"model": folder.description.fingerprint, "dual_weight": shipped_weight}
    write_results("reader_candidates", {**figures, "candidates": found}, options.out)


def load_shipped(recipe: ReaderRecipe, folder: Path, device: str) -> tuple[ReaderData, VQAModel]:
    """Return the splits of a recipe, and the dual encoder's reader in torch.

    Args:
        recipe: Names the dual encoder and the splits.
        folder: Of the data.
        device: Of both.
    """
    config = read_reader_config(ModelFolder.open(recipe.dual_encoder))
    recipe = replace(recipe, initialise_from=recipe.dual_encoder, image_size=config.image_size)
    data = load_data(recipe, folder, device)
    model, pretrained = build_model(recipe, data, device), data.pretrained
    assert pretrained is not None
    pretrained.load_into(model)
    reader: Any = model.cross_encoder
    reader.region_box, reader.box_norm = StoredLocations(pretrained), nn.Identity()
    reader.image_segment.data.zero_()  # it is part of the rows
    return data, model.to(device).eval()


def evaluate(
    model: VQAModel, data: ReaderData, candidates: int, shipped_weight: float
) -> dict[str, Any]:
    """Return mR by language with the shipped weight of the cosine and with the best one."""
    evaluation = ReaderEvaluation(data, candidates)
    tuned = evaluation.tune(model)
    weights = {"shipped_weight": shipped_weight, "tuned_weight": tuned["dual_weight"]}
    tests: dict[float, dict[str, Any]] = {}
    for weight in weights.values():
        if weight not in tests:
            report = evaluation.test(model, weight)["test"]
            tests[weight] = {
                name: {code: row["mR"] for code, row in rows.items()}
                for name, rows in report.items()
            }
    return {"validation": tuned, **{name: tests[weight] for name, weight in weights.items()}}


def keep_scores(model: VQAModel, data: ReaderData, candidates: int, out: Path) -> None:
    """Write the lists of both splits by language, with both scores, to OUT/val.npz and test.npz."""
    out.mkdir(parents=True, exist_ok=True)
    for name, read in (("val", data.validation), ("test", data.test)):
        assert read is not None
        split, dual = read.split, dual_scores(data.dual, read)
        scores = pair_scores(
            model.cross_encoder, split.regions, split.captions, language_ids=None,
            views=split.regions.views,
        )  # fmt: skip
        kept: dict[str, Any] = {"languages": np.array([*dual.cosines])}
        for language, rows in rows_by_language(split.captions):
            lists = read_candidates(
                dual.cosines[language], scores, rows, candidates, tta=dual.tta_of(language)
            )
            kept |= {
                f"{language}.texts": lists.texts.astype(np.int32),
                f"{language}.images": lists.images.astype(np.int32),
                f"{language}.scores": lists.scores.astype(np.float16),
                f"{language}.dual": lists.dual.astype(np.float32),
            }
        np.savez_compressed(out / f"{name}.npz", allow_pickle=False, **kept)


if __name__ == "__main__":
    main()
