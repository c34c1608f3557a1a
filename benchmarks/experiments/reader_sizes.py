"""A trained reader, compressed, on images of several sizes.

    python -m benchmarks.experiments.reader_sizes RUN --data DATA --sizes 224 256 288 --device cuda

RUN is a run of the recipe polyglance-reader, trained at the dual encoder's size. At each size it
re-ranks DATA/flickr8k/test.jsonl, with the weight of the cosine chosen on val.jsonl, and answers
the test questions of DATA/vqa. At another size than the dual encoder's, its cosine is the mean over
both, alone (``dual_tta``) and under the reader's score. Takes 45 seconds a size on an H200. Writes
results/reader_sizes.json.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

from benchmarks.results_io import RESULTS, write_results
from polyglance.encoders.answers import AnswerVocabulary
from polyglance.models.vqa import VQAModel
from polyglance.nn.linear_compression import load_linear_compact_state
from polyglance.recipes import open_recipe
from polyglance.recipes.compact_reader.config import ReaderRecipe
from polyglance.recipes.compact_reader.data import ReaderData, load_data
from polyglance.recipes.compact_reader.evaluation import ReaderEvaluation
from polyglance.recipes.compact_reader.train import COMPACT, build_model

_FEW = 20
"""Training images of each manifest that are read: the reader is trained already."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sizes", type=int, nargs="+", required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--max-images", type=int, help="of each test, to try this out")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    recipe = shorten(open_recipe("polyglance-reader").settings, options.max_images)
    by_size = {}
    for size in options.sizes:
        sized = replace(recipe, image_size=size)
        data, model = load_reader(sized, options.run, options.data, options.device)
        by_size[str(size)] = evaluate(model, data, sized.retrieval.candidates)
        print(size, by_size[str(size)]["validation"], flush=True)
    write_results("reader_sizes", {"sizes": by_size}, options.out)


def shorten(recipe: ReaderRecipe, max_images: int | None) -> ReaderRecipe:
    """Return a recipe with few training images, and the whole of its tests unless that is given."""

    def tested(corpus: Any) -> Any:
        return corpus and replace(corpus, max_images=max_images)

    return replace(
        recipe,
        captions=(replace(recipe.captions[0], max_images=_FEW),),
        questions=tuple(replace(one, max_images=_FEW) for one in recipe.questions[:2]),
        stored_views=1,
        validation=tested(recipe.validation),
        test=tested(recipe.test),
        question_tests=tuple(tested(one) for one in recipe.question_tests),
    )


def load_reader(
    recipe: ReaderRecipe, run: Path, folder: Path, device: str
) -> tuple[ReaderData, VQAModel]:
    """Return the tests, and the compressed reader of a run in torch."""
    settings = json.loads((run / COMPACT / "config.json").read_bytes())["reader"]
    answers = {code: tuple(texts) for code, texts in settings["answers"].items()}
    data = replace(load_data(recipe, folder, device), answers=AnswerVocabulary(answers))
    model = build_model(recipe, data, device)
    model.fold_answer_embeddings()
    load_linear_compact_state(model, load_file(run / COMPACT / "compact.safetensors"))
    return data, model.eval()


def evaluate(model: VQAModel, data: ReaderData, candidates: int) -> dict[str, Any]:
    """Return figures of validation, re-ranked retrieval and answers."""
    evaluation = ReaderEvaluation(data, candidates)
    tuned = evaluation.tune(model)
    report = evaluation.test(model, tuned["dual_weight"])
    return {
        "validation": tuned,
        "test": {
            name: {code: row["mR"] for code, row in rows.items()}
            for name, rows in report["test"].items()
        },
        "questions": {
            code: result["model"].get("score", result["model"].get("accuracy"))
            for code, result in report["questions"].items()
            if isinstance(result, dict) and "model" in result
        },
    }


if __name__ == "__main__":
    main()
