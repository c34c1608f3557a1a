from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from polyglance.cli import app
from polyglance.errors import PolyglanceError
from polyglance.evaluation.word_search import average_precision, evaluate_word_search
from polyglance.records import Record, write_manifest

PICTURES = {"1.jpg": ("dog", "person"), "2.jpg": ("cat",), "3.jpg": ("dog",), "4.jpg": ()}
AXES = {"dog": 0, "Hund": 0, "cat": 1, "person": 2, "Person": 2}


class WordEncoder:
    """Knows a few words; German "Katze" it takes for a dog."""

    name, width = "words", 4

    def encode_texts(self, texts: Sequence[str], *, language: str | None = None) -> Any:
        return np.eye(4, dtype=np.float32)[[AXES.get(text, 0) for text in texts]]

    def encode_pictures(self, pictures: Sequence[Path]) -> Any:
        shown = [PICTURES[path.name] for path in pictures]
        return np.array([[float(name in one) for name in ("dog", "cat", "person", "")]
                         for one in shown], np.float32)  # fmt: skip


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    path = tmp_path / "labelled.jsonl"
    write_manifest(path, [Record(image=name, labels=some) for name, some in PICTURES.items()])
    return path


def test_average_precision_equals_a_loop() -> None:
    generator = np.random.default_rng(0)
    scores = generator.integers(0, 9, (20, 30)).astype(np.float32)  # many ties
    relevant = generator.random((20, 30)) < 0.2
    relevant[:, 0] = True
    for row, value in enumerate(average_precision(scores, relevant)):
        pairs = sorted(zip(scores[row], relevant[row], strict=True), key=lambda p: (-p[0], p[1]))
        found, precisions = 0, []
        for rank, (_, is_relevant) in enumerate(pairs, 1):
            if is_relevant:
                found += 1
                precisions.append(found / rank)
        assert value == pytest.approx(sum(precisions) / found)


def test_names_of_classes_are_searched_in_each_language(manifest: Path) -> None:
    result = evaluate_word_search(WordEncoder(), manifest, languages=("en", "de"), quiet=True)  # type: ignore[arg-type]
    assert result.pictures == 3  # the one without labels is left out
    assert result.languages["en"] == {"person": 100, "cat": 100, "dog": 100}
    # Both dogs come before the cat.
    assert result.languages["de"] == pytest.approx({"person": 100, "cat": 100 / 3, "dog": 100})
    assert result.share_of_english == pytest.approx({"en": 1, "de": (200 + 100 / 3) / 300})


def test_word_search_from_the_command_line(
    manifest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("polyglance.encoders.load", lambda *_, **__: WordEncoder())
    arguments = ["evaluate", str(manifest), "--word-search", "--languages", "en,de", "-q"]
    result = CliRunner().invoke(app, [*arguments, "--json", str(tmp_path / "result.json")])
    assert result.exit_code == 0, result.output
    lines = [line.split() for line in result.output.splitlines()]
    rows = [line for line in lines if line[:1] in (["en"], ["de"])]
    assert [row[:4] for row in rows] == [["en", "100.0", "100", "%"], ["de", "77.8", "78", "%"]]
    assert rows[1][4] == "cat,"  # the worst first
    summary = json.loads((tmp_path / "result.json").read_text())["summary"]
    assert summary["mAP"] == pytest.approx({"en": 100, "de": 700 / 9})
    refused = CliRunner().invoke(app, [*arguments, "--split", "test"])
    assert "leave the other files and options out" in str(refused.exception or refused.output)


def test_unlabelled_pictures_and_unknown_labels_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "labelled.jsonl"
    write_manifest(path, [Record(image="1.jpg", captions={"en": ("a dog",)})])
    with pytest.raises(PolyglanceError, match="no picture has labels"):
        evaluate_word_search(WordEncoder(), path)  # type: ignore[arg-type]
    write_manifest(path, [Record(image="1.jpg", labels=("unicorn",))])
    with pytest.raises(PolyglanceError, match="'unicorn' is none of COCO's classes"):
        evaluate_word_search(WordEncoder(), path)  # type: ignore[arg-type]
