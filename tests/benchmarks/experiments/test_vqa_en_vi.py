"""Question answering as a benchmark: what is written down, and that its command runs."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from polyglance.records import Question
from toy_questions import make_question_data

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
DOCS = BENCHMARKS.parent / "docs"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    from benchmarks.experiments import vqa_en_vi

    return vqa_en_vi


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    from benchmarks.reports import vqa_page

    return vqa_page


def copied(name: str, folder: Path) -> Path:
    return Path(shutil.copy(DOCS / name, folder / name))


def asked(text: str, *answers: str, kind: str = "other", language: str = "en") -> Question:
    return Question(text, language, answers, kind)


def reported(above: float) -> dict[str, Any]:
    """What a run says of two languages."""
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


def answered(*right: bool) -> list[tuple[Question, str]]:
    """Two questions a language, answered right or wrong."""
    ten = ("red",) * 9 + ("pink | rose",)
    questions = [
        asked("What colour is it?", *ten),
        asked("How many?", *("2",) * 10, kind="number"),
        asked("màu gì", "màu đỏ", kind="color", language="vi"),
        asked("màu gì vậy", "màu đen", kind="color", language="vi"),
    ]
    answers = ["red", "2", "màu đỏ", "màu đen"]
    return [
        (question, text if is_right else "màu tía")
        for question, text, is_right in zip(questions, answers, right, strict=True)
    ]


@pytest.fixture
def figures(script: ModuleType) -> dict[str, Any]:
    given = [answered(True, True, True, False), answered(True, False, True, True)]
    return {
        "date": "2031-05-06", "commit": "abc1234", "hardware": "an abacus", "runs_at_once": 2,
        "seeds": [0, 1], "changed_everywhere": ["batch=64"],
        **script.summary([reported(9.0), reported(8.0)], given),
        "examples": script.examples(given[0]),
    }  # fmt: skip


def test_figures_are_of_what_was_answered(figures: dict[str, Any]) -> None:
    english, vietnamese = figures["test"]["en"], figures["test"]["vi"]
    assert english["model"]["score"]["seeds"] == [100.0, 50.0]
    assert english["model"]["of number"]["mean"] == 50
    assert english["questions_of"] == {"of number": 1, "of other": 1}
    assert vietnamese["model"]["accuracy"]["seeds"] == [50.0, 100.0]
    # One of two answers of two words is right, the other shares one of its words.
    assert 50 < vietnamese["model"]["sentence_bleu"]["seeds"][0] < 100
    assert vietnamese["above_baseline"]["mean"] == 7.5
    assert figures["best_steps"] == [2000, 2000]


def test_the_page_and_the_card_are_filled_again_and_again(
    figures: dict[str, Any], page: ModuleType, tmp_path: Path
) -> None:
    document = copied("results-vqa.md", tmp_path)
    page.fill(figures, document)
    once = document.read_text(encoding="utf-8")
    assert "Not measured yet" not in once
    assert "| English | 2 | VQA score | 36.7 | 75.0 ± 35.4 | +38.3 |" in once
    assert "| Vietnamese | 2 | BLEU of single answers | – |" in once
    assert "| Vietnamese | color | 2 | 20.0 | 75.0 ± 35.4 | +55.0 |" in once
    assert "| en | other | What colour is it? | red, pink / rose | red | 1.0 |" in once
    assert "| vi | color | màu gì vậy | màu đen | màu tía | 0.0 |" in once
    assert "English: at least 8 points above the best answer for each type of question: yes" in once
    assert "Vietnamese: at least 8 points" in once
    assert "question: no, by the mean over seeds (+7.5 ± 0.7; +8.0, +7.0)." in once
    assert "2 seeds, 10,000 training questions, 3,000 steps in 1.5 minutes" in once
    assert "2 in English, 4 in Vietnamese. Changed in the recipe: `batch=64`." in once
    page.fill(figures, document)
    assert document.read_text(encoding="utf-8") == once

    card = copied("vqa-model-card.md", tmp_path)
    page.fill_card(figures, card)
    text = card.read_text(encoding="utf-8")
    assert "Not measured yet" not in text
    assert "It can give 728 answers: 634 in English, 94 in Vietnamese." in text


def test_examples_are_the_first_of_each_type(script: ModuleType) -> None:
    many = [
        (asked(f"{kind} {number}", "a", kind=kind, language=code), "b")
        for number in range(5)
        for kind in ("yes/no", "other")
        for code in ("vi", "en")
    ]
    found = script.examples(many)
    assert [(one["language"], one["question"]) for one in found] == [
        (code, f"{kind} {number}")
        for code in ("en", "vi")
        for kind in ("other", "yes/no")
        for number in range(3)
    ]


class Command:
    """The benchmark as a command, on the toy world's questions."""

    def __init__(self, script: ModuleType, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.script, self.folder, self.monkeypatch = script, folder, monkeypatch
        monkeypatch.setenv("POLYGLANCE_COMMIT", "abc1234")
        make_question_data(folder / "data", {"train": 20, "test": 6})
        for name in ("results-vqa.md", "vqa-model-card.md"):
            copied(name, folder)

    def __call__(self, *more: object) -> Any:
        folder, data = self.folder, self.folder / "data"
        changes = (
            "towers=null", f"encoder={data / 'encoder'}", f"eyes.backbone={data / 'eyes'}",
            "objects=null", "eyes.size=64", "eyes.views=2", "train=[{manifest: train.jsonl}]",
            "test=[{manifest: test.jsonl}]", "answers.least=1", "held_out=0.1", "batch=16",
            "loop.steps=2", "loop.validate_every=0", "loop.precision=float32",
        )  # fmt: skip
        options = [
            "--data", data, "--runs", folder / "runs", "--out", folder,
            "--document", folder / "results-vqa.md", "--card", folder / "vqa-model-card.md",
            *(part for change in changes for part in ("--set", change)), *more,
        ]  # fmt: skip
        self.monkeypatch.setattr(sys, "argv", ["vqa_en_vi.py", *map(str, options)])
        self.script.main()
        return json.loads((folder / "vqa_en_vi.json").read_text(encoding="utf-8"))

    def written(self) -> dict[str, int]:
        """When the report of each seed was written."""
        runs = self.folder / "runs"
        return {path.parts[-2]: path.stat().st_mtime_ns for path in runs.rglob("report.json")}


def test_the_command_runs_and_resumes(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = Command(script, tmp_path, monkeypatch)
    found = command("--seeds", 0, 1)
    # Figures are of the answers that the runs left, which are those that they measured.
    for seed in (0, 1):
        report = json.loads(
            (tmp_path / "runs" / "answering" / str(seed) / "report.json").read_text()
        )
        for language in ("en", "de"):
            told = found["test"][language]["model"]
            for name, value in report["test"][language]["model"].items():
                assert told[name]["seeds"][seed] == pytest.approx(value)
    assert found["examples"]
    assert "| de | number |" in (tmp_path / "results-vqa.md").read_text(encoding="utf-8")
    assert "Not measured yet" not in (tmp_path / "vqa-model-card.md").read_text(encoding="utf-8")

    # Read on another machine, they are still of the one that trained them.
    making = tmp_path / "runs" / "answering" / "0" / "made-from.json"
    noted = json.loads(making.read_text(encoding="utf-8"))
    elsewhere = {"date": "2026-01-01", "commit": "abc1234", "hardware": "far away"}
    making.write_text(json.dumps(noted | elsewhere), encoding="utf-8")
    before = command.written()
    for path in (tmp_path / "runs").rglob("*.safetensors"):
        path.unlink()
    again = command("--seeds", 0, 1)
    assert again["test"] == found["test"]
    assert elsewhere.items() <= again.items()
    assert command.written() == before
    (tmp_path / "runs" / "answering" / "1" / "answers.jsonl").unlink()
    command("--seeds", 0, 1)
    assert command.written()["0"] == before["0"]
    assert command.written()["1"] != before["1"]
    before = command.written()
    command("--seeds", 0, "--set", "new_rate=2")
    after = command.written()
    assert after["0"] != before["0"]
    assert after["1"] == before["1"]
