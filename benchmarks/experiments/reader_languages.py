"""Questions in languages that the default model's reader saw no question in.

    python -m benchmarks.experiments.reader_languages --data DATA

A reader learns questions in English and Vietnamese. Here the colour questions of
DATA/more/coco-questions.jsonl.xz about pictures that its recipe holds out (they chose its
checkpoint, no weight) are asked in other languages, with the sentence and the nouns of
colour_questions.json, which were written by hand. Answers are the English classes. Beside them
stands the colour that most of the training questions have, and the same questions with pictures
shuffled among them, which shows what the picture tells. Takes five minutes on two cores. Writes
results/reader_languages.json.
"""

from __future__ import annotations

import argparse
import json
import lzma
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.results_io import RESULTS, write_results
from polyglance.encoders.reader import Reader
from polyglance.recipes import open_recipe
from polyglance.recipes.vqa.questions import hash_share
from polyglance.utils.progress import progress

QUESTIONS = Path(__file__).with_name("colour_questions.json")
_ASKED = re.compile(r"what is the color of the (\w+)\s*\?")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="with coco/images and more")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    written = json.loads(QUESTIONS.read_text(encoding="utf-8"))
    held_out, common = read_questions(options.data, written["nouns"])
    reader = Reader.open(threads=options.threads)
    shuffled = np.random.default_rng(0).permutation(len(held_out))
    scores: dict[str, Any] = {}
    with progress("Asking", 2 * len(held_out) * len(written["templates"])) as advance:
        for place, (code, template) in enumerate(written["templates"].items()):
            right: list[bool] = []
            blind: list[bool] = []
            for number, (picture, noun, answer) in enumerate(held_out):
                question = template.format(written["nouns"][noun][place])
                other = held_out[shuffled[number]][0]
                for scored, shown in ((right, picture), (blind, other)):
                    [found] = reader.ask(options.data / shown, question, language="en", k=1)
                    scored.append(found.text == answer)
                    advance(1)
            scores[code] = {
                "accuracy": 100 * float(np.mean(right)),
                "shuffled_pictures": 100 * float(np.mean(blind)),
            }
            print(code, scores[code], flush=True)
    best = 100 * float(np.mean([answer == common for _, _, answer in held_out]))
    figures = {
        "questions": len(held_out),
        "pictures": len({picture for picture, _, _ in held_out}),
        "best_answer": common,
        "best_answer_accuracy": best,
        "languages": scores,
    }
    write_results("reader_languages", figures, options.out)


def read_questions(data: Path, nouns: dict[str, Any]) -> tuple[list[tuple[str, str, str]], str]:
    """Return the picture, noun and colour of held-out questions, and the commonest other colour."""
    recipe = open_recipe("polyglance-reader").settings
    tested = {
        json.loads(line)["image"].rpartition("/")[2]
        for corpus in recipe.question_tests
        for line in (data / corpus.manifest).read_text(encoding="utf-8").splitlines()
    }
    held_out, known = [], Counter[str]()
    with lzma.open(data / "more" / "coco-questions.jsonl.xz", "rt", encoding="utf-8") as file:
        for line in file:
            record = json.loads(line)
            name = record["image"].rpartition("/")[2]
            found = _ASKED.fullmatch(record["question"].strip())
            if found is None or found[1] not in nouns or name in tested:
                continue
            if not (data / "coco" / record["image"]).exists():  # nor was it trained on
                continue
            if hash_share(name) >= recipe.answering.held_out:
                known[record["answer"]] += 1
            else:
                held_out.append((f"coco/{record['image']}", found[1], record["answer"]))
    return held_out, known.most_common(1)[0][0]


if __name__ == "__main__":
    main()
