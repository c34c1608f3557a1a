"""Evaluate trained cross-encoders on any manifest."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import Result
from typer.testing import CliRunner

from helpers.colour_encoder import ColourEncoder
from helpers.tiny_cross_encoders import (
    save_cross_encoder,
    tiny_m3p,
    tiny_uc2,
    write_colour_images,
    write_colour_parts,
)
from polyglance.cli import app
from polyglance.cross_encoders.model_folder import load_cross_encoder
from polyglance.cross_encoders.rerank import CrossEncoderReranker
from polyglance.evaluation.cross_encoders import evaluate_cross_encoder
from polyglance.models.m3p import M3P
from polyglance.records import Record, write_manifest


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_colour_parts(tmp_path_factory.mktemp("parts"))


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return write_colour_images(tmp_path_factory.mktemp("images"))


@pytest.mark.parametrize("system", ["uc2", "m3p"])
def test_evaluation_equals_a_loop_over_pairs(
    parts: Path, images: list[Path], tmp_path: Path, system: str
) -> None:
    model = tiny_uc2(parts) if system == "uc2" else tiny_m3p(parts)
    if isinstance(model, M3P):
        torch.nn.init.normal_(model.languages.weight)
    folder = save_cross_encoder(tmp_path / "model", parts, model, dual_weight=0.5)
    captions = {
        path: {
            "en": (f"a {path.stem} picture", f"{path.stem} red"),
            "de": (f"picture {path.stem}",),
            "fr": (f"of {path.stem}",),  # M3P has no embedding of it
        }
        for path in images
    }
    records = [Record(image=str(path), captions=own) for path, own in captions.items()]
    manifest = tmp_path / "m.jsonl"
    write_manifest(manifest, records)
    loaded, encoder = load_cross_encoder(folder), ColourEncoder()
    all_pairs = evaluate_cross_encoder(loaded, manifest, quiet=True)
    reranked = evaluate_cross_encoder(loaded, manifest, encoder=encoder, candidates=3, quiet=True)
    assert (all_pairs.similarity, reranked.similarity) == ("all pairs", "re-ranked candidates")

    # Each caption with each image, and the best of three candidates by cosine.
    reranker = CrossEncoderReranker.open(folder)
    encoded = reranker.encode_images(images)
    for language, result in all_pairs.languages.items():
        ranks, reranked_ranks = [], []
        vectors = encoder.encode_pictures(images)
        texts = [text for own in captions.values() for text in own[language]]
        deviation = np.std(vectors @ encoder.encode_texts(texts).T)
        for number, path in enumerate(images):
            for text in captions[path][language]:
                scores = reranker.score(text, encoded, language=language)
                ranks.append(int((scores > scores[number]).sum()))
                cosines = vectors @ encoder.encode_texts([text])[0]
                candidates = np.argsort(-cosines)[:3]
                total = scores + 0.5 * cosines / deviation
                missed = number not in candidates
                rank = int((total[candidates] > total[number]).sum())
                reranked_ranks.append(99 if missed else rank)
        recalls = result.text_to_image.recalls
        assert len(ranks) == result.text_to_image.queries
        assert recalls[1] == pytest.approx(100 * np.mean(np.array(ranks) < 1))
        assert recalls[5] == pytest.approx(100 * np.mean(np.array(ranks) < 5))
        recalls = reranked.languages[language].text_to_image.recalls
        assert recalls[1] == pytest.approx(100 * np.mean(np.array(reranked_ranks) < 1))


def test_command_evaluates_cross_encoders_and_refuses_useless_options(
    parts: Path, images: list[Path], tmp_path: Path
) -> None:
    folder = save_cross_encoder(tmp_path / "model", parts, tiny_uc2(parts))
    records = [Record(image=str(p), captions={"en": (f"a {p.stem} picture",)}) for p in images]
    write_manifest(tmp_path / "m.jsonl", records)

    def invoke(*options: object) -> Result:
        return CliRunner().invoke(app, ["evaluate", str(tmp_path / "m.jsonl"), *map(str, options)])

    result = invoke("--cross-encoder", folder, "--json", tmp_path / "results.json", "-q")
    assert result.exit_code == 0, result.output
    written = json.loads((tmp_path / "results.json").read_text())
    assert (written["model"], written["similarity"]) == ("model", "all pairs")
    assert "needs a model that re-ranks: add --cross-encoder" in str(
        invoke("--candidates", 3).exception
    )
    both = invoke("--cross-encoder", folder, "--encoder", "polyglance-small")
    assert "add --candidates to re-rank the encoder's top-k, or leave --encoder out" in str(
        both.exception
    )
    result = invoke("--cross-encoder", folder, "--candidates", 3, "-q")
    assert result.exit_code == 0, result.output
