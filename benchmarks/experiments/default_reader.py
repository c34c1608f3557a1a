"""The default model's reader: what its runs reported, and what it does as it is shipped.

    python -m benchmarks.experiments.default_reader [RUN] --data DATA

What the compressed reader reached in its training's own tests is in reader.json. RUN is the run of
the recipe polyglance-reader that was exported, which adds the readers before compression; without
it, what an earlier run of this script noted of them stays, if it was about the same reader. As
shipped, with ONNX Runtime and rounded inputs, the reader answers
the test questions of DATA/vqa, by five crops of a picture and by the whole, and training questions
about 200 pictures, and re-ranks the hits of the first English caption of each picture of
DATA/flickr8k/test.jsonl. The best answer of each type of question is learned from DATA/vqa's
training questions, which those of the test resemble most. Takes about 20 minutes. Writes
results/default_reader.json, which benchmarks.reports.reader_page shows.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import polyglance
from benchmarks.results_io import RESULTS, read_results, write_results
from polyglance.data.readers import ReadOptions, read_dataset
from polyglance.encoders.reader import Reader
from polyglance.encoders.reader_pictures import CROPS
from polyglance.errors import Problems
from polyglance.recipes.vqa.evaluation import evaluate
from polyglance.records import Question, read_manifest
from polyglance.utils.progress import progress

LANGUAGES = ("en", "vi")
WHOLE = next(iter(CROPS))
RECALLS = (1, 5, 10)
NUM_LEARNED = 200
"""Pictures of the training questions whose answers it may know by heart."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, nargs="?")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    reader = Reader.open(threads=options.threads)
    training = [
        question
        for code in LANGUAGES
        for _, question in questions(options.data / "vqa" / f"{code}-train.jsonl")
    ]
    figures = read_compressed(reader.config.figures)
    if options.run is not None:
        add_seeds(figures, json.loads((options.run / "report.json").read_bytes()))
    elif (options.out / "default_reader.json").exists():
        keep_seeds(figures, read_results("default_reader", options.out))
    figures["image_size"] = reader.image_size
    figures["questions"] |= {"shipped": {}, "whole_picture": {}, "learned": {}}
    for code in LANGUAGES:
        own = sample_pictures(questions(options.data / "vqa" / f"{code}-train.jsonl"))
        plain = [question for _, question in own]
        result = evaluate(plain, answer(reader, own), training)[code]
        figures["questions"]["learned"][code] = {
            "questions": result["questions"],
            "score": headline(result["model"]),
        }
        asked = questions(options.data / "vqa" / f"{code}-test.jsonl")
        plain = [question for _, question in asked]
        result = evaluate(plain, answer(reader, asked), training)[code]
        figures["questions"]["shipped"][code] = {
            "questions": result["questions"],
            "score": headline(result["model"]),
            "best_answer_of_type": headline(result["baseline"]),
        }
        reader.crops = {WHOLE: 1.0}
        result = evaluate(plain, answer(reader, asked), training)[code]
        figures["questions"]["whole_picture"][code] = headline(result["model"])
        reader.crops = CROPS
    figures["shipped_reranking"] = rerank(reader, options.data / "flickr8k" / "test.jsonl")
    write_results("default_reader", figures, options.out)


def read_compressed(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the training found of the compressed reader, as reader.json has it."""
    return {
        "reranking": {"compressed": reranked(report["test"])},
        "questions": {"compressed": scores(report["questions"])},
    }


def add_seeds(figures: dict[str, Any], report: Mapping[str, Any]) -> None:
    """Add what the report of a run tells of its data and of the readers before compression."""
    trained = [*report["trained"].values()]
    figures["training"] = {name: report[name] for name in ("images", "captions", "questions")}
    figures["steps"] = trained[0]["training"]["steps"]
    figures["reranking"]["trained"] = [reranked(one["test"]) for one in trained]
    figures["questions"]["trained"] = [scores(one["questions"]) for one in trained]


def keep_seeds(figures: dict[str, Any], known: Mapping[str, Any]) -> None:
    """Add what earlier figures tell of them, if those are of the same compressed reader."""
    if known["questions"]["compressed"] != figures["questions"]["compressed"]:
        return
    for part in ("reranking", "questions"):
        if "trained" in known[part]:
            figures[part]["trained"] = known[part]["trained"]
    figures |= {name: known[name] for name in ("training", "steps") if name in known}


def questions(path: Path) -> list[tuple[Path, Question]]:
    """Read questions with the files of their pictures."""
    records = read_dataset("jsonl", path, ReadOptions(), Problems(strict=True))
    return [
        (path.parent / str(record.image), question)
        for record in records
        for question in record.questions
    ]


def sample_pictures(asked: Sequence[tuple[Path, Question]]) -> list[tuple[Path, Question]]:
    """Return the questions about some pictures, drawn at random."""
    pictures = sorted({path for path, _ in asked})
    drawn = set(random.Random(0).sample(pictures, NUM_LEARNED))
    return [(path, question) for path, question in asked if path in drawn]


def answer(reader: Reader, asked: Sequence[tuple[Path, Question]]) -> list[str]:
    """Return the reader's first answer to each question, in the question's language."""
    answers = []
    with progress("Answering", len(asked)) as advance:
        for path, question in asked:
            found = reader.ask(path, question.text, language=question.language, k=1)
            answers.append(found[0].text)
            advance(1)
    return answers


def headline(result: dict[str, Any]) -> float:
    """Return the VQA score, or exact accuracy where each question has one answer."""
    return float(result["score"] if "score" in result else result["accuracy"])


def scores(result: Mapping[str, Any]) -> dict[str, float]:
    """Return a run's score by language."""
    return {code: headline(result[code]["model"]) for code in LANGUAGES}


def reranked(test: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Return mR by language, of the dual encoder and re-ranked."""
    return {name: {code: row["mR"] for code, row in test[name].items()} for name in test}


def rerank(reader: Reader, manifest: Path) -> dict[str, Any]:
    """Return recall of text to picture before and after re-ranking."""
    records = [record for record in read_manifest(manifest) if record.captions.get("en")]
    texts = [record.captions["en"][0] for record in records]
    paths = [manifest.parent / str(record.image) for record in records]
    encoder = polyglance.load(threads=reader.threads)
    queries = encoder.encode_texts(texts)
    cosines = queries @ encoder.encode_pictures(paths).T
    encoded = reader.encode_images(paths)
    before, after = [], []
    with progress("Re-ranking", len(texts)) as advance:
        for place, (text, row) in enumerate(zip(texts, cosines, strict=True)):
            best = np.argsort(-row)[: reader.num_candidates]
            hits = [encoded[image] for image in best]
            own = reader.dual_scores(queries[place], hits, row[best], models=[reader.config.model])
            mean = row[best] if own is None else own
            mixed = reader.score(text, hits) + reader.dual_weight * mean / cosines.std()
            before.append(rank_of(place, best))
            after.append(rank_of(place, best[np.argsort(-mixed)]))
            advance(1)
    return {
        "queries": len(texts),
        "dual": recall(before),
        "reranked": recall(after),
    }


def rank_of(place: int, order: Sequence[int] | np.ndarray[Any, Any]) -> float:
    """Return the rank of a picture among candidates, infinite where it is none of them."""
    found = np.flatnonzero(np.asarray(order) == place)
    return float(found[0]) if len(found) else np.inf


def recall(ranks: Sequence[float]) -> dict[str, float]:
    """Return the share of ranks below each of some numbers, in per cent."""
    return {f"R@{k}": float(100 * np.mean(np.array(ranks) < k)) for k in RECALLS}


if __name__ == "__main__":
    main()
