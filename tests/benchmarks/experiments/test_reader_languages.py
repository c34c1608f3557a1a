"""The questions that are asked in other languages."""

from __future__ import annotations

import json
import lzma
from pathlib import Path

from benchmarks.experiments.reader_languages import QUESTIONS, read_questions
from polyglance.recipes.vqa.questions import hash_share


def test_every_noun_is_written_in_every_language() -> None:
    written = json.loads(QUESTIONS.read_text(encoding="utf-8"))
    assert len(written["templates"]) >= 10
    for noun, names in written["nouns"].items():
        assert len(names) == len(written["templates"]), noun
        assert all(name.strip() == name and name for name in names)
    assert all(template.count("{}") == 1 for template in written["templates"].values())


def test_only_held_out_pictures_are_asked_about(tmp_path: Path) -> None:
    for name in ("vqa", "more", "coco/images"):
        (tmp_path / name).mkdir(parents=True)
    lines = []
    for number in range(400):
        name = f"{number:012}.webp"
        (tmp_path / "coco" / "images" / name).touch()
        question = "what is the color of the cat?" if number % 2 else "what is on the mat?"
        answer = "white" if number % 3 else "black"
        lines.append({"image": f"images/{name}", "question": question, "answer": answer})
    held = [line for line in lines if hash_share(line["image"].rpartition("/")[2]) < 0.02]
    asked = [line for line in held if "color" in line["question"]]
    tested, *others = asked
    assert others
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (tmp_path / "more" / "coco-questions.jsonl.xz").write_bytes(lzma.compress(text.encode()))
    for code in ("en", "vi"):
        (tmp_path / "vqa" / f"{code}-test.jsonl").write_text(json.dumps(tested) + "\n")
    found, common = read_questions(tmp_path, {"cat": ()})
    assert found == [(f"coco/{line['image']}", "cat", line["answer"]) for line in others]
    assert common == "white"
    (tmp_path / "coco" / others[0]["image"]).unlink()
    assert len(read_questions(tmp_path, {"cat": ()})[0]) == len(others) - 1
