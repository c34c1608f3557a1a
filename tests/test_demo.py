from __future__ import annotations

import io
import subprocess
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

from polyglance import demo
from polyglance.data.toy import LANGUAGES, Picture, ToyWorld
from polyglance.data.toy.items import Pixels
from polyglance.demo import ToyModel, make_toy_model, search, train_toy_model
from polyglance.evaluation.retrieval import evaluate_retrieval
from polyglance.records import Record


@dataclass(frozen=True)
class Mistold:
    """A picture with the captions of another."""

    seen: Picture
    told: Picture

    def pixels(self, size: int) -> Pixels:
        return self.seen.pixels(size)

    def record(self) -> Record:
        return self.told.record()


def found_in_ten(toy: ToyModel, gallery: Sequence[Picture]) -> float:
    """Text-to-image R@10, the mean of two languages."""
    pictures = toy.encode_pictures(gallery)
    recalls = []
    for language in ("en", "de"):
        texts = toy.encode_texts([picture.captions[language][0].text for picture in gallery])
        result = evaluate_retrieval(pictures, texts, np.arange(len(gallery)))
        recalls.append(result.text_to_image.recalls[10])
    return float(np.mean(recalls))


def test_the_toy_model_learns_what_it_is_told_and_nothing_else() -> None:
    world = ToyWorld(seed=0, languages=("en", "de"))
    pictures = list(world.pictures(600, "train"))
    gallery = list(world.pictures(100, "test"))  # combinations that training never showed
    others = pictures[7:] + pictures[:7]
    mistold = [Mistold(seen, told) for seen, told in zip(pictures, others, strict=True)]
    recalls = []
    for told in (pictures, mistold):
        toy = make_toy_model(pictures)
        train_toy_model(toy, told, steps=80, batch=48, quiet=True)
        recalls.append(found_in_ten(toy, gallery))
    right, wrong = recalls
    assert right > 35  # by chance: 10
    assert wrong < 20


def test_vectors_are_of_unit_length_and_reading_them_changes_nothing() -> None:
    pictures = list(ToyWorld(seed=1).pictures(20))
    toy = make_toy_model(pictures)
    toy.model.train()
    before = {name: value.clone() for name, value in toy.model.state_dict().items()}
    vectors = toy.encode_pictures(pictures)
    texts = toy.encode_texts([pictures[0].captions["ja"][0].text, "?"])
    for table in (vectors, texts):
        assert np.linalg.norm(table, axis=1) == pytest.approx(1, abs=1e-5)
    assert np.array_equal(vectors, toy.encode_pictures(pictures))
    for name, value in toy.model.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_answers_are_best_first_and_marked_by_what_was_meant() -> None:
    gallery = list(ToyWorld(seed=2).pictures(30, "test"))
    toy = make_toy_model(gallery)
    answers = search(toy, gallery, hits=len(gallery))
    assert [answer.language for answer in answers] == list(LANGUAGES)
    for number, answer in enumerate(answers):
        scores = [hit.score for hit in answer.hits]
        assert scores == sorted(scores, reverse=True)
        right = {hit.name for hit in answer.hits if hit.right}
        assert gallery[number].captions["en"][0].text in right
        assert len(right) < len(gallery)


def test_the_whole_demo_in_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "TRAINING", 40)
    monkeypatch.setattr(demo, "GALLERY", 12)
    console = Console(width=100, file=io.StringIO(), record=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a first impression has no warnings in it
        demo.run(tmp_path / "out", steps=2, console=console)
    shown = console.export_text()
    for expected in ("Drawing 40 pictures", "2 steps", "Arabic", "Of 12 scenes", "zh", "41.7 %"):
        assert expected in shown
    assert "<img" in (tmp_path / "out" / "sheet.html").read_text(encoding="utf-8")


def test_without_torch_the_demo_names_the_extra() -> None:
    script = (
        "import sys; sys.modules['torch'] = None; sys.argv = ['polyglance', 'demo'];"
        "from polyglance.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 2
    assert "pip install 'polyglance[train]'" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
