"""Visual question answering: its results and pages, and the command on toy data."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.experiments import vqa_en_vi
from benchmarks.reports import vqa_page as page
from benchmarks.results_io import DOCS
from helpers.toy_questions import write_question_data
from polyglance.records import Question


def copy_page(name: str, folder: Path) -> Path:
    return Path(shutil.copy(DOCS / name, folder / name))


def question(text: str, *answers: str, kind: str = "other", language: str = "en") -> Question:
    return Question(text, language, answers, kind)


def report(above: float) -> dict[str, Any]:
    """The report of a run, with two languages."""
    return {
        "answers": {"en": 634, "vi": 94},
        "questions": 10_000,
        "training": {"seconds": 90.0, "steps": 3000, "best_step": 2000, "best_score": 44.0},
        "test": {
            "en": {
                "questions": 2,
                "baseline": {"score": 36.7, "of other": 10.0, "of number": 30.0, "first_words": 2},
                "above_baseline": above,
            },
            "vi": {
                "questions": 2,
                "baseline": {"accuracy": 21.1, "of color": 20.0, "first_words": 4},
                "above_baseline": above - 1,
            },
        },
    }


def question_answers(*right: bool) -> list[tuple[Question, str]]:
    """Two questions per language, answered right or wrong."""
    ten = ("red",) * 9 + ("pink | rose",)
    questions = [
        question("What colour is it?", *ten),
        question("How many?", *("2",) * 10, kind="number"),
        question("màu gì", "màu đỏ", kind="color", language="vi"),
        question("màu gì vậy", "màu đen", kind="color", language="vi"),
    ]
    answers = ["red", "2", "màu đỏ", "màu đen"]
    return [
        (item, text if is_right else "màu tía")
        for item, text, is_right in zip(questions, answers, right, strict=True)
    ]


@pytest.fixture
def figures() -> dict[str, Any]:
    given = [question_answers(True, True, True, False), question_answers(True, False, True, True)]
    return {
        "date": "2031-05-06", "commit": "abc1234", "hardware": "an abacus", "runs_at_once": 2,
        "seeds": [0, 1], "common_changes": ["batch=64"],
        **vqa_en_vi.summary([report(9.0), report(8.0)], given),
        "examples": vqa_en_vi.examples(given[0]),
    }  # fmt: skip


def test_figures_are_of_what_was_question_answers(figures: dict[str, Any]) -> None:
    english, vietnamese = figures["test"]["en"], figures["test"]["vi"]
    assert english["model"]["score"]["values"] == [100.0, 50.0]
    assert english["model"]["of number"]["mean"] == 50
    assert english["questions_by_type"] == {"of number": 1, "of other": 1}
    assert vietnamese["model"]["accuracy"]["values"] == [50.0, 100.0]
    # One of two answers of two words is right, the other shares one of its words.
    assert 50 < vietnamese["model"]["sentence_bleu"]["values"][0] < 100
    assert vietnamese["above_baseline"]["mean"] == 7.5
    assert figures["best_steps"] == [2000, 2000]


def test_filling_the_page_twice_changes_nothing(figures: dict[str, Any], tmp_path: Path) -> None:
    document = copy_page("results-vqa.md", tmp_path)
    page.fill(figures, document)
    once = document.read_text(encoding="utf-8")
    assert "Not measured yet" not in once
    assert "| English | 2 | VQA score | 36.7 | 75.0 ± 35.4 | +38.3 |" in once
    assert "| Vietnamese | 2 | BLEU of single answers | – |" in once
    assert "| Vietnamese | color | 2 | 20.0 | 75.0 ± 35.4 | +55.0 |" in once
    assert "| en | other | What colour is it? | red, pink / rose | red | 1.0 |" in once
    assert "| vi | color | màu gì vậy | màu đen | màu tía | 0.0 |" in once
    assert "English: at least 8 points above the baseline: not decided (+8.5 [" in once
    assert "Vietnamese: at least 8 points" in once
    assert "baseline: not decided (+7.5 [+1.1, +13.9], p 0.042; +8.0, +7.0; above the" in once
    assert "2 seeds, 10,000 training questions, 3,000 steps in 1.5 minutes" in once
    assert "2 in English, 4 in Vietnamese. Changes to the recipe: `batch=64`." in once
    page.fill(figures, document)
    assert document.read_text(encoding="utf-8") == once

    card = copy_page("vqa-model-card.md", tmp_path)
    page.fill_card(figures, card)
    text = card.read_text(encoding="utf-8")
    assert "Not measured yet" not in text
    assert "It can give 728 answers: 634 in English, 94 in Vietnamese." in text


def test_examples_are_the_first_of_each_type() -> None:
    many = [
        (question(f"{kind} {number}", "a", kind=kind, language=code), "b")
        for number in range(5)
        for kind in ("yes/no", "other")
        for code in ("vi", "en")
    ]
    found = vqa_en_vi.examples(many)
    assert [(one["language"], one["question"]) for one in found] == [
        (code, f"{kind} {number}")
        for code in ("en", "vi")
        for kind in ("other", "yes/no")
        for number in range(3)
    ]


class Command:
    """The benchmark's command line on toy questions."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.monkeypatch = folder, monkeypatch
        monkeypatch.setenv("POLYGLANCE_COMMIT", "abc1234")
        write_question_data(folder / "data", {"train": 20, "test": 6})
        for name in ("results-vqa.md", "vqa-model-card.md"):
            copy_page(name, folder)

    def __call__(self, *more: object) -> Any:
        folder, data = self.folder, self.folder / "data"
        changes = (
            "init_from_dual_encoder=null", f"encoder={data / 'encoder'}",
            f"image_backbone.backbone={data / 'image_backbone'}", "object_tags=null",
            "image_backbone.size=64", "image_backbone.views=2", "train=[{manifest: train.jsonl}]",
            "test=[{manifest: test.jsonl}]", "answers.min_score=1", "held_out=0.1", "batch=16",
            "loop.steps=2", "loop.validate_every=0", "loop.precision=float32",
        )  # fmt: skip
        options = [
            "--data", data, "--runs", folder / "runs", "--out", folder,
            "--document", folder / "results-vqa.md", "--card", folder / "vqa-model-card.md",
            *(part for change in changes for part in ("--set", change)), *more,
        ]  # fmt: skip
        self.monkeypatch.setattr(sys, "argv", ["vqa_en_vi.py", *map(str, options)])
        vqa_en_vi.main()
        return json.loads((folder / "vqa_en_vi.json").read_text(encoding="utf-8"))

    def report_times(self) -> dict[str, int]:
        """Return when the report of each seed was written."""
        runs = self.folder / "runs"
        return {path.parts[-2]: path.stat().st_mtime_ns for path in runs.rglob("report.json")}


def test_the_command_trains_each_seed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = Command(tmp_path, monkeypatch)
    found = command("--seeds", 0, 1)
    # Scores from the answers on disk are those that the runs reported.
    for seed in (0, 1):
        report = json.loads(
            (tmp_path / "runs" / "vqa-en-vi" / str(seed) / "report.json").read_text()
        )
        for language in ("en", "de"):
            scores = found["test"][language]["model"]
            for name, value in report["test"][language]["model"].items():
                assert scores[name]["values"][seed] == pytest.approx(value)
    assert found["examples"]
    assert "| de | number |" in (tmp_path / "results-vqa.md").read_text(encoding="utf-8")
    assert "Not measured yet" not in (tmp_path / "vqa-model-card.md").read_text(encoding="utf-8")

    # Evaluated on another machine, results still name the one that trained.
    provenance = tmp_path / "runs" / "vqa-en-vi" / "0" / "provenance.json"
    written = json.loads(provenance.read_text(encoding="utf-8"))
    elsewhere = {"date": "2026-01-01", "commit": "abc1234", "hardware": "far away"}
    provenance.write_text(json.dumps(written | elsewhere), encoding="utf-8")
    before = command.report_times()
    for path in (tmp_path / "runs").rglob("*.safetensors"):
        path.unlink()
    again = command("--seeds", 0, 1)
    assert again["test"] == found["test"]
    assert elsewhere.items() <= again.items()
    assert command.report_times() == before
    (tmp_path / "runs" / "vqa-en-vi" / "1" / "answers.jsonl").unlink()
    command("--seeds", 0, 1)
    assert command.report_times()["0"] == before["0"]
    assert command.report_times()["1"] != before["1"]
    before = command.report_times()
    command("--seeds", 0, "--set", "head_lr_multiplier=2")
    after = command.report_times()
    assert after["0"] != before["0"]
    assert after["1"] == before["1"]
